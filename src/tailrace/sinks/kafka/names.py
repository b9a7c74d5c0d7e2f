"""The names of a sink's topics."""

from __future__ import annotations

from tailrace.config.kafka import KafkaSettings
from tailrace.formats.connect.topics import KeyField, TargetNames, Topics


def topics_of(settings: KafkaSettings, targets: TargetNames, *, messages: bool) -> Topics:
    """The names of topics.

    Args:
        settings: the sink's settings.
        targets: names the tables' targets.
        messages: whether the source has logical messages.
    """
    routing = settings.topic_routing
    has_field = routing is not None and settings.key_enforce_uniqueness
    key = KeyField(settings.key_field_name, settings.key_routing) if has_field else None
    return Topics(settings.topic_prefix, targets, messages, routing, key)

"""Redis' streams: their entries, and a row of the contract suite."""

from __future__ import annotations

import uuid
from typing import Any

from tailrace.config.message_sinks import RedisSettings
from tailrace.sinks.messages.sink import MessageSink, message_sink
from tailrace.sinks.redis.client import RedisAccess
from tailrace.sinks.redis.sink import RedisStreams
from tests.support.sinks.case import Change, SinkCase
from tests.support.sinks.kafka import changes_of


def entries(settings: RedisSettings, stream: str) -> list[dict[str, bytes]]:
    """Every entry of a stream, in its order."""
    with RedisAccess.of(settings).client() as client:
        return [{k.decode(): v for k, v in fields.items()} for _, fields in client.xrange(stream)]


def redis(request: Any) -> SinkCase:
    server = request.getfixturevalue("redis")
    prefix = f"t{uuid.uuid4().hex[:8]}"
    settings = RedisSettings(
        url=server.url, topic_prefix=prefix, parallelism=2, decimal_handling_mode="string"
    )

    def changes(name: str) -> list[Change]:
        return list(changes_of(e["value"] for e in entries(settings, f"{prefix}.{name}")))

    def drop(name: str) -> None:
        with RedisAccess.of(settings).client() as client:
            client.delete(f"{prefix}.{name}")

    def open_(router: Any) -> MessageSink:
        return message_sink(settings, router, RedisStreams(settings, router), "mysql")

    return SinkCase(open_, drop, changes=changes)

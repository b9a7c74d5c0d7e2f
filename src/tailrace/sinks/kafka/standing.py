"""What a stream has written to Kafka: its markers, which are in the same transactions as the messages."""

from __future__ import annotations

from tailrace.config.sinks import KafkaSettings
from tailrace.sinks.base import StreamId
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.cluster import Cluster
from tailrace.sinks.kafka.markers import marker_topic, read_markers


def newest_batch(settings: KafkaSettings, stream: StreamId) -> int | None:
    """The newest batch that a writer has committed; None: none yet."""
    client = Client(settings.bootstrap_servers, settings.properties)
    topic = marker_topic(f"{stream.pipeline}.{settings.topic_prefix}")
    if topic not in Cluster(client).names():
        return None
    markers = read_markers(client, topic).last.values()
    return max(
        (marker.batch for marker in markers if marker.stream == stream.query and marker.batch >= 0),
        default=None,
    )

"""What a stream has written to Kafka: its markers, which are in the same transactions as the messages."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.config.kafka import KafkaSettings
from tailrace.sinks.base import StreamId
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.cluster import Cluster, Topic
from tailrace.sinks.kafka.markers import marker_topic, read_markers
from tailrace.sinks.kafka.quarantine import clear, counts, quarantine_topic, quarantined
from tailrace.sinks.quarantine import QuarantinedRow


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


@dataclass(frozen=True)
class KafkaQuarantine:
    """See `SinkQuarantine`.

    Args:
        settings: the sink's.
        stream: the stream's id.
    """

    settings: KafkaSettings
    stream: str

    def rows(self) -> list[QuarantinedRow]:
        """See `SinkQuarantine`."""
        client, topic = self._found()
        found = [] if topic is None else quarantined(client, topic, self.stream)
        return sorted(found, key=lambda row: (row.table, row.batch))

    def clear(self, table: str) -> int:
        """See `SinkQuarantine`. The messages stay in the topic; they are not shown or counted any more."""
        client, topic = self._found()
        if topic is None:
            return 0
        count = counts(client, topic, self.stream)[table]
        if count:
            clear(client, topic, self.stream, table)
        return count

    def _found(self) -> tuple[Client, Topic | None]:
        client = Client(self.settings.bootstrap_servers, self.settings.properties)
        name = quarantine_topic(self.settings)
        cluster = Cluster(client)
        cluster.connect()
        return client, cluster.found([name]).get(name)

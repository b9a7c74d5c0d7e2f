"""The driver's view of a stream in Kafka: which writers have written which batch, and who may write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from tailrace.errors import StateError
from tailrace.sinks.base import StreamId
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.failure import sink_error
from tailrace.sinks.kafka.librdkafka import KafkaError, Producer
from tailrace.sinks.kafka.markers import (
    OWNER,
    SIDE_TOPICS,
    AnnouncedSchema,
    Marker,
    Record,
    marker_topic,
    of_same_prefix,
    read_markers,
    record_messages,
)

_TIMEOUT_S = 90.0
#: The settings that divide a batch among its writers, for people.
DIVIDING = "`message-key-columns`, `partition-by` and `outbox`"
#: Producers of former writers fenced at the same time.
_FENCED_AT_ONCE = 8
#: Batches between two reads of new markers: a producer that takes over later has less to read.
_READ_EVERY = 1000


class KafkaStream:
    """The state of a stream's batches, stored in the marker topic and read from it when a run begins.

    Args:
        client: how to reach the cluster.
        stream: the stream.
        prefix: the topic prefix: a pipeline may have several Kafka sinks.
        writers: the largest number of writers of new batches.
        is_transactional: whether transactions and markers are used.
        division: stands for the settings that divide a batch among its writers; empty: by the tables' keys.
    """

    def __init__(
        self,
        client: Client,
        stream: StreamId,
        prefix: str,
        writers: int,
        *,
        is_transactional: bool,
        division: str = "",
    ) -> None:
        self._client = client
        self._id = stream
        self._writers = writers
        self._division = division
        self._last: dict[str, Marker] = {}
        self._batches = 0
        self.is_transactional = is_transactional
        #: Prefix of transactional ids.
        self.name = f"{stream.pipeline}.{prefix}"
        self._prefix = prefix
        self.topic = marker_topic(self.name)
        #: Offset of the first unknown record.
        self.end = 0
        #: The token of the producer that wrote last, by writer.
        self.tokens: dict[int, str] = {}
        #: Fingerprints of the announced schemas, by table.
        self.schemas: dict[str, str] = {}

    def open(self, topics: Iterable[str] = ()) -> None:
        """Fence the writers of earlier runs, and read what is written.

        So a batch that they began is either visible now or never will be: it may have another number of
        writers when it comes again.

        Args:
            topics: the names of all topics.

        Raises:
            StateError: another stream writes under the pipeline's name, or under the topic prefix.
            SinkError: Kafka does not allow it.
        """
        if not self.is_transactional:
            return
        try:
            producer = self._producer(OWNER)
            try:
                self._producer(SIDE_TOPICS).close()
                self._own(producer, topics)
            finally:
                producer.close()
        except KafkaError as error:
            raise sink_error(error.name, error.text, error.topic) from error

    def _own(self, producer: Producer, topics: Iterable[str]) -> None:
        known = read_markers(self._client, self.topic)
        owner = known.last.get(OWNER)
        if owner is not None and owner.stream != self._id.query:
            raise StateError(
                f"what pipeline `{self._id.pipeline}` wrote to Kafka is not this stream's",
                f"topic `{self.topic}` belongs to stream {owner.stream}, this one is {self._id.query}",
                "continue with that stream's checkpoint, or give the pipeline another name and topic prefix;"
                f" to append a new snapshot to the existing topics, delete topic `{self.topic}`",
                code="TR-6101",
            )
        if owner is None:
            self._require_alone(topics)
        else:
            with ThreadPoolExecutor(_FENCED_AT_ONCE) as pool:
                for fenced in pool.map(self._producer, map(str, range(owner.writers))):
                    fenced.close()
        if owner is None or owner.writers != self._writers:
            self._write(producer, Record(OWNER, Marker(self._id.query, -1, self._writers)))
        known = read_markers(self._client, self.topic)
        self._last, self.schemas, self.end = dict(known.last), dict(known.schemas), known.end

    def _require_alone(self, topics: Iterable[str]) -> None:
        """Raise if another pipeline writes under the topic prefix: the topics would have the same names."""
        for topic in of_same_prefix(topics, self.topic, self._prefix):
            owner = read_markers(self._client, topic).last.get(OWNER)
            if owner is not None and owner.stream != self._id.query:
                raise StateError(
                    f"another pipeline writes to topics with prefix `{self._prefix}`",
                    f"topic `{topic}` belongs to stream {owner.stream}, this one is {self._id.query}",
                    f"set another `topic-prefix`; if that pipeline is gone, delete topic `{topic}`",
                    code="TR-6101",
                )

    def missing(self, batch: int, most: int) -> tuple[int, list[int]]:
        """The number of writers of batch number `batch`, and those that have not written it.

        Args:
            batch: its number.
            most: how many writers it has at most if none of them has written it.

        Raises:
            StateError: some of them have, with settings that divide it otherwise.
        """
        markers = {key: marker for key, marker in self._last.items() if key not in (OWNER, SIDE_TOPICS)}
        begun = [marker for marker in markers.values() if marker.batch == batch]
        writers = begun[0].writers if begun else min(self._writers, most)
        last = [markers.get(str(writer)) for writer in range(writers)]
        missing = [w for w, marker in enumerate(last) if marker is None or marker.batch < batch]
        if begun and missing and begun[0].division != self._division:
            raise StateError(
                f"batch {batch} was begun with other settings of the Kafka sink",
                f"{writers - len(missing)} of {writers} writers have written it; which of them has which "
                f"changes depends on {DIVIDING}",
                "go on with the settings that the sink had, until the batch is written; then change them",
                code="TR-6110",
            )
        return writers, missing

    def marker(self, batch: int, writers: int) -> Marker:
        """The marker that a writer writes with its share of batch number `batch`."""
        return Marker(self._id.query, batch, writers, self._division)

    def done(self, batch: int, writers: int) -> None:
        """Record that all writers have written batch number `batch`."""
        if not self.is_transactional:
            return
        self._last |= {str(w): self.marker(batch, writers) for w in range(writers)}
        self._batches += 1
        if self._batches % _READ_EVERY == 0:
            self.end = read_markers(self._client, self.topic, self.end).end

    # ---- side topics ---------------------------------------------------------------------------------

    def has_side_topics(self, batch: int) -> bool:
        """Whether the side topics of batch number `batch` are written."""
        marker = self._last.get(SIDE_TOPICS)
        return marker is not None and marker.batch >= batch

    def side_records(self, batch: int, schemas: Mapping[str, str]) -> list[Record]:
        """The driver's records for a batch that announces `schemas`."""
        announced = [
            Record.of_schema(table, AnnouncedSchema(self._id.query, fingerprint))
            for table, fingerprint in schemas.items()
        ]
        return [*announced, Record(SIDE_TOPICS, self.marker(batch, 0))]

    def side_topics_done(self, batch: int, schemas: Mapping[str, str]) -> None:
        """Record that the side topics of batch number `batch` are written."""
        self._last[SIDE_TOPICS] = self.marker(batch, 0)
        self.schemas |= schemas

    def side_producer(self) -> Producer:
        """The driver's producer; fences its predecessor.

        Raises:
            KafkaError: Kafka does not allow it.
        """
        if not self.is_transactional:
            return Producer(self._client.producer_settings(None))
        return self._producer(SIDE_TOPICS)

    def _producer(self, name: str) -> Producer:
        """A new producer of that name; fences the previous one."""
        producer = Producer(self._client.producer_settings(f"tailrace.{self.name}.{name}"))
        try:
            producer.init_transactions(_TIMEOUT_S)
        except BaseException:
            producer.close()
            raise
        return producer

    def _write(self, producer: Producer, record: Record) -> None:
        producer.begin()
        producer.produce(self.topic, record_messages([record]), _TIMEOUT_S)
        producer.commit(_TIMEOUT_S)

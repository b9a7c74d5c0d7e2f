"""What the driver knows of a stream in Kafka: which writers have written which batch, and who may write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from tailrace.errors import StateError
from tailrace.sinks.base import StreamId
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.failure import sink_error
from tailrace.sinks.kafka.librdkafka import KafkaError, MessageColumns, Producer
from tailrace.sinks.kafka.markers import (
    BESIDE,
    OWNER,
    AnnouncedSchema,
    Marker,
    Record,
    marker_topic,
    of_same_prefix,
    read_markers,
)

_TIMEOUT_S = 90.0
#: Producers of former writers that are shut out at the same time.
_AT_ONCE = 8
#: Batches after which the markers are read on: those that take over a share later have less to read.
_READ_EVERY = 1000


class KafkaStream:
    """The state of a stream's batches, kept in the marker topic and read from there when a run begins.

    Args:
        client: how to reach the cluster.
        stream: the stream.
        prefix: the topics' prefix: a pipeline may have several Kafka sinks.
        writers: how many writers new batches have.
        is_transactional: whether there are transactions and markers at all.
    """

    def __init__(
        self, client: Client, stream: StreamId, prefix: str, writers: int, *, is_transactional: bool
    ) -> None:
        self._client = client
        self._id = stream
        self._writers = writers
        self._last: dict[str, Marker] = {}
        self._batches = 0
        self.is_transactional = is_transactional
        #: Begins transactional ids.
        self.name = f"{stream.pipeline}.{prefix}"
        self._prefix = prefix
        self.topic = marker_topic(self.name)
        #: Records from this offset on are not known.
        self.end = 0
        #: The producer that wrote last, by writer.
        self.tokens: dict[int, str] = {}
        #: The shapes that were announced, by table.
        self.shapes: dict[str, str] = {}

    def open(self, topics: Iterable[str] = ()) -> None:
        """Find out what is written, and shut out those who might still write.

        A writer that this run will have again shuts out its predecessor itself. Others, of a run with more
        of them, are shut out here, so that a batch begun by them is found begun or never will be.

        Args:
            topics: those that there are.

        Raises:
            StateError: another stream writes under the pipeline's name, or under the topic prefix.
            SinkError: Kafka does not let us.
        """
        if not self.is_transactional:
            return
        try:
            producer = self._producer(OWNER)
            try:
                self._producer(BESIDE).close()
                self._own(producer, topics)
            finally:
                producer.close()
        except KafkaError as error:
            raise sink_error(error.name, error.said, error.topic) from error

    def _own(self, producer: Producer, topics: Iterable[str]) -> None:
        known = read_markers(self._client, self.topic)
        owner = known.last.get(OWNER)
        if owner is not None and owner.stream != self._id.query:
            raise StateError(
                f"what pipeline `{self._id.pipeline}` wrote to Kafka is not this stream's",
                f"topic `{self.topic}` belongs to stream {owner.stream}, this one is {self._id.query}",
                "go on with that stream's checkpoint, or give the pipeline another name and topic prefix; to "
                f"append a new snapshot to what is there, delete topic `{self.topic}`",
            )
        if owner is None:
            self._require_alone(topics)
        if owner is None or owner.writers != self._writers:
            former = 0 if owner is None else owner.writers
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for shut_out in pool.map(self._producer, map(str, range(former))):
                    shut_out.close()
            self._note(producer, Record(OWNER, Marker(self._id.query, -1, self._writers)))
            known = read_markers(self._client, self.topic)
        self._last, self.shapes, self.end = dict(known.last), dict(known.shapes), known.end

    def _require_alone(self, topics: Iterable[str]) -> None:
        """Refuse to begin where another pipeline writes: its topics' names would be ours."""
        for topic in of_same_prefix(topics, self.topic, self._prefix):
            owner = read_markers(self._client, topic).last.get(OWNER)
            if owner is not None and owner.stream != self._id.query:
                raise StateError(
                    f"another pipeline writes to topics with prefix `{self._prefix}`",
                    f"topic `{topic}` belongs to stream {owner.stream}, this one is {self._id.query}",
                    f"set another `topic-prefix`; if that pipeline is gone, delete topic `{topic}`",
                )

    def missing(self, batch: int) -> tuple[int, list[int]]:
        """How many writers batch number `batch` has, and those that have not written it."""
        of_writers = {key: marker for key, marker in self._last.items() if key not in (OWNER, BESIDE)}
        begun = [marker.writers for marker in of_writers.values() if marker.batch == batch]
        writers = begun[0] if begun else self._writers
        last = [of_writers.get(str(writer)) for writer in range(writers)]
        return writers, [w for w, marker in enumerate(last) if marker is None or marker.batch < batch]

    def marker(self, batch: int, writers: int) -> Marker:
        """What a writer of batch number `batch` writes with its share."""
        return Marker(self._id.query, batch, writers)

    def done(self, batch: int, writers: int) -> None:
        """All writers have written batch number `batch`."""
        if not self.is_transactional:
            return
        self._last |= {str(w): self.marker(batch, writers) for w in range(writers)}
        self._batches += 1
        if self._batches % _READ_EVERY == 0:
            self.end = read_markers(self._client, self.topic, self.end).end

    # ---- beside the data -----------------------------------------------------------------------------

    def has_beside(self, batch: int) -> bool:
        """Whether what goes with batch number `batch` is written."""
        marker = self._last.get(BESIDE)
        return marker is not None and marker.batch >= batch

    def beside_records(self, batch: int, shapes: Mapping[str, str]) -> list[Record]:
        """What the driver writes with what goes with a batch, which announces `shapes`."""
        announced = [
            Record.of_shape(t, AnnouncedSchema(self._id.query, shape)) for t, shape in shapes.items()
        ]
        return [*announced, Record(BESIDE, self.marker(batch, 0))]

    def beside_done(self, batch: int, shapes: Mapping[str, str]) -> None:
        """What goes with batch number `batch` is written."""
        self._last[BESIDE] = self.marker(batch, 0)
        self.shapes |= shapes

    def producer_beside(self) -> Producer:
        """The driver's producer; shuts out its predecessor.

        Raises:
            KafkaError: Kafka does not let us.
        """
        if not self.is_transactional:
            return Producer(self._client.producer_settings(None))
        return self._producer(BESIDE)

    def _producer(self, name: str) -> Producer:
        """The one producer of that name from now on."""
        producer = Producer(self._client.producer_settings(f"tailrace.{self.name}.{name}"))
        try:
            producer.init_transactions(_TIMEOUT_S)
        except BaseException:
            producer.close()
            raise
        return producer

    def _note(self, producer: Producer, record: Record) -> None:
        key, value = (pa.array([side]) for side in record.pair())
        partition, wanted = np.zeros(1, np.int32), np.ones(1, np.uint8)
        producer.begin()
        producer.produce(self.topic, MessageColumns(key, value, None, partition, wanted), _TIMEOUT_S)
        producer.commit(_TIMEOUT_S)

"""The side topics, written by the driver: schema changes, transactions, heartbeats.

A batch's schema changes and transactions form one Kafka transaction with a marker of its own, committed
before any of the batch's data: so a consumer can see a table's new schema before the first row with it. The
marker topic stores the announced schemas. A batch holds whole transactions, so their BEGIN and END come
together, and before their changes.

Heartbeats show that the pipeline runs, and when: a thread sends them at a fixed interval, with or without
data.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tailrace.config.kafka import KafkaSettings
from tailrace.formats.base import NO_IDS, SchemaIds
from tailrace.formats.debezium.side_topics import SchemaChangeEvent, SideStreams, Stream, announced
from tailrace.formats.debezium.transactions import COUNTS, Transaction, counts, merged
from tailrace.kernels.murmur import partitions_of
from tailrace.model.cell import decode_cell
from tailrace.sinks.base import CellBatch
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.cluster import Cluster, Topic
from tailrace.sinks.kafka.librdkafka import KafkaError, MessageColumns, Producer
from tailrace.sinks.kafka.markers import record_messages
from tailrace.sinks.kafka.schema_registry import SchemaRegistry
from tailrace.sinks.kafka.skipped import SkippedOperations
from tailrace.sinks.kafka.stream import KafkaStream
from tailrace.spark.cells import changes_of, spark_schema
from tailrace.spark.jvm import map_in_arrow

_log = logging.getLogger(__name__)
_TIMEOUT_S = 90.0


class SideTopics:
    """Writes the side topics of one sink.

    Args:
        settings: the sink's settings.
        client: how to reach the cluster.
        cluster: creates the topics.
        streams: makes the messages.
        registry: registers their schemas; None if there is none.
        skipped: the operations that are left out, also of the counts of transactions.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        client: Client,
        cluster: Cluster,
        streams: SideStreams,
        registry: SchemaRegistry | None,
        *,
        skipped: SkippedOperations,
    ) -> None:
        self._settings = settings
        self._client = client
        self._cluster = cluster
        self._streams = streams
        self._registry = registry
        self._skipped = skipped
        self._producer: Producer | None = None
        self._heartbeat: _Heartbeat | None = None

    def start(self) -> None:
        """Start the heartbeats, if they are configured."""
        if self._settings.heartbeat_interval_ms and self._heartbeat is None:
            topic, ids = self._topic("heartbeat"), self._ids("heartbeat")
            self._heartbeat = _Heartbeat(self._settings, self._client, self._streams, topic, ids)
            self._heartbeat.start()

    def write(self, batch: CellBatch, stream: KafkaStream, cells: DataFrame) -> None:
        """Write the side topics of `batch`, unless they are written already.

        Args:
            batch: the batch.
            stream: what is written of its stream.
            cells: its cells, with those of its TRUNCATEs.

        Raises:
            KafkaError: Kafka rejects a message.
        """
        settings = self._settings
        if not (settings.include_schema_changes or settings.provide_transaction_metadata):
            return
        if stream.has_side_topics(batch.id):
            return
        made: list[tuple[Topic, pa.RecordBatch]] = []
        schemas: dict[str, str] = {}
        now_ms = time.time_ns() // 1_000_000
        if settings.include_schema_changes and (changes := _schema_changes(batch, stream.schemas)):
            schemas = {str(c.table.id): c.table.fingerprint for c in changes if c.table.columns}
            messages = self._streams.schema_changes(changes, now_ms, self._ids("schema_change"))
            made.append((self._topic("schema_change"), messages))
        if settings.provide_transaction_metadata and (ended := _transactions(cells, self._skipped)):
            messages = self._streams.transactions(ended, self._ids("transaction"))
            made.append((self._topic("transaction"), messages))
        if made:
            self._send(stream, batch, made, schemas)
        stream.side_topics_done(batch.id, schemas)

    def tells_of(self, batch: CellBatch) -> bool:
        """Whether `batch` has schema changes to be announced, whatever cells it has."""
        return self._settings.include_schema_changes and bool(batch.schema_events)

    def close(self) -> None:
        """Stop the heartbeats and close the producer."""
        if self._heartbeat is not None:
            self._heartbeat.end()
            self._heartbeat = None
        self._drop()

    def _send(
        self,
        stream: KafkaStream,
        batch: CellBatch,
        made: Iterable[tuple[Topic, pa.RecordBatch]],
        schemas: Mapping[str, str],
    ) -> None:
        try:
            if self._producer is None:
                self._producer = stream.side_producer()
            producer = self._producer
            if stream.is_transactional:
                producer.begin()
            for topic, messages in made:
                keys = messages.column("key")
                _produce(producer, topic.name, keys, messages.column("value"), topic.partitions)
            if stream.is_transactional:
                records = record_messages(stream.side_records(batch.id, schemas))
                producer.produce(stream.topic, records, _TIMEOUT_S)
                producer.commit(_TIMEOUT_S)
            else:
                producer.deliver(_TIMEOUT_S)
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _topic(self, stream: Stream) -> Topic:
        name = self._streams.topic(stream)
        return self._cluster.topics([name], 1, self._settings.topic_replication, {})[name]

    def _ids(self, stream: Stream) -> SchemaIds:
        return NO_IDS if self._registry is None else self._registry.ids(self._streams.schemas(stream))


class _Heartbeat(threading.Thread):
    """Sends heartbeats until `end`. A heartbeat that fails is logged and skipped."""

    def __init__(
        self, settings: KafkaSettings, client: Client, streams: SideStreams, topic: Topic, ids: SchemaIds
    ) -> None:
        super().__init__(name="kafka-heartbeat", daemon=True)
        self._pause_s = settings.heartbeat_interval_ms / 1000
        self._client = client
        self._streams = streams
        self._topic = topic
        self._ids = ids
        self._ended = threading.Event()

    def run(self) -> None:
        """See Thread."""
        producer = Producer(self._client.producer_settings(None))
        try:
            while True:
                made = self._streams.heartbeat(time.time_ns() // 1_000_000, self._ids)
                try:
                    topic = self._topic
                    _produce(producer, topic.name, made.column("key"), made.column("value"), topic.partitions)
                    producer.deliver(_TIMEOUT_S)
                except KafkaError as error:
                    _log.warning("no heartbeat could be sent: %s: %s", error.name, error.text)
                if self._ended.wait(self._pause_s):
                    return
        finally:
            producer.close()

    def end(self) -> None:
        """Stop the heartbeats."""
        self._ended.set()
        self.join(_TIMEOUT_S)


def _produce(producer: Producer, topic: str, keys: pa.Array, values: pa.Array, partitions: int) -> None:
    selected = np.ones(len(values), np.uint8)
    messages = MessageColumns(keys, values, None, partitions_of(keys, partitions), selected)
    producer.produce(topic, messages, _TIMEOUT_S)


def _schema_changes(batch: CellBatch, known: Mapping[str, str]) -> list[SchemaChangeEvent]:
    """The schema changes with which `batch` begins; then the schemas that they do not tell."""
    made = map(announced, batch.schema_events)
    found = [event for event in made if event.ddl is not None or event.type is not None]
    told = {str(c.table.id): c.table.fingerprint for c in found if c.table.columns}
    return [*found, *_new_schemas(batch, {**known, **told})]


def _new_schemas(batch: CellBatch, known: Mapping[str, str]) -> Iterator[SchemaChangeEvent]:
    """The schemas in `batch` that are not announced yet, each table's in log order."""
    last = dict(known)
    for part in batch.table_batches:
        table = str(part.table)
        for schema in part.schemas:
            if last.get(table) == schema.fingerprint:
                continue
            cells = batch.frame.where(
                (f.col("table") == table) & (f.col("fingerprint") == schema.fingerprint)
            )
            first = cells.orderBy("min_seq").select("cell").first()
            assert first is not None
            change = decode_cell(bytes(first["cell"]))
            (origin,) = change.origin.slice(0, 1).to_pylist()
            known_table = table in last
            yield SchemaChangeEvent(schema, "ALTER" if known_table else "CREATE", origin, change.is_read)
            last[table] = schema.fingerprint


def _transactions(cells: DataFrame, skipped: SkippedOperations) -> list[Transaction]:
    def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in changes_of(rows):
            counted = np.flatnonzero(skipped.counted(batch))
            yield counts(batch if len(counted) == len(batch) else batch.take(pa.array(counted)))

    found = map_in_arrow(cells.where("kind = 'log'").select("cell"), run, spark_schema(COUNTS)).toArrow()
    return merged(found.cast(COUNTS).to_batches())

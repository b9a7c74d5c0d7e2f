"""Kafka topics as Debezium fills them: one per target, each change in them exactly once.

    prefix.database.table       changes: key, envelope, headers; after a delete a tombstone
    __tailrace.<pipeline>       which batches are there (`markers`)

A batch is shared out among a fixed number of writers by the keys of its changes (`writer`). Each writer
puts its share and a marker into one transaction of its own. A batch that comes again, after a crash between
any two of them, is written by those writers only whose marker is missing: so `read_committed` consumers see
each change once, and the changes of a key in their order. What one writer has of a batch they may see before
another's.

A partition is chosen by the key's bytes as Kafka's Java producer chooses it, so a topic that Debezium has
filled can be gone on with. Changes of a table without a key all go to partition 0: they keep their order.

With `delivery: at-least-once` there are no transactions and no markers; what a batch that comes again holds
is there twice.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tailrace.config.sinks import KafkaDelivery, KafkaSettings, RefusedRow, SubjectNames
from tailrace.errors import SinkError, TransientSinkError
from tailrace.failpoints import failpoint
from tailrace.formats.base import NO_IDS, SchemaIds
from tailrace.formats.connect.names import adjusted
from tailrace.formats.connect.topics import Topics, collision, legal
from tailrace.model.table import TableId, TableSchema
from tailrace.sinks.base import (
    Capabilities,
    CellBatch,
    Delivery,
    Order,
    Unit,
    Written,
)
from tailrace.sinks.claims import Claims
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.cluster import Cluster, Topic
from tailrace.sinks.kafka.failure import sink_error
from tailrace.sinks.kafka.formats import envelopes_of, message_format, schema_registry, side_streams
from tailrace.sinks.kafka.librdkafka import KafkaError
from tailrace.sinks.kafka.side_topics import Beside
from tailrace.sinks.kafka.stream import KafkaStream
from tailrace.sinks.kafka.transaction_order import with_places
from tailrace.sinks.kafka.writer import REPORT, SHARES, Share, cut_cells, write_share
from tailrace.sinks.route import Router
from tailrace.sinks.tables.staging import ExpectedSchemas
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.task_errors import parse_error

_log = logging.getLogger(__name__)

#: Settings of the topic of refused messages: as large as a request may be by default, and a little less.
_REFUSED = {"max.message.bytes": "100000000"}
#: Settings of the marker topic.
_MARKERS = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}


class KafkaSink:
    """Writes each table's changes to a topic.

    Args:
        settings: where, and how.
        router: names the targets.
        connector: Debezium's name of the source's kind.
        database: the source's database, where tables are in one (PostgreSQL).

    Raises:
        ConfigError: a setting is not allowed.
    """

    def __init__(self, settings: KafkaSettings, router: Router, connector: str, database: str = "") -> None:
        self._settings = settings
        self._router = router
        self._client = Client(settings.bootstrap_servers, settings.properties)
        envelopes = envelopes_of(settings, router, connector, database)
        self._format = message_format(settings, envelopes)
        self._exactly_once = settings.delivery is KafkaDelivery.EXACTLY_ONCE
        self._registry = schema_registry(settings)
        self._cluster = Cluster(self._client)
        streams = side_streams(settings, envelopes)
        self._claims = Claims(router, self._places, self._taken(envelopes.topics))
        self._beside = Beside(settings, self._client, self._cluster, streams, self._registry)
        self._expected = ExpectedSchemas()
        self._stream: KafkaStream | None = None

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`: messages carry their own shape, so topics need not follow any."""
        return Capabilities(
            Delivery.EXACTLY_ONCE if self._exactly_once else Delivery.AT_LEAST_ONCE,
            Order.PER_KEY,
            Unit.TASK if self._exactly_once else Unit.ROW,
            holds_rows=False,
            follows_schema=False,
        )

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        self._claims.add(tables)

    def _places(self, table: TableId) -> list[str]:
        """The topic, as Kafka tells topics apart, and with subjects by record the schemas' name."""
        topic = self._format.topic(table)
        places = [collision(topic)]
        if self._settings.subject_names is SubjectNames.RECORD and self._registry is not None:
            places.append(f"schema {adjusted({'name': topic})['name']}")
        return places

    def _taken(self, topics: Topics) -> dict[str, str]:
        settings = self._settings
        taken = {
            topics.heartbeat: "the topic of heartbeats",
            self._quarantine: "the topic of refused messages",
        }
        if settings.provide_transaction_metadata:
            taken[topics.transaction] = "the topic of transactions"
        if settings.include_schema_changes:
            taken[topics.schema_change] = "the topic of schema changes"
        return {collision(topic): what for topic, what in taken.items()}

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        try:
            return self._write(batch)
        except KafkaError as error:
            self._stream = None
            raise sink_error(error.name, error.said, error.topic) from error
        except BaseException:
            # What is written is found out anew.
            self._stream = None
            raise

    def _write(self, batch: CellBatch) -> list[Written]:
        stream = self._open(batch)
        written = self._write_as_expected(batch, stream)
        if written is None:
            written = self._write_as_found(batch, stream)
        return written

    def _write_as_found(self, batch: CellBatch, stream: KafkaStream) -> list[Written]:
        """Write a batch once it is known what it holds."""
        self._claims.add(part.table for part in batch.parts)
        written = [Written.of(part, self._router.target(part.table)) for part in batch.parts]
        if not written:
            return written
        self._beside.write(batch, stream)
        writers, missing = stream.missing(batch.id)
        if missing:
            shapes = [shape for part in batch.parts for shape in part.shapes]
            self._send(
                batch, stream, self._cells(batch), self._share(batch, stream, writers, shapes), missing
            )
        self._expected.met(batch.parts)
        return written

    def _write_as_expected(self, batch: CellBatch, stream: KafkaStream) -> list[Written] | None:
        """Write a batch by one pass over its cells; None if it cannot be, and nothing is written."""
        writers, missing = stream.missing(batch.id)
        if len(missing) < writers or self._settings.provide_transaction_metadata:
            return None
        topics = {shape.id: self._format.topic(shape.id) for shape in self._expected.shapes().values()}
        there = self._cluster.found(topics.values())
        # one that somebody has deleted is made again for new changes only
        self._expected.forget(table for table, topic in topics.items() if topic not in there)
        shapes = list(self._expected.shapes().values())
        if not shapes:
            return None
        share = self._share(batch, stream, writers, shapes)
        if share.whole:
            return None
        share = replace(share, shapes=frozenset(shape.text for shape in shapes))
        met = self._send(batch, stream, batch.once.select("min_seq", "cell"), share, missing)
        if met is None:
            self._expected.was_wrong()
            return None
        ids = {str(shape.id): shape.id for shape in shapes}
        return [
            Written.counted(ids[name], kind, changes, self._router.target(ids[name]))
            for (name, kind), changes in sorted(met.items())
        ]

    def _send(
        self, batch: CellBatch, stream: KafkaStream, cells: DataFrame, share: Share, missing: list[int]
    ) -> Counter[tuple[str, str]] | None:
        """Have the writers `missing` write; the changes by table and kind; None if they were told to stop."""
        reports = _run(cells, share, missing)
        if any(report["met"] is None for report in reports):
            return None
        stream.tokens |= {r["writer"]: r["token"] for r in reports}
        if refused := sum(r["refused"] for r in reports):
            _log.warning("batch %d: %d messages refused, now in `%s`", batch.id, refused, self._quarantine)
        failpoint("sink.table")
        stream.done(batch.id, share.writers)
        met: Counter[tuple[str, str]] = Counter()
        for part in (part for report in reports for part in report["met"]):
            met[part["table"], part["kind"]] += part["changes"]
        return met

    def close(self) -> None:
        """See `Sink.close`."""
        self._beside.close()

    @property
    def _quarantine(self) -> str:
        return legal(f"{self._settings.topic_prefix}.__quarantine")

    def _open(self, batch: CellBatch) -> KafkaStream:
        if self._stream is not None:
            return self._stream
        settings = self._settings
        writers = settings.parallelism or batch.spark.sparkContext.defaultParallelism
        self._cluster.connect()
        stream = KafkaStream(
            self._client, batch.stream, settings.topic_prefix, writers, is_transactional=self._exactly_once
        )
        if self._exactly_once:
            self._cluster.topics([stream.topic], 1, settings.topic_replication, _MARKERS)
        stream.open(self._cluster.names())
        self._beside.start()
        self._stream = stream
        return stream

    def _topics(self, tables: Iterable[TableId]) -> dict[str, Topic]:
        """The topic of each table."""
        settings = self._settings
        names = {str(table): self._format.topic(table) for table in tables}
        topics = self._cluster.topics(
            names.values(), settings.topic_partitions, settings.topic_replication, settings.topic_config
        )
        return {table: topics[name] for table, name in names.items()}

    def _share(
        self, batch: CellBatch, stream: KafkaStream, writers: int, shapes: Sequence[TableSchema]
    ) -> Share:
        """What the tasks of a batch must know.

        Args:
            batch: the batch.
            stream: its stream.
            writers: how many there are.
            shapes: those that its changes have.
        """
        forms: dict[str, set[str]] = {}
        for shape in shapes:
            key = [(c, str(shape.column(c).type.arrow)) for c in shape.key]
            forms.setdefault(str(shape.id), set()).add(str(key))
        quarantine = None
        if self._settings.on_refused_row is RefusedRow.QUARANTINE:
            name, replication = self._quarantine, self._settings.topic_replication
            quarantine = self._cluster.topics([name], 1, replication, _REFUSED)[name]
        return Share(
            client=self._client,
            format=self._format,
            ids=self._ids(shapes),
            topics=self._topics({shape.id for shape in shapes}),
            writers=writers,
            whole=frozenset(table for table, keys in forms.items() if len(keys) > 1),
            now_ms=time.time_ns() // 1_000_000,
            tombstones=self._settings.tombstones,
            quarantine=quarantine,
            name=stream.name if self._exactly_once else None,
            marker=stream.marker(batch.id, writers),
            marker_topic=stream.topic,
            marker_end=stream.end,
            tokens=dict(stream.tokens),
        )

    def _cells(self, batch: CellBatch) -> DataFrame:
        """What is written: columns `min_seq` and `cell`."""
        if self._settings.provide_transaction_metadata:
            return with_places(batch.frame)
        return batch.frame.select("min_seq", "cell")

    def _ids(self, shapes: Iterable[TableSchema]) -> SchemaIds:
        """The registry's ids of all schemas of `shapes`."""
        if self._registry is None:
            return NO_IDS
        return self._registry.ids(schema for shape in shapes for schema in self._format.schemas(shape))


def _run(cells: DataFrame, share: Share, missing: list[int]) -> list[Any]:
    """Have the writers `missing` write; their reports.

    Args:
        cells: columns `min_seq` and `cell`.
        share: what the writers must know.
        missing: their numbers.

    Raises:
        SinkError: one of them could not.
    """

    def cut(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return cut_cells(share, rows)

    if share.writers == 1 and share.shapes is None:
        shares = cells.select(f.lit(0).alias("writer"), f.col("min_seq").alias("seq"), "cell")
    else:
        shares = map_in_arrow(cells, cut, SHARES).where(f.col("writer").isin(missing))
    shares = shares.repartitionById(share.writers, f.col("writer")).sortWithinPartitions("seq")

    def write(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_share(share, rows)

    try:
        reports = map_in_arrow(shares, write, REPORT).collect()
    except PySparkException as error:
        raise parse_error(str(error)) or error from error
    for report in reports:
        if report["failure"] is not None:
            kind = TransientSinkError if report["token"] == "transient" else SinkError  # noqa: S105
            raise kind(report["failure"], report["detail"], report["hint"])
    return reports

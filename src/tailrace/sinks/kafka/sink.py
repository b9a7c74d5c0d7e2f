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
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tailrace.config.sinks import KafkaDelivery, KafkaSettings, RefusedRow
from tailrace.errors import SinkError, TransientSinkError
from tailrace.formats.base import NO_IDS, SchemaIds
from tailrace.formats.topics import legal
from tailrace.observe.failpoints import failpoint
from tailrace.sinks.base import (
    Capabilities,
    CellBatch,
    Delivery,
    Order,
    Unit,
    Written,
)
from tailrace.sinks.kafka.beside import Beside
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.cluster import Cluster, Topic
from tailrace.sinks.kafka.failure import sink_error
from tailrace.sinks.kafka.formats import envelopes_of, message_format, schema_registry, side_streams
from tailrace.sinks.kafka.librdkafka import KafkaError
from tailrace.sinks.kafka.places import with_places
from tailrace.sinks.kafka.stream import KafkaStream
from tailrace.sinks.kafka.writer import REPORT, SHARES, Share, cut_cells, write_share
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.query import parse_error
from tailrace.transform.route import Router

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
        self._beside = Beside(settings, self._client, self._cluster, streams, self._registry)
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
        written = [Written.of(part, self._router.target(part.table)) for part in batch.parts]
        if not written:
            return written
        self._beside.write(batch, stream)
        writers, missing = stream.missing(batch.id)
        if missing:
            share = self._share(batch, stream, writers, self._topics(batch))
            reports = _run(self._cells(batch), share, missing)
            stream.tokens |= {r["writer"]: r["token"] for r in reports}
            if refused := sum(r["refused"] for r in reports):
                _log.warning(
                    "batch %d: %d messages refused, now in `%s`", batch.id, refused, self._quarantine
                )
            failpoint("sink.table")
            stream.done(batch.id, writers)
        return written

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
        stream.open()
        self._beside.start()
        self._stream = stream
        return stream

    def _topics(self, batch: CellBatch) -> dict[str, Topic]:
        """The topic of each table."""
        settings = self._settings
        names = {str(part.table): self._format.topic(part.table) for part in batch.parts}
        topics = self._cluster.topics(
            names.values(), settings.topic_partitions, settings.topic_replication, settings.topic_config
        )
        return {table: topics[name] for table, name in names.items()}

    def _share(
        self, batch: CellBatch, stream: KafkaStream, writers: int, topics: Mapping[str, Topic]
    ) -> Share:
        forms: dict[str, set[str]] = {}
        for part in batch.parts:
            keys = [[(c, str(s.column(c).type.arrow)) for c in s.key] for s in part.shapes]
            forms.setdefault(str(part.table), set()).update(map(str, keys))
        quarantine = None
        if self._settings.on_refused_row is RefusedRow.QUARANTINE:
            name, replication = self._quarantine, self._settings.topic_replication
            quarantine = self._cluster.topics([name], 1, replication, _REFUSED)[name]
        return Share(
            client=self._client,
            format=self._format,
            ids=self._ids(batch),
            topics=topics,
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

    def _ids(self, batch: CellBatch) -> SchemaIds:
        """The registry's ids of all schemas in the batch."""
        if self._registry is None:
            return NO_IDS
        shapes = [shape for part in batch.parts for shape in part.shapes]
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

    if share.writers == 1:
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

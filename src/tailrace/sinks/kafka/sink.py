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

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from tailrace.config.model import KafkaDelivery, KafkaSettings
from tailrace.errors import SinkError, TransientSinkError
from tailrace.formats.base import NO_IDS
from tailrace.observe.failpoints import failpoint
from tailrace.sinks.base import (
    Capabilities,
    CellBatch,
    Delivery,
    Order,
    Unit,
    Written,
)
from tailrace.sinks.kafka.client import Client, legal
from tailrace.sinks.kafka.cluster import Cluster, Topic
from tailrace.sinks.kafka.formats import message_format
from tailrace.sinks.kafka.markers import Marker
from tailrace.sinks.kafka.stream import Stream
from tailrace.sinks.kafka.writer import REPORT, SHARES, Share, cut_cells, write_share
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.query import parse_error
from tailrace.transform.route import Router

_MARKERS = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}


class KafkaSink:
    """Writes each table's changes to a topic.

    Args:
        settings: where, and how.
        router: names the targets.
        connector: Debezium's name of the source's kind.

    Raises:
        ConfigError: a setting is not allowed.
    """

    def __init__(self, settings: KafkaSettings, router: Router, connector: str) -> None:
        self._settings = settings
        self._router = router
        self._client = Client(settings.bootstrap_servers, settings.properties)
        self._format = message_format(settings, connector)
        self._exactly_once = settings.delivery is KafkaDelivery.EXACTLY_ONCE
        self._cluster = Cluster(self._client)
        self._stream: Stream | None = None

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
        targets = {str(part.table): self._router.target(part.table) for part in batch.parts}
        stream = self._open(batch)
        written = [Written.of(part, targets[str(part.table)]) for part in batch.parts]
        writers, missing = stream.missing(batch.id)
        if not missing or not targets:
            return written
        share = self._share(batch, stream, writers, self._topics(targets))
        reports = _run(batch, share, missing)
        stream.tokens |= {r["writer"]: r["token"] for r in reports}
        failpoint("sink.table")
        if self._exactly_once:
            stream.done(batch.id, writers)
        return written

    def close(self) -> None:
        """See `Sink.close`."""

    def _open(self, batch: CellBatch) -> Stream:
        if self._stream is not None:
            return self._stream
        writers = self._settings.parallelism or batch.spark.sparkContext.defaultParallelism
        self._cluster.connect()
        stream = Stream(self._client, batch.stream, writers)
        if self._exactly_once:
            self._cluster.topics([stream.topic], 1, self._settings.topic_replication, _MARKERS)
            stream.open()
        self._stream = stream
        return stream

    def _topics(self, targets: Mapping[str, str]) -> dict[str, Topic]:
        """The topic of each table."""
        settings = self._settings
        names = {table: legal(f"{settings.topic_prefix}.{target}")[:249] for table, target in targets.items()}
        topics = self._cluster.topics(
            names.values(), settings.topic_partitions, settings.topic_replication, settings.topic_config
        )
        return {table: topics[name] for table, name in names.items()}

    def _share(self, batch: CellBatch, stream: Stream, writers: int, topics: Mapping[str, Topic]) -> Share:
        shapes: dict[str, set[Any]] = {}
        for part in batch.parts:
            keys = ([(c, s.column(c).type.arrow) for c in s.key] for s in part.shapes)
            shapes.setdefault(str(part.table), set()).update(map(str, keys))
        return Share(
            self._client,
            self._format,
            NO_IDS,
            topics,
            writers,
            frozenset(table for table, forms in shapes.items() if len(forms) > 1),
            time.time_ns() // 1_000_000,
            self._settings.tombstones,
            batch.stream.pipeline if self._exactly_once else None,
            Marker(batch.stream.query, batch.id, writers),
            stream.topic,
            stream.end,
            dict(stream.tokens),
        )


def _run(batch: CellBatch, share: Share, missing: list[int]) -> list[Any]:
    """Have the writers `missing` write; their reports.

    Raises:
        SinkError: one of them could not.
    """

    def cut(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return cut_cells(share, rows)

    def write(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_share(share, rows)

    cells = batch.frame.select(f.col("min_seq").alias("seq"), "cell")
    if share.writers == 1:
        shares = cells.select(f.lit(0).alias("writer"), "seq", "cell")
    else:
        shares = map_in_arrow(cells, cut, SHARES).where(f.col("writer").isin(missing))
    shares = shares.repartitionById(share.writers, f.col("writer")).sortWithinPartitions("seq")
    try:
        reports = map_in_arrow(shares, write, REPORT).collect()
    except PySparkException as error:
        raise parse_error(str(error)) or error from error
    for report in reports:
        if report["failure"] is not None:
            kind = TransientSinkError if report["token"] == "transient" else SinkError  # noqa: S105
            raise kind(report["failure"], report["detail"], report["hint"])
    return reports

"""The targets of a pipeline, for any verifiable sink: by version, or as they are between two batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.config.options import SourceOptions
from tailrace.config.sinks import (
    ClickHouseSettings,
    DeltaSettings,
    DuckDbSettings,
    IcebergSettings,
    OpenSearchSettings,
    SinkSettings,
)
from tailrace.enumerator.offset import StreamOffset
from tailrace.model.table import TableId, TableSchema
from tailrace.sinks.delta.shared import own_root
from tailrace.sinks.paths import below, path_in_use, target_path
from tailrace.sinks.route import Router
from tailrace.spark.checkpoint import Directory, PlannedBatch, absolute
from tailrace.verify.checksum import Checksums, Shards
from tailrace.verify.comparable import compared_sink
from tailrace.verify.opensearch import OpenSearchTargets
from tailrace.verify.portion import KeyRanges
from tailrace.verify.replica import ReplicaTargets
from tailrace.verify.target import target_after


class ComparedTarget(Protocol):
    """One target's rows."""

    @property
    def version(self) -> int:
        """The Delta version that is compared, or the last batch written to a replica."""

    @property
    def columns(self) -> pa.Schema:
        """The source's columns in it, with the stored types."""

    def checksums(self, names: Sequence[str], key: Sequence[str], only: KeyRanges | None = None) -> Checksums:
        """The checksums over the columns `names`, keyed by the columns `key`; of rows in `only`."""

    def rows(
        self, names: Sequence[str], key: Sequence[str], buckets: np.ndarray, only: KeyRanges | None = None
    ) -> pa.Table:
        """The columns `names` of the rows in `buckets` and in `only`."""


class ComparedTargets(Protocol):
    """A sink's targets after one batch."""

    def target(self, name: str, table: TableSchema, shards: Shards | None) -> ComparedTarget | None:
        """The target `name` of `table`; None if it does not exist yet.

        Args:
            name: the target's name.
            table: a table that is routed to it.
            shards: the rows that count; None: all.
        """

    def release(self) -> None:
        """All checksums are computed: the targets may change if they cannot be kept for long."""

    def close(self) -> None:
        """Let go of what is held."""


def targets_of(
    sinks: Sequence[SinkSettings],
    source: SourceOptions,
    router: Router,
    spark: SparkSession | None,
    last: Callable[[], PlannedBatch],
    *,
    pattern: str | None,
    patience_s: float,
    connections: int,
) -> tuple[ComparedTargets, PlannedBatch]:
    """The targets of the first sink that can be verified, as the last committed batch left them.

    Args:
        sinks: the pipeline's sinks.
        source: options of its source.
        router: names the targets.
        spark: a session, with Delta for its tables; None: none is needed (`needs_spark`).
        last: asks for the last committed batch.
        pattern: regular expression over whole names of tables: only their targets are needed; None: all.
        patience_s: how long to wait for the end of a batch that is being written, where that is needed.
        connections: how many read a target at the same time, where not Spark does, or the target's engine.

    Raises:
        ConfigError: no sink can be verified.
        StateError: no batch is committed, or one is being written all the time.
    """
    sink = compared_sink(sinks, source)
    if isinstance(sink, DeltaSettings):
        assert spark is not None
        batch = last()
        return DeltaTargets(spark, sink, router, batch.id), batch
    if isinstance(sink, IcebergSettings):
        from tailrace.verify.iceberg import IcebergTargets  # noqa: PLC0415 - an extra

        assert spark is not None
        batch = last()
        return IcebergTargets(sink, batch.id, spark), batch
    seen: dict[int, PlannedBatch] = {}
    targets: ComparedTargets

    def newest() -> tuple[int, Collection[str]]:
        batch = last()
        seen[batch.id] = batch
        known = StreamOffset.from_json(batch.end).names()
        names = [n for n in known if pattern is None or re.fullmatch(pattern, n, re.DOTALL)]
        return batch.id, {router.target(TableId.parse(name)) for name in names}

    if isinstance(sink, ClickHouseSettings):
        from tailrace.verify.clickhouse import ClickHouseTargets  # noqa: PLC0415 - an extra

        targets, number = ClickHouseTargets.open(sink, newest, patience_s)
    elif isinstance(sink, DuckDbSettings):
        from tailrace.verify.duckdb import DuckTargets  # noqa: PLC0415 - an extra

        targets, number = DuckTargets.open(sink, newest, patience_s)
    elif isinstance(sink, OpenSearchSettings):
        targets, number = OpenSearchTargets.open(sink, newest, patience_s, connections)
    else:
        targets, number = ReplicaTargets.open(source, sink, newest, patience_s, connections)
    return targets, seen[number]


def needs_spark(sink: SinkSettings) -> bool:
    """Whether the targets of a sink are read by Spark."""
    return isinstance(sink, DeltaSettings | IcebergSettings)


@dataclass(frozen=True)
class DeltaTargets:
    """Delta tables: their versions do not change while the pipeline keeps writing."""

    spark: SparkSession
    sink: DeltaSettings
    router: Router
    batch: int

    def target(self, name: str, table: TableSchema, shards: Shards | None) -> ComparedTarget | None:
        """See ComparedTargets."""
        root = absolute(self.sink.path)
        path = path_in_use(
            target_path(self.router, table.id), name, lambda path: self._is_there(below(root, path))
        )
        own = own_root(root, self.router.source)
        mode = self.sink.mode
        key = table.key if shards is None else (*table.key, shards.column)
        found = target_after(self.spark, root, path, own_root=own, mode=mode, key=key, batch=self.batch)
        return found if found is None or shards is None else found.only(shards)

    def _is_there(self, path: str) -> bool:
        return bool(Directory(f"{path}/_delta_log").names())

    def release(self) -> None:
        """See ComparedTargets."""

    def close(self) -> None:
        """See ComparedTargets."""

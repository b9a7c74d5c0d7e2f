"""The targets of a pipeline, whatever its sink is: Delta tables after a batch, or a replica that rests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.config.model import Pipeline
from tailrace.config.sinks import DeltaSettings, MySqlSettings, PostgresSettings
from tailrace.errors import ConfigError
from tailrace.model.table import TableSchema
from tailrace.sinks.paths import below, path_in_use, place
from tailrace.sinks.route import Router
from tailrace.spark.checkpoint import Directory, absolute
from tailrace.verify.checksum import Checksums
from tailrace.verify.replica import ReplicaTargets
from tailrace.verify.target import target_after


class ComparedTarget(Protocol):
    """One target's rows."""

    @property
    def version(self) -> int:
        """The Delta version that is looked at; of a replica the last batch written to it."""

    @property
    def columns(self) -> pa.Schema:
        """The source's columns in it, with the types they are stored as."""

    def checksums(self, names: Sequence[str], key: Sequence[str]) -> Checksums:
        """The checksums of the columns `names`."""

    def rows(self, names: Sequence[str], key: Sequence[str], buckets: np.ndarray) -> pa.Table:
        """The rows of some buckets."""


class ComparedTargets(Protocol):
    """A sink's targets after one batch."""

    def target(self, name: str, table: TableSchema) -> ComparedTarget | None:
        """The target `name`, which `table` goes to; None if it is not there yet."""

    def confirm(self) -> None:
        """What was read of the targets is what the batch left.

        Raises:
            StateError: they were written meanwhile.
        """


def targets_of(pipeline: Pipeline, spark: SparkSession, batch: int) -> ComparedTargets:
    """The targets of the pipeline's first sink that can be looked at.

    Args:
        pipeline: the pipeline.
        spark: a session with Delta.
        batch: number of a batch that is wholly written.

    Raises:
        ConfigError: it has no such sink.
        StateError: the sink is being written, and cannot be looked at meanwhile.
    """
    for sink in pipeline.sinks:
        if isinstance(sink, DeltaSettings):
            return DeltaTargets(spark, sink, Router(pipeline.routes), batch)
        if isinstance(sink, MySqlSettings | PostgresSettings) and pipeline.source.dialect in sink.schemes:
            return ReplicaTargets.open(pipeline.source, sink, batch)
    raise ConfigError(
        f"a `{pipeline.sinks[0].type}` sink of a {pipeline.source.dialect} source cannot be verified",
        "verify compares Delta tables, and replicas in a database of the source's kind",
        "use `sink: {type: delta}`",
    )


@dataclass(frozen=True)
class DeltaTargets:
    """Delta tables: a version of each stays as it is while the pipeline writes on."""

    spark: SparkSession
    sink: DeltaSettings
    router: Router
    batch: int

    def target(self, name: str, table: TableSchema) -> ComparedTarget | None:
        """See Targets."""
        root = absolute(self.sink.path)
        path = path_in_use(place(self.router, table.id), name, lambda path: self._is_there(below(root, path)))
        return target_after(self.spark, root, path, mode=self.sink.mode, key=table.key, batch=self.batch)

    def _is_there(self, path: str) -> bool:
        return bool(Directory(f"{path}/_delta_log").names())

    def confirm(self) -> None:
        """See Targets."""

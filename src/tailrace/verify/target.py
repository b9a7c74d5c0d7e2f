"""The target side of Delta: a table as a batch left it, its checksums and the rows of some buckets.

The version of a table after batch n is the version right before the first commit of a later batch
(`sinks.delta` writes a commit's batch into `userMetadata`), or the newest version: so changes made by others
are included. It is read by time travel and stays the same while the pipeline keeps writing.

A change log is collapsed first: the last change of each key by `_seq`, without deletes. Of row versions
(`mode: scd2`) the current ones count. Pending changes, which the sink has received but not merged yet, are in
a separate table next to the target, whose version after batch n is found in the same way; they are applied.
That table is opened before the target: changes that are merged in between are then in both, which has no
effect, and never in neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StructField, StructType

from tailrace.config.sinks import WriteMode
from tailrace.errors import StateError
from tailrace.model.sparksql import identifier
from tailrace.sinks.delta.merge import column
from tailrace.sinks.delta.pending import BATCH, changes_path, overlay
from tailrace.sinks.delta.table_layout import TableLayout
from tailrace.sinks.delta.transaction import delta_state
from tailrace.sinks.paths import below
from tailrace.sinks.tables.rows import UPSERT_FIELDS, log_fields
from tailrace.spark.arrow_schema import arrow_schema
from tailrace.spark.cells import spark_schema
from tailrace.spark.jvm import map_in_arrow
from tailrace.verify.checksum import Checksums, Shards, rows_in

#: Number of commits to search before the whole history.
_RECENT = 200
#: Columns of a change log: those that describe old rows, and all that are not the source's.
OLD_ROW = {"_before", "_absent_before"}
CHANGELOG_FIELDS = set(log_fields(pa.schema([])).names)


@dataclass(frozen=True)
class DeltaTableVersion:
    """A table at one version, read by Spark: one of Delta, or a change log of Iceberg.

    Args:
        frame: its rows; a change log's are collapsed.
        version: the format's version number.
        columns: the source's columns in it, with the stored types.
    """

    frame: DataFrame
    version: int
    columns: pa.Schema

    def checksums(self, names: Sequence[str], key: Sequence[str]) -> Checksums:
        """See ComparedTarget; computed in Spark's tasks."""

        def sum_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            sums = Checksums.of(batches, key).to_bytes()
            yield pa.RecordBatch.from_arrays([pa.array([sums], pa.binary())], ["sums"])

        schema = StructType([StructField("sums", BinaryType())])
        total = Checksums.empty()
        for row in map_in_arrow(self._select(names), sum_up, schema).collect():
            total.merge(Checksums.from_bytes(bytes(row[0])))
        return total

    def rows(self, names: Sequence[str], key: Sequence[str], buckets: np.ndarray) -> pa.Table:
        """See ComparedTarget."""

        def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield rows_in(batch, key, buckets)

        schema = pa.schema([self.columns.field(name) for name in names])
        return map_in_arrow(self._select(names), keep, spark_schema(schema)).toArrow().cast(schema)

    def only(self, shards: Shards) -> DeltaTableVersion:
        """The same with some of its rows."""
        return replace(self, frame=self.frame.where(column(shards.column).isin(list(shards.values))))

    def _select(self, names: Sequence[str]) -> DataFrame:
        return self.frame.select(*(column(name) for name in names))


def target_after(
    spark: SparkSession,
    root: str,
    path: str,
    *,
    own_root: str | None = None,
    mode: WriteMode,
    key: Sequence[str],
    batch: int,
) -> DeltaTableVersion | None:
    """The target as batch `batch` left it.

    Args:
        spark: a session with Delta.
        root: the sink's path.
        path: the target's path below it.
        own_root: where the stream keeps pending changes (`sinks.delta.shared.own_root`); default: `root`.
        mode: how the sink writes it.
        key: names of the key columns.
        batch: number of a committed batch.

    Returns:
        The table at that version; None if it did not exist yet.

    Raises:
        StateError: Delta no longer has that version.
    """
    pending = _frame_after(spark, changes_path(own_root or root, path), batch)
    found = _frame_after(spark, below(root, path), batch)
    if found is None:
        return None
    frame, version = found
    schema = arrow_schema(frame.schema)
    if mode is WriteMode.CHANGELOG:
        schema = pa.schema([field for field in schema if field.name not in CHANGELOG_FIELDS])
        return DeltaTableVersion(collapse(frame, key), version, schema)
    if mode is WriteMode.SCD2:
        schema = TableLayout(mode).columns(schema)
        frame = frame.where("_is_current").select(*(column(name) for name in schema.names))
    if pending is not None:
        changes = pending[0].drop(BATCH.name)
        present = set(changes.columns)
        fields = [*spark_schema(schema), *spark_schema(pa.schema(list(UPSERT_FIELDS)))]
        changes = changes.select(
            *(
                column(c.name) if c.name in present else f.lit(None).cast(c.dataType).alias(c.name)
                for c in fields
            )
        )
        frame = overlay(frame, changes, key)
    return DeltaTableVersion(frame, version, schema)


def _frame_after(spark: SparkSession, path: str, batch: int) -> tuple[DataFrame, int] | None:
    """The rows of a table as `batch` left it, with their version; None if it did not exist yet."""
    if delta_state(spark, path) is None:
        return None
    version = _version_after(spark, path, batch)
    if version < 0:
        return None
    return spark.read.format("delta").option("versionAsOf", version).load(path), version


def version_of(history: Sequence[tuple[int, str | None]], batch: int) -> int | None:
    """The version with the state after `batch`.

    Args:
        history: version and `userMetadata` of commits, newest first.
        batch: number of a committed batch.

    Returns:
        The version; None if `history` does not reach back far enough.
    """
    newest = history[0][0]
    for version, metadata in history:
        number = _batch_of(metadata)
        if number is not None and number <= batch:
            return newest
        if number is not None:
            newest = version - 1
    return newest if history[-1][0] == 0 else None


def _batch_of(metadata: str | None) -> int | None:
    try:
        value = json.loads(metadata or "null")
    except ValueError:
        return None  # written by another program
    number = value.get("batch") if isinstance(value, dict) else None
    return number if isinstance(number, int) else None


def _version_after(spark: SparkSession, path: str, batch: int) -> int:
    for limit in (f" LIMIT {_RECENT}", ""):
        history = spark.sql(f"DESCRIBE HISTORY delta.{identifier(path)}{limit}")
        rows = history.select("version", "userMetadata").orderBy(f.desc("version")).collect()
        version = version_of([(row[0], row[1]) for row in rows], batch)
        if version is not None:
            return version
    raise StateError(
        f"the Delta table at `{path}` no longer has the version that batch {batch} left",
        "its history does not reach back that far",
        "run the pipeline until its next batch is committed, then verify again",
        code="TR-8106",
    )


def collapse(log: DataFrame, key: Sequence[str]) -> DataFrame:
    """The newest change of each key, without deletes."""
    row = f.struct(*(column(name) for name in log.columns if name not in OLD_ROW))
    # as a tuple: the keys' names, which it does not need, may be any
    keys = [column(name).alias(f"_{i}") for i, name in enumerate(key)]
    last = log.groupBy(*keys).agg(f.max_by(row, "_seq").alias("last"))
    return last.select("last.*").where("_op <> 'd'")

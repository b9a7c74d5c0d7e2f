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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StructField, StructType

from tailrace.config.sinks import WriteMode
from tailrace.errors import StateError
from tailrace.model.change import OP_DELETE
from tailrace.sinks.delta.merge import column, lacking_in, last_of_each_key
from tailrace.sinks.delta.pending import BATCH, changes_path, overlay
from tailrace.sinks.delta.table_layout import TableLayout
from tailrace.sinks.delta.transaction import delta_state
from tailrace.sinks.paths import below
from tailrace.sinks.tables.rows import UPSERT_FIELDS, log_fields
from tailrace.spark.arrow_schema import arrow_schema
from tailrace.spark.cells import spark_schema
from tailrace.spark.checkpoint import Directory
from tailrace.spark.jvm import map_in_arrow
from tailrace.verify.checksum import Checksums, Shards, is_one_of, key_hashes, rows_in
from tailrace.verify.delta_files import data_files
from tailrace.verify.portion import KeyRanges, limited

#: Columns of a change log: those that describe old rows, and all that are not the source's.
OLD_ROW = {"_before", "_absent_before"}
CHANGELOG_FIELDS = set(log_fields(pa.schema([])).names)


class FileReader(Protocol):
    """Reads data files in tasks, which it is sent to."""

    def only(self, shards: Shards) -> FileReader:
        """The same with some of the rows."""

    def rows(
        self, parts: Iterator[pa.RecordBatch], columns: pa.Schema, only: KeyRanges | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some parts; see `DataFiles`."""


@dataclass(frozen=True)
class VersionFiles:
    """The data files of a version, which tasks read.

    Args:
        reader: reads them.
        parts: the parts that tasks read.
        pending: changes of other rows than the files have, the last of each key; None: there are none.
    """

    reader: FileReader
    parts: DataFrame
    pending: DataFrame | None = None


@dataclass(frozen=True)
class TableVersion:
    """A table at one version, of Delta or Iceberg.

    Args:
        frame: its rows; a change log's are collapsed, pending changes applied.
        version: the format's version number.
        columns: the source's columns in it, with the stored types.
        files: the files with its rows; None: only Spark reads them.
    """

    frame: DataFrame
    version: int
    columns: pa.Schema
    files: VersionFiles | None = None

    def checksums(self, names: Sequence[str], key: Sequence[str], only: KeyRanges | None = None) -> Checksums:
        """See ComparedTarget; computed in Spark's tasks."""
        files = self.files
        if files is None:
            return self._sums(_selected(self.frame, names), lambda batches: batches, key, only)
        columns, reader = self._schema(names), files.reader
        if files.pending is None:
            return self._sums(files.parts, lambda parts: reader.rows(parts, columns, only), key, only)
        changed = self._key_hashes(_selected(files.pending, key), key)

        def unchanged(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for rows in reader.rows(parts, columns, only):
                yield rows.filter(pa.array(~is_one_of(key_hashes(rows, key), changed)))

        total = self._sums(files.parts, unchanged, key, only)
        new = files.pending.where(f.col("_op") != OP_DELETE)
        total.merge(self._sums(_selected(new, names), lambda batches: batches, key, only))
        return total

    def _sums(
        self,
        work: DataFrame,
        rows: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        key: Sequence[str],
        only: KeyRanges | None,
    ) -> Checksums:
        """The checksums of the rows that tasks make of `work`."""

        def sum_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            sums = Checksums.of(limited(rows(batches), only), key).to_bytes()
            yield pa.RecordBatch.from_arrays([pa.array([sums], pa.binary())], ["sums"])

        total = Checksums.empty()
        for row in map_in_arrow(work, sum_up, StructType([StructField("sums", BinaryType())])).collect():
            total.merge(Checksums.from_bytes(bytes(row[0])))
        return total

    def _key_hashes(self, rows: DataFrame, key: Sequence[str]) -> np.ndarray:
        """The hashes of keys, ascending."""

        def hashed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                hashes = pa.array(key_hashes(batch, key).view(np.int64))
                yield pa.RecordBatch.from_arrays([hashes], ["hash"])

        found = map_in_arrow(rows, hashed, "hash bigint").toArrow().column(0).to_numpy()
        return np.sort(found.view(np.uint64))

    def rows(
        self, names: Sequence[str], key: Sequence[str], buckets: np.ndarray, only: KeyRanges | None = None
    ) -> pa.Table:
        """See ComparedTarget."""

        def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in limited(batches, only):
                yield rows_in(batch, key, buckets)

        schema, work = self._schema(names), _selected(self.frame, names)
        if self.files is not None and self.files.pending is None:
            reader, work = self.files.reader, self.files.parts
            return (
                map_in_arrow(work, lambda parts: keep(reader.rows(parts, schema, only)), spark_schema(schema))
                .toArrow()
                .cast(schema)
            )
        return map_in_arrow(work, keep, spark_schema(schema)).toArrow().cast(schema)

    def only(self, shards: Shards) -> TableVersion:
        """The same with some of its rows."""
        here = column(shards.column).isin(list(shards.values))
        files = self.files
        if files is not None:
            pending = None if files.pending is None else files.pending.where(here)
            files = VersionFiles(files.reader.only(shards), files.parts, pending)
        return replace(self, frame=self.frame.where(here), files=files)

    def _schema(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in names])


def target_after(
    spark: SparkSession,
    root: str,
    path: str,
    *,
    own_root: str | None = None,
    mode: WriteMode,
    key: Sequence[str],
    batch: int,
) -> TableVersion | None:
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
    directory = below(root, path)
    found = _frame_after(spark, directory, batch)
    if found is None:
        return None
    frame, version = found
    schema = arrow_schema(frame.schema)
    if mode is WriteMode.CHANGELOG:
        schema = pa.schema([field for field in schema if field.name not in CHANGELOG_FIELDS])
        return TableVersion(collapse(frame, key), version, schema)
    if mode is WriteMode.SCD2:
        schema = TableLayout(mode).columns(schema)
        frame = frame.where("_is_current").select(*(column(name) for name in schema.names))
    where = "_is_current" if mode is WriteMode.SCD2 else None
    read = data_files(spark, directory, version, where)
    if pending is None:
        return TableVersion(frame, version, schema, read and VersionFiles(*read))
    changes = pending[0].drop(BATCH.name)
    present = set(changes.columns)
    fields = [*spark_schema(schema), *spark_schema(pa.schema(list(UPSERT_FIELDS)))]
    changes = changes.select(
        *(column(c.name) if c.name in present else f.lit(None).cast(c.dataType).alias(c.name) for c in fields)
    )
    files, lacking = None, lacking_in(changes)
    if read and not lacking:  # the values that they lack are in the files
        last = last_of_each_key(changes, key).select(
            "_op", *(column(c.name).cast(c.dataType).alias(c.name) for c in spark_schema(schema))
        )
        files = VersionFiles(*read, last)
    return TableVersion(overlay(frame, changes, key, lacking), version, schema, files)


def _selected(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    return frame.select(*(column(name) for name in names))


def _frame_after(spark: SparkSession, path: str, batch: int) -> tuple[DataFrame, int] | None:
    """The rows of a table as `batch` left it, with their version; None if it did not exist yet."""
    state = delta_state(spark, path)
    if state is None:
        return None
    version = version_of(_commits(path, state.version), batch)
    if version is None:
        raise StateError(
            f"the Delta table at `{path}` no longer has the version that batch {batch} left",
            "its history does not reach back that far",
            "run the pipeline until its next batch is committed, then verify again",
            code="TR-8106",
        )
    if version < 0:
        return None
    return spark.read.format("delta").option("versionAsOf", version).load(path), version


def version_of(history: Iterable[tuple[int, str | None]], batch: int) -> int | None:
    """The version with the state after `batch`; -1: there was none.

    Args:
        history: version and `userMetadata` of commits, newest first.
        batch: number of a committed batch.

    Returns:
        The version; None if `history` does not reach back far enough.
    """
    newest = oldest = None
    for version, metadata in history:
        newest, oldest = version if newest is None else newest, version
        number = _batch_of(metadata)
        if number is not None and number <= batch:
            return newest
        if number is not None:
            newest = version - 1
    return newest if oldest == 0 else None


def _batch_of(metadata: str | None) -> int | None:
    try:
        value = json.loads(metadata or "null")
    except ValueError:
        return None  # written by another program
    number = value.get("batch") if isinstance(value, dict) else None
    return number if isinstance(number, int) else None


def _commits(path: str, newest: int) -> Iterator[tuple[int, str | None]]:
    """Version and `userMetadata` of a table's commits, newest first; DESCRIBE HISTORY is a job of Spark's."""
    log = Directory(f"{path}/_delta_log")
    for version in range(newest, -1, -1):
        text = log.read(f"{version:020}.json")
        if text is None:
            return
        actions = (json.loads(line) for line in text.splitlines() if line.startswith('{"commitInfo"'))
        info: dict[str, Any] = next(actions, {"commitInfo": {}})["commitInfo"]
        yield version, info.get("userMetadata")


def collapse(log: DataFrame, key: Sequence[str]) -> DataFrame:
    """The newest change of each key, without deletes."""
    row = f.struct(*(column(name) for name in log.columns if name not in OLD_ROW))
    # as a tuple: the keys' names, which it does not need, may be any
    keys = [column(name).alias(f"_{i}") for i, name in enumerate(key)]
    last = log.groupBy(*keys).agg(f.max_by(row, "_seq").alias("last"))
    return last.select("last.*").where("_op <> 'd'")

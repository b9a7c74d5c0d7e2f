"""The data files of a Delta table's version, read in Spark's tasks by pyarrow: no row passes through the JVM.

    version ──driver──▶ its `add` actions, large files in several parts ──task──▶ row groups, without the rows
                                                                                that vectors delete

Only what this module reads exactly is read here (`data_files`): files that are reached by a path, of a table
whose reader features are known, without partition columns among those that are read. Spark reads the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tailrace.errors import StateError
from tailrace.sinks.delta.table import path_of
from tailrace.sinks.delta.transaction import DeltaVersion, version_at
from tailrace.spark.checkpoint import is_local
from tailrace.verify.checksum import Shards
from tailrace.verify.portion import KeyRanges

T = TypeVar("T")

#: Bytes of a file that one task reads at a time: larger files are divided.
_PART_BYTES = 128 << 20
#: After the end of every file.
_END = 1 << 62
#: Rows of a batch.
_ROWS = 65_536
#: What a table may ask of its readers so that its files are read here.
_FEATURES = frozenset(
    {
        *("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview"),
        *("v2Checkpoint", "vacuumProtocolCheck"),
    }
)
#: Keys of a file whose dates and times have days of the Julian calendar.
_JULIAN = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


@dataclass(frozen=True)
class DataFiles:
    """Reads data files in tasks.

    Args:
        root: the table's directory.
        names: the columns' names in files.
        where: a boolean column that rows must have set; None: all rows.
        shards: the rows that count; None: all.
    """

    root: str
    names: Mapping[str, str]
    where: str | None = None
    shards: Shards | None = None

    def only(self, shards: Shards) -> DataFiles:
        """The same with some of the rows."""
        return replace(self, shards=shards)

    def rows(
        self, parts: Iterator[pa.RecordBatch], columns: pa.Schema, only: KeyRanges | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some parts.

        Args:
            parts: those of `data_files`.
            columns: the columns to read, with their types in the table; null where a file has none.
            only: the keys that are asked for: row groups without any of them are not read. Rows of other
                keys may be returned, too.
        """
        read = columns
        if self.where is not None:
            read = read.append(pa.field(self.where, pa.bool_()))
        if self.shards is not None and self.shards.column not in read.names:
            read = read.append(pa.field(self.shards.column, pa.string()))
        for batch in parts:
            for file, start, end in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                for rows in self._part(json.loads(file), start, end, read, only):
                    found = rows
                    if self.where is not None:
                        found = found.filter(found.column(self.where))
                    if self.shards is not None:
                        found = self.shards.of(found)
                    yield found.select(columns.names)

    def _may_have(self, group: Any, only: KeyRanges | None) -> bool:
        """Whether a row group may have one of some keys."""
        extent = None if only is None else _extent(group, self.names[only.column])
        return only is None or extent is None or only.may_have(*extent)

    def _part(
        self, add: Mapping[str, Any], start: int, end: int, columns: pa.Schema, only: KeyRanges | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the row groups whose middle is between two offsets."""
        path = path_of(add, self.root)
        vector = add.get("deletionVector")
        with pq.ParquetFile(path) as file:
            _require_gregorian(path, file.metadata)
            held = set(file.schema_arrow.names)
            in_file = {column.name: self.names[column.name] for column in columns}
            present = [name for name in in_file.values() if name in held]
            first = 0
            deleted: np.ndarray | None = None
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                if not start <= _middle(group) < end or not self._may_have(group, only):
                    first += group.num_rows
                    continue
                if vector and deleted is None:
                    from tailrace.sinks.delta.vectors import read_vector  # noqa: PLC0415 - an extra

                    deleted = np.array(read_vector(vector, self.root), np.int64)
                for rows in file.iter_batches(_ROWS, [number], present, use_threads=False):
                    arrays = [
                        rows.column(in_file[column.name]).cast(column.type)
                        if in_file[column.name] in held
                        else pa.nulls(len(rows), column.type)
                        for column in columns
                    ]
                    found = pa.RecordBatch.from_arrays(arrays, schema=columns)
                    yield found if deleted is None else _without(found, deleted, first)
                    first += len(rows)


def _extent(group: Any, name: str) -> tuple[int, int] | None:
    """The least and the greatest whole number of a column in a row group; None: not known."""
    for column in map(group.column, range(group.num_columns)):
        found = column.statistics if column.path_in_schema == name else None
        if found is not None and found.has_min_max and isinstance(found.min, int | Decimal):
            return int(found.min), int(found.max)
    return None


def _middle(group: Any) -> int:
    """The offset of a row group's middle in its file."""
    columns = [group.column(i) for i in range(group.num_columns)]
    begin = min(c.dictionary_page_offset or c.data_page_offset for c in columns)
    return int(begin + sum(c.total_compressed_size for c in columns) // 2)


def _without(rows: pa.RecordBatch, deleted: np.ndarray, first: int) -> pa.RecordBatch:
    """The rows that are not deleted.

    Args:
        rows: rows of a file.
        deleted: the numbers of its deleted rows, ascending.
        first: the number of the first of `rows`.
    """
    low, high = np.searchsorted(deleted, (first, first + len(rows)))
    if low == high:
        return rows
    kept = np.ones(len(rows), bool)
    kept[deleted[low:high] - first] = False
    return rows.filter(pa.array(kept))


def _require_gregorian(path: str, metadata: Any) -> None:
    found = metadata.metadata or {}
    if any(key in found for key in _JULIAN):
        raise StateError(
            f"the data file `{path}` cannot be compared",
            "its dates and times have days of the Julian calendar, as Spark 2 wrote them",
            "rewrite the table's files: OPTIMIZE, or REORG TABLE ... APPLY (PURGE)",
            code="TR-8107",
        )


def data_files(
    session: SparkSession, path: str, version: int, where: str | None = None
) -> tuple[DataFiles, DataFrame] | None:
    """What reads a version of the table at `path`, and the parts that it reads, for `map_in_arrow`.

    Args:
        session: a session with Delta.
        path: the table's directory.
        version: a version that it has.
        where: a boolean column that rows must have set; None: all rows.

    Returns:
        None: Spark must read the table.
    """
    if not is_local(path):
        return None
    found = version_at(session, path, version)
    if found.partition_columns or not found.reader_features <= _FEATURES:
        return None
    parts = balanced(_parts(found), session.sparkContext.defaultParallelism)
    frame = session.createDataFrame(parts, "file string, start bigint, end bigint")
    return DataFiles(path, found.names_in_files, where), frame


def _parts(version: DeltaVersion) -> list[tuple[str, int, int]]:
    parts = []
    for file in version.files:
        text = json.dumps({name: file[name] for name in ("path", "deletionVector") if file.get(name)})
        starts = range(0, max(file["size"], 1), _PART_BYTES)
        parts += [(text, start, end) for start, end in pairwise((*starts, _END))]
    return parts


def balanced(parts: Sequence[T], tasks: int) -> list[T]:
    """The parts in an order whose equal stretches, one for each task, have about as many bytes.

    Parts of one file are beside each other before, and are about the same size.
    """
    return [part for i in range(tasks) for part in parts[i::tasks]]

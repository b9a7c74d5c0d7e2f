"""The data files of a table, as tasks read them by path and delete rows of them.

Rows are read by the table's present columns: a file that is older than a column lacks it, and one that is
older than a wider type has the narrower one. Deleted rows stay in their file, in a deletion vector
(`vectors`), until none is left. Files of few bytes need no task: a Spark job takes longer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tailrace.sinks.delta.table import DeltaTable, path_of
from tailrace.sinks.delta.transaction import removal
from tailrace.sinks.delta.vectors import read_vector, write_vector
from tailrace.spark.jvm import map_in_arrow

#: Files of so many bytes, compressed, are read here: a Spark job takes longer.
_SMALL_BYTES = 4 << 20
#: Small files are put together once there are so many of so few bytes each.
_MANY, _TINY_BYTES = 8, 256 << 10
#: Rows read at a time.
_ROWS_PER_BATCH = 65_536


# ---- work --------------------------------------------------------------------------------------------


def are_small(sizes: Iterable[int]) -> bool:
    """Whether the driver reads files of these sizes, bytes, rather than tasks."""
    return sum(sizes) <= _SMALL_BYTES


def in_tasks(
    table: DeltaTable,
    work: Iterable[tuple[str, int]],
    run: Callable[[Iterator[str]], Iterable[str]],
) -> list[str]:
    """What tasks make of pieces of work, in any order.

    Args:
        table: its session runs them.
        work: the pieces, with the bytes that each one reads.
        run: makes texts of the pieces of one task.
    """

    def of_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
        yield pa.RecordBatch.from_arrays([pa.array(list(run(pieces)), pa.string())], ["made"])

    largest_first = [piece for piece, _ in sorted(work, key=lambda one: -one[1])]
    tasks = table.session.sparkContext.defaultParallelism
    dealt = [(piece,) for i in range(tasks) for piece in largest_first[i::tasks]]
    frame = table.session.createDataFrame(dealt, "piece string")
    return [row["made"] for row in map_in_arrow(frame, of_batches, "made string").collect()]


# ---- reading -----------------------------------------------------------------------------------------


def columns_in(path: str, columns: pa.Schema) -> pa.Table:
    """Columns of a file of changes or of data; those are null that it does not have."""
    return pa.table(_present(_read(path, columns.names), columns), schema=columns)


def _present(rows: pa.Table | pa.RecordBatch, columns: pa.Schema) -> list[pa.Array | pa.ChunkedArray]:
    """The columns of rows in these types; those are null that the rows do not have."""
    names = set(rows.schema.names)
    return [
        rows.column(c.name).cast(c.type) if c.name in names else pa.nulls(rows.num_rows, c.type)
        for c in columns
    ]


def _read(path: str, columns: Sequence[str]) -> pa.Table:
    """Columns of a Parquet file; by threads and ahead only where it is large: they cost a small one most."""
    is_large = Path(path).stat().st_size > _TINY_BYTES
    with pq.ParquetFile(path, pre_buffer=is_large) as file:
        return file.read(columns=columns, use_threads=is_large)


def rows_at(path: str, numbers: np.ndarray, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of a file of changes or of data, with the table's present columns.

    Args:
        path: the file.
        numbers: numbers of the rows, ascending.
        columns: the columns; those are null that the file does not have.
    """
    first = 0
    with pq.ParquetFile(path) as file:
        names = [c.name for c in columns if c.name in file.schema_arrow.names]
        for group in range(file.num_row_groups):
            end = first + file.metadata.row_group(group).num_rows
            low, high = np.searchsorted(numbers, (first, end))
            batches = file.iter_batches(_ROWS_PER_BATCH, [group], names) if low < high else ()
            for batch in batches:
                low, high = np.searchsorted(numbers, (first, first + batch.num_rows))
                rows = batch.take(pa.array(numbers[low:high] - first))
                first += batch.num_rows
                yield pa.RecordBatch.from_arrays(_present(rows, columns), schema=columns)
            first = end


def may_hold(file: Mapping[str, Any], keys: pa.Table, first: str) -> bool:
    """Whether a data file may hold one of some keys, by its bounds.

    Args:
        file: its `add` action.
        keys: the keys.
        first: the key's first column.
    """
    stats = json.loads(file.get("stats") or "{}")
    low, high = (stats.get(bound, {}).get(first) for bound in ("minValues", "maxValues"))
    if not pa.types.is_integer(keys.schema.field(first).type) or low is None or high is None:
        return True
    values = keys.column(first)
    within = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
    return bool(pc.any(within).as_py())


# ---- deleting ----------------------------------------------------------------------------------------


def deleted_rows(file: Mapping[str, Any], root: str) -> BitMap64:
    """The numbers of the rows of a data file that are deleted.

    Args:
        file: its `add` action.
        root: the table's directory.
    """
    vector = file.get("deletionVector")
    return read_vector(vector, root) if vector else BitMap64()


def with_deleted(file: Mapping[str, Any], deleted: BitMap64, rows: int, root: str) -> list[str]:
    """The actions by which a data file has these deleted rows.

    Args:
        file: its `add` action.
        deleted: the numbers of all its deleted rows.
        rows: the number of its rows, with deleted ones.
        root: the table's directory.
    """
    actions = [removed(file)]
    if len(deleted) < rows:
        stats = json.loads(file.get("stats") or "{}") | {"numRecords": rows, "tightBounds": False}
        new = {"deletionVector": write_vector(deleted, root), "stats": json.dumps(stats), "dataChange": True}
        actions.append(json.dumps({"add": {**file, **new}}))
    return actions


def removed(file: Mapping[str, Any]) -> str:
    """The action that removes a data file."""
    return json.dumps(removal(file, int(time.time() * 1000)))


# ---- tiny files --------------------------------------------------------------------------------------


def without_tiny(
    files: Sequence[dict[str, Any]], columns: pa.Schema, table: DeltaTable
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The data files whose rows are to go into a new file, none unless many are small; the others.

    Args:
        files: the table's `add` actions.
        columns: all columns of the table.
        table: the table.
    """
    tiny = _tiny(files, columns, table)
    put_together = {file["path"] for file in tiny}
    return tiny, [file for file in files if file["path"] not in put_together]


def _tiny(files: Sequence[dict[str, Any]], columns: pa.Schema, table: DeltaTable) -> list[dict[str, Any]]:
    tiny = [file for file in files if file["size"] <= _TINY_BYTES and not file.get("tags")]
    if len(tiny) < _MANY or table.tracks_rows():
        return []
    sizes = accumulate(file["size"] for file in tiny)
    some = [file for file, size in zip(tiny, sizes, strict=True) if size <= _SMALL_BYTES]
    return [file for file in some if _is_plain(path_of(file, table.path), columns)]


def _is_plain(path: str, columns: pa.Schema) -> bool:
    """Whether a file's columns have the table's types, in the forms that we write."""
    types = {column.name: column.type for column in columns}
    return all(types.get(held.name) == held.type for held in pq.read_schema(path))

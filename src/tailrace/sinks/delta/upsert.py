"""Upserts in tasks, without MERGE: deletes the old rows of changed keys, adds the new rows.

    change files ──driver──▶ finds the last row of each key; writes the changed keys into a file
    data file ──────task───▶ reads its key columns; adds the rows with changed keys to its deletion vector
    change file ────task───▶ writes its rows that are a key's last, except deletes, into a new data file

Everything is one commit, as with a MERGE. No row passes through the JVM and no data file is rewritten,
whereas MERGE joins table and changes three times (docs/explanation/performance-history.md). If the key's
first column is an integer, files whose bounds exclude all changed keys are skipped. Small files need no task:
the driver reads and writes them. Each upsert adds a file: once there are many small ones, what is left of
their rows goes into the new file, so that a table that is changed every second keeps few.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tailrace.model.change import OP_DELETE
from tailrace.sinks.delta.table import DeltaTable, path_of
from tailrace.sinks.delta.transaction import CommitMark, removal
from tailrace.sinks.delta.vectors import read_vector, write_vector
from tailrace.sinks.tables.keys import LastChanges, last_changes, rows_of_keys
from tailrace.sinks.tables.parquet import DataFile, write_in_tasks, write_rows
from tailrace.sinks.tables.rows import MERGE_FIELDS
from tailrace.spark.jvm import map_in_arrow

#: Files of so many bytes, compressed, are read here: a Spark job takes longer.
_SMALL_BYTES = 4 << 20
#: Small files are put together once there are so many of so few bytes each.
_MANY, _TINY_BYTES = 16, 256 << 10
#: Rows read at a time of a change file.
_ROWS_PER_BATCH = 65_536


def upsert(
    table: DeltaTable,
    changes: Sequence[str],
    columns: pa.Schema,
    *,
    key: Sequence[str],
    mark: CommitMark,
    scratch: str,
) -> float:
    """Apply changes to a table, unless it has a commit with `mark`.

    Args:
        table: the target; its files are reached by a path, and it may have deletion vectors.
        changes: paths of Parquet files with the columns and MERGE_FIELDS, rows in any order.
        columns: the source's columns.
        key: the key's columns.
        mark: the mark of the commit.
        scratch: a directory for temporary files.

    Returns:
        How long the commit took, seconds.
    """
    transaction = table.begin()
    if transaction.has(mark):
        return 0.0
    schema = pa.schema([columns.field(name) for name in key])
    last = last_changes((_keys_of(path, schema) for path in changes), key)
    files = transaction.files()
    tiny = _tiny(files, columns, table)
    put_together = {file["path"] for file in tiny}
    others = [f for f in files if f["path"] not in put_together and _may_hold(f, last.keys, key[0])]
    actions = [*_deleted(table, others, last.keys, scratch), *(_removed(file) for file in tiny)]
    left = chain.from_iterable(_left(file, last.keys, columns, table.path) for file in tiny)
    added = _added(table, changes, last, columns, left)
    begun = time.perf_counter()
    transaction.commit([*actions, *(file.action({}) for file in added)], mark)
    return time.perf_counter() - begun


def are_whole(changes: Sequence[str]) -> bool:
    """Whether no change lacks columns, whose values only the old rows have.

    Args:
        changes: paths of Parquet files.
    """
    files = [pq.ParquetFile(path) for path in changes]
    absent = [file.read(["_absent"]).column(0) for file in files if "_absent" in file.schema_arrow.names]
    return all(column.null_count == len(column) for column in absent)


def _keys_of(path: str, schema: pa.Schema) -> pa.Table:
    """The changed keys of a change file, with `_op` and `_seq`."""
    rows = _read(path, [*schema.names, "_op", "_seq"])
    return rows.cast(pa.schema([*schema, *MERGE_FIELDS]))


def _read(path: str, columns: Sequence[str]) -> pa.Table:
    """Columns of a Parquet file; by threads and ahead only where it is large: they cost a small one most."""
    is_large = Path(path).stat().st_size > _TINY_BYTES
    with pq.ParquetFile(path, pre_buffer=is_large) as file:
        return file.read(columns=columns, use_threads=is_large)


def _may_hold(file: Mapping[str, Any], keys: pa.Table, first: str) -> bool:
    """Whether a data file may hold a changed key, by its bounds."""
    stats = json.loads(file.get("stats") or "{}")
    low, high = (stats.get(bound, {}).get(first) for bound in ("minValues", "maxValues"))
    if not pa.types.is_integer(keys.schema.field(first).type) or low is None or high is None:
        return True
    values = keys.column(first)
    within = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
    return bool(pc.any(within).as_py())


# ---- old rows ----------------------------------------------------------------------------------------


def _deleted(table: DeltaTable, held: Sequence[dict[str, Any]], changed: pa.Table, scratch: str) -> list[str]:
    """The actions that delete the rows of changed keys from data files.

    Args:
        table: the target.
        held: the `add` actions of the data files.
        changed: the changed keys.
        scratch: a directory for a file with them.
    """
    if not held:
        return []
    root = table.path
    if sum(file["size"] for file in held) <= _SMALL_BYTES:
        return [action for file in held for action in _without(file, changed, root)]
    keys = f"{scratch}/keys.parquet"
    pq.write_table(changed, keys)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        changed = pq.read_table(keys)
        for batch in batches:
            for file in batch.column(0).to_pylist():
                actions = pa.array(_without(json.loads(file), changed, root), pa.string())
                yield pa.RecordBatch.from_arrays([actions], ["action"])

    work = table.session.createDataFrame([(json.dumps(file),) for file in held], "file string")
    return [row["action"] for row in map_in_arrow(work, run, "action string").collect()]


def _without(file: dict[str, Any], changed: pa.Table, root: str) -> list[str]:
    """The actions that delete the rows of changed keys from a data file; none if it has no such rows."""
    rows = _keys_in(path_of(file, root), changed.schema)
    gone, deleted = _gone(file, rows, changed, root)
    if len(deleted) == len(gone):
        return []
    actions = [removal(file, int(time.time() * 1000))]
    if len(deleted) < rows.num_rows:
        stats = json.loads(file.get("stats") or "{}") | {"numRecords": rows.num_rows, "tightBounds": False}
        new = {"deletionVector": write_vector(deleted, root), "stats": json.dumps(stats), "dataChange": True}
        actions.append({"add": file | new})
    return [json.dumps(action) for action in actions]


def _gone(file: Mapping[str, Any], rows: pa.Table, changed: pa.Table, root: str) -> tuple[BitMap64, BitMap64]:
    """The rows of a data file that are deleted already, and these with those of changed keys."""
    vector = file.get("deletionVector")
    gone = read_vector(vector, root) if vector else BitMap64()
    hit = rows_of_keys(rows, changed)
    return gone, gone | BitMap64(hit.to_numpy(zero_copy_only=False).astype(np.uint64))


def _keys_in(path: str, schema: pa.Schema) -> pa.Table:
    """The keys of a data file's rows; null in columns that joined the key after it was written."""
    rows = _read(path, schema.names)  # without those that it does not have
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


# ---- small files -------------------------------------------------------------------------------------


def _tiny(files: Sequence[dict[str, Any]], columns: pa.Schema, table: DeltaTable) -> list[dict[str, Any]]:
    """The small files whose rows are to go into the new file; none unless there are many."""
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


def _removed(file: Mapping[str, Any]) -> str:
    return json.dumps(removal(file, int(time.time() * 1000)))


def _left(
    file: Mapping[str, Any], changed: pa.Table, columns: pa.Schema, root: str
) -> Iterator[pa.RecordBatch]:
    """The rows of a data file that are not deleted, without those of changed keys."""
    path = path_of(file, root)
    keys = _keys_in(path, changed.schema)
    _, deleted = _gone(file, keys, changed, root)
    yield from _rows(path, BitMap64(range(keys.num_rows)) - deleted, columns)


# ---- new rows ----------------------------------------------------------------------------------------


def _added(
    table: DeltaTable,
    changes: Sequence[str],
    last: LastChanges,
    columns: pa.Schema,
    left: Iterable[pa.RecordBatch],
) -> list[DataFile]:
    """Write the last rows of the changed keys into data files, and rows that are left of others."""
    root, work = table.path, []
    for path, rows, ops in zip(changes, last.rows, last.ops, strict=True):
        alive = rows.filter(pc.not_equal(ops, OP_DELETE))
        if len(alive):
            work.append((path, BitMap64(alive.to_numpy().astype(np.uint64)).serialize()))
    if sum(Path(path).stat().st_size for path, _ in work) <= _SMALL_BYTES:
        rows = (_rows(path, BitMap64.deserialize(numbers), columns) for path, numbers in work)
        return write_rows(chain(chain.from_iterable(rows), left), columns, root)

    def last_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, numbers in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield from _rows(path, BitMap64.deserialize(numbers), columns)

    frame = table.session.createDataFrame(work, "path string, numbers binary")
    return [*write_in_tasks(frame, last_rows, columns, root), *write_rows(left, columns, root)]


def _rows(path: str, numbers: BitMap64, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a change file with these numbers, with the table's present columns."""
    selected, first = np.array(numbers, np.int64), 0
    file = pq.ParquetFile(path)
    names = [c.name for c in columns if c.name in file.schema_arrow.names]
    for batch in file.iter_batches(_ROWS_PER_BATCH, columns=names):
        low, high = np.searchsorted(selected, (first, first + batch.num_rows))
        rows = batch.take(pa.array(selected[low:high] - first))
        first += batch.num_rows
        arrays = [
            rows.column(c.name).cast(c.type) if c.name in names else pa.nulls(rows.num_rows, c.type)
            for c in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=columns)

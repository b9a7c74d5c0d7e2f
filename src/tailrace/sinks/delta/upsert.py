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
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tailrace.model.change import OP_DELETE
from tailrace.sinks.delta.data_files import (
    are_small,
    columns_in,
    deleted_rows,
    in_tasks,
    may_hold,
    removed,
    rows_at,
    with_deleted,
    without_tiny,
)
from tailrace.sinks.delta.table import DeltaTable, path_of
from tailrace.sinks.delta.transaction import CommitMark
from tailrace.sinks.tables.keys import LastChanges, last_changes, rows_of_keys
from tailrace.sinks.tables.parquet import DataFile, write_in_tasks, write_rows
from tailrace.sinks.tables.rows import MERGE_FIELDS


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
    schema = pa.schema([*(columns.field(name) for name in key), *MERGE_FIELDS])
    last = last_changes((columns_in(path, schema) for path in changes), key)
    tiny, others = without_tiny(transaction.files(), columns, table)
    held = [file for file in others if may_hold(file, last.keys, key[0])]
    actions = [*_deleted(table, held, last.keys, scratch), *map(removed, tiny)]
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
    if are_small(file["size"] for file in held):
        return [action for file in held for action in _without(file, changed, root)]
    keys = f"{scratch}/keys.parquet"
    pq.write_table(changed, keys)

    def run(files: Iterator[str]) -> Iterator[str]:
        changed = pq.read_table(keys)
        for file in files:
            yield from _without(json.loads(file), changed, root)

    return in_tasks(table, [(json.dumps(file), file["size"]) for file in held], run)


def _without(file: dict[str, Any], changed: pa.Table, root: str) -> list[str]:
    """The actions that delete the rows of changed keys from a data file; none if it has no such rows."""
    rows = columns_in(path_of(file, root), changed.schema)
    gone, deleted = _gone(file, rows, changed, root)
    return with_deleted(file, deleted, rows.num_rows, root) if len(deleted) > len(gone) else []


def _gone(file: Mapping[str, Any], rows: pa.Table, changed: pa.Table, root: str) -> tuple[BitMap64, BitMap64]:
    """The rows of a data file that are deleted already, and these with those of changed keys."""
    gone = deleted_rows(file, root)
    hit = rows_of_keys(rows, changed)
    return gone, gone | BitMap64(hit.to_numpy(zero_copy_only=False).astype(np.uint64))


def _left(
    file: Mapping[str, Any], changed: pa.Table, columns: pa.Schema, root: str
) -> Iterator[pa.RecordBatch]:
    """The rows of a data file that are not deleted, without those of changed keys."""
    path = path_of(file, root)
    keys = columns_in(path, changed.schema)
    _, deleted = _gone(file, keys, changed, root)
    yield from rows_at(path, _numbers(BitMap64(range(keys.num_rows)) - deleted), columns)


def _numbers(rows: BitMap64) -> np.ndarray:
    return np.array(rows.to_array(), np.int64)


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
    if are_small(Path(path).stat().st_size for path, _ in work):
        new = (rows_at(path, _numbers(BitMap64.deserialize(found)), columns) for path, found in work)
        return write_rows(chain(chain.from_iterable(new), left), columns, root)

    def last_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, found in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield from rows_at(path, _numbers(BitMap64.deserialize(found)), columns)

    frame = table.session.createDataFrame(work, "path string, numbers binary")
    return [*write_in_tasks(frame, last_rows, columns, root), *write_rows(left, columns, root)]

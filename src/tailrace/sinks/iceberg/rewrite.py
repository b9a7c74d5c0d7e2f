"""Upserts that copy on write: data files are rewritten without changed keys, the last rows go to new files.

    changes ──tasks──▶ write change files (the last change per key of each cell)
            ──driver─▶ finds the last row of each key; writes the changed keys into a file
    data file ──task─▶ rewrites it without the changed keys, unless it holds none of them
    change file ─task▶ writes its last rows, except deletes, into a data file

At the end of a table's reading (`seen`), data files are also rewritten without its rows of unseen keys.

A row that lacks columns takes them from the changes that have them (`sinks.tables.keys`): the task of its
change file reads these columns of other change files. If no change has a column, only the old row has it:

    change file ─task▶ writes its last rows that still lack columns into a file of partial rows
    data file ──task─▶ completes the partial rows of its keys with its own rows; rewrites them with the rest

The driver reads only keys, `_seq` and the names of absent columns. Each task reads the file of changed keys
once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyspark.sql import SparkSession

from tailrace.model.cell import to_stream
from tailrace.model.change import OP_DELETE
from tailrace.sinks.iceberg.files import FileTarget, fitted, read, read_fitted
from tailrace.sinks.iceberg.seen import Unseen, columns_of
from tailrace.sinks.tables import keys
from tailrace.spark.jvm import map_in_arrow

#: The column with a last row's number in its change file.
ROW = "_tailrace_row"


@dataclass(frozen=True)
class Changes:
    """The last change of each key.

    Args:
        keys: the path of the file with the changed keys.
        left: the keys whose last change is no delete.
        last_rows: for each change file its rows that are a key's last change and no delete: their numbers,
            and for each column that some change lacks the positions of the changes that have it.
        low: the smallest value of the keys' first column if that is an integer.
        high: the greatest value.
    """

    keys: str
    left: pa.Table
    last_rows: dict[str, pa.Table]
    low: Any
    high: Any


def last_changes(files: Sequence[str], key: Sequence[str], target: FileTarget) -> Changes:
    """Find the last change of each key in change files.

    Args:
        files: their paths.
        key: the key's columns.
        target: writes the file of keys; its schema has the key's columns.
    """
    names = [*key, "_op", "_seq", "_absent"]
    found = keys.last_changes((read(target.io, path, names) for path in files), key)
    last_rows = {}
    for path, rows, ops, known in zip(files, found.rows, found.ops, found.known, strict=True):
        last = pa.table([rows, *known.values()], [ROW, *known])
        last_rows[path] = last.filter(pc.not_equal(ops, OP_DELETE))
    schema = pa.schema([target.schema.field(name) for name in key])
    (path,) = FileTarget(target.io, target.directory, schema).write(found.keys.to_batches())
    first = found.keys.column(key[0])
    ends = pc.min_max(first) if pa.types.is_integer(first.type) else {"min": pa.NA, "max": pa.NA}
    left = found.keys.filter(pc.not_equal(pa.concat_arrays(found.ops), OP_DELETE))
    return Changes(path, left.cast(schema), last_rows, ends["min"].as_py(), ends["max"].as_py())


def insert_files(
    session: SparkSession, changes: Changes, target: FileTarget, scratch: FileTarget
) -> tuple[list[str], list[str]]:
    """Write the last rows of keys into data files, and those that still lack columns into partial files.

    Args:
        session: runs the tasks.
        changes: the changes.
        target: writes data files.
        scratch: writes files of partial rows; its schema is that of change files.

    Returns:
        The paths of the data files and of the files of partial rows.
    """
    files = list(changes.last_rows)
    fields = [scratch.schema.field(name) for name in (*target.schema.names, "_absent")]
    partial = FileTarget(scratch.io, scratch.directory, pa.schema(fields))
    work = [(path, to_stream(rows).to_pybytes()) for path, rows in changes.last_rows.items() if len(rows)]
    if not work:
        return [], []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, numbers in zip(*batch.columns, strict=True):
                last = pa.ipc.open_stream(numbers.as_buffer()).read_all()
                rows = read(target.io, path.as_py(), target.schema.names).take(last.column(ROW))
                incomplete = []
                if last.num_columns > 1:
                    rows = _composed(target.io, rows, last, files)
                    is_whole = rows.column("_absent").is_null()
                    incomplete = partial.write(rows.filter(pc.invert(is_whole)).to_batches())
                    rows = rows.filter(is_whole).select(target.schema.names)
                yield _lists(target.write(rows.cast(target.schema).to_batches()), incomplete)

    frame = session.createDataFrame(work, "path string, numbers binary").repartition(len(work))
    found = map_in_arrow(frame, run, "new array<string>, partial array<string>").collect()
    return [path for row in found for path in row[0]], [path for row in found for path in row[1]]


def kept_files(
    session: SparkSession,
    files: Sequence[str],
    changes: Changes | None,
    partial: Sequence[str],
    *,
    unseen: Sequence[Unseen],
    key: Sequence[str],
    target: FileTarget,
) -> dict[str, list[str]]:
    """Rewrite the data files that hold rows to be removed, without these and with completed partial rows.

    Args:
        session: runs the tasks.
        files: paths of the data files that may hold such rows.
        changes: changes whose keys are removed, None if there are none.
        partial: paths of files with partial rows.
        unseen: further rows to be removed.
        key: the key's columns.
        target: writes the new files.

    Returns:
        The new files of each rewritten file.
    """
    if not files:
        return {}
    path_of_keys = None if changes is None else changes.keys

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        changed = None
        for batch in batches:
            for path in batch.column(0).to_pylist():
                if changed is None and path_of_keys is not None:
                    changed = read(target.io, path_of_keys)
                kept, marked = kept_rows(target, path, changed, unseen)
                if kept is not None:
                    rows = fitted(read(target.io, path), target.schema)
                    completed = (_completed(target.io, file, rows, key) for file in partial)
                    gone = (of.marked(rows.take(at)) for of, at in marked)
                    tables = itertools.chain([rows.take(kept)], gone, completed)
                    written = target.write(batch for table in tables for batch in table.to_batches())
                    yield _lists([path], written)

    frame = session.createDataFrame([(path,) for path in files], "path string").repartition(len(files))
    found = map_in_arrow(frame, run, "old array<string>, new array<string>").collect()
    return {row[0][0]: list(row[1]) for row in found}


def kept_rows(
    target: FileTarget, path: str, changed: pa.Table | None, unseen: Sequence[Unseen]
) -> tuple[pa.Array | None, list[tuple[Unseen, pa.Array]]]:
    """The numbers of a file's rows that stay, None if all do; and of those that are marked as deleted.

    Args:
        target: the table's columns.
        path: the file.
        changed: the changed keys, whose rows are removed.
        unseen: further rows to be removed.
    """
    key = [] if changed is None else changed.column_names
    # a table without columns would have no rows
    names = dict.fromkeys([*key, *columns_of(unseen)]) or target.schema.names[:1]
    rows = read_fitted(target.io, path, pa.schema([target.schema.field(name) for name in names]))
    kept = np.ones(rows.num_rows, bool)
    if changed is not None:
        kept[keys.rows_of_keys(rows.select(key).cast(changed.schema), changed).to_numpy()] = False
    marked = []
    for removed in unseen:
        gone = removed.among(target.io, rows) & kept
        kept &= ~gone
        if removed.marks is not None:
            marked.append((removed, pa.array(np.flatnonzero(gone))))
    return None if kept.all() else pa.array(np.flatnonzero(kept)), marked


def _composed(io: FileIO, rows: pa.Table, last: pa.Table, files: Sequence[str]) -> pa.Table:
    """The last rows of a change file, with columns of other changes; `_absent` names missing columns."""
    lacks = {}
    for name in last.column_names[1:]:
        positions = last.column(name).combine_chunks()
        lacks[name] = np.asarray(positions.is_null())
        at = rows.schema.get_field_index(name)
        field = rows.schema.field(at)

        def column(file: int, name: str = name) -> pa.ChunkedArray:
            return read(io, files[file], [name]).column(0)

        rows = rows.set_column(at, field, keys.values_at(positions, column, field.type))
    return rows.append_column("_absent", keys.named(lacks))


def _completed(io: FileIO, partial: str, rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The partial rows in a file that belong to a data file's rows, completed with these."""
    found = read(io, partial, key).cast(rows.select(key).schema)
    old, new = keys.pairs_of_keys(rows.select(key), found)
    if not len(old):
        return rows.slice(0, 0)
    rows, updates = rows.take(old), read(io, partial).take(new)
    lacks = keys.lacking(updates.column("_absent"))
    columns = fitted(updates, rows.schema).columns
    for name, mask in lacks.items():
        at = rows.schema.get_field_index(name)
        columns[at] = pc.if_else(pa.array(mask), rows.column(at), columns[at])
    return pa.table(columns, schema=rows.schema)


def _lists(*lists: Sequence[str]) -> pa.RecordBatch:
    """Lists of paths as the one row that a task returns."""
    arrays = [pa.array([paths], pa.list_(pa.string())) for paths in lists]
    return pa.RecordBatch.from_arrays(arrays, [str(i) for i in range(len(arrays))])

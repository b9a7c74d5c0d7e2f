"""Upserts by copying: data files without the keys that have changed, and the keys' last rows in new ones.

    changes ──tasks──▶ change files (the last change per key of each cell)
            ──driver─▶ which row of which change file is a key's last; the changed keys, in a file
    data file ──task─▶ read, changed keys left out, written anew; as it is if it holds none of them
    change file ─task▶ its winning rows, but for deletes, into a data file

A row that lacks columns takes them from the changes that have them (`sinks.tables.keys`): the task of its
change file reads those columns of other change files. What no change has only the old row knows:

    change file ─task▶ its winning rows that lack columns still, into a file of parts
    data file ──task─▶ its rows of these keys with the columns that the parts have, written anew with the rest

The driver sees keys, `_seq` and the names of absent columns only. Tasks get the keys by the file: each reads
it once.
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
from tailrace.sinks.iceberg.files import FileTarget, fitted, read
from tailrace.sinks.tables import keys
from tailrace.spark.jvm import map_in_arrow

#: Of a winning row: its number in its change file.
ROW = "_tailrace_row"


@dataclass(frozen=True)
class Changes:
    """The last change of each key.

    Args:
        keys: path of a file with the changed keys.
        winners: of each change file the rows that are a key's last change and no delete: their numbers, then
            for each column that any change lacks the places of those that have it.
        low: the least first column of the keys.
        high: the greatest.
    """

    keys: str
    winners: dict[str, pa.Table]
    low: Any
    high: Any


def last_changes(files: Sequence[str], key: Sequence[str], place: FileTarget) -> Changes:
    """Find the last change of each key in change files.

    Args:
        files: their paths.
        key: the key's columns.
        place: where the file of keys goes; its schema has the key's columns.
    """
    wanted = [*key, "_op", "_seq", "_absent"]
    found = keys.last_changes((read(place.io, path, wanted) for path in files), key)
    winners = {}
    for path, rows, ops, known in zip(files, found.rows, found.ops, found.known, strict=True):
        last = pa.table([rows, *known.values()], [ROW, *known])
        winners[path] = last.filter(pc.not_equal(ops, OP_DELETE))
    schema = pa.schema([place.schema.field(name) for name in key])
    (path,) = FileTarget(place.io, place.directory, schema).write(found.keys.to_batches())
    first = pc.min_max(found.keys.column(key[0]))
    return Changes(path, winners, first["min"].as_py(), first["max"].as_py())


def insert_files(
    session: SparkSession, changes: Changes, place: FileTarget, scratch: FileTarget
) -> tuple[list[str], list[str]]:
    """The keys' last rows as data files, and those that lack columns still as files of parts; their paths.

    Args:
        session: runs the tasks.
        changes: what has changed.
        place: where data files go.
        scratch: where files of parts go; its schema is that of change files.
    """
    files = list(changes.winners)
    fields = [scratch.schema.field(name) for name in (*place.schema.names, "_absent")]
    parts = FileTarget(scratch.io, scratch.directory, pa.schema(fields))
    work = [(path, to_stream(rows).to_pybytes()) for path, rows in changes.winners.items() if len(rows)]
    if not work:
        return [], []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, winners in zip(*batch.columns, strict=True):
                won = pa.ipc.open_stream(winners.as_buffer()).read_all()
                rows = read(place.io, path.as_py(), place.schema.names).take(won.column(ROW))
                lacking = []
                if won.num_columns > 1:
                    rows = _composed(place.io, rows, won, files)
                    is_whole = rows.column("_absent").is_null()
                    lacking = parts.write(rows.filter(pc.invert(is_whole)).to_batches())
                    rows = rows.filter(is_whole).select(place.schema.names)
                yield _lists(place.write(rows.cast(place.schema).to_batches()), lacking)

    frame = session.createDataFrame(work, "path string, winners binary").repartition(len(work))
    found = map_in_arrow(frame, run, "new array<string>, parts array<string>").collect()
    return [path for row in found for path in row[0]], [path for row in found for path in row[1]]


def kept_files(
    session: SparkSession,
    files: Sequence[str],
    changes: Changes,
    parts: Sequence[str],
    *,
    key: Sequence[str],
    place: FileTarget,
) -> dict[str, list[str]]:
    """The data files that hold changed keys, each with the files of its other rows and of completed ones.

    Args:
        session: runs the tasks.
        files: paths of the data files that may hold them.
        changes: what has changed.
        parts: paths of files with rows that lack columns.
        key: the key's columns.
        place: where the new files go.
    """
    if not files:
        return {}
    path_of_keys = changes.keys

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        changed = None
        for batch in batches:
            for path in batch.column(0).to_pylist():
                changed = read(place.io, path_of_keys) if changed is None else changed
                kept = kept_rows(place.io, path, changed, key)
                if kept is not None:
                    rows = fitted(read(place.io, path), place.schema)
                    completed = (_completed(place.io, part, rows, key) for part in parts)
                    tables = itertools.chain([rows.take(kept)], completed)
                    written = place.write(batch for table in tables for batch in table.to_batches())
                    yield _lists([path], written)

    frame = session.createDataFrame([(path,) for path in files], "path string").repartition(len(files))
    found = map_in_arrow(frame, run, "old array<string>, new array<string>").collect()
    return {row[0][0]: list(row[1]) for row in found}


def kept_rows(io: FileIO, path: str, changed: pa.Table, key: Sequence[str]) -> pa.Array | None:
    """The numbers of a file's rows whose key has not changed; None if that is all of them."""
    rows = read(io, path, key).cast(changed.schema)
    kept = np.ones(rows.num_rows, bool)
    kept[keys.rows_of_keys(rows, changed).to_numpy()] = False
    return None if kept.all() else pa.array(np.flatnonzero(kept))


def _composed(io: FileIO, rows: pa.Table, winners: pa.Table, files: Sequence[str]) -> pa.Table:
    """The winning rows of a change file with what other changes have of them; `_absent` names the rest."""
    lacks = {}
    for name in winners.column_names[1:]:
        places = winners.column(name).combine_chunks()
        lacks[name] = np.asarray(places.is_null())
        at = rows.schema.get_field_index(name)
        field = rows.schema.field(at)

        def column(file: int, name: str = name) -> pa.ChunkedArray:
            return read(io, files[file], [name]).column(0)

        rows = rows.set_column(at, field, keys.values_at(places, column, field.type))
    return rows.append_column("_absent", keys.named(lacks))


def _completed(io: FileIO, part: str, rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Those of a data file's rows that a file of parts has keys of, as they are now."""
    found = read(io, part, key).cast(rows.select(key).schema)
    old, new = keys.pairs_of_keys(rows.select(key), found)
    if not len(old):
        return rows.slice(0, 0)
    rows, parts = rows.take(old), read(io, part).take(new)
    lacks = keys.lacking(parts.column("_absent"))
    columns = fitted(parts, rows.schema).columns
    for name, mask in lacks.items():
        at = rows.schema.get_field_index(name)
        columns[at] = pc.if_else(pa.array(mask), rows.column(at), columns[at])
    return pa.table(columns, schema=rows.schema)


def _lists(*lists: Sequence[str]) -> pa.RecordBatch:
    """Lists of paths as a task hands them over: a row of them."""
    arrays = [pa.array([paths], pa.list_(pa.string())) for paths in lists]
    return pa.RecordBatch.from_arrays(arrays, [str(i) for i in range(len(arrays))])

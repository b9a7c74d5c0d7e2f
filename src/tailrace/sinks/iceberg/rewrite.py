"""Upserts by copying: data files without the keys that have changed, and the keys' last rows in new ones.

    changes ──tasks──▶ change files (the last change per key of each cell)
            ──driver─▶ which row of which change file is a key's last; the changed keys, in a file
    data file ──task─▶ read, changed keys left out, written anew; as it is if it holds none of them
    change file ─task▶ its winning rows, but for deletes, into a data file

The driver sees keys and `_seq` only. Tasks get the keys by the file: each reads it once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyspark.sql import SparkSession

from tailrace.model.change import OP_DELETE
from tailrace.sinks import keys
from tailrace.sinks.iceberg.files import Place, paths_batch, read
from tailrace.spark.jvm import map_in_arrow


@dataclass(frozen=True)
class Changes:
    """The last change of each key.

    Args:
        keys: path of a file with the changed keys.
        winners: of each change file the numbers of the rows that are a key's last change and no delete.
        low: the least first column of the keys.
        high: the greatest.
    """

    keys: str
    winners: dict[str, pa.Array]
    low: Any
    high: Any


def last_changes(files: Sequence[str], key: Sequence[str], place: Place) -> Changes:
    """Find the last change of each key in change files.

    Args:
        files: their paths.
        key: the key's columns.
        place: where the file of keys goes; its schema has the key's columns.
    """
    found = keys.last_changes((read(place.io, path, [*key, "_op", "_seq"]) for path in files), key)
    winners = {
        path: rows.filter(pc.not_equal(ops, OP_DELETE))
        for path, rows, ops in zip(files, found.rows, found.ops, strict=True)
    }
    schema = pa.schema([place.schema.field(name) for name in key])
    (path,) = Place(place.io, place.directory, schema).write(found.keys.to_batches())
    first = pc.min_max(found.keys.column(key[0]))
    return Changes(path, winners, first["min"].as_py(), first["max"].as_py())


def insert_files(session: SparkSession, changes: Changes, place: Place) -> list[str]:
    """The keys' last rows as data files; their paths."""
    work = [(path, rows.to_pylist()) for path, rows in changes.winners.items() if len(rows)]
    if not work:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, rows in zip(*batch.columns, strict=True):
                won = read(place.io, path.as_py(), place.schema.names).take(rows.values)
                yield paths_batch(place.write(won.cast(place.schema).to_batches()))

    frame = session.createDataFrame(work, "path string, rows array<bigint>").repartition(len(work))
    return [row[0] for row in map_in_arrow(frame, run, "path string").collect()]


def kept_files(
    session: SparkSession, files: Sequence[str], changes: Changes, key: Sequence[str], place: Place
) -> dict[str, list[str]]:
    """The data files that hold changed keys, each with the files of its other rows.

    Args:
        session: runs the tasks.
        files: paths of the data files that may hold them.
        changes: what has changed.
        key: the key's columns.
        place: where the new files go.
    """
    if not files:
        return {}
    schema = "old string, new array<string>"

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        changed = None
        for batch in batches:
            for path in batch.column(0).to_pylist():
                changed = read(place.io, changes.keys) if changed is None else changed
                kept = kept_rows(place.io, path, changed, key)
                if kept is not None:
                    rows = read(place.io, path)
                    new = place.write(fitted(rows, place.schema).take(kept).to_batches())
                    yield pa.RecordBatch.from_arrays(
                        [pa.array([path]), pa.array([new], pa.list_(pa.string()))], ["old", "new"]
                    )

    frame = session.createDataFrame([(path,) for path in files], "path string").repartition(len(files))
    return {row[0]: list(row[1]) for row in map_in_arrow(frame, run, schema).collect()}


def kept_rows(io: FileIO, path: str, changed: pa.Table, key: Sequence[str]) -> pa.Array | None:
    """The numbers of a file's rows whose key has not changed; None if that is all of them."""
    rows = read(io, path, key).cast(changed.schema)
    kept = np.ones(rows.num_rows, bool)
    kept[keys.rows_of_keys(rows, changed).to_numpy()] = False
    return None if kept.all() else pa.array(np.flatnonzero(kept))


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows of an older file with the columns that the table has now."""
    columns = [
        rows.column(f.name).cast(f.type) if f.name in rows.schema.names else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)

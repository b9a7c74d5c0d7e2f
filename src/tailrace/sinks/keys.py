"""Rows by their keys, whole columns at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

_ROW, _FILE = "_tailrace_row", "_tailrace_file"


def last_of_each_key(keys: Sequence[pa.Array]) -> pa.Array:
    """Row numbers of the last row of each key, ascending.

    Args:
        keys: the key's columns, of one length.
    """
    names = [f"k{i}" for i in range(len(keys))]
    row = pa.array(np.arange(len(keys[0]), dtype="int64"))
    table = pa.Table.from_arrays([*(comparable(key) for key in keys), row], names=[*names, "row"])
    last = table.group_by(names, use_threads=False).aggregate([("row", "max")]).column("row_max")
    return last.combine_chunks().sort()


def comparable(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Durations as numbers: they are neither grouped, sorted nor hashed (seen in Arrow 26)."""
    return column.cast(pa.int64()) if pa.types.is_duration(column.type) else column


@dataclass(frozen=True)
class LastChanges:
    """The last change of each key, of changes that lie in several files.

    Args:
        keys: the keys, each once.
        rows: of each file the numbers of the rows that are a key's last change, ascending.
        ops: their `_op`.
    """

    keys: pa.Table
    rows: Sequence[pa.Array]
    ops: Sequence[pa.Array]


def last_changes(files: Iterable[pa.Table], key: Sequence[str]) -> LastChanges:
    """Find the last change of each key.

    Args:
        files: of each file the key's columns, `_op` and `_seq`, by which the last is told.
        key: the key's columns.
    """
    counts, parts = [], []
    for number, part in enumerate(files):
        counts.append(part.num_rows)
        numbered = part.append_column(_ROW, pa.array(np.arange(part.num_rows)))
        parts.append(numbered.append_column(_FILE, pa.array(np.full(part.num_rows, number, np.int32))))
    table = pa.concat_tables(parts).sort_by("_seq")
    last = last_of_each_key([table.column(name).combine_chunks() for name in key])
    table = table.take(last).sort_by([(_FILE, "ascending"), (_ROW, "ascending")])
    ends = np.searchsorted(table.column(_FILE).to_numpy(), np.arange(len(counts) + 1))
    by_file = [table.slice(a, b - a) for a, b in itertools.pairwise(ends)]
    return LastChanges(
        table.select(list(key)),
        [part.column(_ROW).combine_chunks() for part in by_file],
        [part.column("_op").combine_chunks() for part in by_file],
    )


def rows_of_keys(rows: pa.Table, keys: pa.Table) -> pa.Array:
    """The numbers of the rows whose key is among `keys`, ascending.

    Args:
        rows: the key's columns.
        keys: the same columns.
    """
    names = keys.column_names
    numbered = pa.table([*(comparable(c) for c in rows.columns), np.arange(rows.num_rows)], [*names, _ROW])
    keys = pa.table([comparable(c) for c in keys.columns], names)
    found = numbered.join(keys, keys=names, join_type="left semi", use_threads=False)
    return found.column(_ROW).combine_chunks().sort()

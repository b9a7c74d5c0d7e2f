"""Rows by their keys, whole columns at a time.

Of the changes of a key the last one counts. It may lack columns, which the log left out of an update
(PostgreSQL: unchanged TOAST values; MySQL: partial images) and a list beside the row names:

    a column that it lacks          is as in the last change that has it
    where none of the changes has   is as in the target's row; the composed change still names it
    where there is no such row      the change is passed over: the row is deleted later, or is in the snapshot
                                    that is read again

All changes of a cell lack the same columns, so the last change of a key stands for all that the cell has of
it. What was composed of changes that lack different ones no longer tells how old its values are: it must not
be composed with changes that lie in between.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ROW, _OTHER, _PLACE, _KNOWN = "_tailrace_row", "_tailrace_other", "_tailrace_place", "_tailrace_known_"
#: A row's place among several files: the file's number, then the row's in these lower bits.
_ROW_BITS = 32


def last_of_each_key(keys: Sequence[pa.Array]) -> pa.Array:
    """Row numbers of the last row of each key, ascending.

    Args:
        keys: the key's columns, of one length.
    """
    return _last_of_each_key(keys, {})[0]


def composed(rows: pa.Table, key: Sequence[str], absent: str) -> pa.Table:
    """The last row of each key, with what it lacks from the last row that has it.

    Args:
        rows: in the order of their changes.
        key: the key's columns.
        absent: the column that names those that a row lacks, null where it lacks none.
    """
    keys = [rows.column(name).combine_chunks() for name in key]
    last, known = _last_of_each_key(keys, lacking(rows.column(absent)))
    found = rows.take(last)
    for name, numbers in known.items():
        at = found.schema.get_field_index(name)
        found = found.set_column(at, found.schema.field(at), rows.column(at).take(numbers))
    if known:
        names = named({name: np.asarray(numbers.is_null()) for name, numbers in known.items()})
        found = found.set_column(found.schema.get_field_index(absent), absent, names)
    return found


def lacking(absent: pa.Array | pa.ChunkedArray) -> dict[str, np.ndarray]:
    """Of each column that rows lack whether each row does.

    Args:
        absent: of each row the names of the columns that it lacks, null where it lacks none.
    """
    if absent.null_count == len(absent):
        return {}
    rows = np.asarray(pc.list_parent_indices(absent))
    names = pc.list_flatten(absent)
    found = {}
    for name in pc.unique(names).to_pylist():
        found[name] = np.zeros(len(absent), bool)
        found[name][rows[np.asarray(pc.equal(names, name))]] = True
    return found


def named(lacks: Mapping[str, np.ndarray]) -> pa.ListArray:
    """Of each row the names of the columns that it lacks, null where it lacks none; undoes `lacking`."""
    matrix = np.stack(list(lacks.values()), axis=1)
    _, column = np.nonzero(matrix)
    offsets = np.concatenate([[0], np.cumsum(matrix.sum(axis=1))]).astype(np.int32)
    names = pa.array(list(lacks), pa.string()).take(pa.array(column))
    return pa.ListArray.from_arrays(pa.array(offsets), names, mask=pa.array(~matrix.any(axis=1)))


def comparable(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Durations as numbers: they are neither grouped, sorted nor hashed (seen in Arrow 26)."""
    return column.cast(pa.int64()) if pa.types.is_duration(column.type) else column


def _last_of_each_key(
    keys: Sequence[pa.Array], lacks: Mapping[str, np.ndarray]
) -> tuple[pa.Array, dict[str, pa.Array]]:
    """The last row of each key, ascending, and the last one that has each column of `lacks`, null if none."""
    names = [f"k{i}" for i in range(len(keys))]
    row = np.arange(len(keys[0]), dtype="int64")
    numbers = [pa.array(row), *(pa.array(row, mask=mask) for mask in lacks.values())]
    wanted = [f"r{i}" for i in range(len(numbers))]
    table = pa.Table.from_arrays([*(comparable(key) for key in keys), *numbers], names=[*names, *wanted])
    found = table.group_by(names, use_threads=False).aggregate([(name, "max") for name in wanted])
    last, *known = (found.column(f"{name}_max").combine_chunks() for name in wanted)
    if not known:
        return last.sort(), {}
    order = pc.sort_indices(last)
    return last.take(order), {name: n.take(order) for name, n in zip(lacks, known, strict=True)}


# ---- changes in several files ------------------------------------------------------------------------


@dataclass(frozen=True)
class LastChanges:
    """The last change of each key, of changes that lie in several files.

    Args:
        keys: the keys, each once.
        rows: of each file the numbers of the rows that are a key's last change, ascending.
        ops: their `_op`.
        known: of each file, by the name of each column that any change lacks, for each of these rows the
            place of the change that has it, null where none has; for `values_at`.
    """

    keys: pa.Table
    rows: Sequence[pa.Array]
    ops: Sequence[pa.Array]
    known: Sequence[Mapping[str, pa.Array]]


def last_changes(files: Iterable[pa.Table], key: Sequence[str]) -> LastChanges:
    """Find the last change of each key.

    Args:
        files: of each file the key's columns, `_op` and `_seq`, by which the last is told; `_absent` where
            changes may lack columns.
        key: the key's columns.
    """
    parts = []
    for number, part in enumerate(files):
        places = np.arange(part.num_rows) + (number << _ROW_BITS)
        parts.append(part.append_column(_PLACE, pa.array(places)))
    table = pa.concat_tables(parts).sort_by("_seq")
    lacks = lacking(table.column("_absent")) if "_absent" in table.column_names else {}
    last, known = _last_of_each_key([table.column(name).combine_chunks() for name in key], lacks)
    places = table.column(_PLACE)
    table = table.select([*key, "_op", _PLACE]).take(last)
    for name, numbers in known.items():
        table = table.append_column(_KNOWN + name, places.take(numbers))
    table = table.sort_by(_PLACE)
    ends = np.searchsorted(table.column(_PLACE).to_numpy(), np.arange(len(parts) + 1) << _ROW_BITS)
    by_file = [table.slice(a, b - a) for a, b in itertools.pairwise(ends)]
    return LastChanges(
        table.select(list(key)),
        [_rows(part.column(_PLACE)) for part in by_file],
        [part.column("_op").combine_chunks() for part in by_file],
        [{name: part.column(_KNOWN + name).combine_chunks() for name in known} for part in by_file],
    )


def values_at(
    places: pa.Array, column: Callable[[int], pa.ChunkedArray], type_: pa.DataType
) -> pa.Array | pa.ChunkedArray:
    """The values of a column at places of `LastChanges.known`, null where there is no place.

    Args:
        places: the places.
        column: the column of the file of that number.
        type_: the column's type.
    """
    known = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
    if not len(known):
        return pa.nulls(len(places), type_)
    numbers = places.drop_null().to_numpy()
    file, row = numbers >> _ROW_BITS, numbers & ((1 << _ROW_BITS) - 1)
    chunks = [column(int(n)).take(pa.array(row[file == n])).combine_chunks() for n in np.unique(file)]
    taken = np.full(len(places), -1)
    taken[known[np.argsort(file, kind="stable")]] = np.arange(len(known))
    return pa.chunked_array(chunks, type_).take(pa.array(taken, mask=taken < 0))


def _rows(places: pa.ChunkedArray) -> pa.Array:
    """The numbers of rows in their files."""
    return pc.bit_wise_and(places, (1 << _ROW_BITS) - 1).combine_chunks()


# ---- rows of known keys ------------------------------------------------------------------------------


def rows_of_keys(rows: pa.Table, keys: pa.Table) -> pa.Array:
    """The numbers of the rows whose key is among `keys`, ascending.

    Args:
        rows: the key's columns.
        keys: the same columns.
    """
    found = _numbered(rows, _ROW).join(
        _comparable(keys), keys=keys.column_names, join_type="left semi", use_threads=False
    )
    return found.column(_ROW).combine_chunks().sort()


def pairs_of_keys(rows: pa.Table, others: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The numbers of the rows and of the others that have the same key.

    Args:
        rows: the key's columns.
        others: the same columns.
    """
    found = _numbered(rows, _ROW).join(
        _numbered(others, _OTHER), keys=others.column_names, join_type="inner", use_threads=False
    )
    return found.column(_ROW).combine_chunks(), found.column(_OTHER).combine_chunks()


def _comparable(keys: pa.Table) -> pa.Table:
    return pa.table([comparable(column) for column in keys.columns], keys.column_names)


def _numbered(rows: pa.Table, number: str) -> pa.Table:
    return _comparable(rows).append_column(number, pa.array(np.arange(rows.num_rows)))

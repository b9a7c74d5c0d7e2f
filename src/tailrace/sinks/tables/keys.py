"""Group rows by key, whole columns at a time.

Of the changes of a key the last one counts. It may lack columns: the log left them out of an update
(PostgreSQL: unchanged TOAST values; MySQL: partial images), and a list next to the row names them.

    a missing column             has the value of the last change that has it
    no change has it             it keeps the value in the target's row; the composed change still names it
    there is no such row         the change is skipped: the row is deleted later, or belongs to the snapshot
                                 that is read again

All changes of a cell lack the same columns, so the last change of a key represents all changes of the key in
that cell. A change composed of changes that lack different columns no longer tells how old its values are:
it must not be composed with changes between them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ROW, _OTHER, _POSITION, _KNOWN = "_tailrace_row", "_tailrace_other", "_tailrace_position", "_tailrace_known_"
#: A row's position among several files: the file's number, then the row's number in these lower bits.
_ROW_BITS = 32
#: Integers lie close together where their range is at most so many times their number.
_DENSE = 8


def last_of_each_key(keys: Sequence[pa.Array]) -> pa.Array:
    """Row numbers of the last row of each key, ascending.

    Args:
        keys: the key's columns, of one length.
    """
    return _last_of_each_key(keys, {})[0]


def composed(rows: pa.Table, key: Sequence[str], absent: str) -> pa.Table:
    """The last row of each key; a column that it lacks comes from the last row that has it.

    Args:
        rows: the rows, in the order of their changes.
        key: the key's columns.
        absent: the column with the names of the columns that a row lacks, null if it lacks none.
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
    """For each column that rows lack, by name: which rows lack it.

    Args:
        absent: for each row the names of the columns that it lacks, null if it lacks none.
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
    """For each row the names of the columns that it lacks, null if none; the inverse of `lacking`."""
    matrix = np.stack(list(lacks.values()), axis=1)
    _, column = np.nonzero(matrix)
    offsets = np.concatenate([[0], np.cumsum(matrix.sum(axis=1))]).astype(np.int32)
    names = pa.array(list(lacks), pa.string()).take(pa.array(column))
    return pa.ListArray.from_arrays(pa.array(offsets), names, mask=pa.array(~matrix.any(axis=1)))


def comparable(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Durations as numbers: Arrow neither groups, sorts nor hashes durations (seen in Arrow 26)."""
    return column.cast(pa.int64()) if pa.types.is_duration(column.type) else column


def numbers_of_keys(keys: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """A number for each row that only rows with its key have; a null is a value like others.

    Args:
        keys: the key's columns, of one length.
    """
    found = np.zeros(len(keys[0]), np.int64)
    for column in map(comparable, keys):
        values = column.combine_chunks().dictionary_encode("encode")
        pairs = pa.array(found * len(values.dictionary) + values.indices.to_numpy())
        found = pairs.dictionary_encode().indices.to_numpy().astype(np.int64)
    return found


def following(numbers: np.ndarray, seqs: pa.ChunkedArray) -> np.ndarray:
    """For each change the number of the row with the next change of its key, -1 if it is the last one.

    Args:
        numbers: those of the changes' keys, of `numbers_of_keys`.
        seqs: the order of the changes, in whatever order they are here.
    """
    by_seq = pc.sort_indices(seqs).to_numpy()
    order = by_seq[np.argsort(numbers[by_seq], kind="stable")]
    earlier, later = order[:-1], order[1:]
    same = numbers[earlier] == numbers[later]
    found = np.full(len(numbers), -1)
    found[earlier[same]] = later[same]
    return found


def _last_of_each_key(
    keys: Sequence[pa.Array], lacks: Mapping[str, np.ndarray]
) -> tuple[pa.Array, dict[str, pa.Array]]:
    """The last row of each key, ascending, and the last row with each column of `lacks`, null if none."""
    names = [f"k{i}" for i in range(len(keys))]
    row = np.arange(len(keys[0]), dtype="int64")
    numbers = [pa.array(row), *(pa.array(row, mask=mask) for mask in lacks.values())]
    values = [f"r{i}" for i in range(len(numbers))]
    table = pa.Table.from_arrays([*(comparable(key) for key in keys), *numbers], names=[*names, *values])
    found = table.group_by(names, use_threads=False).aggregate([(name, "max") for name in values])
    last, *known = (found.column(f"{name}_max").combine_chunks() for name in values)
    if not known:
        return last.sort(), {}
    order = pc.sort_indices(last)
    return last.take(order), {name: n.take(order) for name, n in zip(lacks, known, strict=True)}


# ---- changes in several files ------------------------------------------------------------------------


@dataclass(frozen=True)
class LastChanges:
    """The last change of each key, among changes in several files.

    Args:
        keys: the keys, each once.
        rows: for each file the numbers of the rows that are a key's last change, ascending.
        ops: the `_op` of these rows.
        known: for each file, by the name of each column that some change lacks: for each of these rows the
            position of the last change that has the column, null if none has it; for `values_at`.
    """

    keys: pa.Table
    rows: Sequence[pa.Array]
    ops: Sequence[pa.Array]
    known: Sequence[Mapping[str, pa.Array]]


def last_changes(files: Iterable[pa.Table], key: Sequence[str]) -> LastChanges:
    """Find the last change of each key.

    Args:
        files: for each file the key's columns, `_op`, `_seq`, which orders changes, and `_absent` if changes
            may lack columns.
        key: the key's columns.
    """
    numbered = []
    for number, file in enumerate(files):
        positions = np.arange(file.num_rows) + (number << _ROW_BITS)
        numbered.append(file.append_column(_POSITION, pa.array(positions)))
    by_first = sorted(numbered, key=lambda file: file.column("_seq")[0].as_py() if file.num_rows else "")
    table = _sorted(pa.concat_tables(by_first), "_seq")
    lacks = lacking(table.column("_absent")) if "_absent" in table.column_names else {}
    last, known = _last_of_each_key([table.column(name).combine_chunks() for name in key], lacks)
    at = table.column(_POSITION)
    table = table.select([*key, "_op", _POSITION]).take(last)
    for name, numbers in known.items():
        table = table.append_column(_KNOWN + name, at.take(numbers))
    table = _sorted(table, _POSITION)
    ends = np.searchsorted(table.column(_POSITION).to_numpy(), np.arange(len(numbered) + 1) << _ROW_BITS)
    by_file = [table.slice(a, b - a) for a, b in itertools.pairwise(ends)]
    return LastChanges(
        table.select(list(key)),
        [_rows(file.column(_POSITION)) for file in by_file],
        [file.column("_op").combine_chunks() for file in by_file],
        [{name: file.column(_KNOWN + name).combine_chunks() for name in known} for file in by_file],
    )


def values_at(
    positions: pa.Array, column: Callable[[int], pa.ChunkedArray], type_: pa.DataType
) -> pa.Array | pa.ChunkedArray:
    """The values of a column at positions from `LastChanges.known`, null where the position is null.

    Args:
        positions: the positions.
        column: gives the column of the file with a number.
        type_: the column's type.
    """
    known = np.flatnonzero(positions.is_valid().to_numpy(zero_copy_only=False))
    if not len(known):
        return pa.nulls(len(positions), type_)
    numbers = positions.drop_null().to_numpy()
    file, row = numbers >> _ROW_BITS, numbers & ((1 << _ROW_BITS) - 1)
    chunks = [column(int(n)).take(pa.array(row[file == n])).combine_chunks() for n in np.unique(file)]
    taken = np.full(len(positions), -1)
    taken[known[np.argsort(file, kind="stable")]] = np.arange(len(known))
    return pa.chunked_array(chunks, type_).take(pa.array(taken, mask=taken < 0))


def _sorted(table: pa.Table, name: str) -> pa.Table:
    """The rows by a column, ascending; the changes of one reader are in order already."""
    values = table.column(name)
    in_order = pc.less_equal(values.slice(0, max(len(values) - 1, 0)), values.slice(1))
    return table if pc.all(in_order).as_py() is not False else table.sort_by(name)


def _rows(positions: pa.ChunkedArray) -> pa.Array:
    """The numbers of rows in their files."""
    return pc.bit_wise_and(positions, (1 << _ROW_BITS) - 1).combine_chunks()


# ---- rows of known keys ------------------------------------------------------------------------------


def rows_of_keys(rows: pa.Table, keys: pa.Table) -> pa.Array:
    """The numbers of the rows whose key is among `keys`, ascending.

    Args:
        rows: the key's columns.
        keys: the same columns.
    """
    bounds = _bounds(rows)
    if bounds is not None:
        keys = _within(keys, bounds)
        if rows.num_columns == 1 and bounds[1] - bounds[0] < _DENSE * (rows.num_rows + keys.num_rows):
            return _rows_of_numbers(rows.column(0), keys.column(0), bounds)
    found = _numbered(rows, _ROW).join(
        _comparable(keys), keys=keys.column_names, join_type="left semi", use_threads=False
    )
    return found.column(_ROW).combine_chunks().sort()


def _rows_of_numbers(rows: pa.ChunkedArray, keys: pa.ChunkedArray, bounds: tuple[int, int]) -> pa.Array:
    """The same for one column of integers that lie close together: a table with a bit for each."""
    low, high = bounds
    widest = pa.uint64() if pa.types.is_uint64(rows.type) else pa.int64()  # in which differences fit
    wanted = np.zeros(high - low + 2, bool)  # the last one is for null, which is equal to nothing
    first = pa.scalar(low, widest)
    wanted[pc.subtract(keys.drop_null().cast(widest), first).to_numpy()] = True
    places = pc.fill_null(pc.subtract(rows.cast(widest), first), high - low + 1)
    return pa.array(np.flatnonzero(wanted[places.to_numpy()]))


def _bounds(rows: pa.Table) -> tuple[int, int] | None:
    """The least and greatest value of the first column; None if it has no integers."""
    column = rows.column(0)
    if not pa.types.is_integer(column.type):
        return None
    found = pc.min_max(column).as_py()
    return None if found["min"] is None else (found["min"], found["max"])


def _within(keys: pa.Table, bounds: tuple[int, int]) -> pa.Table:
    """The keys whose first column is within bounds."""
    first = keys.column(0)
    low, high = (pa.scalar(bound, first.type) for bound in bounds)
    return keys.filter(pc.and_(pc.greater_equal(first, low), pc.less_equal(first, high)))


def pairs_of_keys(rows: pa.Table, others: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The numbers of the rows and of the others that have the same key.

    Args:
        rows: the key's columns.
        others: the same columns.
    """
    numbered = _numbered(others, _OTHER)
    bounds = _bounds(rows)
    if bounds is not None:
        numbered = _within(numbered, bounds)
    found = _numbered(rows, _ROW).join(
        numbered, keys=others.column_names, join_type="inner", use_threads=False
    )
    return found.column(_ROW).combine_chunks(), found.column(_OTHER).combine_chunks()


def _comparable(keys: pa.Table) -> pa.Table:
    return pa.table([comparable(column) for column in keys.columns], keys.column_names)


def _numbered(rows: pa.Table, number: str) -> pa.Table:
    return _comparable(rows).append_column(number, pa.array(np.arange(rows.num_rows)))

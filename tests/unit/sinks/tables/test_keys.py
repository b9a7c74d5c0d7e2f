"""Changes of one key composed, against a table that takes them one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.change import OP_CREATE, OP_DELETE, OP_UPDATE
from tailrace.sinks.tables.keys import (
    composed,
    following,
    lacking,
    last_changes,
    last_of_each_key,
    named,
    numbers_of_keys,
    pairs_of_keys,
    rows_of_keys,
    values_at,
)

COLUMNS = ("a", "b", "c")
SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        *((name, pa.string()) for name in COLUMNS),
        ("_op", pa.int8()),
        ("_seq", pa.string()),
        ("_absent", pa.list_(pa.string())),
    ]
)
#: The rows of a target by their keys.
State = dict[int, dict[str, str | None]]


@dataclass
class Source:
    """A table and the changes that it logs, as a source would: what there is not is not updated."""

    held: set[int]
    log: list[dict[str, Any]]

    def change(self, k: int, deletes: bool, absent: frozenset[str]) -> None:
        number = len(self.log)
        there = k in self.held
        op = OP_DELETE if there and deletes else OP_UPDATE if there else OP_CREATE
        absent = absent if op != OP_CREATE else frozenset()
        has = op != OP_DELETE
        values = {name: f"{number}" if has and name not in absent else None for name in COLUMNS}
        self.log.append(
            {"k": k, **values, "_op": op, "_seq": f"{number:08}", "_absent": sorted(absent) or None}
        )
        (self.held.discard if op == OP_DELETE else self.held.add)(k)


@st.composite
def logs(draw: st.DrawFn) -> tuple[State, pa.Table, list[list[int]]]:
    """What a target holds, changes that come next, and how they lie in files.

    Rows of keys below 4 are at the source; the target lacks some of them: a snapshot that is read again has
    them, or they are deleted by the end.
    """
    source = Source(set(range(4)), [])
    changes = st.tuples(st.integers(0, 5), st.booleans(), st.frozensets(st.sampled_from(COLUMNS)))
    for k, deletes, absent in draw(st.lists(changes, max_size=30)):
        source.change(k, deletes, absent)
    there = draw(st.frozensets(st.integers(0, 3)))
    table: State = {k: dict.fromkeys(COLUMNS, f"old{k}") for k in there}
    files: list[list[int]] = [[] for _ in range(3)]
    for number in range(len(source.log)):
        files[draw(st.integers(0, 2))].append(number)
    return table, pa.Table.from_pylist(source.log, SCHEMA), files


def applied(table: State, changes: pa.Table) -> State:
    """The table with changes, taken one by one in their order; rows that are not known whole are left out."""
    rows = {k: dict(row) for k, row in table.items()}
    for change in changes.to_pylist():
        if change["_op"] == OP_DELETE:
            rows.pop(change["k"], None)
        else:
            known = {name: change[name] for name in COLUMNS if name not in (change["_absent"] or ())}
            rows.setdefault(change["k"], {}).update(known)
    return {k: row for k, row in rows.items() if len(row) == len(COLUMNS)}


@given(logs())
def test_composed_changes_do_what_they_do_one_by_one(given_: tuple[State, pa.Table, Any]) -> None:
    table, changes, _ = given_
    found = composed(changes, ["k"], "_absent")
    assert found.schema == changes.schema
    assert len(set(found.column("k").to_pylist())) == found.num_rows
    assert applied(table, found) == applied(table, changes)


@given(logs())
def test_last_change_of_a_key_stands_for_all_of_a_cell(
    given_: tuple[State, pa.Table, list[list[int]]],
) -> None:
    _, changes, files = given_
    cells: dict[Any, list[int]] = {}
    for number, file in enumerate(files):
        for row in file:
            cells.setdefault((number, str(changes.column("_absent")[row])), []).append(row)
    taken = [changes.take(cell) for cell in cells.values()]
    last = [cell.take(last_of_each_key([cell.column("k").combine_chunks()])) for cell in taken]
    in_steps = composed(pa.concat_tables([changes.slice(0, 0), *last]).sort_by("_seq"), ["k"], "_absent")
    assert rows(in_steps) == rows(composed(changes, ["k"], "_absent"))


@given(logs())
def test_last_changes_of_files_say_where_values_lie(
    given_: tuple[State, pa.Table, list[list[int]]],
) -> None:
    _, changes, numbers = given_
    files = [changes.take(pa.array(file, pa.int64())) for file in numbers]
    found = last_changes((file.select(["k", "_op", "_seq", "_absent"]) for file in files), ["k"])
    parts = []
    for file, taken, known in zip(files, found.rows, found.known, strict=True):
        part = file.take(taken)
        for name, positions in known.items():
            values = values_at(positions, lambda number, name=name: files[number].column(name), pa.string())
            part = part.set_column(part.schema.get_field_index(name), name, values)
        absent = {name: np.asarray(positions.is_null()) for name, positions in known.items()}
        if absent:
            part = part.set_column(part.schema.get_field_index("_absent"), "_absent", named(absent))
        parts.append(part)
    assert rows(pa.concat_tables(parts)) == rows(composed(changes, ["k"], "_absent"))
    assert sorted(found.keys.column("k").to_pylist()) == sorted(set(changes.column("k").to_pylist()))


@given(st.lists(st.frozensets(st.sampled_from(COLUMNS)), min_size=1, max_size=9), st.integers(0, 8))
def test_absent_columns_are_found_in_what_names_them(sets: list[frozenset[str]], cut: int) -> None:
    listed = [sorted(names) or None for names in sets]
    absent = pa.chunked_array(
        [pa.array(part, pa.list_(pa.string())) for part in (listed[:cut], listed[cut:])]
    )
    masks = lacking(absent)
    assert {name: mask.tolist() for name, mask in masks.items()} == {
        name: [name in names for names in sets] for name in frozenset().union(*sets)
    }
    if masks:
        assert [names and sorted(names) for names in named(masks).to_pylist()] == listed


@pytest.mark.parametrize("type_", [pa.int32(), pa.string(), pa.duration("us")], ids=str)
def test_pairs_of_keys_are_the_rows_with_the_same_key(type_: pa.DataType) -> None:
    one, other = (
        ([5, 3, 9, 1], [1, 2, 5]) if type_ != pa.string() else (["5", "3", "9", "1"], ["1", "2", "5"])
    )
    left, right = (pa.table({"k": pa.array(values, type_)}) for values in (one, other))
    pairs = pairs_of_keys(left, right)
    assert sorted(zip(*(numbers.to_pylist() for numbers in pairs), strict=True)) == [(0, 2), (3, 0)]


#: Values that lie close together, and the ends of their type.
INTEGERS = {
    pa.int8(): (-128, -127, 0, 1, 127),
    pa.int64(): (-(2**63), -3, 0, 1, 2, 3, 2**63 - 1),
    pa.uint64(): (0, 1, 2, 2**63, 2**64 - 2, 2**64 - 1),
    pa.string(): ("", "a", "b"),
}


@pytest.mark.parametrize("type_", INTEGERS, ids=str)
@given(data=st.data())
def test_rows_of_keys_are_those_with_one_of_them(type_: pa.DataType, data: st.DataObject) -> None:
    values = st.sampled_from([*INTEGERS[type_], None])
    two = data.draw(st.booleans())
    held, wanted = (
        data.draw(st.lists(st.tuples(values, values if two else st.just(0)), max_size=12, unique=unique))
        for unique in (False, True)
    )
    rows, keys = (
        pa.table(
            {
                "a": pa.chunked_array([pa.array([key[0] for key in listed], type_)]),
                **({"b": pa.array([key[1] for key in listed], type_)} if two else {}),
            }
        )
        for listed in (held, wanted)
    )
    whole = {key for key in wanted if None not in key}
    assert rows_of_keys(rows, keys).to_pylist() == [at for at, key in enumerate(held) if key in whole]
    pairs = zip(*(numbers.to_pylist() for numbers in pairs_of_keys(rows, keys)), strict=True)
    expected = [(at, wanted.index(key)) for at, key in enumerate(held) if key in whole]
    assert sorted(pairs) == expected


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, None]), st.sampled_from(["", "a", None])), max_size=20),
    st.data(),
)
def test_next_change_of_a_key_follows(keys: list[tuple[int | None, str | None]], data: st.DataObject) -> None:
    seqs = data.draw(st.permutations(range(len(keys))))
    expected = [
        min((s for k, s in zip(keys, seqs, strict=True) if k == key and s > seq), default=None)
        for key, seq in zip(keys, seqs, strict=True)
    ]
    columns = [
        pa.chunked_array([pa.array([key[0] for key in keys], pa.duration("us"))]),
        pa.chunked_array([pa.array([key[1] for key in keys], pa.string())]),
    ]
    found = following(
        numbers_of_keys(columns), pa.chunked_array([[f"{seq:04}" for seq in seqs]], pa.string())
    )
    assert [None if row < 0 else seqs[row] for row in found] == expected


def rows(table: pa.Table) -> dict[int, dict[str, Any]]:
    """Composed changes by their key."""
    return {row["k"]: row | {"_absent": sorted(row["_absent"] or ())} for row in table.to_pylist()}

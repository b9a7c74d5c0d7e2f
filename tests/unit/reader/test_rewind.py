"""Rewind is exact: whatever happened after P, and whenever the SELECT ran, the rows at P come back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import SchemaMismatchError
from tailrace.model.types import ColumnType, Kind
from tailrace.reader.rewind import Rewind
from tailrace.reader.spilled_rows import SpilledRows
from tests.support.changes import INT, TEXT, changes, table

ONE = table(("id", INT), ("v", INT), key=("id",))
TWO = table(("a", INT), ("b", TEXT), ("v", INT), key=("a", "b"))

_step = st.tuples(
    st.sampled_from(["insert", "update", "delete", "rekey"]),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 99),
)


def _history(schema, state, steps):
    """Apply `steps` to `state` (key -> row); returns the changes and the state after each of them."""
    out, states = [], [dict(state)]
    for kind, i, j, v in steps:
        key, other = _key(schema, i), _key(schema, j)
        row = state.get(key)
        if kind == "insert" and row is None:
            state[key] = _row(schema, key, v)
            out.append(("c", None, state[key]))
        elif kind == "update" and row is not None:
            state[key] = _row(schema, key, v)
            out.append(("u", row, state[key]))
        elif kind == "delete" and row is not None:
            del state[key]
            out.append(("d", row, None))
        elif kind == "rekey" and row is not None and other not in state:
            del state[key]
            state[other] = _row(schema, other, v)
            out.append(("u", row, state[other]))
        else:
            continue
        states.append(dict(state))
    return out, states


def _key(schema, i):
    return (i,) if len(schema.key) == 1 else (i // 3, "aAb"[i % 3])


def _row(schema, key, v):
    return {**dict(zip(schema.key, key, strict=True)), "v": v}


def applied(rewind, selected, in_range):
    return pa.concat_arrays(list(rewind.apply(selected, in_range)))


@given(
    st.sampled_from([ONE, TWO]),
    st.sets(st.integers(0, 9)),
    st.lists(_step, max_size=30),
    st.data(),
)
def test_rows_selected_at_any_moment_are_put_back_to_their_state_at_p(schema, present, steps, data):
    state = {_key(schema, i): _row(schema, _key(schema, i), i) for i in present}
    at_p = dict(state)
    log, states = _history(schema, state, steps)
    seen = data.draw(st.integers(0, len(log)), label="events the SELECT saw")
    high = data.draw(st.integers(seen, len(log)), label="events below H")
    cut = data.draw(st.integers(0, high), label="batch border")
    low, up = sorted(data.draw(st.tuples(st.integers(0, 9), st.integers(0, 9)), label="range"))

    def inside(key):
        return low <= (key[0] if len(schema.key) == 1 else key[0] * 3) <= up

    selected = pa.array([r for k, r in states[seen].items() if inside(k)], schema.arrow)
    rewind = Rewind(schema)
    rewind.observe(changes(schema, log[:cut]))
    rewind.observe(changes(schema, log[cut:high], first=cut))
    keys = [tuple(k.values()) for k in rewind.keys.to_pylist()]
    rows = applied(rewind, selected, pa.array([inside(k) for k in keys], pa.bool_()))

    def order(rows):
        return sorted(rows, key=lambda r: tuple(r.values()))

    assert order(rows.to_pylist()) == order([r for k, r in at_p.items() if inside(k)])


def test_rows_of_an_untouched_range_are_returned_as_selected():
    rows = pa.array([_row(ONE, (1,), 5)], ONE.arrow)
    assert list(Rewind(ONE).apply(rows, pa.array([], pa.bool_()))) == [rows]


def test_change_of_letter_case_in_a_key_is_undone_by_bytes():
    rewind = Rewind(TWO)
    old, new = _row(TWO, (1, "a"), 1), _row(TWO, (1, "A"), 1)
    rewind.observe(changes(TWO, [("u", old, new)]))
    rows = applied(rewind, pa.array([new], TWO.arrow), pa.array([True, True]))
    assert rows.to_pylist() == [old]


def test_images_of_another_shape_are_fitted_by_name():
    wider = table(("id", INT), ("v", INT), ("extra", TEXT), key=("id",))
    rewind = Rewind(ONE)
    rewind.observe(changes(wider, [("u", {"id": 1, "v": 1, "extra": "x"}, {"id": 1, "v": 2, "extra": "x"})]))
    rows = applied(rewind, pa.array([{"id": 1, "v": 2}], ONE.arrow), pa.array([True]))
    assert rows.to_pylist() == [{"id": 1, "v": 1}]


def test_values_beyond_the_shape_count_only_where_they_are_the_first_known_of_a_key():
    wider = table(("id", INT), ("v", ColumnType(Kind.INTEGER, "bigint", bits=64)), key=("id",))
    rewind = Rewind(ONE)
    big = 5_000_000_000
    rewind.observe(changes(wider, [("u", {"id": 1, "v": 1}, {"id": 1, "v": big})]))
    rewind.observe(changes(wider, [("u", {"id": 1, "v": big}, {"id": 1, "v": big + 1})], first=1))
    selected = pa.array([{"id": 1, "v": big + 1}, {"id": 2, "v": 7}], wider.arrow)
    rows = applied(rewind, selected, pa.array([True]))
    assert rows.type == ONE.arrow
    assert sorted(r["v"] for r in rows.to_pylist()) == [1, 7]
    untouched = pa.array([{"id": 2, "v": big}], wider.arrow)
    with pytest.raises(SchemaMismatchError, match="has changed its type"):
        applied(rewind, untouched, pa.array([True]))


def test_rows_beyond_the_limit_of_memory_wait_on_disk(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("tailrace.reader.rewind._COMPACT_BYTES", 1000)
    monkeypatch.setattr("tailrace.reader.spilled_rows.PIECE_ROWS", 7)
    rewind = Rewind(ONE)
    rewind._rows = SpilledRows(ONE.arrow, most_bytes=2000)
    for n in range(0, 1000, 10):
        rewind.observe(
            changes(ONE, [("u", {"id": i, "v": i}, {"id": i, "v": -1}) for i in range(n, n + 10)], first=n)
        )
        rewind.observe(
            changes(ONE, [("u", {"id": i, "v": -1}, {"id": i, "v": -2}) for i in range(0, n, 97)], first=n)
        )
    assert rewind._rows._files
    selected = pa.array([{"id": i, "v": -3} for i in range(1200)], ONE.arrow)
    in_range = pa.array([key["id"] % 2 == 0 for key in rewind.keys.to_pylist()])
    rows = applied(rewind, selected, in_range).to_pylist()
    assert sorted(row["v"] for row in rows if row["id"] < 1000) == list(range(0, 1000, 2))
    assert [row["v"] for row in rows if row["id"] >= 1000] == [-3] * 200
    assert not list(tmp_path.iterdir())

"""Rows without a key are reconstructed by counting, whatever happened to which of several equal ones."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import SchemaMismatchError
from tailrace.reader.rewind_rows import RewindRows
from tests.support.changes import INT, TEXT, changes, table

HEAP = table(("v", INT), ("name", TEXT), key=())
_step = st.tuples(st.sampled_from("cud"), st.integers(0, 3), st.integers(0, 3))


def row(v):
    return {"v": v, "name": None if v == 3 else f"n{v}"}


def counted(rows):
    return Counter(tuple(r.values()) for r in rows)


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(_step, max_size=20), st.data())
def test_rows_read_at_h_are_put_back_to_their_state_at_p(values, steps, data):
    state, log = [row(v) for v in values], []
    at_p = list(state)
    for op, old, new in steps:
        if op == "c":
            log.append(("c", None, row(new)))
            state.append(row(new))
        elif row(old) in state:
            state.remove(row(old))
            log.append(("d", row(old), None) if op == "d" else ("u", row(old), row(new)))
            state += [] if op == "d" else [row(new)]
    state = data.draw(st.permutations(state), label="as they are read")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(state)), max_size=3), label="pages"))
    rewind = RewindRows(HEAP)
    half = len(log) // 2
    for part, first in ((log[:half], 0), (log[half:], half)):
        if part:
            rewind.observe(changes(HEAP, part, first=first))
    found = []
    for start, end in zip([0, *cuts], [*cuts, None], strict=True):
        found += rewind.apply(pa.array(state[start:end], HEAP.arrow)).to_pylist()
    rewind.require_all_found()
    assert counted(found) == counted(at_p)


def test_column_that_was_dropped_or_added_meanwhile_does_not_tell_rows_apart():
    now = table(("v", INT), ("more", INT), key=())
    rewind = RewindRows(HEAP)
    rewind.observe(changes(HEAP, [("u", row(1), row(2))]))
    rewind.observe(changes(now, [("u", {"v": 2, "more": None}, {"v": 4, "more": 7})], first=1))
    selected = pa.array([{"v": 4, "more": 7}, {"v": 5, "more": None}], now.arrow)
    assert counted(rewind.apply(selected).to_pylist()) == counted([row(1), {"v": 5, "name": None}])
    rewind.require_all_found()


def test_row_that_the_log_has_and_the_table_has_not_is_an_error():
    rewind = RewindRows(HEAP)
    rewind.observe(changes(HEAP, [("c", None, row(1))]))
    rewind.apply(pa.array([row(2)], HEAP.arrow))
    with pytest.raises(SchemaMismatchError, match=r"snapshot rows of `shop.t`(?s:.)*1 rows that the log has"):
        rewind.require_all_found()

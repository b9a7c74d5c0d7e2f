"""Rows of a table without a key are carried forward exactly, however often each occurs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import SourceError
from tailrace.reader.forward_rows import rows_carried_forward
from tests.support.changes import INT, TEXT, changes, table

TABLE = table(("a", INT), ("b", TEXT), key=())

_row = st.fixed_dictionaries({"a": st.sampled_from([1, 2, None]), "b": st.sampled_from(["x", None])})
_step = st.tuples(
    st.sampled_from(["insert", "insert", "update", "delete", "empty"]), _row, st.integers(0, 99)
)


def carried(before, log, cut=0):
    parts, part = [], []
    for number, change in enumerate(log):
        if change is None or number == cut:
            parts.append(changes(TABLE, part))
            part = []
        if change is None:
            parts.append(None)
        else:
            part.append(change)
    rows = [pa.array(before[n : n + 2], TABLE.arrow) for n in range(0, len(before), 2)]
    found = rows_carried_forward(rows, TABLE, [*parts, changes(TABLE, part)])
    return counted(row for part in found for row in part.to_pylist())


def counted(rows):
    return Counter((row["a"], row["b"]) for row in rows)


@given(st.lists(_row, max_size=6), st.lists(_step, max_size=30), st.integers(0, 30))
def test_rows_at_the_end_come_from_rows_before_and_the_log(before, steps, cut):
    state, log = list(before), []
    for kind, row, at in steps:
        if kind == "empty" and at < 20:
            state.clear()
            log.append(None)
        elif kind == "insert":
            state.append(row)
            log.append(("c", None, row))
        elif kind in ("update", "delete") and state:
            old = state.pop(at % len(state))
            log.append(("d", old, None) if kind == "delete" else ("u", old, row))
            state += [] if kind == "delete" else [row]
    assert carried(before, log, cut) == counted(state)


ROW, OTHER = {"a": 1, "b": "x"}, {"a": 2, "b": None}


@pytest.mark.parametrize(
    "log",
    [[("d", OTHER, None)], [("d", ROW, None), ("d", ROW, None)], [("u", None, ROW)], [("u", OTHER, ROW)]],
)
def test_log_that_does_not_fit_the_rows_is_refused(log):
    with pytest.raises(SourceError) as caught:
        carried([ROW], log)
    assert caught.value.code == "TR-8219"


def test_rows_that_lack_columns_are_refused():
    batch = replace(changes(TABLE, [("u", ROW, OTHER)]), absent_after=("b",))
    with pytest.raises(SourceError) as caught:
        list(rows_carried_forward([], TABLE, [batch]))
    assert caught.value.code == "TR-8219"
    assert "b" in caught.value.detail


def test_inserts_need_no_row_before_them():
    batch = replace(changes(TABLE, [("c", None, ROW)]), absent_before=("a", "b"))
    found = list(rows_carried_forward([], TABLE, [batch]))
    assert [row for part in found for row in part.to_pylist()] == [ROW]

"""Rows are carried forward exactly: whatever the log did to them, and whatever its updates leave out."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import SourceError
from tailrace.reader import forward, spilled_rows
from tailrace.reader.forward import carried_forward
from tests.support.changes import INT, TEXT, changes, table

ONE = table(("id", INT), ("v", INT), ("large", TEXT), ("huge", TEXT), key=("id",))
TWO = table(("a", INT), ("b", TEXT), ("v", INT), ("large", TEXT), ("huge", TEXT), key=("a", "b"))
HOLES = ((), ("large",), ("huge",), ("large", "huge"))

_step = st.tuples(
    st.sampled_from(["insert", "update", "update", "delete", "rekey", "empty"]),
    st.integers(0, 7),
    st.integers(0, 7),
    st.integers(0, 99),
    st.sampled_from(HOLES),
    st.booleans(),
)


def _key(schema, i):
    return (i,) if len(schema.key) == 1 else (i // 3, "aAb"[i % 3])


def _row(schema, key, v):
    return {**dict(zip(schema.key, key, strict=True)), "v": v, "large": f"large {v}", "huge": f"huge {v}"}


def _only_key(schema, row):
    return {name: row[name] if name in schema.key else None for name in schema.arrow.names}


def _logged(schema, state, steps):
    """Apply `steps` to `state`; returns the log, as (op, before, after, lacking columns) or None."""
    log = []
    for kind, i, j, v, holes, sends_key in steps:
        key, other = _key(schema, i), _key(schema, j)
        row = state.get(key)
        if kind == "empty" and v < 20:
            state.clear()
            log.append(None)
        elif kind == "insert" and row is None:
            state[key] = _row(schema, key, v)
            log.append(("c", None, state[key], ()))
        elif kind == "delete" and row is not None:
            del state[key]
            log.append(("d", _only_key(schema, row), None, ()))
        elif kind in ("update", "rekey") and row is not None:
            new = key if kind == "update" else other
            if new != key and new in state:
                continue
            del state[key]
            state[new] = {**_row(schema, new, v), **{name: row[name] for name in holes}}
            sent = {name: None if name in holes else value for name, value in state[new].items()}
            before = _only_key(schema, row) if new != key or sends_key else None
            log.append(("u", before, sent, holes))
    return log


def _batches(schema, log, cuts):
    """The log as batches: all rows after changes of a batch lack the same columns."""
    rest = tuple(name for name in schema.arrow.names if name not in schema.key)
    part, lacks = [], None

    def batch():
        return replace(
            changes(schema, [change[:3] for change in part]), absent_before=rest, absent_after=lacks or ()
        )

    for at, change in enumerate(log):
        its = None if change is None or change[0] == "d" else change[3]
        if part and (change is None or at in cuts or (None is not its != lacks is not None)):
            yield batch()
            part, lacks = [], None
        if change is None:
            yield None
            continue
        part.append(change)
        lacks = its if its is not None else lacks
    if part:
        yield batch()


def _carried(schema, before, log, cuts=()):
    rows = [pa.array(list(before.values())[n : n + 3], schema.arrow) for n in range(0, len(before), 3)]
    found = carried_forward(rows, schema, _batches(schema, log, cuts))
    return [row for part in found for row in part.to_pylist()]


def _sorted(rows):
    return sorted(rows, key=repr)


@given(
    st.sampled_from([ONE, TWO]),
    st.sets(st.integers(0, 7)),
    st.lists(_step, max_size=40),
    st.sets(st.integers(0, 40)),
)
def test_rows_at_the_end_come_from_rows_before_and_the_log(schema, present, steps, cuts):
    before = {_key(schema, i): _row(schema, _key(schema, i), 1000 + i) for i in present}
    state = dict(before)
    log = _logged(schema, state, steps)
    assert _sorted(_carried(schema, before, log, cuts)) == _sorted(state.values())


@given(st.sets(st.integers(0, 7)), st.lists(_step, max_size=40), st.sets(st.integers(0, 40)))
def test_so_it_is_with_rows_on_disk_and_keys_numbered_in_blocks(present, steps, cuts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled_rows, "MOST_BYTES", 0)
        patch.setattr(spilled_rows.SpilledRows.__init__, "__defaults__", (0,))
        patch.setattr(forward, "_BLOCK", 3)
        before = {_key(TWO, i): _row(TWO, _key(TWO, i), 1000 + i) for i in present}
        state = dict(before)
        log = _logged(TWO, state, steps)
        assert _sorted(_carried(TWO, before, log, cuts)) == _sorted(state.values())


@given(st.sets(st.integers(0, 7)), st.lists(_step, max_size=30), st.data())
def test_missing_create_delete_or_key_change_is_noticed_by_the_next_change_of_its_key(present, steps, data):
    before = {_key(ONE, i): _row(ONE, _key(ONE, i), 1000 + i) for i in present}
    log = _logged(ONE, dict(before), steps)

    def is_noticed(lost):
        change = log[lost]
        if change is None or (change[0] == "u" and len(_ids(change)) == 1):
            return False  # nothing tells of an update that keeps the key
        behind = log[lost + 1 :]
        return None not in behind and any(_ids(change) & _ids(other) for other in behind)

    if noticed := [lost for lost in range(len(log)) if is_noticed(lost)]:
        lost = data.draw(st.sampled_from(noticed), label="lost")
        with pytest.raises(SourceError):
            _carried(ONE, before, log[:lost] + log[lost + 1 :])


def _ids(change):
    return {row["id"] for row in change[1:3] if row is not None}


@pytest.mark.parametrize(
    "log",
    [
        [("c", None, _row(ONE, (1,), 2), ())],
        [("u", None, _row(ONE, (5,), 2), ())],
        [("d", _only_key(ONE, _row(ONE, (5,), 2)), None, ())],
        [("u", _only_key(ONE, _row(ONE, (1,), 2)), _row(ONE, (2,), 2), ())],
        [("d", _only_key(ONE, _row(ONE, (1,), 2)), None, ()), ("u", None, _row(ONE, (1,), 3), ())],
        [("u", dict.fromkeys(ONE.arrow.names), _row(ONE, (1,), 2), ())],
    ],
)
def test_log_that_does_not_fit_the_rows_is_refused(log):
    before = {(i,): _row(ONE, (i,), i) for i in (1, 2)}
    with pytest.raises(SourceError) as caught:
        _carried(ONE, before, log)
    assert caught.value.code == "TR-8219"

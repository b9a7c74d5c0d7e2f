"""Offsets that somebody sets: refused, or made such that nothing comes twice and nothing is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tailrace.enumerator.offset import RereadProgress, StreamOffset, TableProgress
from tailrace.errors import ConfigError
from tailrace.model.column_filter import ColumnFilter
from tailrace.pipeline.offset_set import continued
from tailrace.sources.mysql.position import MySqlPosition

LOG = {"file": "binlog.000003", "pos": 500, "gtids": "s:1-9", "server": "s", "epoch": 0, "ts_ms": 5}
HALF = TableProgress((4,), 4, 9)
UNREAD = TableProgress(None, 0, 9)
READING = RereadProgress("one", TableProgress((2,), 2, 5))
PARKED = {"log": LOG, "had": "all", "rows": 7, "code": "TR-7001", "message": "m"}
FORMER = StreamOffset.from_json(
    {
        "v": 3,
        "mode": "initial",
        "log": LOG,
        "tables": {"s.half": HALF.to_json(), "s.unread": UNREAD.to_json()},
        "done": {"s.done": 7, "s.again": 5},
        "again": {"s.again": READING.to_json()},
        "requests": ["r1"],
        "parked": {"s.parked": PARKED},
        "forgot": True,
        "waits": {"r2": LOG},
    }
)


def at(pos: int, **log: Any) -> StreamOffset:
    return replace(FORMER, log={**LOG, "pos": pos, **log})


def read_again(new: StreamOffset, *, appends: bool = False, skips: bool = False) -> list[str]:
    """The tables that are read again, anew and whole."""
    sinks = ["kafka"] if appends else []
    end, names = continued(FORMER, new, MySqlPosition, appending=sinks, skips_changes=skips)
    for name in names:
        assert end.again[name] == RereadProgress(end.again[name].id)
        assert end.again[name].id not in {r.id for r in (*FORMER.again.values(), *new.again.values())}
        assert name in end.done
        assert name not in end.tables
    assert end == StreamOffset.from_json(end.to_json())
    return names


def refused(new: StreamOffset, *, appends: bool = False) -> str:
    with pytest.raises(ConfigError) as raised:
        read_again(new, appends=appends)
    return raised.value.code


@pytest.mark.parametrize("appends", [True, False])
def test_same_offset_changes_nothing(appends: bool) -> None:
    assert read_again(FORMER, appends=appends) == []
    assert continued(FORMER, FORMER, MySqlPosition)[0] == FORMER


def test_offset_without_a_position_is_refused() -> None:
    assert refused(StreamOffset()) == "TR-1301"


def test_another_mode_is_refused() -> None:
    assert refused(replace(FORMER, mode="latest")) == "TR-1311"


@pytest.mark.parametrize("log", [{"pos": 400}, {"pos": 900, "epoch": 1}, {"pos": 900, "server": "other"}])
def test_position_back_or_elsewhere_is_refused_for_sinks_that_append(log: dict[str, Any]) -> None:
    new = replace(FORMER, log={**LOG, **log})
    assert refused(new, appends=True) == "TR-1309"
    assert (read_again(new) == ["s.again"]) == (log["pos"] == 400)


def test_readings_begin_anew_at_another_position() -> None:
    assert read_again(at(400)) == ["s.again"]


@pytest.mark.parametrize("appends", [True, False])
def test_tables_are_read_again_for_changes_that_are_left_out(appends: bool) -> None:
    assert read_again(at(900), appends=appends) == ["s.again", "s.done", "s.half"]
    assert read_again(at(900), appends=appends, skips=True) == ["s.again"]


def test_stream_without_a_snapshot_reads_none_because_of_a_later_position() -> None:
    former = replace(FORMER, mode="latest", again={})
    new = replace(former, log={**LOG, "pos": 900})
    assert continued(former, new, MySqlPosition)[1] == []


@pytest.mark.parametrize(("name", "value"), [("gtids", "s:1-8"), ("gtids", "")])
def test_position_that_was_changed_in_part_is_refused(name: str, value: object) -> None:
    assert refused(replace(FORMER, log={**LOG, name: value})) == "TR-1311"
    assert read_again(replace(FORMER, log={**LOG, "ts_ms": 77})) == []


def test_position_of_another_database_is_refused() -> None:
    assert refused(replace(FORMER, log={"lsn": "0/1", "server": "s", "epoch": 0})) == "TR-1301"


@pytest.mark.parametrize(
    ("tables", "done", "names"),
    [
        ({"s.half": UNREAD}, {}, ["s.half"]),  # its rows would come as those of a first snapshot
        ({"s.half": TableProgress((9,), 9, 9)}, {}, ["s.half"]),  # rows would be left out
        ({"s.unread": TableProgress((1,), 1, 9)}, {}, ["s.unread"]),
        ({"s.new": TableProgress((1,), 1, 9)}, {}, ["s.new"]),
        ({"s.done": UNREAD}, {"s.done": None}, ["s.done"]),
        ({"s.half": None}, {"s.half": 9}, ["s.half"]),
        ({"s.unread": None}, {"s.unread": 0}, ["s.unread"]),
        ({"s.half": None}, {}, ["s.half"]),
        ({"s.unread": None}, {}, []),  # a new table to the stream, as before
        ({}, {"s.new": 5}, ["s.new"]),
        ({}, {"s.done": -1}, []),  # the number of its rows means nothing
    ],
)
def test_tables_that_are_not_as_they_were_are_read_again(
    tables: dict[str, TableProgress | None], done: dict[str, int | None], names: list[str]
) -> None:
    unfinished = {n: p for n, p in {**FORMER.tables, **tables}.items() if p is not None}
    finished = {n: rows for n, rows in {**FORMER.done, **done}.items() if n not in unfinished}
    again = {n: r for n, r in FORMER.again.items() if n in finished}
    assert read_again(replace(FORMER, tables=unfinished, done=finished, again=again)) == names


@pytest.mark.parametrize(
    "entry",
    [
        None,
        replace(READING, done=True),  # would delete all rows not seen so far
        replace(READING, progress=TableProgress((4,), 4, 5)),
        replace(READING, id="two"),  # of which nothing has been seen
        replace(READING, where="1 = 1"),
    ],
)
def test_reading_that_was_changed_begins_anew(entry: RereadProgress | None) -> None:
    again = {} if entry is None else {"s.again": entry}
    assert read_again(replace(FORMER, again=again)) == ["s.again"]


def test_reading_that_somebody_adds_begins_at_the_begin() -> None:
    added = {"s.done": RereadProgress("x", TableProgress((6,), 6, 7), done=True)}
    assert read_again(replace(FORMER, again={**FORMER.again, **added})) == ["s.done"]


def test_columns_are_those_that_targets_have() -> None:
    former = replace(FORMER, columns=ColumnFilter(exclude=("s.t.secret",)))
    end, _ = continued(former, FORMER, MySqlPosition)
    assert end.columns == former.columns


def test_parked_tables_are_not_added_or_changed() -> None:
    entry = replace(FORMER.parked["s.parked"], log={**LOG, "pos": 1})
    assert refused(replace(FORMER, parked={"s.parked": entry})) == "TR-1311"
    done = {n: rows for n, rows in FORMER.done.items() if n != "s.done"}
    added = {**FORMER.parked, "s.done": FORMER.parked["s.parked"]}
    assert refused(replace(FORMER, parked=added, done=done)) == "TR-1311"


def test_table_that_is_no_longer_parked_is_read_again() -> None:
    done = {**FORMER.done, "s.parked": 7}
    assert read_again(replace(FORMER, parked={}, done=done)) == ["s.parked"]
    assert read_again(replace(FORMER, parked={})) == ["s.parked"]
    unread = {**FORMER.tables, "s.parked": UNREAD}
    assert read_again(replace(FORMER, parked={}, tables=unread)) == ["s.parked"]


def test_what_the_stream_has_accepted_stays_accepted() -> None:
    end, _ = continued(FORMER, replace(FORMER, requests=(), waits={}, forgot=False), MySqlPosition)
    assert (end.requests, end.waits, end.forgot) == (("r1",), {"r2": LOG}, True)

"""The stream offset survives JSON, keeps its text and refuses what it does not know."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tailrace.enumerator.offset import RereadProgress, StreamOffset, TableProgress
from tailrace.errors import StateError
from tailrace.model.column_filter import ColumnFilter
from tailrace.model.declaration import CatalogText
from tailrace.model.ending import Ending
from tailrace.model.signal import Answer, Signal
from tailrace.model.table import Column
from tailrace.model.table_setting import TableSetting
from tailrace.model.types import ColumnType, Kind

#: As version 1 writes it. A change of the form needs a migration and a fixture of its own.
VERSION_1 = (
    '{"v": 1, "mode": "initial", "log": {"file": "binlog.000003", "pos": 157, "gtids": "", "server": "s", '
    '"epoch": 0, "ts_ms": 5}, "tables": {"shop.a": {"c": [1, "x"], "n": 10, "e": 100}, '
    '"shop.b": {"c": null, "n": 0, "e": 7}}, "done": {"shop.c": 3, "shop.d": null}}'
)


VERSION_2 = (
    '{"v": 2, "mode": "initial", "log": {"pos": 5}, "tables": {}, "done": {"shop.c": 3}, "again": {"shop.c": '
    '{"id": "4f1c", "c": [2], "n": 2, "e": 3, "done": false}}, "requests": ["01J9"], "gaps": 1, '
    '"forgot": false}'
)


def test_offset_of_version_2_is_read_and_written_unchanged():
    assert json.dumps(StreamOffset.from_json(json.loads(VERSION_2)).to_json()) == VERSION_2


VERSION_4 = (
    '{"v": 4, "mode": "initial", "log": {"pos": 5}, "tables": {}, "done": {"shop.c": 3}, "again": {"shop.c": '
    '{"id": "4f1c", "c": [2], "n": 2, "e": 3, "done": false, "where": "v > 1"}}, "requests": [], "gaps": 0, '
    '"forgot": false}'
)


def test_offset_of_version_4_is_read_and_written_unchanged():
    assert json.dumps(StreamOffset.from_json(json.loads(VERSION_4)).to_json()) == VERSION_4


def test_offset_of_version_1_is_read_and_written_unchanged():
    assert json.dumps(StreamOffset.from_json(json.loads(VERSION_1)).to_json()) == VERSION_1


def test_what_signals_leave_in_an_offset_is_kept():
    offset = StreamOffset(
        "initial",
        {"pos": 1},
        done={"s.a": 1},
        again={"s.a": RereadProgress("4f1c", TableProgress(), by="ad-hoc", blocking=True)},
        paused=True,
        waits={"r1": {"pos": 7}},
        signals={"log-1": Signal("s1", "log", {"message": "m"})},
        answers=(Answer("s0", "log", "COMPLETED", "m"),),
    )
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


VERSION_6 = (
    '{"v": 6, "mode": "initial", "log": {"pos": 5}, "tables": {}, "done": {"shop.c": 3}, "columns": '
    '{"exclude": ["shop[.]c[.]secret"]}, "again": {}, "requests": [], "gaps": 0, "forgot": false}'
)


def test_columns_that_are_left_out_need_a_version_of_their_own():
    offset = StreamOffset.from_json(json.loads(VERSION_6))
    assert offset.columns == ColumnFilter(exclude=("shop[.]c[.]secret",))
    assert json.dumps(offset.to_json()) == VERSION_6
    assert replace(offset, columns=ColumnFilter()).to_json()["v"] == 1


def test_first_offset_is_a_constant():
    assert StreamOffset().to_json() == {"v": 1}
    assert StreamOffset.from_json({"v": 1}).is_new


def test_offset_of_a_newer_version_is_refused():
    with pytest.raises(StateError, match="version 7"):
        StreamOffset.from_json({"v": 7})


def test_equal_offsets_have_equal_text_whatever_order_tables_were_added_in():
    a = StreamOffset("initial", {"pos": 1}).with_table("s.b", TableProgress()).with_done("s.a", 1)
    b = StreamOffset("initial", {"pos": 1}).with_done("s.a", 1).with_table("s.b", TableProgress())
    assert json.dumps(a.to_json()) == json.dumps(b.to_json())


def test_finished_table_is_no_longer_unfinished():
    offset = StreamOffset("initial", {}).with_table("s.a", TableProgress((5,), 5, 9)).with_done("s.a", 9)
    assert offset.tables == {}
    assert offset.done == {"s.a": 9}


def test_keys_of_cursors_and_of_tables_are_kept():
    type_ = ColumnType(Kind.STRING, "varchar", length=20, collation="utf8mb4_bin")
    progress = TableProgress(("x",), 1, 9, (Column("k", type_, nullable=False),))
    offset = StreamOffset("initial", {"pos": 1}, {"s.a": progress}, {"s.b": 1}, keys={"s.b": ("x", "y")})
    again = StreamOffset.from_json(json.loads(json.dumps(offset.to_json())))
    assert again == offset
    assert again.tables["s.a"].key[0].type.collation == "utf8mb4_bin"


def test_tables_that_a_first_snapshot_would_bring_twice_are_named():
    former = StreamOffset(
        "initial",
        {},
        {"s.reading": TableProgress((5,), 5, 9), "s.new": TableProgress()},
        {"s.done": 3, "s.followed": None, "s.same": 1},
    )
    back = StreamOffset(
        "initial", {}, {"s.done": TableProgress(), "s.reading": TableProgress()}, {"s.same": 1}
    )
    assert back.read_before(former) == ["s.done", "s.followed", "s.reading"]
    assert former.read_before(former) == []


def test_tables_that_a_signal_has_set_are_kept_and_need_this_version():
    setting = TableSetting(("s[.](a|b)",), ("s[.]a",))
    offset = StreamOffset("initial", {"pos": 1}, done={"s.a": 1}, setting=setting)
    value = json.loads(json.dumps(offset.to_json()))
    assert value["v"] == 5
    assert StreamOffset.from_json(value) == offset
    assert replace(offset, setting=None).to_json()["v"] == 1


def test_end_of_the_stream_is_kept():
    ending = Ending("latest", {"pos": 1}, log_read=True, reached=True)
    offset = StreamOffset("initial", {"pos": 1}, done={"s.a": 1}, ending=ending)
    value = json.loads(json.dumps(offset.to_json()))
    assert value["ending"] == {"of": "latest", "at": {"pos": 1}, "log_read": True, "reached": True}
    assert StreamOffset.from_json(value) == offset
    assert "ending" not in replace(offset, ending=None).to_json()


def test_tables_without_their_earlier_rows_are_whole_once_they_are_read():
    offset = StreamOffset("initial", {"pos": 1}, done={"s.a": None, "s.b": 1}, partial=("s.a",))
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    assert offset.not_whole == {"s.a"}
    reading = offset.with_reread("s.a", RereadProgress("1"))
    assert (reading.partial, reading.not_whole) == (("s.a",), frozenset())
    some = offset.with_reread("s.a", RereadProgress("1", done=True, where="id = 1"))
    assert some.not_whole == {"s.a"}
    assert reading.with_reread("s.a", RereadProgress("1", done=True)).partial == ()
    assert offset.without("s.a").partial == ()


def test_what_the_catalog_said_of_columns_is_kept():
    declared = {"s.t": {"id": CatalogText("int(11)", "number"), "n": CatalogText(comment="name")}, "s.u": {}}
    offset = StreamOffset("initial", {"pos": 4}, declared=declared)
    assert offset.to_json()["declared"] == {
        "s.t": {"id": {"type": "int(11)", "comment": "number"}, "n": {"comment": "name"}},
        "s.u": {},
    }
    assert StreamOffset.from_json(offset.to_json()) == offset
    assert "declared" not in replace(offset, declared=None).to_json()

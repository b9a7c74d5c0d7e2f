"""A parked table takes part in no batch; all others do, and a replay leaves out the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tailrace.enumerator.enumerator import Limits
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.parked import parked_at
from tailrace.enumerator.request import Request
from tailrace.errors import PreflightError, SinkError
from tailrace.model.parked import Parked, Reason, without_tables
from tailrace.model.split import LogSplit, SnapshotSplit
from tailrace.sources.base import LogRange
from tests.unit.enumerator.test_enumerator import At, FakeSource, enumerator, ranges

WHY = Reason.of(SinkError("no such type", "found x", "change it back", code="TR-7001"))


class Waiting:
    def __init__(self, *requests):
        self.waiting = list(requests)

    def pending(self):
        return list(self.waiting)

    def remove(self, ids):
        self.waiting = [r for r in self.waiting if r.id not in ids]


def started(source, **given):
    """The offset after the snapshots of all tables."""
    end = enumerator(source, parallelism=100, **given).latest(StreamOffset(), Limits())
    assert not end.tables
    return end


def logs(splits):
    return [s for s in splits if isinstance(s, LogSplit)]


def test_planned_batch_is_written_without_the_table_and_the_next_offset_has_it_parked():
    source = FakeSource(a=5, b=5)
    first = started(source)
    source.ranges = [LogRange(At(150), has_changes=True)]
    second = enumerator(source).latest(first, Limits())
    entry = parked_at("shop.b", first, second, WHY)
    assert (entry.had, entry.log, entry.rows) == ("all", {"pos": 100}, first.done["shop.b"])
    requests = Waiting(Request("p1", ("shop.b",), "park", entry))
    (log,) = logs(enumerator(source, requests=requests).splits(first, second))
    assert log.without == {"shop.b"}
    source.ranges.append(LogRange(At(200), has_changes=True))
    plan = enumerator(source, requests=requests)
    third = plan.latest(second, Limits())
    assert third.parked == {"shop.b": entry}
    assert (third.requests, set(third.done)) == (("p1",), {"shop.a"})
    (log,) = logs(plan.splits(second, third))
    assert log.without == {"shop.b"}
    plan.commit(third)
    assert requests.waiting == []
    assert StreamOffset.from_json(json.loads(json.dumps(third.to_json()))) == third
    assert third.to_json()["v"] == 3


def test_snapshot_of_a_table_is_left_out_of_a_batch_that_is_repeated():
    source = FakeSource(a=50, b=5)
    plan = enumerator(source, parallelism=6)
    first = plan.latest(StreamOffset(), Limits())
    assert {name for name, _, _ in ranges(plan.splits(StreamOffset(), first))} == {"shop.a", "shop.b"}
    entry = parked_at("shop.a", StreamOffset(), first, WHY)
    assert (entry.had, entry.log) == ("part", None)
    requests = Waiting(Request("p1", ("shop.a",), "park", entry))
    again = enumerator(source, parallelism=6, requests=requests)
    assert ranges(again.splits(StreamOffset(), first)) == [("shop.b", None, None)]
    second = again.latest(first, Limits())
    assert second.parked["shop.a"].log == {"pos": 100}
    assert not second.tables


def test_table_that_nothing_was_read_of_is_parked_as_new():
    offset = StreamOffset("initial", {"pos": 1})
    assert parked_at("shop.a", offset, offset, WHY).had == "nothing"


def test_table_parked_by_hand_is_left_out_from_the_next_batch_on():
    source = FakeSource(a=5, b=5)
    first = started(source)
    source.ranges = [LogRange(At(150), has_changes=True)]
    second = enumerator(source).latest(first, Limits())
    requests = Waiting(Request("p1", ("shop.b",), "park"))
    (log,) = logs(enumerator(source, requests=requests).splits(first, second))
    assert log.without == frozenset()
    third = enumerator(source, requests=requests).latest(second, Limits())
    assert third.parked["shop.b"].log == {"pos": 150}
    assert third.parked["shop.b"].reason.code is None


def test_resumed_table_is_read_again_by_the_first_batch_behind_the_present_end_of_the_log():
    source = FakeSource(a=5, b=5)
    requests = Waiting(Request("p1", ("shop.b",), "park"))
    first = started(source)
    second = enumerator(source, requests=requests).latest(first, Limits())
    requests.waiting.append(Request("r1", ("shop.b",), "resume"))
    source.end = At(300)
    plan = enumerator(source, requests=requests)
    third = plan.latest(second, Limits())
    assert third.parked["shop.b"].resume == {"pos": 300}
    source.ranges = [LogRange(At(250), has_changes=True), LogRange(At(300), has_changes=False)]
    fourth = plan.latest(third, Limits())
    assert "shop.b" in fourth.parked
    fifth = plan.latest(fourth, Limits())
    assert fifth.log == {"pos": 300}
    assert "shop.b" in fifth.parked
    sixth = plan.latest(fifth, Limits())
    assert not sixth.parked
    assert sixth.again["shop.b"].done
    assert ranges(plan.splits(fifth, sixth)) == [("shop.b", None, None)]
    restarted = enumerator(source, requests=requests)
    assert ranges(restarted.splits(fifth, sixth)) == [("shop.b", None, None)]


def test_resumed_table_is_replayed_from_where_it_was_parked():
    source = FakeSource(a=5, b=5)
    requests = Waiting(Request("p1", ("shop.b",), "park"))
    first = started(source)
    second = enumerator(source, requests=requests).latest(first, Limits())
    source.end = At(200)
    source.ranges = [LogRange(At(200), has_changes=True)]
    requests.waiting.append(Request("r1", ("shop.b",), "resume", replay=True))
    plan = enumerator(source, requests=requests)
    third = plan.latest(second, Limits())
    assert third.parked["shop.b"].replay
    source.ranges.append(LogRange(At(240), has_changes=True))
    fourth = plan.latest(third, Limits())
    assert (fourth.parked, fourth.again) == ({}, {})
    assert fourth.done["shop.b"] == first.done["shop.b"]
    for splits in (plan.splits(third, fourth), enumerator(source, requests=requests).splits(third, fourth)):
        assert not [s for s in splits if isinstance(s, SnapshotSplit)]
        rest, replayed = logs(splits)
        assert rest.without == {"shop.b"}
        assert (replayed.start, replayed.end) == ({"pos": 100}, {"pos": 240})
        assert replayed.finished == {"shop.b"}


def test_table_that_cannot_be_captured_is_parked_at_the_start():
    source = FakeSource(a=5, b=5)
    source.require = lambda: {"shop.b": PreflightError("no key", code="TR-5001", table="shop.b")}
    plan = enumerator(source, parallelism=10, maxParked="5")
    first = plan.latest(StreamOffset(), Limits())
    assert first.parked["shop.b"].reason.code == "TR-5001"
    assert first.parked["shop.b"].had == "nothing"
    assert ranges(plan.splits(StreamOffset(), first)) == [("shop.a", None, None)]
    source.require = dict
    requests = Waiting(Request("r1", ("shop.b",), "resume"))
    plan = enumerator(source, requests=requests, maxParked="5")
    second = plan.latest(first, Limits())
    third = plan.latest(second, Limits())
    assert not third.parked
    assert ranges(plan.splits(second, third)) == [("shop.b", None, None)]
    assert third.again == {}


def test_resumed_table_that_still_cannot_be_captured_stays_parked():
    source = FakeSource(a=5, b=5)
    source.require = lambda: {"shop.b": PreflightError("no key", code="TR-5001", table="shop.b")}
    first = enumerator(source, maxParked="5").latest(StreamOffset(), Limits())
    source.require = lambda: {"shop.b": PreflightError("no right", code="TR-2004", table="shop.b")}
    requests = Waiting(Request("r1", ("shop.b",), "resume"))
    second = enumerator(source, requests=requests, maxParked="5").latest(first, Limits())
    assert second.parked["shop.b"].reason.code == "TR-2004"
    assert second.parked["shop.b"].resume is None


@pytest.mark.parametrize(("rows", "most"), [({"a": 5, "b": 5}, "0"), ({"b": 5}, "5")])
def test_last_table_and_one_too_many_are_errors(rows, most):
    source = FakeSource(**rows)
    source.require = lambda: {"shop.b": PreflightError("no key", code="TR-5001", table="shop.b")}
    with pytest.raises(PreflightError, match="no key"):
        enumerator(source, maxParked=most).latest(StreamOffset(), Limits())


def test_sink_sees_no_reading_schema_change_or_target_of_a_table_that_is_left_out():
    end = {
        "v": 3,
        "log": {},
        "tables": {},
        "done": {"s.a": 1, "s.b": 1},
        "again": {"s.b": {"id": "x", "done": True}},
        "schema": [{"table": "s.b"}, {"table": "s.a"}],
    }
    found = without_tables(end, {"s.b"})
    assert (found["again"], found["done"], found["schema"]) == ({}, {"s.a": 1}, [{"table": "s.a"}])


def test_reason_of_a_parked_table_is_kept_in_the_offset():
    entry = Parked(WHY, {"pos": 1}, "part", 7, {"pos": 3}, replay=True)
    assert Parked.from_json(json.loads(json.dumps(entry.to_json()))) == entry
    assert str(replace(entry).reason).splitlines()[0] == "no such type [TR-7001]"


def test_table_parked_before_the_log_was_lost_is_read_again_even_if_a_replay_is_asked_for():
    source = FakeSource(a=5, b=5)
    requests = Waiting(Request("p1", ("shop.b",), "park"))
    given = {"requests": requests, "onPositionLost": "refresh"}
    first = started(source)
    second = enumerator(source, **given).latest(first, Limits())
    source.lost = True
    third = enumerator(source, **given).latest(second, Limits())
    assert third.again.keys() == {"shop.a"}
    assert third.parked["shop.b"].log is None
    source.lost = False
    requests.waiting.append(Request("r1", ("shop.b",), "resume", replay=True))
    source.end = At(500)
    plan = enumerator(source, **given)
    fourth = plan.latest(third, Limits())
    fifth = plan.latest(fourth, Limits())
    assert "shop.b" in fifth.again
    assert not fifth.parked


def test_resumed_table_that_fails_at_once_is_left_out_of_its_batch():
    source = FakeSource(a=5, b=5)
    requests = Waiting(Request("p1", ("shop.b",), "park"))
    first = started(source)
    second = enumerator(source, requests=requests).latest(first, Limits())
    requests.waiting.append(Request("r1", ("shop.b",), "resume"))
    plan = enumerator(source, requests=requests)
    third = plan.latest(second, Limits())
    fourth = plan.latest(third, Limits())
    assert "shop.b" in fourth.again
    entry = parked_at("shop.b", third, fourth, WHY)
    assert entry.had == "part"
    requests.waiting.append(Request("p2", ("shop.b",), "park", entry))
    restarted = enumerator(source, requests=requests)
    assert ranges(restarted.splits(third, fourth)) == []
    fifth = restarted.latest(fourth, Limits())
    assert fifth.parked["shop.b"].reason.code == "TR-7001"
    assert not fifth.again


def test_table_is_resumed_in_a_stream_without_a_log():
    source = FakeSource(a=5, b=50)
    requests = Waiting(Request("p1", ("shop.b",), "park"))
    given = {"requests": requests, "startingPosition": "snapshot"}
    first = enumerator(source, **given).latest(StreamOffset(), Limits())
    assert first.parked["shop.b"].had == "nothing"
    source.end = At(300)
    requests.waiting.append(Request("r1", ("shop.b",), "resume"))
    plan = enumerator(source, **given)
    second = plan.latest(first, Limits())
    third = plan.latest(second, Limits())
    assert not third.parked
    assert ranges(plan.splits(second, third))[0] == ("shop.b", None, (10,))


def test_server_that_fails_its_checks_when_a_table_appears_goes_on_until_the_next_start():
    source = FakeSource(a=5)
    plan = enumerator(source, maxParked="5")
    first = plan.latest(StreamOffset(), Limits())

    def require():
        raise PreflightError("the server is not set up", code="TR-2001")

    source.require = require
    source.rows["shop.b"] = 3
    source.ranges = [LogRange(At(150), has_changes=False, ddl_ahead=True)]
    second = plan.latest(first, Limits())
    assert second.knows("shop.b")
    assert not second.parked

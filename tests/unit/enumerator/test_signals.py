"""Signals are obeyed once, by the next offset, and each of them is answered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.enumerator.enumerator import Enumerator, Limits
from tailrace.enumerator.offset import RereadProgress, StreamOffset, TableProgress
from tailrace.enumerator.signals import TYPES
from tailrace.model.parked import Parked, Reason
from tailrace.model.reread import Reread, rereads
from tailrace.model.signal import Answer, Signal
from tailrace.spark.requests import RequestDirectory
from tests.unit.enumerator.test_enumerator import At, FakeSource, enumerator

DONE = StreamOffset(mode="initial", log={"pos": 100}, done={"shop.a": 15, "shop.b": 5})


class Stream:
    """A stream whose requests lie in a directory."""

    def __init__(self, directory: Path, offset: StreamOffset = DONE, **options: Any) -> None:
        self.requests = RequestDirectory(str(directory))
        self.source = FakeSource(a=15, b=5)
        self.options = options
        self.plan = self.started()
        self.offset = offset

    def started(self) -> Enumerator:
        return enumerator(self.source, requests=self.requests, parallelism=1, **self.options)

    def send(self, kind: str, id_: str = "s1", **data: Any) -> None:
        self.requests.add_signal(
            {"id": id_, "type": kind, "data": {k.replace("_", "-"): v for k, v in data.items()}}
        )

    def next(self) -> StreamOffset:
        """The next offset, as it is after Spark stored it; a process that dies before it plans the same."""
        first = self.plan.latest(self.offset, Limits())
        self.plan = self.started()
        second = self.plan.latest(self.offset, Limits())
        assert _without_ids(first) == _without_ids(second)
        self.offset = StreamOffset.from_json(second.to_json())
        return self.offset

    def commit(self) -> None:
        self.plan.commit(self.offset)

    @property
    def is_idle(self) -> bool:
        return self.plan.latest(self.offset, Limits()) is self.offset


def _without_ids(offset: StreamOffset) -> StreamOffset:
    return replace(offset, again={n: replace(r, id="") for n, r in offset.again.items()})


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def where(*given: str) -> dict[str, Any]:
    """Conditions of tables: patterns and what follows WHERE."""
    pairs = zip(given[::2], given[1::2], strict=True)
    return {
        "additional_conditions": [{"data-collection": pattern, "filter": text} for pattern, text in pairs]
    }


def answer(offset: StreamOffset) -> Answer:
    (found,) = offset.answers
    return found


@pytest.mark.parametrize("kind", ["incremental", "blocking", "BLOCKING", None])
def test_snapshot_signal_reads_the_matching_tables_again(stream: Stream, kind: str | None) -> None:
    stream.send("execute-snapshot", data_collections=[r"shop\.a"], **({} if kind is None else {"type": kind}))
    end = stream.next()
    assert set(end.again) == {"shop.a"}
    assert end.again["shop.a"].by == "s1"
    assert {(a.status, a.tables) for a in end.answers} <= {("COMPLETED", ("shop.a",))}


def test_signal_takes_effect_once(stream: Stream) -> None:
    stream.send("resync", data_collections=["shop.b"])
    first = stream.next()
    stream.commit()
    assert first.again["shop.b"].done
    assert stream.is_idle
    assert stream.requests.pending() == []


def test_pattern_without_a_table_is_answered_beside_the_others(stream: Stream) -> None:
    stream.send("execute-snapshot", data_collections=["shop.a", "shop.none"], surrogate_key="id")
    end = stream.next()
    assert set(end.again) == {"shop.a"}
    assert answer(end) == Answer(
        "s1", "execute-snapshot", "UNKNOWN_SCHEMA", "no captured table matches", ("shop.none",)
    )


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("execute-snapshot", {}, "names no table"),
        ("execute-snapshot", {"data_collections": "shop.a"}, "not a list"),
        ("execute-snapshot", {"data_collections": [1]}, "not a list"),
        ("execute-snapshot", {"data_collections": ["("]}, "no regular expression"),
        ("execute-snapshot", {"data_collections": ["x.y"]}, "no captured table matches `x.y`"),
        ("execute-snapshot", {"data_collections": ["shop.a"], "type": "sideways"}, "unknown `type`"),
        ("execute-snapshot", {"data_collections": ["shop.a"], "type": 1}, "unknown `type`"),
        ("execute-snapshot", {"additional_conditions": 7}, "is not a list"),
        ("execute-snapshot", {"additional_conditions": [{"filter": "id > 3"}]}, "lacks its table pattern"),
        ("execute-snapshot", where("shop.b", "id > 3"), "names no table that is to be read"),
        ("execute-snapshot", where("shop.a", "id > (SELECT 1)"), "holds `SELECT`"),
        ("execute-snapshot", where("shop.a", "id > 3", ".*", "id > 4"), "two conditions of `shop.a`"),
        ("resync", where("shop.a", "id = 'refused'"), "refused"),
        ("park", where("shop.a", "id > 3"), "belongs to execute-snapshot"),
        ("resume", {"data_collections": ["shop.a"]}, "no parked table matches"),
        ("park", {"data_collections": ["shop.c"]}, "no captured table matches"),
        ("set-binlog-position", {"gtid_set": "x:1-7"}, "tailrace offsets set"),
        ("set-tables", {"tables": "x.y"}, "of one table"),
        ("verify", {}, "tailrace verify"),
        ("repair", {}, "tailrace repair"),
        ("stop-snapshot", {"type": "sideways"}, "unknown `type`"),
        ("log", {"message": 7}, "not a text"),
        ("make-coffee", {}, "type is unknown"),
    ],
)
def test_signal_that_cannot_be_obeyed_is_answered(
    stream: Stream, kind: str, data: dict[str, Any], reason: str
) -> None:
    if "additional_conditions" in data:
        data = {"data_collections": ["shop.a"], **data}
    stream.send(kind, **data)
    end = stream.next()
    assert answer(end).status == "ABORTED"
    assert reason in answer(end).reason
    assert replace(end, answers=(), requests=()) == DONE
    stream.commit()
    assert stream.is_idle


@pytest.mark.parametrize("kind", ["verify", "repair"])
def test_comparison_is_accepted_once_where_the_process_compares(tmp_path: Path, kind: str) -> None:
    stream = Stream(tmp_path, compares=True)
    stream.send(kind, data_collections=["shop[.][ax]"])
    assert answer(stream.next()) == Answer("s1", kind, "ACCEPTED", "", ("shop.a",))
    stream.commit()
    assert stream.is_idle
    stream.send(kind, "s2")
    assert answer(stream.next()) == Answer("s2", kind, "ACCEPTED"), "without tables: all of them"
    stream.send(kind, "s3", data_collections=["shop.none"])
    assert answer(stream.next()).status == "ABORTED"
    assert replace(stream.offset, answers=(), requests=()) == DONE


def test_condition_reads_matching_rows_again_and_survives_a_restart(stream: Stream) -> None:
    stream.send("execute-snapshot", data_collections=["shop.*"], **where("shop[.]a", " id > 3 "))
    start, end = stream.offset, stream.next()
    assert end.to_json()["v"] == 4
    assert end.again["shop.a"].where == "id > 3"
    assert not end.again["shop.a"].done
    splits = stream.started().splits(start, end)
    assert [(str(s.table.id), s.where, s.reread) for s in splits] == [("shop.a", "id > 3", True)]
    stream.commit()
    stream.plan = stream.started()
    start, end = end, stream.next()
    assert (end.again["shop.a"].done, end.again["shop.a"].where) == (True, "id > 3")
    assert [s.where for s in stream.started().splits(start, end)] == ["id > 3"]
    assert end.again["shop.b"].where is None
    assert {name: r.partial for name, r in rereads(end.to_json()).items()} == {
        "shop.a": True,
        "shop.b": False,
    }


def test_sinks_delete_nothing_after_a_reading_with_a_condition(stream: Stream) -> None:
    stream.send("resync", data_collections=["shop.b"], **where(".*", "id > 3"))
    end = stream.next()
    assert rereads(end.to_json()) == {"shop.b": Reread(end.again["shop.b"].id, done=True, partial=True)}


def test_one_condition_after_the_other_becomes_both(stream: Stream) -> None:
    stream.send("resync", data_collections=["shop.a"], **where(".*", "id > 3"))
    stream.next()
    stream.send("resync", "s2", data_collections=["shop.a"], additional_condition="id < 2")
    stream.plan = stream.started()
    end = stream.next()
    assert end.again["shop.a"].where == "(id > 3) OR (id < 2)"
    stream.plan = stream.started()
    stream.send("resync", "s3", data_collections=["shop.a"], **where(".*", f"id = {'1' * 1990}"))
    assert "send it once they are done" in answer(stream.next()).reason


def test_condition_does_not_narrow_a_reading_that_is_needed_whole(tmp_path: Path) -> None:
    unfinished = StreamOffset("initial", {"pos": 100}, {"shop.a": TableProgress((5,), 5)}, {"shop.b": 5})
    again = replace(DONE, again={"shop.a": RereadProgress("r1", TableProgress((1,), 1, 15))})
    for number, offset in enumerate((unfinished, again)):
        stream = Stream(tmp_path / str(number), offset)
        stream.send("resync", data_collections=["shop.a"], **where(".*", "id > 3"))
        end = stream.next()
        assert end.again["shop.a"].where is None
        assert end.again["shop.a"].by is None


def test_condition_that_the_table_has_outgrown_no_longer_leaves_rows_out(stream: Stream) -> None:
    stream.send("resync", data_collections=["shop.a"], **where(".*", "id > 3"))
    start, end = stream.offset, stream.next()
    stream.source.condition_problem = lambda table, condition: "another type"  # type: ignore[method-assign]
    assert [(s.where, s.reread) for s in stream.started().splits(start, end)] == [(None, True)]


def test_pattern_that_would_take_for_ever_does_not(stream: Stream) -> None:
    stream.send("execute-snapshot", data_collections=["(.*)*(.*)*(.*)*x", "a)|(b"])
    assert "no regular expression" in answer(stream.next()).reason
    stream.commit()
    stream.send("execute-snapshot", data_collections=["(.|.)*(.|.)*(.|.)*!"])
    assert "no captured table" in answer(stream.next()).reason


def test_file_that_is_no_request_is_answered(stream: Stream, tmp_path: Path) -> None:
    (tmp_path / "0001.json").write_text("{")
    assert "is not a request" in answer(stream.next()).reason
    stream.commit()
    assert list(tmp_path.iterdir()) == []


def test_every_known_type_is_answered_or_seen_in_the_offset(tmp_path: Path) -> None:
    for kind in TYPES:
        stream = Stream(tmp_path / kind)
        stream.send(kind, data_collections=["shop.a"])
        end = stream.next()
        assert end.answers or end.again, kind


def test_log_signal_has_the_position(stream: Stream) -> None:
    stream.send("log", message="now at {}")
    assert answer(stream.next()) == Answer("s1", "log", "COMPLETED", 'now at {"pos": 100}')


def test_paused_snapshot_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    begun = StreamOffset(
        mode="initial", log={"pos": 100}, tables={"shop.a": TableProgress((10,), 10)}, done={"shop.b": 5}
    )
    stream = Stream(tmp_path, begun)
    stream.send("pause-snapshot")
    end = stream.next()
    assert end.paused
    assert end.tables == begun.tables
    assert answer(end) == Answer("s1", "pause-snapshot", "PAUSED", "", ("shop.a",))
    stream.commit()
    assert stream.is_idle
    stream.send("pause-snapshot", "s2")
    assert answer(stream.next()).status == "SKIPPED"
    stream.commit()
    stream.send("resume-snapshot", "s3")
    end = stream.next()
    assert not end.paused
    assert answer(end).status == "RESUMED"
    assert end.done == {"shop.a": 15, "shop.b": 5} or end.done.keys() == {"shop.a", "shop.b"}
    stream.commit()
    stream.send("resume-snapshot", "s4")
    assert answer(stream.next()).status == "SKIPPED"


def test_stop_ends_a_reading_that_a_signal_began(stream: Stream) -> None:
    stream.send("execute-snapshot", data_collections=["shop.a"])
    assert set(stream.next().again) == {"shop.a"}
    stream.send("stop-snapshot", "s2", data_collections=["shop.a"], type="incremental")
    end = stream.next()
    assert end.again == {}
    assert answer(end) == Answer("s2", "stop-snapshot", "STOPPED", "", ("shop.a",))
    stream.commit()
    stream.send("stop-snapshot", "s3")
    assert answer(stream.next()).status == "SKIPPED"


def test_stop_does_not_end_a_reading_without_which_the_target_is_wrong(tmp_path: Path) -> None:
    needed = replace(DONE, again={"shop.a": RereadProgress("r1", TableProgress((1,), 1, 15))})
    stream = Stream(tmp_path, needed)
    stream.send("execute-snapshot", data_collections=["shop.a"])
    end = stream.next()
    assert end.again["shop.a"].by is None
    stream.send("stop-snapshot", "s2")
    end = stream.next()
    assert set(end.again) == {"shop.a"}
    assert "lack rows" in answer(end).reason


def test_stop_waits_behind_a_snapshot_signal_that_waits_for_the_log(stream: Stream) -> None:
    stream.source.end = At(150)  # the reading begins once the log is read up to here
    stream.send("execute-snapshot", data_collections=["shop.a"])
    stream.send("stop-snapshot", "s2")
    end = stream.next()
    assert replace(end, waits={}) == DONE
    assert list(end.waits.values()) == [{"pos": 150}]
    assert stream.is_idle
    stream.source.end = At(200)  # another process does not wait for more
    stream.plan = stream.started()
    stream.source.ranges = [_range(150)]
    stream.next()
    end = stream.next()
    assert end.again == {}
    assert answer(end).status == "STOPPED"


def _range(pos: int) -> Any:
    from tailrace.sources.base import LogRange

    return LogRange(At(pos), has_changes=True)


def test_park_and_resume_signals_do_what_the_commands_do(stream: Stream) -> None:
    stream.send("park", data_collections=["shop.b"])
    end = stream.next()
    assert set(end.parked) == {"shop.b"}
    assert answer(end) == Answer("s1", "park", "COMPLETED", "", ("shop.b",))
    stream.commit()
    stream.send("resume", "s2", data_collections=["shop.*"])
    end = stream.next()
    assert answer(end) == Answer("s2", "resume", "COMPLETED", "", ("shop.b",))
    stream.commit()
    assert "shop.b" in stream.next().again


def test_replay_is_refused_on_postgresql(tmp_path: Path) -> None:
    parked = StreamOffset(
        "initial",
        {"pos": 100},
        done={"shop.a": 15},
        parked={"shop.b": Parked(Reason("r"), {"pos": 9}, "all")},
    )
    stream = Stream(tmp_path, parked, url="postgresql://h/d")
    stream.send("resume", data_collections=["shop.b"], replay=True)
    end = stream.next()
    assert "`replay` is not possible" in answer(end).reason
    assert end.parked == parked.parked


def test_signals_that_wait_in_an_offset_are_obeyed_by_the_next(tmp_path: Path) -> None:
    waits = replace(DONE, signals={"1-0": Signal("t1", "execute-snapshot", {"data-collections": ["shop.b"]})})
    stream = Stream(tmp_path, StreamOffset.from_json(waits.to_json()))
    end = stream.next()
    assert end.signals == {}
    assert end.again["shop.b"].by == "t1"


def test_first_offset_obeys_a_signal_too(tmp_path: Path) -> None:
    stream = Stream(tmp_path, StreamOffset())
    stream.send("pause-snapshot")
    end = stream.next()
    assert end.paused
    assert end.tables.keys() == {"shop.a", "shop.b"}
    assert all(progress.cursor is None for progress in end.tables.values())


def test_a_stream_without_signals_has_an_offset_that_older_versions_read() -> None:
    assert DONE.to_json() == {
        "v": 1,
        "mode": "initial",
        "log": {"pos": 100},
        "tables": {},
        "done": {"shop.a": 15, "shop.b": 5},
    }

"""Notifications follow from the two offsets of a batch alone."""

from __future__ import annotations

import json
from dataclasses import replace

from tailrace.enumerator.offset import RereadProgress, StreamOffset, TableProgress
from tailrace.model.parked import Parked, Reason
from tailrace.model.signal import Answer
from tailrace.pipeline.notifications import Batch, Notification, notifications

BATCH = Batch("stream", "shop", 7)
DONE = StreamOffset("initial", {"pos": 1}, done={"s.a": 9, "s.b": 0})


def told(former: StreamOffset, new: StreamOffset) -> list[tuple[str, str, str]]:
    """Aggregate type, type and the table of each notification."""
    return [
        (
            one.aggregate_type,
            one.type,
            one.additional_data.get("scanned_collection")
            or one.additional_data.get("current_collection_in_progress")
            or one.additional_data["data_collections"],
        )
        for one in notifications(BATCH, former, new)
    ]


def again(**tables: RereadProgress) -> StreamOffset:
    return replace(DONE, again={f"s.{name}": reread for name, reread in tables.items()})


def test_first_snapshot_is_told_from_its_start_to_its_end() -> None:
    begun = StreamOffset(
        "initial", {"pos": 1}, {"s.a": TableProgress((5,), 5, 9), "s.b": TableProgress(None, 0, 3)}
    )
    assert told(StreamOffset(), begun) == [
        ("Initial Snapshot", "STARTED", "s.a,s.b"),
        ("Initial Snapshot", "IN_PROGRESS", "s.a"),
    ]
    assert told(begun, DONE) == [
        ("Initial Snapshot", "TABLE_SCAN_COMPLETED", "s.a"),
        ("Initial Snapshot", "TABLE_SCAN_COMPLETED", "s.b"),
        ("Initial Snapshot", "COMPLETED", "s.a,s.b"),
    ]
    assert [n.additional_data.get("status") for n in notifications(BATCH, begun, DONE)] == [
        "SUCCEEDED",
        "EMPTY",
        None,
    ]


def test_snapshot_of_one_batch_is_told_as_a_whole() -> None:
    assert [type_ for _, type_, _ in told(StreamOffset(), DONE)] == [
        "STARTED",
        "TABLE_SCAN_COMPLETED",
        "TABLE_SCAN_COMPLETED",
        "COMPLETED",
    ]


def test_stream_without_a_snapshot_skips_it() -> None:
    latest = StreamOffset("latest", {"pos": 1}, done={"s.a": None})
    assert told(StreamOffset(), latest) == [("Initial Snapshot", "SKIPPED", "s.a")]


def test_new_table_is_a_snapshot_of_its_own_and_one_created_in_the_log_is_none() -> None:
    new = DONE.with_table("s.c", TableProgress((1,), 1, 2))
    assert told(DONE, new) == [
        ("Initial Snapshot", "STARTED", "s.c"),
        ("Initial Snapshot", "IN_PROGRESS", "s.c"),
    ]
    assert told(DONE, DONE.with_done("s.c", None)) == []


def test_tables_of_one_signal_are_one_snapshot_under_its_id() -> None:
    a, b = RereadProgress("1", by="ad-hoc"), RereadProgress("2", by="ad-hoc")
    begun = again(a=replace(a, progress=TableProgress((1,), 10, 20)), b=b)
    assert told(DONE, begun) == [
        ("Incremental Snapshot", "STARTED", "s.a,s.b"),
        ("Incremental Snapshot", "IN_PROGRESS", "s.a"),
    ]
    half = again(a=RereadProgress("1", TableProgress(None, 20, 20), True, "ad-hoc"), b=b)
    assert told(begun, half) == [("Incremental Snapshot", "TABLE_SCAN_COMPLETED", "s.a")]
    rest = again(b=RereadProgress("2", TableProgress(None, 3, 3), True, "ad-hoc"))
    assert told(half, rest) == [
        ("Incremental Snapshot", "TABLE_SCAN_COMPLETED", "s.b"),
        ("Incremental Snapshot", "COMPLETED", "s.b"),
    ]
    assert {one.id for one in notifications(BATCH, DONE, begun)} == {"ad-hoc"}
    assert told(rest, DONE) == []


def test_reading_that_begins_and_ends_in_one_batch_is_told_as_a_whole() -> None:
    end = again(a=RereadProgress("1", TableProgress(None, 3, 3), True, "ad-hoc"))
    assert [type_ for _, type_, _ in told(DONE, end)] == ["STARTED", "TABLE_SCAN_COMPLETED", "COMPLETED"]


def test_reading_of_the_stream_itself_has_its_own_id() -> None:
    (one,) = notifications(BATCH, DONE, again(a=RereadProgress("4f1c")))
    assert (one.id, one.type) == ("4f1c", "STARTED")


def test_reading_that_begins_anew_is_told_of_again() -> None:
    first = again(a=RereadProgress("1", TableProgress((5,), 5), by="x"))
    second = again(a=RereadProgress("2", TableProgress(), by="y"))
    assert [(n.id, n.type) for n in notifications(BATCH, first, second)] == [
        ("x", "ABORTED"),
        ("y", "STARTED"),
    ]
    same_signal = again(a=RereadProgress("2", TableProgress(), by="x"))
    assert [(n.id, n.type) for n in notifications(BATCH, first, same_signal)] == [("x", "STARTED")]


def test_stopped_reading_is_aborted_under_the_id_of_the_stop_signal() -> None:
    begun = again(a=RereadProgress("1", TableProgress((5,), 5), by="x"))
    stopped = replace(DONE, answers=(Answer("s2", "stop-snapshot", "STOPPED", "", ("s.a",)),))
    assert [(n.id, n.type) for n in notifications(BATCH, begun, stopped)] == [("s2", "ABORTED")]


def test_pause_resume_and_unknown_tables_are_told_in_debeziums_words() -> None:
    answers = (
        Answer("1", "pause-snapshot", "PAUSED", "", ("s.a",)),
        Answer("2", "resume-snapshot", "RESUMED", "", ("s.a",)),
        Answer("3", "execute-snapshot", "UNKNOWN_SCHEMA", "no captured table matches", ("s.x",)),
    )
    found = notifications(BATCH, DONE, replace(DONE, answers=answers))
    assert [(n.id, n.aggregate_type, n.type) for n in found] == [
        ("1", "Incremental Snapshot", "PAUSED"),
        ("2", "Incremental Snapshot", "RESUMED"),
        ("3", "Incremental Snapshot", "TABLE_SCAN_COMPLETED"),
    ]
    assert found[2].additional_data["status"] == "UNKNOWN_SCHEMA"


def test_answers_to_other_signals_are_told() -> None:
    answers = (Answer("1", "log", "COMPLETED", "hello"), Answer("2", "coffee", "ABORTED", "unknown"))
    found = notifications(BATCH, DONE, replace(DONE, answers=answers))
    assert [(n.id, n.aggregate_type, n.type) for n in found] == [
        ("1", "Signal", "COMPLETED"),
        ("2", "Signal", "ABORTED"),
    ]
    assert found[0].additional_data["message"] == "hello"
    assert found[1].additional_data["reason"] == "unknown"


def test_parked_and_resumed_tables_and_a_lost_log_are_told() -> None:
    parked = replace(
        DONE, done={"s.b": 0}, parked={"s.a": Parked(Reason("it is broken", "TR-7001"), {"pos": 1}, "all")}
    )
    (one,) = notifications(BATCH, DONE, parked)
    assert (one.aggregate_type, one.type) == ("Table", "PARKED")
    assert one.additional_data["reason"] == "it is broken [TR-7001]"
    assert told(parked, DONE) == [("Table", "RESUMED", "s.a")]
    lost = replace(again(a=RereadProgress("1"), b=RereadProgress("2")), gaps=1)
    assert told(DONE, lost)[0] == ("Log", "LOST", "s.a,s.b")


def test_repeated_batch_has_the_same_notifications_and_another_batch_other_ids() -> None:
    begun = StreamOffset("initial", {"pos": 1}, {"s.a": TableProgress((5,), 5, 9)})
    first = notifications(BATCH, StreamOffset(), begun)
    assert first == notifications(BATCH, StreamOffset(), begun)
    other = notifications(replace(BATCH, number=8), StreamOffset(), begun)
    ids = [one.id for one in (*first, *other)]
    assert len(set(ids)) == len(ids)


def test_json_has_debeziums_fields() -> None:
    text = Notification("1", "Initial Snapshot", "STARTED", {"connector_name": "shop"}).to_json(1700)
    assert json.loads(text) == {
        "id": "1",
        "aggregate_type": "Initial Snapshot",
        "type": "STARTED",
        "additional_data": {"connector_name": "shop"},
        "timestamp": 1700,
    }

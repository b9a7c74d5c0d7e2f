"""When pending changes are merged."""

from __future__ import annotations

from tailrace.sinks.delta.schedule import MOST_PENDING, Schedule


def after_a_merge(interval_s: int | None, at: float, took_s: float) -> Schedule:
    schedule = Schedule(interval_s)
    schedule.merged(at, took_s)
    schedule.batch(at)
    return schedule


def test_first_changes_are_merged_at_once() -> None:
    assert Schedule(None).is_due(0.0, 10)
    assert Schedule(60).is_due(0.0, 10)


def test_interval_of_zero_merges_each_batch() -> None:
    assert after_a_merge(0, 100.0, 30.0).is_due(100.0, 10)


def test_interval_is_counted_from_the_end_of_the_last_merge() -> None:
    schedule = after_a_merge(60, 100.0, 30.0)
    assert not schedule.is_due(159.9, 10)
    assert schedule.is_due(160.0, 10)


def test_without_an_interval_merges_take_at_most_a_quarter_of_the_time() -> None:
    schedule = after_a_merge(None, 100.0, 10.0)
    assert not schedule.is_due(129.9, 10)
    assert schedule.is_due(130.0, 10)


def test_backlog_is_merged_whatever_the_interval() -> None:
    assert after_a_merge(3600, 100.0, 1.0).is_due(101.0, MOST_PENDING + 1)


def test_idle_stream_is_merged_at_once_unless_an_interval_is_set() -> None:
    assert not after_a_merge(None, 100.0, 10.0).is_due_when_idle(100.5)
    assert after_a_merge(None, 100.0, 10.0).is_due_when_idle(101.0)
    assert not after_a_merge(60, 100.0, 10.0).is_due_when_idle(101.0)
    assert after_a_merge(60, 100.0, 10.0).is_due_when_idle(160.0)

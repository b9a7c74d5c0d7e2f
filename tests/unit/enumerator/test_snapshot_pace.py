"""Limits of reading tables: rates, windows of the day, the server's activity."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tailrace.config.options import parse_options
from tailrace.enumerator.snapshot_pace import MOST_S, SnapshotPace
from tailrace.sources.base import Activity

BASE = {"url": "mysql://host", "user": "u", "tables": ".*"}


class World:
    """A server, a clock, and a pace between them."""

    def __init__(self, **options: str) -> None:
        self.seconds = 0.0
        self.start = datetime(2026, 11, 24, 21, 0)  # noqa: DTZ001 - the time of day
        self.found = Activity(1)
        self.asked = 0
        self.held: int | None = None
        self.pace = SnapshotPace(
            parse_options({**BASE, **options}),
            self.activity,
            lambda: self.seconds,
            lambda: self.start + timedelta(seconds=self.seconds),
            self.sleep,
            held_log=lambda: self.held,
        )

    def activity(self) -> Activity:
        self.asked += 1
        return self.found

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.seconds += seconds

    def may_read(self) -> bool:
        self.pace.look()
        return self.pace.may_read


def test_without_limits_all_may_be_read_and_the_server_is_not_asked() -> None:
    world = World()
    assert world.may_read()
    assert world.pace.chunks(250_000, 16, None) == (250_000, 16)
    assert world.asked == 0


@pytest.mark.parametrize(("option", "limit", "row_bytes"), [("Rows", 10_000, 1), ("Bytes", 1_000_000, 100)])
def test_a_rate_holds_over_any_time_however_long_batches_take(option, limit, row_bytes) -> None:
    world = World(**{f"snapshotMax{option}PerSecond": str(limit)})
    read = 0
    for took in [0.01] * 500 + [0.5] * 40 + [3.0] * 10 + [60.0] * 3:
        if world.may_read():
            rows, chunks = world.pace.chunks(250_000, 16, row_bytes)
            assert rows * row_bytes <= limit
            world.pace.planned(rows * chunks, row_bytes)
            read += rows * chunks * row_bytes
        world.seconds += took
        assert read <= limit * (world.seconds + 1) + limit  # the first second, and one chunk
    assert read >= limit * (5 + 20 + 30) * 0.9
    # after a long batch, not all that has accrued is read at once
    world.may_read()
    rows, chunks = world.pace.chunks(250_000, 10_000, row_bytes)
    assert rows * chunks * row_bytes <= limit * MOST_S


def test_a_row_larger_than_the_rate_is_read_and_paid_for() -> None:
    world = World(snapshotMaxBytesPerSecond="1000")
    assert world.may_read()
    assert world.pace.chunks(250_000, 16, 5_000) == (1, 1)
    world.pace.planned(1, 5_000)
    assert not world.may_read()
    world.seconds = 3.9
    assert not world.may_read()
    world.seconds = 4.1
    assert world.may_read()


def test_windows_of_the_day_over_midnight() -> None:
    world = World(snapshotWindows="22:00-06:00, 12:30-13:00")
    open_hours = []
    for half_hour in range(48):
        world.seconds = half_hour * 1800.0
        if world.may_read():
            open_hours.append((world.start + timedelta(seconds=world.seconds)).strftime("%H:%M"))
        else:
            assert world.pace.held_by == "outside of snapshotWindows (22:00-06:00, 12:30-13:00)"
    nightly = [f"{h % 24:02}:{m:02}" for h in range(22, 30) for m in (0, 30)]
    assert sorted(open_hours) == sorted([*nightly, "12:30"])


def test_nothing_is_read_while_the_server_is_busy() -> None:
    world = World(snapshotMaxActiveSessions="8", snapshotMaxReplicaLag="5")
    assert world.may_read()
    world.found = Activity(9, 1.0)
    assert world.may_read()  # asked once a second
    world.seconds = 1.0
    assert not world.may_read()
    assert world.pace.held_by == "9 active sessions, more than snapshotMaxActiveSessions (8)"
    world.found, world.seconds = Activity(8, 6.0), 2.0
    assert not world.may_read()
    assert world.pace.held_by == "a replica is 6 s behind, more than snapshotMaxReplicaLag (5 s)"
    world.found, world.seconds = Activity(8, 5.0), 3.0
    assert world.may_read()
    assert world.asked == 4


def test_log_is_read_first_while_the_server_holds_much_of_it_unless_the_stream_ends() -> None:
    world = World(snapshotMaxHeldLogBytes="1k")
    assert world.may_read()  # not known yet
    world.held = 1024
    assert world.may_read()
    world.held = 1025
    assert not world.may_read()
    assert world.pace.held_by.startswith("the server holds 1,025 bytes of log, more than snapshotMaxHeld")
    world.pace.wait()  # for a stream that ends: what is held would only grow
    assert world.pace.may_read
    assert world.seconds < 5
    world.pace.look(ends=True)
    assert world.pace.may_read
    without = World()
    without.held = 1 << 40
    assert without.may_read()


def test_who_waits_goes_on_when_the_server_is_less_busy_but_does_not_wait_for_a_window() -> None:
    world = World(snapshotMaxActiveSessions="8", snapshotMaxRowsPerSecond="100")
    world.found = Activity(9)
    world.pace.planned(300, None)
    world.pace.look()

    def sleep(seconds: float) -> None:
        world.seconds += seconds
        if world.seconds >= 2.5:
            world.found = Activity(3)

    world.pace._sleep = sleep
    world.pace.wait()
    assert world.pace.may_read
    assert 2.5 <= world.seconds < 5

    closed = World(snapshotWindows="22:00-06:00")
    closed.pace.look()
    closed.pace.wait()
    assert not closed.pace.may_read
    assert closed.seconds == 0


@pytest.mark.parametrize("text", ["", "22-06", "22:00-22:00", "25:00-06:00", "22:00-06:00;", "22:00"])
def test_windows_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(Exception, match="snapshotWindows"):
        World(snapshotWindows=text)

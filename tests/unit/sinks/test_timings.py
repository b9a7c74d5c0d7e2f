"""The steps of writing a batch."""

from __future__ import annotations

from contextlib import suppress

from tailrace.sinks.timings import COMMIT, READ, WRITE, Timings


def test_steps_are_noted_when_they_end_even_if_they_fail() -> None:
    timings = Timings()
    with timings.step("lake", WRITE):
        with timings.step("lake", READ):
            pass
        with suppress(ConnectionError), timings.step("lake", COMMIT):
            raise ConnectionError
    read, commit, write = timings.steps
    assert [read.name, commit.name, write.name] == [READ, COMMIT, WRITE]
    assert write.start_ns <= read.start_ns <= read.end_ns <= commit.end_ns <= write.end_ns
    assert write.seconds == (write.end_ns - write.start_ns) / 1e9

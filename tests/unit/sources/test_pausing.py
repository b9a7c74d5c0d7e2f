"""Pauses of a reader: a share of the time, whatever a statement takes."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tailrace.sources.pausing import (
    FIRST_PAUSE_S,
    FIRST_ROWS,
    MOST_BYTES,
    MOST_PAUSE_S,
    MOST_ROWS,
    Pauses,
    pauses,
)


class Clock:
    def __init__(self) -> None:
        self.now = self.slept = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


def rows_of(count: int, size: int) -> pa.StructArray:
    return pa.array([{"v": b"x" * size}] * count, pa.struct([("v", pa.binary(size))]))


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_the_server_works_for_the_share_of_the_time_whatever_statements_take(share: float) -> None:
    clock, chance = Clock(), random.Random(1)
    paused = Pauses(share, clock.sleep, lambda: clock.now)
    for _ in range(500):
        with paused.after():
            clock.now += chance.uniform(0.0001, 0.1)
    assert (clock.now - clock.slept) / clock.now == pytest.approx(share, rel=0.02)


def test_a_pause_has_an_end_so_that_a_table_is_read_to_its_end() -> None:
    clock = Clock()
    paused = Pauses(0.05, clock.sleep, lambda: clock.now)
    for most in (FIRST_PAUSE_S, MOST_PAUSE_S, MOST_PAUSE_S):
        with paused.after():
            clock.now += 60.0
        assert clock.slept == most
        clock.slept = 0.0


def test_error_is_not_paused_for() -> None:
    clock = Clock()
    with pytest.raises(KeyError), Pauses(0.05, clock.sleep, lambda: clock.now).after():
        raise KeyError
    assert clock.slept == 0


@pytest.mark.parametrize(
    ("size", "expected"), [(8, MOST_ROWS), (MOST_BYTES // 10, 10), (MOST_BYTES, 1), (9 * MOST_BYTES, 1)]
)
def test_statements_have_as_many_rows_as_their_size_allows(size: int, expected: int) -> None:
    paused = Pauses(0.5)
    assert paused.rows == FIRST_ROWS
    paused.read(rows_of(3, size))
    assert paused.rows == expected
    paused.read(rows_of(0, size))
    assert paused.rows == expected


def test_reader_with_all_of_the_time_has_no_pauses() -> None:
    assert pauses(None) is None

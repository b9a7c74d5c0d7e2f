"""How many chunks a batch takes follows how long batches take."""

from __future__ import annotations

from tailrace.enumerator.batch_sizing import LONG_S, MOST_ROUNDS, SHORT_S, BatchSizing


def _chunks(durations: list[float]) -> list[int]:
    """Chunks of the first batch and of each that follows one of these durations, with two tasks."""
    now = 0.0
    pace = BatchSizing(2, lambda: now)
    found = [pace.chunks()]
    for duration in durations:
        now += duration
        found.append(pace.chunks())
    return found


def test_short_batches_grow_to_the_most() -> None:
    assert _chunks([SHORT_S / 2] * 5) == [2, 4, 8, 16, 16, 16]
    assert MOST_ROUNDS == 8


def test_long_batches_shrink_to_one_chunk_per_task() -> None:
    assert _chunks([SHORT_S / 2, SHORT_S / 2, LONG_S * 2, LONG_S * 2, LONG_S * 2]) == [2, 4, 8, 4, 2, 2]


def test_batches_between_stay() -> None:
    assert _chunks([SHORT_S / 2, SHORT_S, LONG_S]) == [2, 4, 4, 4]

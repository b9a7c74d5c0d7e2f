"""How many chunks a batch takes follows how long batches take."""

from __future__ import annotations

from tailrace.enumerator.batch_sizing import LONG_S, MOST_ROUNDS, SHORT_S, BatchSizing, LogSizing


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


class _Log:
    """A log that is planned batch by batch."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sizing = LogSizing(lambda: self.now)
        self.start = 0

    def batch(self, lasts: float, *, full: bool = True) -> int | None:
        """Plan a batch, which takes so many seconds; its limit."""
        found = self.sizing.max_bytes(self.start, 64, 256)
        self.sizing.ends(was_full=full)
        self.now += lasts
        self.start += 1
        return found


def test_full_batches_of_a_backlog_grow_while_they_are_short() -> None:
    log = _Log()
    assert [log.batch(SHORT_S / 2) for _ in range(5)] == [64, 128, 256, 256, 256]
    assert log.batch(2 * LONG_S) == 256
    assert [log.batch(2 * LONG_S), log.batch(SHORT_S)] == [128, 64]


def test_batches_that_end_with_the_log_do_not_grow() -> None:
    log = _Log()
    assert [log.batch(SHORT_S / 2, full=False) for _ in range(3)] == [64, 64, 64]


def test_a_batch_that_is_planned_again_keeps_its_limit() -> None:
    log = _Log()
    log.batch(SHORT_S / 2)
    limits = set()
    for _ in range(3):
        limits.add(log.sizing.max_bytes(log.start, 64, 256))
        log.sizing.ends(was_full=True)
    assert limits == {128}


def test_a_limit_that_is_set_stays() -> None:
    log = _Log()
    for start in range(4):
        assert log.sizing.max_bytes(start, 64, None) == 64
        assert log.sizing.max_bytes(start, 64, 64) == 64
        assert log.sizing.max_bytes(start, None, None) is None
        log.sizing.ends(was_full=True)

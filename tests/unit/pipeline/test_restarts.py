"""When a stream starts again."""

from __future__ import annotations

from tailrace.pipeline.restarts import Restarts


class Stream:
    """Fails when a test says so; time passes only then."""

    def __init__(self, most: int, per_hour: int, dice: float = 0.0) -> None:
        self.now_s = 0.0
        self.restarts = Restarts(most, per_hour, lambda: self.now_s, lambda: dice)

    def fail(self, *, after_s: float = 0.0, wrote: bool = False) -> float | None:
        self.restarts.started()
        self.now_s += after_s
        pause = self.restarts.pause_s(wrote=wrote)
        self.now_s += pause or 0.0
        return pause


def test_pauses_double_up_to_a_minute_and_end_after_the_last_start() -> None:
    stream = Stream(9, 0)
    assert [stream.fail() for _ in range(10)] == [1, 2, 4, 8, 16, 32, 60, 60, 60, None]


def test_pauses_are_shortened_at_random_by_up_to_half() -> None:
    assert Stream(9, 0, 0.5).fail() == 0.75
    assert Stream(9, 0, 0.999_999).fail() == 1 - 0.999_999 / 2


def test_batch_begins_a_new_row_but_the_pause_grows_until_the_stream_runs_for_a_minute() -> None:
    stream = Stream(2, 0)
    assert [stream.fail(wrote=True, after_s=5) for _ in range(4)] == [1, 2, 4, 8]
    assert stream.fail(after_s=5) == 16
    assert stream.fail(after_s=5) is None
    stream = Stream(2, 0)
    assert [stream.fail(wrote=True, after_s=60) for _ in range(4)] == [1, 1, 1, 1]


def test_too_many_failures_within_an_hour_end_it_whatever_was_written() -> None:
    stream = Stream(10, 5)
    assert None not in [stream.fail(wrote=True, after_s=100) for _ in range(5)]
    assert not stream.restarts.is_open
    assert stream.fail(wrote=True, after_s=100) is None
    assert stream.restarts.is_open


def test_failures_that_are_an_hour_old_do_not_count() -> None:
    stream = Stream(10, 5)
    assert None not in [stream.fail(wrote=True, after_s=800) for _ in range(50)]

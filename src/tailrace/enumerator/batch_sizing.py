"""The number of snapshot chunks in a batch, and the bytes of log.

A batch has fixed costs (writing offsets, starting tasks, the sink's commit), and the log waits until it ends.
Large batches amortize the fixed costs; small ones keep the log's latency low. So batches start small and grow
as long as they are short.
"""

from __future__ import annotations

from collections.abc import Callable

#: A batch shorter than SHORT_S doubles the size of the next one, one longer than LONG_S halves it; seconds.
SHORT_S, LONG_S = 1.0, 4.0
#: Most chunks per batch and concurrent task.
MOST_ROUNDS = 8


def _adapted(size: int, took_s: float, most: int) -> int:
    """The size of a batch, at most `most`, from that of the one before it and the time which that took."""
    if took_s < SHORT_S:
        return min(most, 2 * size)
    return max(1, size // 2) if took_s > LONG_S else size


class BatchSizing:
    """Chunks per batch, adapted to the batches' duration.

    Args:
        parallelism: concurrent tasks.
        clock: monotonic seconds.
    """

    def __init__(self, parallelism: int, clock: Callable[[], float]) -> None:
        self._parallelism = parallelism
        self._clock = clock
        self._rounds = 1
        self._begun: float | None = None

    def chunks(self) -> int:
        """The number of chunks of the batch being planned; call it once per batch."""
        if self._begun is not None:
            self._rounds = _adapted(self._rounds, self._clock() - self._begun, MOST_ROUNDS)
        self._begun = self._clock()
        return self._rounds * self._parallelism


class LogSizing:
    """Bytes of log per batch, adapted to the duration of batches that had to leave some for the next.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._factor = 1
        #: Where the newest batch starts, when it was planned, and whether it was full.
        self._start: object = None
        self._begun = 0.0
        self._was_full = False

    def max_bytes(self, start: object, usual: int | None, most: int | None) -> int | None:
        """The limit of a batch.

        Args:
            start: where it starts; a batch may be planned several times.
            usual: the limit of the first batch; None: there is none.
            most: to what it may grow; None: it stays.
        """
        if usual is None or most is None:
            return usual
        if start != self._start:
            largest = -(-most // usual) if self._was_full else self._factor
            self._factor = _adapted(self._factor, self._clock() - self._begun, largest)
            self._start, self._begun = start, self._clock()
        return min(usual * self._factor, most)

    def ends(self, *, was_full: bool) -> None:
        """Note whether the limit ended the batch."""
        self._was_full = was_full

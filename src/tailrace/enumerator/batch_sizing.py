"""The number of snapshot chunks in a batch.

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
            took = self._clock() - self._begun
            if took < SHORT_S:
                self._rounds = min(MOST_ROUNDS, 2 * self._rounds)
            elif took > LONG_S:
                self._rounds = max(1, self._rounds // 2)
        self._begun = self._clock()
        return self._rounds * self._parallelism

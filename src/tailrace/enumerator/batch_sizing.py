"""How many snapshot chunks a batch takes: what a batch costs by itself shrinks beside what it reads.

A batch has fixed costs (offsets written, tasks started, a sink's commit), and the log waits while it lasts.
So batches begin small and grow while they are short.
"""

from __future__ import annotations

from collections.abc import Callable

#: A batch shorter than this doubles the next one, one longer than that halves it, seconds.
SHORT_S, LONG_S = 1.0, 4.0
#: Most chunks per task that runs at once.
MOST_ROUNDS = 8


class BatchSizing:
    """Chunks per batch, by how long the batches take.

    Args:
        parallelism: tasks that run at once.
        clock: monotonic seconds.
    """

    def __init__(self, parallelism: int, clock: Callable[[], float]) -> None:
        self._parallelism = parallelism
        self._clock = clock
        self._rounds = 1
        self._begun: float | None = None

    def chunks(self) -> int:
        """Chunks of the batch that is planned now; call it once per batch."""
        if self._begun is not None:
            took = self._clock() - self._begun
            if took < SHORT_S:
                self._rounds = min(MOST_ROUNDS, 2 * self._rounds)
            elif took > LONG_S:
                self._rounds = max(1, self._rounds // 2)
        self._begun = self._clock()
        return self._rounds * self._parallelism

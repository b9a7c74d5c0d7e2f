"""When changes that wait are merged. Pure but for the clock it is given.

    merge-interval   merged
    0                at once, in the batch that brings them
    n                when n seconds have passed since the last merge ended
    (not given)      at once while merges take at most a quarter of the time: when three times as long has
                     passed as the last merge took; and when no batch has come for a second

A backlog is merged in any case: what waits must fit the disk, and a merge of all of it Spark. Why a quarter:
the merge's cost hardly depends on how much it brings (10 s per 100,000 random keys in 5 million rows, 30 s
for 3 million), so a burst is taken in at the speed of appends, and a table is never more than four merges
behind.
"""

from __future__ import annotations

#: Changes that wait at most.
MOST_WAITING = 5_000_000
#: Pauses between merges, in multiples of what the last one took.
_PAUSES_PER_MERGE = 3.0
#: The stream rests when no batch has come for so long.
_REST_S = 1.0


class Schedule:
    """When merges are due.

    Args:
        interval_s: `merge-interval`, None for one that adapts.
    """

    def __init__(self, interval_s: int | None) -> None:
        self._interval_s = interval_s
        self._merged_at: float | None = None
        self._last_s = 0.0
        self._batch_at = 0.0

    def is_due(self, now: float, waiting: int) -> bool:
        """Whether a batch that ends now is merged with all that waits.

        Args:
            now: seconds of some clock.
            waiting: changes that wait, the batch's included.
        """
        if self._merged_at is None or waiting > MOST_WAITING:
            return True
        pause = _PAUSES_PER_MERGE * self._last_s if self._interval_s is None else self._interval_s
        return now - self._merged_at >= pause

    def is_due_at_rest(self, now: float) -> bool:
        """Whether what waits is merged although no batch has come."""
        if self._interval_s is None:
            return now - self._batch_at >= _REST_S
        return self.is_due(now, 0)

    def batch(self, now: float) -> None:
        """A batch has been written."""
        self._batch_at = now

    def merged(self, now: float, took_s: float) -> None:
        """A merge has ended."""
        self._merged_at, self._last_s = now, took_s

"""When pending changes are merged. Pure: the caller passes the time.

    merge-interval   merged
    0                at once, in the batch that brings them
    n                when n seconds have passed since the last merge ended
    (not given)      in the batch that brings them where a merge takes little longer than its commit: of small
                     tables; of others when three times as long has passed as the last merge took, so that
                     merges take at most a quarter of the time, and when no batch has come for a second

A large backlog is merged in any case: pending changes must fit on the disk, and a merge of all of them must
fit into Spark. Why a quarter: the cost of a merge hardly depends on the number of changes (10 s for 100,000
random keys in 5 million rows, 30 s for 3 million), so a burst is received at the speed of appends, and a
table is never more than four merges behind.
"""

from __future__ import annotations

#: The largest number of pending changes.
MOST_PENDING = 5_000_000
#: The pause between merges, in multiples of the last merge's time.
_PAUSES_PER_MERGE = 3.0
#: The stream is idle when no batch has come for this long.
_IDLE_S = 1.0


class Schedule:
    """When merges are due.

    Args:
        interval_s: `merge-interval`; None: adaptive.
    """

    def __init__(self, interval_s: int | None) -> None:
        self._interval_s = interval_s
        self._merged_at: float | None = None
        self._last_s = 0.0
        self._batch_at = 0.0

    @property
    def adapts(self) -> bool:
        """Whether there is no interval."""
        return self._interval_s is None

    def is_due(self, now: float, pending: int) -> bool:
        """Whether a batch that ends now is merged, with all pending changes.

        Args:
            now: the time, seconds of some clock.
            pending: number of pending changes, including the batch's.
        """
        if self._merged_at is None or pending > MOST_PENDING:
            return True
        pause = _PAUSES_PER_MERGE * self._last_s if self._interval_s is None else self._interval_s
        return now - self._merged_at >= pause

    def is_due_when_idle(self, now: float) -> bool:
        """Whether pending changes are merged although no batch has come."""
        if self._interval_s is None:
            return now - self._batch_at >= _IDLE_S
        return self.is_due(now, 0)

    def batch(self, now: float) -> None:
        """Note that a batch was written."""
        self._batch_at = now

    def merged(self, now: float, took_s: float) -> None:
        """Note that a merge has ended."""
        self._merged_at, self._last_s = now, took_s

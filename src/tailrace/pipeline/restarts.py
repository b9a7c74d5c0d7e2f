"""When a stream that failed with a transient error starts again, and when no longer.

    pause     1 s, doubled with each failure up to a minute, each shortened at random by up to half: pipelines
              that lost the same server do not return to it all at once
    in a row  at most `restarts` failures without a batch in between
    an hour   at most `restarts_per_hour`: a stream that writes a batch now and then and fails again is no
              better than one that fails at once

The pause begins at 1 s again once a stream has run for a minute. Pure but for its clock and its dice.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
#: A stream that ran for this long ran well.
_WELL_S = 60.0
_HOUR_S = 3600.0


class Restarts:
    """Counts failures.

    Args:
        most: most failures in a row.
        per_hour: most failures within an hour; 0: no limit.
        clock: monotonic seconds.
        dice: a number in [0, 1).
    """

    def __init__(
        self,
        most: int,
        per_hour: int,
        clock: Callable[[], float] = time.monotonic,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._most = most
        self._per_hour = per_hour
        self._clock = clock
        self._dice = dice
        self._started_s = clock()
        self._doublings = 0
        self._failures: deque[float] = deque()
        #: Failures without a batch in between.
        self.in_a_row = 0

    def started(self) -> None:
        """The stream starts."""
        self._started_s = self._clock()

    def pause_s(self, *, wrote: bool) -> float | None:
        """The stream failed: how long to wait until it starts again; None: it should not.

        Args:
            wrote: whether it had written a batch.
        """
        now_s = self._clock()
        self._failures.append(now_s)
        while self._failures[0] <= now_s - _HOUR_S:
            self._failures.popleft()
        self.in_a_row = 1 if wrote else self.in_a_row + 1
        if now_s - self._started_s >= _WELL_S:
            self._doublings = 0
        if self.in_a_row > self._most or self.is_open:
            return None
        pause = min(_FIRST_PAUSE_S * 2.0**self._doublings, _LONGEST_PAUSE_S)
        self._doublings += 1
        return float(pause * (1 - self._dice() / 2))

    @property
    def is_open(self) -> bool:
        """Whether there were too many failures within an hour."""
        return bool(self._per_hour) and len(self._failures) > self._per_hour

"""Up to which time of the server's clock a stream is complete.

The source's clock and its log's end are asked together, the clock first: whatever was committed by that time
lies below that end. So a stream that has all changes up to there is complete up to that time. Neither the
driver's clock nor a change in the log is needed: an idle stream moves on, and one whose connection stalls
does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tailrace.errors import TransientSourceError
from tailrace.sources.base import LogClock, Position

#: Time between two questions, seconds; after one that failed.
_INTERVAL_S = 1.0
_PAUSE_S = 5.0
#: Most answers that are kept while the stream is behind; of more, every other one is forgotten, and half as
#: many questions are asked until it has caught up.
_MOST = 1024


class Freshness:
    """Finds the time up to which a stream is complete.

    Args:
        ask: the source's clock and its log's end, as a position of the stream; None: not known now.
        clock: monotonic seconds.
    """

    def __init__(self, ask: Callable[[Position], LogClock | None], clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._answers: deque[LogClock] = deque()
        self._next_s = float("-inf")
        self._interval_s = _INTERVAL_S
        self._complete_us: int | None = None
        #: Why the last question had no answer; None: it had one.
        self.unanswered: TransientSourceError | None = None

    def look(self, position: Position) -> None:
        """Ask, if it is time. `position` is the stream's own."""
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._interval_s
        try:
            answer = self._ask(position)
        except TransientSourceError as error:  # the log has a connection of its own
            self.unanswered = error
            self._next_s = self._clock() + _PAUSE_S
            return
        self.unanswered = None
        if answer is not None:
            self._answers.append(answer)
        if len(self._answers) > _MOST:
            self._answers = deque(list(self._answers)[::2])
            self._interval_s *= 2

    def reached(self, position: Position) -> None:
        """The stream has all changes up to `position`."""
        while self._answers and self._answers[0].end.order <= position.order:
            self._complete_us = max(self._answers.popleft().ts_us, self._complete_us or 0)
        if not self._answers:
            self._interval_s = _INTERVAL_S

    @property
    def complete_us(self) -> int | None:
        """Microseconds since 1970 UTC by the server's clock; None before it is known."""
        return self._complete_us

    def forget(self) -> None:
        """Another server answers: its log has other positions, and its clock may be another."""
        self._answers.clear()

"""How long the server keeps the log that a stream needs, at the rate by which the log grows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tailrace.errors import TailraceError
from tailrace.sources.base import LogRetention, Position

#: Time between two questions, seconds; the first ones come faster, so that there is a rate.
_INTERVAL_S = 30.0
_FIRST_INTERVAL_S = 5.0
#: The time where a limit depends on the answer.
_OFTEN_S = 2.0
#: The rate is a mean over this time.
_WINDOW_S = 600.0


class LogRoom:
    """Asks from time to time how long the log is kept.

    Args:
        ask: how long the log from a position on is kept; None: nothing is known of it.
        clock: monotonic seconds.
        often: whether a limit depends on the answers.
    """

    def __init__(
        self, ask: Callable[[Any], LogRetention | None], clock: Callable[[], float], *, often: bool = False
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._interval_s = _OFTEN_S if often else _INTERVAL_S
        self._next_s = float("-inf")
        self._found: LogRetention | None = None
        #: When the log had how many bytes.
        self._written: deque[tuple[float, int]] = deque()

    def look(self, position: Position) -> None:
        """Ask, if it is time. `position` is the stream's own."""
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + (
            self._interval_s if len(self._written) > 1 else min(self._interval_s, _FIRST_INTERVAL_S)
        )
        try:
            self._found = self._ask(position)
        except TailraceError:  # the stream's own connection to the log tells what is wrong
            self._found = None
            return
        if self._found is not None:
            self._note(now_s, self._found.written)

    def _note(self, now_s: float, written: int) -> None:
        if self._written and written < self._written[-1][1]:
            self._written.clear()  # files were removed, or another server answers
        self._written.append((now_s, written))
        while len(self._written) > 2 and self._written[1][0] <= now_s - _WINDOW_S:
            self._written.popleft()

    @property
    def held_bytes(self) -> int | None:
        """Bytes of log that the server holds for the stream, by the last answer; None: not known."""
        return None if self._found is None else self._found.held_bytes

    @property
    def rate(self) -> float | None:
        """Bytes of log per second; None before it is known."""
        if len(self._written) < 2:
            return None
        (first_s, first), (last_s, last) = self._written[0], self._written[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else None

    def to_json(self) -> dict[str, Any] | None:
        """What is known, as JSON values; None: nothing.

        {"s": seconds left or null, "held": bytes, "left": bytes or null, "rate": bytes per second or null,
        "limits": the server's settings that limit it}
        """
        found, rate = self._found, self.rate
        if found is None:
            return None
        seconds = found.seconds(rate)
        return {
            "s": None if seconds is None else round(seconds),
            "held": found.held_bytes,
            "left": found.left_bytes,
            "rate": None if rate is None else round(rate, 1),
            "limits": dict(found.limits),
        }

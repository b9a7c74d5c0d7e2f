"""Who may start now: a few at a time, since each start takes seconds of CPU, and leases must be renewed."""

from __future__ import annotations

import threading
import time


class StartTurns:
    """Lets a few start at a time.

    Args:
        most: how many.
        longest_s: how long one keeps others from starting, seconds: its source may not answer.
    """

    def __init__(self, most: int, longest_s: float) -> None:
        self._most = most
        self._longest_s = longest_s
        self._changed = threading.Condition()
        #: Who starts, and until when others wait for it.
        self._starting: dict[object, float] = {}

    def take(self, who: object, stop: threading.Event) -> None:
        """Wait until `who` may start, or `stop` is set; `end` it."""
        with self._changed:
            while not stop.is_set():
                now_s = time.monotonic()
                self._starting = {one: until_s for one, until_s in self._starting.items() if until_s > now_s}
                if len(self._starting) < self._most:
                    self._starting[who] = now_s + self._longest_s
                    return
                self._changed.wait(min(1.0, min(self._starting.values()) - now_s))

    def end(self, who: object) -> None:
        """It has started, or has ended."""
        with self._changed:
            if self._starting.pop(who, None) is not None:
                self._changed.notify()

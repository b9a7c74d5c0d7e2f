"""How long a stream that has nothing to read waits for more of its log."""

from __future__ import annotations

_FIRST_S = 0.01
_LONGEST_S = 1.0


class Idle:
    """Longer and longer waits: what else a stream looks for (requests) comes soon after a batch."""

    def __init__(self) -> None:
        self._next_s = _FIRST_S

    def next_s(self) -> float:
        """The next wait, seconds."""
        found = self._next_s
        self._next_s = min(2 * found, _LONGEST_S)
        return found

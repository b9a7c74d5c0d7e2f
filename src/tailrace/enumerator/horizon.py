"""How far a stream reads its log."""

from __future__ import annotations

from tailrace.sources.base import Position, Source


class Horizon:
    """The position beyond which nothing is read; there is none unless the stream is to end.

    A run that reads what is there (AvailableNow) goes on to where something begins that it is to finish. The
    end that the option `endingPosition` sets is never passed.
    """

    def __init__(self) -> None:
        self._held: Position | None = None
        self._fixed: Position | None = None
        #: No transaction that committed later is read, microseconds since 1970 UTC; None: any is.
        self.before_us: int | None = None

    @property
    def upto(self) -> Position | None:
        """The position; None: whatever comes is read."""
        known = [position for position in (self._fixed, self._held) if position is not None]
        return min(known, key=lambda p: p.order, default=None)

    @property
    def is_held(self) -> bool:
        """Whether the run ends once nothing is left to read."""
        return self._held is not None

    @property
    def is_fixed(self) -> bool:
        """Whether the stream's end is a known position."""
        return self._fixed is not None

    def is_end(self, position: Position) -> bool:
        """Whether the stream has read its log to the end; nothing behind `position` is to be read."""
        if self._fixed is None:
            return False
        return position.order >= self._fixed.order or self._held is None or self.upto is self._fixed

    def hold(self, position: Position) -> None:
        """Read nothing beyond `position` in this run."""
        self._held = position

    def fix(self, position: Position | None) -> None:
        """Read nothing beyond `position`, ever; None: there is no such end."""
        self._fixed = position

    def extend(self, position: Position) -> None:
        """Read at least up to `position`: something begins there that the run is to finish."""
        if self._held is not None:
            self._held = max(self._held, position, key=lambda p: p.order)

    def relocate(self, source: Source) -> None:
        """Look the position up on the server that answers now; the end is, at each batch."""
        if self._held is not None:
            self._held = source.position(self._held.to_json())

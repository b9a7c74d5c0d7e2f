"""How far a stream reads its log."""

from __future__ import annotations

from tailrace.sources.base import Position, Source


class Horizon:
    """The position beyond which nothing is read; there is none unless the stream is to end (AvailableNow)."""

    def __init__(self) -> None:
        self._upto: Position | None = None

    @property
    def upto(self) -> Position | None:
        """The position; None: whatever comes is read."""
        return self._upto

    def hold(self, position: Position) -> None:
        """Read nothing beyond `position`."""
        self._upto = position

    def extend(self, position: Position) -> None:
        """Read at least up to `position`: something begins there that the stream is to finish."""
        if self._upto is not None:
            self._upto = max(self._upto, position, key=lambda p: p.order)

    def relocate(self, source: Source) -> None:
        """Look the position up on the server that answers now."""
        if self._upto is not None:
            self._upto = source.position(self._upto.to_json())

"""Raw bytes of the stream, held by the driver for the splits of later batches.

Pieces follow each other. A transaction that is too large is discarded; it leaves a gap.
"""

from __future__ import annotations

from collections import deque


class HeldLog:
    """The stream's bytes from the last confirmed batch on.

    Args:
        most_open: bytes of a transaction that has not ended to hold; larger ones are not held at all.
    """

    def __init__(self, most_open: int) -> None:
        self._most_open = most_open
        self._pieces: deque[tuple[int, bytes]] = deque()
        self.size = 0

    def add(self, offset: int, data: bytes, closed: int) -> None:
        """Add the next bytes.

        Args:
            offset: their offset in the stream.
            data: whole messages.
            closed: offset behind the last transaction that has ended.
        """
        self._pieces.append((offset, data))
        self.size += len(data)
        if offset + len(data) - closed > self._most_open:
            while self._pieces and self._pieces[-1][0] >= closed:
                self.size -= len(self._pieces.pop()[1])
            if self._pieces and _end(self._pieces[-1]) > closed:
                at, kept = self._pieces.pop()
                self._pieces.append((at, kept[: closed - at]))
                self.size -= at + len(kept) - closed

    def between(self, start: int, end: int) -> bytes | None:
        """The bytes from one offset to another, None when some are not held."""
        parts, at = [], start
        for offset, data in self._pieces:
            if offset + len(data) <= at:
                continue
            if offset > at or at >= end:
                break
            parts.append(data[at - offset : end - offset])
            at = offset + len(data)
        return b"".join(parts) if at >= end else None

    def let_go(self, offset: int) -> None:
        """Release the bytes below `offset`."""
        while self._pieces and _end(self._pieces[0]) <= offset:
            self.size -= len(self._pieces.popleft()[1])


def _end(piece: tuple[int, bytes]) -> int:
    return piece[0] + len(piece[1])

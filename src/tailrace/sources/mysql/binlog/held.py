"""Recent raw events of captured transactions, held by the driver for small batches.

A small batch's bytes travel to its task inside the split: no connection, no second read. Transactions of
other tables are left out, except for short gaps: fewer, longer pieces. The end of an XA transaction is
captured too: it may commit captured rows.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass

import numpy as np

from tailrace.kernels.memory import SLACK
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.kernels.boundaries import END, FLAGS, HAS_WANTED, START, XA_END
from tailrace.sources.mysql.wire.transactions import Transactions

_LONGEST_GAP = 16 << 10
_HEAD = struct.Struct("<HBQQ")

#: File number and offset; ordered as one server's log is.
BinlogOffset = tuple[int, int]


def number_of(file: str) -> int:
    """The number in a log file's name."""
    return int(file.rpartition(".")[2])


@dataclass(frozen=True)
class RawEvents:
    """Whole events of one file, one after the other.

    Args:
        file: log file they are in.
        pos: offset of the first one's start.
        data: their bytes.
        checksum: whether each ends in a CRC32.
    """

    file: str
    pos: int
    data: bytes
    checksum: bool

    @property
    def end(self) -> int:
        """Offset of the last one's end."""
        return self.pos + len(self.data)


def pack_blocks(pieces: list[RawEvents]) -> bytes:
    """Pieces as one value; `unpack_blocks` reads it."""
    parts = []
    for piece in pieces:
        name = piece.file.encode()
        parts += [_HEAD.pack(len(name), piece.checksum, piece.pos, len(piece.data)), name, piece.data]
    return b"".join(parts)


def unpack_blocks(packed: bytes) -> list[EventBlock]:
    """The pieces that `pack_blocks` packed, as blocks for the decoder, all in one buffer."""
    buffer = np.zeros(len(packed) + SLACK, np.uint8)
    buffer[: len(packed)] = np.frombuffer(packed, np.uint8)
    blocks, at = [], 0
    while at < len(packed):
        length, checksum, pos, size = _HEAD.unpack_from(packed, at)
        at += _HEAD.size
        file = packed[at : at + length].decode()
        at += length
        blocks.append(EventBlock(buffer, at, at + size, file, pos, bool(checksum)))
        at += size
    return blocks


class HeldEvents:
    """The captured transactions' newest events.

    Args:
        limit: bytes to hold.
        since: offset from which on nothing is missing.
    """

    def __init__(self, limit: int, since: BinlogOffset) -> None:
        self._limit = limit
        self._since = since
        self._pieces: deque[RawEvents] = deque()
        self._bytes = 0
        self._open: tuple[str, int, bytearray] | None = None  # a transaction that has not ended
        self._overflowed = False

    def add(self, block: EventBlock, done: Transactions, open_since: int | None) -> None:
        """Add the captured transactions of the next block.

        Args:
            block: whole events.
            done: the transactions that ended in it.
            open_since: offset of the start of the transaction that is open at its end, or None.
        """
        rows = done.rows[(done.rows[:, FLAGS] & (HAS_WANTED | XA_END)) != 0]
        starts, ends = rows[:, START], rows[:, END]
        groups = np.flatnonzero(starts[1:] - ends[:-1] > _LONGEST_GAP) + 1
        for group in np.split(np.arange(len(rows)), groups) if len(rows) else []:
            self._take(block, int(starts[group[0]]), int(ends[group[-1]]))
        if open_since is None:
            self._open, self._overflowed = None, False
        elif open_since >= block.pos:
            raw = _bytes(block, open_since, block.pos + block.end - block.start)
            self._open, self._overflowed = (block.file, open_since, bytearray(raw)), False
        elif self._open and not self._overflowed:
            self._open[2].extend(_bytes(block, block.pos, block.pos + block.end - block.start))
        if self._open and len(self._open[2]) > self._limit:
            self._open[2].clear()
            self._overflowed = True

    def skip(self, block: EventBlock) -> None:
        """Hold nothing of the next block, nor of those before it."""
        self._pieces.clear()
        self._bytes, self._open, self._overflowed = 0, None, False
        self._since = (number_of(block.file), block.pos + block.end - block.start)

    def _take(self, block: EventBlock, start: int, end: int) -> None:
        if start >= block.pos:
            data = _bytes(block, start, end)
        elif self._open and self._open[:2] == (block.file, start) and not self._overflowed:
            data = bytes(self._open[2]) + _bytes(block, block.pos, end)
        else:
            self._pieces.clear()
            self._bytes, self._since = 0, (number_of(block.file), end)
            return
        self._pieces.append(RawEvents(block.file, start, data, block.checksum))
        self._bytes += len(data)
        while self._bytes > self._limit:
            lost = self._pieces.popleft()
            self._bytes -= len(lost.data)
            self._since = (number_of(lost.file), lost.end)

    def between(self, start: BinlogOffset, end: BinlogOffset) -> list[RawEvents] | None:
        """The captured events in (start, end], or None if some are not held.

        Args:
            start: a transaction boundary.
            end: another one; all blocks up to it were added.
        """
        if start < self._since:
            return None
        found = []
        for piece in self._pieces:
            number = number_of(piece.file)
            low = max(start, (number, piece.pos))
            high = min(end, (number, piece.end))
            if low < high:
                first = low[1] - piece.pos if low[0] == number else 0
                data = piece.data[first : high[1] - piece.pos]
                found.append(RawEvents(piece.file, piece.pos + first, data, piece.checksum))
        return found


def _bytes(block: EventBlock, start: int, end: int) -> bytes:
    """The block's bytes from one offset in the file to another."""
    base = block.start - block.pos
    return block.buffer[base + start : base + end].tobytes()

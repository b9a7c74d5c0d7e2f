"""The newest part of the log, in memory that tasks on the driver's host can read.

Without it the server sends a backlog at least twice: to the follower, which finds where batches may end,
and to each task that decodes. So the follower keeps what it was sent, and a split says where its range lies:

    follower --blocks--> [piece][piece][piece]       memory files, each of one log file, without gaps
                             |
    task     --/proc/<pid>/fd/<n>--> blocks          or from the server, where that does not work

It is a copy, and nothing depends on it. A task on another host, or one that comes too late, finds no piece
with the token of its split and reads from the server. Memory files vanish with the process, however it ends.

* A piece begins with a random token: numbers of processes and files are used again.
* Behind the token is a byte in which a task says what it has read. Pieces that were read to their end make
  room for more. When batches are done and no task has said a thing, tasks run elsewhere: the relay ends.
* The memory of a piece is used again: new memory, which the kernel clears, would cost what the relay saves.
  A task has a shared lock on a piece while it reads, the relay an exclusive one on memory that is free. So
  what a task reads never changes.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from tailrace.kernels.memory import SLACK
from tailrace.sources.mysql.binlog.held import BinlogOffset, number_of
from tailrace.sources.mysql.wire.block import EventBlock

#: Bytes of log that the relay holds.
RELAY_BYTES = 256 << 20
#: A piece is complete at so many bytes.
_PIECE_BYTES = 16 << 20
#: Bytes of a block that a task reads at once.
_BLOCK_BYTES = 8 << 20
_TOKEN_BYTES = 16
#: Offsets in a piece's file: of the byte that says what was read, and of the first event.
_READ_AT, _EVENTS_AT = _TOKEN_BYTES, 32
#: What that byte says: something was, or everything to the end.
_READ, _READ_TO_END = b"\1", b"\2"


@dataclass(frozen=True)
class RelayedPart:
    """Whole events in a memory file.

    Args:
        path: the file, as another process opens it.
        token: what the file begins with, hexadecimal.
        at: offset in it of the first event.
        sizes: bytes of the blocks from there on, each of whole events.
        file: log file they are in.
        pos: offset in that one of the first event.
        checksum: whether each ends in a CRC32.
        last: whether nothing follows in this memory file.
    """

    path: str
    token: str
    at: int
    sizes: list[int]
    file: str
    pos: int
    checksum: bool
    last: bool


@dataclass
class _Piece:
    """A memory file. `ends`: where its blocks end, counted from `pos`."""

    fd: int
    token: bytes
    file: str
    pos: int
    checksum: bool
    ends: list[int] = field(default_factory=list)
    offered: bool = False

    @property
    def size(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def end(self) -> BinlogOffset:
        return number_of(self.file), self.pos + self.size

    def add(self, events: memoryview) -> None:
        at = _EVENTS_AT + self.size
        done = 0
        while done < len(events):
            done += os.pwrite(self.fd, events[done:], at + done)
        begun = self.ends[-2] if len(self.ends) > 1 else 0
        end = self.size + len(events)
        if self.ends and end - begun <= _BLOCK_BYTES:
            self.ends[-1] = end
        else:
            self.ends.append(end)

    def mark(self) -> bytes:
        """What tasks have said: one of the values above, or another one for nothing."""
        return os.pread(self.fd, 1, _READ_AT)

    def part(self, low: int, high: int, *, is_complete: bool) -> RelayedPart:
        """The events between two offsets in the log file."""
        last = is_complete and high == self.end[1]
        cuts = [
            low - self.pos,
            *(e for e in self.ends if low - self.pos < e < high - self.pos),
            high - self.pos,
        ]
        sizes = [end - start for start, end in pairwise(cuts)]
        path = f"/proc/{os.getpid()}/fd/{self.fd}"
        at = _EVENTS_AT + cuts[0]
        return RelayedPart(path, self.token.hex(), at, sizes, self.file, low, self.checksum, last)


class LogRelay:
    """The follower's side; the follower's lock guards it.

    Args:
        since: offset behind which the log is added.
        limit: bytes to hold; 0: nothing is ever held.
    """

    def __init__(self, since: BinlogOffset, limit: int = RELAY_BYTES) -> None:
        self._since = since
        self._limit = limit if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir() else 0
        self._pieces: list[_Piece] = []
        self._bytes = 0
        #: Memory files for further pieces; locked.
        self._free: list[int] = []
        #: Bytes of the pieces that were offered to tasks since one was read.
        self._unread = 0

    def add(self, block: EventBlock) -> None:
        """Add the next block of the log."""
        if not self._limit:
            return
        try:
            last = self._pieces[-1] if self._pieces else None
            if last is None or last.file != block.file or last.size >= _PIECE_BYTES:
                last = self._piece(block)
            last.add(block.buffer.data[block.start : block.end])
        except OSError:  # no memory, or no more files
            self.close()
        else:
            self._bytes += block.end - block.start

    def _piece(self, block: EventBlock) -> _Piece:
        """The piece that begins with a block."""
        fd = self._free.pop() if self._free else os.memfd_create("tailrace-log")
        token = secrets.token_bytes(_TOKEN_BYTES)
        piece = _Piece(fd, token, block.file, block.pos, block.checksum)
        self._pieces.append(piece)
        os.pwrite(fd, token + bytes(_EVENTS_AT - _TOKEN_BYTES), 0)
        fcntl.flock(fd, fcntl.LOCK_UN)
        return piece

    def has_room(self) -> bool:
        """Whether more may be added; pieces that were read are dropped if not."""
        if self._bytes >= self._limit > 0:
            for piece in self._pieces[:-1]:
                if piece.mark() == _READ_TO_END:
                    self._drop(piece)
        return self._bytes < self._limit or not self._limit

    def forget(self, upto: BinlogOffset) -> None:
        """Everything up to an offset is done."""
        before = len(self._pieces)
        while self._pieces and self._pieces[0].end <= upto:
            self._drop(self._pieces[0])
        if self._unread > self._limit:
            self.close()
        elif len(self._pieces) == before <= 1:  # batches are small
            self._shrink()

    def skip(self) -> None:
        """Drop everything that is held."""
        while self._pieces:
            self._drop(self._pieces[0])

    def size(self, start: BinlogOffset, end: BinlogOffset) -> int:
        """Bytes of the events in (start, end]; 0 if some are not held."""
        return sum(high - low for _, low, high in self._within(start, end))

    def between(self, start: BinlogOffset, end: BinlogOffset) -> bytes | None:
        """Where the events in (start, end] lie, for `RelayedEvents`; None if some are not held.

        Args:
            start: an event boundary.
            end: another one; all blocks up to it were added.
        """
        parts = []
        for piece, low, high in self._within(start, end):
            piece.offered = True
            parts.append(piece.part(low, high, is_complete=piece is not self._pieces[-1]))
        return json.dumps([asdict(part) for part in parts]).encode() if parts else None

    def _within(self, start: BinlogOffset, end: BinlogOffset) -> list[tuple[_Piece, int, int]]:
        """The pieces of (start, end], with what of them lies in it; none if some are not held."""
        found: list[tuple[_Piece, int, int]] = []
        for piece in self._pieces if start >= self._since else ():
            low = max(start, (number_of(piece.file), piece.pos))
            high = min(end, piece.end)
            if low < high:
                found.append((piece, low[1], high[1]))
        return found

    def close(self) -> None:
        """Drop everything, and hold nothing from now on."""
        self._limit = 0
        self.skip()
        self._shrink()

    def _shrink(self) -> None:
        """Give free memory back."""
        while self._free:
            os.close(self._free.pop())

    def _drop(self, piece: _Piece) -> None:
        self._pieces.remove(piece)
        self._since = max(self._since, piece.end)
        self._bytes -= piece.size
        if piece.mark() in (_READ, _READ_TO_END):
            self._unread = 0
        elif piece.offered:
            self._unread += piece.size
        if piece.size < 2 * _PIECE_BYTES and _lock(piece.fd, fcntl.LOCK_EX):
            self._free.append(piece.fd)
        else:  # a task reads it
            os.close(piece.fd)


def is_relayed(described: bytes | None) -> bool:
    """Whether events that `LogRelay.between` described are within reach of this process."""
    events = RelayedEvents.of(described)
    if events is None:
        return False
    with events:
        return True


class RelayedEvents:
    """A task's side: the events that `LogRelay.between` described. A context manager."""

    def __init__(self, parts: list[RelayedPart], files: list[int], opened: ExitStack) -> None:
        self._parts, self._files, self._opened = parts, files, opened

    @classmethod
    def of(cls, described: bytes | None) -> RelayedEvents | None:
        """The events, or None if they are not, or no longer, within reach of this process."""
        if described is None:
            return None
        parts = [RelayedPart(**values) for values in json.loads(described)]
        opened = ExitStack()
        files = [file for part in parts if (file := _file(part, opened)) is not None]
        if len(files) == len(parts):
            return cls(parts, files, opened)
        opened.close()
        return None

    def __enter__(self) -> RelayedEvents:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def blocks(self) -> Iterator[EventBlock]:
        """The events; a block is valid until the next."""
        buffer = np.empty(max(max(part.sizes) for part in self._parts) + SLACK, np.uint8)
        for part, file in zip(self._parts, self._files, strict=True):
            at, pos = part.at, part.pos
            for size in part.sizes:
                _read(file, buffer.data[:size], at)
                yield EventBlock(buffer, 0, size, part.file, pos, part.checksum)
                at, pos = at + size, pos + size
            os.pwrite(file, _READ_TO_END if part.last else _READ, _READ_AT)
            fcntl.flock(file, fcntl.LOCK_UN)


def _file(part: RelayedPart, opened: ExitStack) -> int | None:
    """A part's memory file, open; None if there is no such file."""
    try:
        # not blocking: whatever has the path by now may be a pipe
        file = os.open(part.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    opened.callback(os.close, file)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_size < part.at + sum(part.sizes):
        return None
    is_it = _lock(file, fcntl.LOCK_SH) and os.pread(file, _TOKEN_BYTES, 0).hex() == part.token
    return file if is_it else None


def _lock(file: int, kind: int) -> bool:
    """Whether the file is locked now."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read(file: int, into: memoryview, at: int) -> None:
    done = 0
    while done < len(into):
        got = os.preadv(file, [into[done:]], at + done)
        if not got:
            raise EOFError("a piece of the log is shorter than it was")
        done += got

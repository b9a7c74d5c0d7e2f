"""Writing one segment, as its events arrive."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from tailrace.sources.archive.archive import LogArchive
from tailrace.sources.archive.sealing import EVENTS, INDEX, SealedWriter
from tailrace.sources.archive.segment import segment_name

#: Bytes of events in a frame; an event that is larger has a frame of its own.
_FRAME_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class ArchivingLimits:
    """When a segment is complete, and what is kept.

    Args:
        segment_bytes: bytes of log after which it is.
        seconds: its age after which it is.
        expire_s: what was written longer ago is removed; None: nothing is.
    """

    segment_bytes: int = 64 << 20
    seconds: float = 60.0
    expire_s: float | None = None


class _AbandonedError(Exception):
    """Ends the context of a file that is not finished."""


class Hashing:
    """A file that is written, its size and its digest."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size, self.digest = 0, hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Write bytes."""
        self._file.write(data)
        self.digest.update(data)
        self.size += len(data)


class SegmentWriter:
    """Writes the file of a segment; it does not count before `Archive.append`.

    Args:
        archive: the archive.
        number: the segment's.

    Attributes:
        size: bytes of events so far.
        token: of the segment's file.
    """

    def __init__(self, archive: LogArchive[Any], number: int) -> None:
        self._stack = ExitStack()
        self.token = os.urandom(8).hex()
        name = segment_name(number, self.token)
        self._file = Hashing(self._stack.enter_context(archive.store.writing(name)))
        self._sealed = SealedWriter(self._file, name, archive.key)
        self._held = bytearray()
        self.size = 0

    def add(self, events: bytes | bytearray | memoryview) -> None:
        """Add whole events."""
        self._held += events
        self.size += len(events)
        if len(self._held) >= _FRAME_BYTES:
            self._write()

    def _write(self) -> None:
        if self._held:
            self._sealed.write(EVENTS, bytes(self._held))
            self._held.clear()

    def abandon(self) -> None:
        """Drop the file: it does not count."""
        with suppress(_AbandonedError), self._stack:
            raise _AbandonedError

    def finish(self, index: bytes) -> tuple[int, str]:
        """Write the index of the transactions, and the end; return the file's size and digest."""
        self._write()
        self._sealed.write(INDEX, index)
        self._sealed.end()
        self._stack.close()
        return self._file.size, self._file.digest.hexdigest()

"""Segments of an archive from the bytes of a replication stream: each ends between two transactions."""

from __future__ import annotations

import time

import numpy as np

from tailrace.sources.archive.archive import now_us
from tailrace.sources.archive.writing import SegmentWriter
from tailrace.sources.postgres.replication.archive.segment import (
    WalArchive,
    WalSegment,
    index_of,
    timelines_text,
)
from tailrace.sources.postgres.replication.timeline import History
from tailrace.sources.postgres.wire.index import Indexed, LogIndex, done_rows
from tailrace.sources.postgres.wire.kernels import boundaries as bd
from tailrace.sources.postgres.wire.kernels import messages as ms

#: Bytes of a transaction that has not ended which are kept in memory.
_KEPT_BYTES = 16 << 20
#: A range of this many bytes without a published change is a segment, so that the server releases it.
FAR_BYTES = 16 << 20
_KEEPALIVE = ord("k")


class WalSegmentBuilder:
    """Builds one segment after the other, of one session.

    Args:
        archive: the archive.
        history: the log that is read.
        index: of the stream; knows the descriptions.
        database: whose log it is.
        publication: what decides which changes are in it.
        start: LSN where the stream begins.
        since_us: `WalSegment.since_us` of the first segment.
        begins: whether a section begins there.
    """

    def __init__(
        self,
        archive: WalArchive,
        history: History,
        index: LogIndex,
        *,
        database: str,
        publication: str,
        start: int,
        since_us: int,
        begins: bool,
    ) -> None:
        self._archive, self._history, self._index = archive, history, index
        self._database, self._publication = database, publication
        self._since_us, self._begins = since_us, begins
        self._writer: SegmentWriter | None = None
        #: Bytes behind the last whole transaction, and where in the stream they, or the next, begin.
        self._pending, self._pending_from = bytearray(), 0
        #: Whether a part of a transaction that has not ended is written.
        self._is_ahead = False
        self._start = self._end = start
        self._begin()

    def _begin(self) -> None:
        self._rows: list[np.ndarray] = []
        #: The descriptions in force where the segment begins; None: it has no bytes yet.
        self._preamble: bytes | None = None
        self._since = time.monotonic()
        if self._pending:
            self._preamble = self._index.preamble(self._pending_from)

    @property
    def size(self) -> int:
        """Bytes of the stream in the present segment."""
        return 0 if self._writer is None else self._writer.size - len(self._preamble or b"")

    def age_s(self) -> float:
        """How long the present segment waits to be written; 0 if it has nothing."""
        return time.monotonic() - self._since if self._rows else 0.0

    @property
    def is_far(self) -> bool:
        """Whether the log has advanced far without a published change."""
        return not self._rows and self._end - self._start >= FAR_BYTES

    def take(self, offset: int, data: bytes, found: Indexed, head: int) -> None:
        """Add a piece of the stream.

        Args:
            offset: its offset in the stream.
            data: whole messages.
            found: what the index says of it.
            head: the server has decoded all below this LSN.
        """
        # nothing is kept of a log in which nothing is changed
        lead = 0 if self._pending or self._is_ahead else _behind_keepalives(data, 0)
        if lead == len(data):
            self._end = max(self._end, head)
            return
        if self._preamble is None:
            self._preamble = self._index.preamble(offset + lead)
        rows = found.transactions
        if len(rows):
            if not self._rows:
                self._since = time.monotonic()
            written = len(self._preamble) if self._writer is None else self._writer.size
            shifted = rows.copy()
            shifted[:, [bd.FROM, bd.TO]] += written + len(self._pending) - offset - lead
            self._rows.append(shifted)
            cut = int(rows[-1, bd.TO]) - offset
            self._write(self._pending + data[lead:cut])
            self._is_ahead = False
            self._end = max(self._end, int(rows[-1, bd.END_LSN]))
            lead = _behind_keepalives(data, cut)
            self._pending, self._pending_from = bytearray(), offset + lead
        elif not self._pending:
            self._pending_from = offset + lead
        self._pending += data[lead:]
        if len(self._pending) > _KEPT_BYTES:
            self._write(self._pending)
            self._is_ahead, self._pending = True, bytearray()
        if not self._pending and not self._is_ahead:
            self._pending_from = offset + len(data)
            self._end = max(self._end, head)

    def _write(self, data: bytes | bytearray) -> None:
        if self._writer is None:
            number = self._archive.segments[-1].number + 1 if self._archive.segments else 0
            self._writer = SegmentWriter(self._archive, number)
            self._writer.add(self._preamble or b"")
        self._writer.add(data)

    def finished(self, *, at_end: bool = False) -> WalSegment | None:
        """The present segment, written; the next one begins. None: it has nothing, or cannot end here.

        Args:
            at_end: whether a range without a published change is a segment, however short.
        """
        is_wanted = self._rows or self.is_far or (at_end and self._end > self._start)
        if self._is_ahead or not is_wanted:
            return None
        if self._writer is None:
            self._preamble = b""
            self._write(b"")
        assert self._writer is not None
        assert self._preamble is not None
        rows = done_rows(self._rows)
        content, token = self._writer.size, self._writer.token
        size, digest = self._writer.finish(index_of(rows))
        self._writer = None
        times = rows[rows[:, bd.TS_US] > 0, bd.TS_US]  # messages outside of transactions have none
        last = self._archive.segments[-1] if self._archive.segments else None
        segment = WalSegment(
            number=last.number + 1 if last else 0,
            token=token,
            begins=self._begins,
            server=self._history.server,
            database=self._database,
            publication=self._publication,
            timelines=timelines_text(self._history),
            start=self._start,
            end=self._end,
            since_us=self._since_us,
            preamble=len(self._preamble),
            content=content,
            transactions=len(rows),
            first_us=int(times.min()) if len(times) else 0,
            last_us=int(times.max()) if len(times) else 0,
            written_us=now_us(),
            size=size,
            digest=digest,
            previous=last.digest if last else "",
        )
        self._since_us = max(self._since_us, segment.last_us)
        self._begins, self._start = False, self._end
        self._begin()
        self._index.forget(self._pending_from)
        return segment

    def abandon(self) -> None:
        """Drop what is not written as a segment."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None


def _behind_keepalives(data: bytes, at: int) -> int:
    """Offset of the first message from `at` on that is no keepalive."""
    while data[at : at + 1] == b"d" and data[at + ms.FRAME] == _KEEPALIVE:
        at += 1 + int.from_bytes(data[at + 1 : at + ms.FRAME], "big")
    return at

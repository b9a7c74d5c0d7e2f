"""A part of PostgreSQL's log in an archive: what the server sends of one publication in a range of the log.

    content = preamble | stream                 of CopyData messages, whole transactions

A position means the same in it as on the server: a segment has the transactions whose commit record lies in
[start, end). A server describes a relation once in a session, before its first change; so that a segment can
be read by itself, the descriptions in force at its start precede it: the preamble.
"""

from __future__ import annotations

import io
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.sources.archive.archive import PGOUTPUT, LogArchive
from tailrace.sources.archive.sealing import damaged
from tailrace.sources.archive.segment import StoredSegment
from tailrace.sources.postgres.position import lsn_text, parse_lsn
from tailrace.sources.postgres.replication.timeline import History
from tailrace.sources.postgres.wire.kernels import boundaries as bd

#: Columns of the index, with those of the kernel: offsets in the content, LSN of the commit, commit time.
_COLUMNS = {"start": bd.FROM, "end": bd.TO, "commit_lsn": bd.COMMIT_LSN, "ts_us": bd.TS_US, "xid": bd.XID}


@dataclass(frozen=True, kw_only=True)
class WalSegment(StoredSegment):
    """A part of the log.

    Args:
        database: whose log it is.
        publication: what decides which changes are in it.
        timelines: the timelines up to its end: `1:0/3018F30 2`, with where each of the earlier ends.
        start: LSN at which it starts.
        end: LSN at which it ends.
        since_us: the newest commit before it; of the first one of a section, when the section began.
        preamble: bytes of descriptions that precede the stream.
        content: bytes of both.
    """

    database: str
    publication: str
    timelines: str
    start: int
    end: int
    since_us: int
    preamble: int
    content: int

    @property
    def bounds(self) -> tuple[str, str]:
        """LSNs."""
        return lsn_text(self.start), lsn_text(self.end)

    @property
    def unit(self) -> Hashable:
        """Each segment for itself: a stream can begin in any."""
        return self.number

    @property
    def history(self) -> History:
        """The log that it is of."""
        *before, last = self.timelines.split()
        pairs = (text.partition(":") for text in before)
        return History(
            self.server, tuple((int(n), parse_lsn(end)) for n, _, end in pairs), int(last), self.end
        )

    def continues(self, before: WalSegment) -> bool:
        """Whether the log goes on from the end of `before` to this segment without a gap."""
        mine = (self.server, self.database, self.publication, self.start)
        return not self.begins and mine == (before.server, before.database, before.publication, before.end)

    def is_behind(self, position: Mapping[str, Any]) -> bool:
        """Whether the position lies below its start."""
        try:
            return parse_lsn(str(position.get("lsn"))) < self.start
        except ValueError:
            return True

    def _is_possible(self) -> bool:
        self.history  # noqa: B018 - raises ValueError
        return 0 <= self.start < self.end < 1 << 62 and 0 <= self.preamble <= self.content


def timelines_text(history: History) -> str:
    """What `WalSegment.timelines` says of a log."""
    return " ".join([*(f"{n}:{lsn_text(end)}" for n, end in history.switches), str(history.timeline)])


class WalArchive(LogArchive[WalSegment]):
    """An archive of PostgreSQL's log: see `LogArchive`."""

    log, segment = PGOUTPUT, WalSegment

    @property
    def slot(self) -> str:
        """The replication slot from which it is written."""
        return f"tailrace_archive_{self.id.replace('-', '')[:12]}"

    def pieces(self, segment: WalSegment) -> Iterator[bytes]:
        """The content of a segment, in pieces of whole messages.

        Raises:
            StateError: the segment is damaged.
        """
        return (data for _, data in self._content(segment, 0, segment.content, 0))

    def transactions(self, segment: WalSegment) -> pa.Table:
        """The transactions of a segment, in log order: `start`, `end`, `commit_lsn`, `ts_us`, `xid`.

        Raises:
            StateError: the segment is damaged.
        """
        try:
            with pa.ipc.open_stream(self.index(segment)) as stream:
                table = stream.read_all()
            table.validate(full=True)
            if table.schema.names != list(_COLUMNS) or len(table) != segment.transactions:
                raise ValueError
        except (pa.ArrowException, ValueError, OSError):
            raise damaged(segment.name, "its index cannot be read") from None
        return table

    def first_at(self, segments: Iterable[WalSegment], at_us: int) -> int | None:
        """LSN of the first transaction of segments that was committed at a time or later; None: none was.

        Args:
            segments: in log order.
            at_us: the time, microseconds since 1970 UTC.

        Raises:
            StateError: a segment is damaged.
        """
        for segment in segments:
            if segment.last_us < at_us:
                continue
            table = self.transactions(segment)
            later = table.filter(pc.greater_equal(table.column("ts_us"), at_us))
            if len(later):
                return int(later.column("commit_lsn")[0].as_py())
        return None


def time_text(us: int) -> str:
    """A time of the log, in microseconds since 1970 UTC, for people."""
    return f"{datetime.fromtimestamp(us / 1_000_000, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def index_of(rows: np.ndarray) -> bytes:
    """The index of a segment's transactions.

    Args:
        rows: as `LogIndex` gives them, with offsets in the content.
    """
    table = pa.table({name: pa.array(np.ascontiguousarray(rows[:, at])) for name, at in _COLUMNS.items()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()

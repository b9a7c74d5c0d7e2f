"""The index of a part of the log: its transactions and schema changes, and how far a batch may go. Pure.

Records come from LogMiner in the order of their SCNs, up to what the server has written to its files. The
last SCN may be incomplete, so the index is certain up to the one before it (`frontier`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from tailrace.errors import DecodeError
from tailrace.model.table import TableId
from tailrace.sources.base import LogRange
from tailrace.sources.oracle.logminer.miner import (
    COMMIT,
    DDL,
    DELETE,
    INSERT,
    MISSING,
    ROLLBACK,
    UNSUPPORTED,
    UPDATE,
    Head,
)
from tailrace.sources.oracle.position import OraclePosition
from tailrace.sources.oracle.wire.ddl import Ddl, ddl_of

#: Bytes of a change, for the limit of a batch: the log tells rows, and not how long they are.
ROW_BYTES = 256
#: Ends the XID of a transaction whose begin was not in the range of a LogMiner run.
UNRESOLVED = "FFFFFFFF"
#: SEG_OWNER where LogMiner does not know the table.
_UNKNOWN = "UNKNOWN"
_CHANGES = (INSERT, DELETE, UPDATE, UNSUPPORTED)


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed transaction.

    Args:
        scn: its commit SCN.
        place: RS_ID and SSN of its COMMIT: the order among those of one SCN.
        xid: the transaction.
        ts_us: the time of its commit, microseconds since 1970 UTC.
        start: the SCN at which it was seen first.
        tables: the captured tables that it changes, with the least SCN of a change.
        rows: how many changes of them it has.
        unknown: the least SCN of a change of a table that LogMiner does not know: it was dropped, or has
            another segment since; None: there is none.
    """

    scn: int
    place: tuple[str, int]
    xid: str
    ts_us: int
    start: int
    tables: dict[TableId, int]
    rows: int
    unknown: int | None = None


@dataclass(slots=True)
class _Open:
    start: int
    tables: dict[TableId, int] = field(default_factory=dict)
    rows: int = 0
    unknown: int | None = None


class LogIndex:
    """The log from an SCN on.

    Args:
        since: its first SCN: no transaction that counts has begun before it.
        captures: whether a table's changes count.
        to_us: microseconds since 1970 UTC of a time in the server's clock.

    Attributes:
        frontier: everything up to this SCN is known.
        commits: in log order.
        ddls: of captured tables, in log order.
    """

    def __init__(self, since: int, captures: Callable[[TableId], bool], to_us: Callable[[str], int]) -> None:
        self._captures = captures
        self._to_us = to_us
        self._open: dict[str, _Open] = {}
        self.frontier = since - 1
        self.commits: list[Commit] = []
        self.ddls: list[Ddl] = []

    def add(self, heads: Iterable[Head], complete_upto: int | None) -> None:
        """Add what LogMiner found behind the frontier.

        Args:
            heads: of all records behind the frontier.
            complete_upto: the SCN up to which they are complete, if that is known: the end of a file.
        """
        found = list(heads)
        if gap := next((h for h in found if h.operation == MISSING), None):
            raise DecodeError(
                "LogMiner reports missing SCNs",
                f"between SCN {gap.first} and the records behind it",
                "V$LOGMNR_CONTENTS.INFO says why; restore the archived log, or start a new stream",
                code="TR-4614",
            )
        last = max((h.last for h in found), default=self.frontier + 1)
        frontier = last - 1 if complete_upto is None else complete_upto
        ours = [h for h in found if h.is_ours]
        for head in ours:
            self._note(head)
        for head in ours:
            if head.operation in (COMMIT, ROLLBACK) and head.last <= frontier:
                self._end(head)
        known = {(d.scn, d.place) for d in self.ddls}
        self.ddls += [
            ddl_of(h.first, h.place, h.table, h.sql, self._to_us(h.at))
            for h in ours
            if h.operation == DDL
            and h.table is not None
            and self._captures(h.table)
            and (h.first, h.place) not in known
        ]
        self.ddls.sort()
        self.commits.sort(key=lambda c: (c.scn, c.place))
        self.frontier = max(self.frontier, frontier)

    def _note(self, head: Head) -> None:
        xid = self._xid(head)
        if xid is None or head.operation in (DDL, MISSING):
            return
        open_ = self._open.setdefault(xid, _Open(head.first))
        open_.start = min(open_.start, head.first)
        if head.operation not in _CHANGES or head.table is None:
            return
        if head.table.database == _UNKNOWN:
            open_.unknown = head.first if open_.unknown is None else min(open_.unknown, head.first)
        elif self._captures(head.table):
            open_.tables[head.table] = min(open_.tables.get(head.table, head.first), head.first)
            open_.rows += head.count

    def _xid(self, head: Head) -> str | None:
        """The transaction of a record; None: it has none, or one that has begun before the index."""
        if not head.xid.endswith(UNRESOLVED):
            return head.xid or None
        # LogMiner did not meet its begin in this run; a slot has one open transaction at most
        slot = head.xid[: -len(UNRESOLVED)]
        return next((xid for xid in self._open if xid.startswith(slot)), None)

    def _end(self, head: Head) -> None:
        xid = self._xid(head)
        done = None if xid is None else self._open.pop(xid, None)
        if done is None or xid is None or head.operation == ROLLBACK:
            return
        ts_us = self._to_us(head.at)
        self.commits.append(
            Commit(head.last, head.place, xid, ts_us, done.start, done.tables, done.rows, done.unknown)
        )

    def between(self, start: int, end: int) -> list[Commit]:
        """The transactions that commit in `(start, end]`, in log order."""
        scns = [c.scn for c in self.commits]
        return self.commits[bisect_right(scns, start) : bisect_right(scns, end)]

    def forget(self, scn: int) -> None:
        """Forget what commits up to an SCN."""
        self.commits = [c for c in self.commits if c.scn > scn]
        self.ddls = [d for d in self.ddls if d.scn > scn]

    def position(self, scn: int, before: OraclePosition) -> OraclePosition:
        """The position at an SCN up to the frontier; `before` is an earlier one."""
        starts = [c.start for c in self.commits if c.scn > scn >= c.start]
        starts += [o.start for o in self._open.values() if o.start <= scn]
        done = self.between(before.scn, scn)
        ts_ms = done[-1].ts_us // 1000 if done else before.ts_ms
        return replace(before, scn=scn, since=min(starts, default=scn + 1), ts_ms=ts_ms)

    def range_after(
        self,
        start: OraclePosition,
        *,
        upto: int | None,
        max_rows: int | None,
        max_bytes: int | None,
        before_us: int | None,
        is_signals: Callable[[TableId], bool],
    ) -> LogRange | None:
        """See `Log.range_after`."""
        last = self.frontier if upto is None else min(upto, self.frontier)
        commits = self.between(start.scn, last)
        if before_us is not None and (late := next((c for c in commits if c.ts_us > before_us), None)):
            last = late.scn - 1
        if last <= start.scn:
            return None
        end = self._limited(commits, last, max_rows, max_bytes)
        altering = [d for d in self.ddls if d.alters and start.scn < d.scn <= self.frontier]
        # the catalog as it is now does not describe changes before a schema change: they count only in a
        # batch that has the schema change, too, and reads the table again
        for ddl in altering:
            before = [c for c in commits if c.scn <= end]
            if end < ddl.scn <= last and any(
                min(c.tables.get(ddl.table, ddl.scn), c.unknown or ddl.scn) < ddl.scn for c in before
            ):
                end = ddl.scn
        inside = [d for d in altering if d.scn <= end]
        changed = {t for c in commits if c.scn <= end for t in c.tables}
        return LogRange(
            self.position(end, start),
            has_changes=bool(changed),
            ddl_ahead=bool(altering),
            rewritten=tuple(dict.fromkeys(d.table for d in inside)),
            truncated=tuple(dict.fromkeys(d.table for d in inside if d.kind == "TRUNCATE")),
            may_have_signals=any(map(is_signals, changed)),
        )

    def _limited(self, commits: list[Commit], last: int, max_rows: int | None, max_bytes: int | None) -> int:
        """The greatest SCN up to which a batch is within its limits; one SCN is always in it."""
        rows = 0
        limits = [
            n for n in (max_rows, None if max_bytes is None else max_bytes // ROW_BYTES) if n is not None
        ]
        most = min(limits, default=None)
        if most is None:
            return last
        end: int | None = None
        for number, commit in enumerate(commits):
            rows += commit.rows
            if rows > most and end is not None:
                return end
            if number + 1 == len(commits) or commits[number + 1].scn != commit.scn:
                end = commit.scn
        return last

"""The driver's view of the log: one thread that reads the stream's slot and notes transactions, never rows.

    stream ──bytes──> LogIndex ──transactions──> end_after ──> batches' ends
                         └───────bytes───────> HeldLog ──────> the events that travel in splits

A slot has one reader, and the server decodes for each reader anew from the slot's begin: so the thread reads
once, and passes the bytes to the tasks. It runs ahead of requests by HELD_BYTES; then it stops reading, and
the server waits with it. A transaction larger than that is not held: its bytes are discarded as they come,
and its task reads them through a copy of the slot, piece by piece.

The same thread confirms the range of a batch once it is committed, and not before: a stream that is restarted
begins at its last batch, and the slot has everything since then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.errors import TailraceError
from tailrace.model.table import TableId
from tailrace.sources.base import LogRange
from tailrace.sources.follower import LogFollower
from tailrace.sources.postgres.connection import retrying, translate
from tailrace.sources.postgres.position import PostgresPosition
from tailrace.sources.postgres.replication.archive.archived import open_log
from tailrace.sources.postgres.replication.held import HeldLog
from tailrace.sources.postgres.replication.incoming import Incoming
from tailrace.sources.postgres.replication.stream import LogStream
from tailrace.sources.postgres.replication.timeline import History
from tailrace.sources.postgres.wire.index import Contradicted, Described, Differs, Indexed, Truncation
from tailrace.sources.postgres.wire.kernels import boundaries as bd
from tailrace.sources.postgres.wire.relation import Relation

T = TypeVar("T")

#: Bytes that are held for later batches; and the most of one batch, which travels within its split.
HELD_BYTES = 48 << 20
BATCH_BYTES = 16 << 20
#: A range of this many bytes advances the stream even if no captured table changed in it: WAL is released.
FAR_BYTES = 8 << 20
#: Most transactions with a TRUNCATE in a batch: its end offset names each.
MOST_TRUNCATIONS = 100
#: How often to send feedback to the server while the thread does not read, seconds.
_REST_S = 5.0
#: How long to wait for the events of a repeated batch before its task reads them by itself, seconds.
_REPEAT_S = 5.0


@dataclass(frozen=True)
class LoggedTruncation:
    """A TRUNCATE of captured tables that has committed.

    Args:
        tables: the captured tables among those truncated.
        lsn: LSN of the change.
        commit_lsn: LSN of its transaction's commit.
        ts_us: commit time, microseconds since 1970 UTC.
        xid: its transaction.
    """

    tables: tuple[TableId, ...]
    lsn: int
    commit_lsn: int
    ts_us: int
    xid: int


@dataclass(frozen=True)
class LoggedRelation:
    """The columns that changes of a captured table have from somewhere in the log on.

    Args:
        relation: the columns.
        commit_lsn: LSN of the commit of the transaction in which they are described.
        begins: whether they come before all changes of the range.
    """

    relation: Relation
    commit_lsn: int
    begins: bool


@dataclass(frozen=True)
class WalRange(LogRange):
    """How far a batch may go, and what it covers.

    Args:
        truncations: the TRUNCATEs in it, in log order.
        relations: the descriptions of captured tables in it, in log order.
    """

    truncations: tuple[LoggedTruncation, ...] = ()
    relations: tuple[LoggedRelation, ...] = ()


class WalFollower(LogFollower):
    """Follows the log from a position on; safe to use from several threads.

    Args:
        options: the server and the limits.
        start: where it begins.
        captures: whether a table is captured; called by the thread.
        binary: whether to request values in binary form.
        connected: called by the thread with the server's log whenever a connection was opened.
        contradicted: see `LogIndex`; called by the thread.
        differs: likewise.
    """

    def __init__(
        self,
        options: SourceOptions,
        start: PostgresPosition,
        captures: Callable[[TableId], bool],
        *,
        binary: bool,
        connected: Callable[[History], None] = lambda _: None,
        contradicted: Contradicted = lambda *_: (),
        differs: Differs = lambda _: False,
    ) -> None:
        super().__init__()
        self._options = options
        self._captures = captures
        self._start = start
        self._binary = binary
        self._connected = connected
        self._contradicted = contradicted
        self._differs = differs
        #: Offsets in the stream, and the tables that are no longer the same from there on.
        self._left: list[tuple[int, tuple[str, ...]]] = []
        self._truncated: list[Truncation] = []
        self._described: list[Described] = []
        #: Transactions above the confirmed position, in log order: rows as `LogIndex` gives them.
        self._txns: deque[np.ndarray] = deque()
        self._held = HeldLog(HELD_BYTES // 2)
        self._head = start.lsn
        self._confirmed: PostgresPosition | None = None
        #: The log that is read, None before the first connection; may be outdated after a lost connection.
        self._history: History | None = None
        self._incoming: Incoming | None = None
        self._stream: LogStream | None = None
        #: Offset behind the last transaction that has ended.
        self._ended = 0

    def check(self) -> None:
        """Start the thread, or raise the error that ended it."""
        with self._changed:
            self._check()

    def head(self) -> PostgresPosition:
        """The position up to which the server has decoded the log."""
        with self._changed:
            return self._at(self._head)

    def has_changes_after(self, start: PostgresPosition) -> bool:
        """Whether a published table is known to have changed behind `start`."""
        with self._changed:
            self._check()
            return _has_changes(self._between(start.lsn, self._head))

    def end_after(
        self,
        start: PostgresPosition,
        *,
        upto: int | None,
        max_bytes: int | None,
        max_rows: int | None,
        before_us: int | None = None,
    ) -> LogRange | None:
        """How far a batch that starts at `start` may go; None when there is nothing behind it yet.

        Args:
            start: where the batch starts.
            upto: the batch ends here at the latest.
            max_bytes: the batch ends with the first transaction that reaches so many bytes.
            max_rows: the same for changes.
            before_us: the batch ends before the first transaction that was committed later.
        """
        with self._changed:
            self._check()
            limit = self._head if upto is None else min(self._head, upto)
            if limit <= start.lsn:
                return None
            rows = self._between(start.lsn, limit)
            if before_us is not None and len(late := np.flatnonzero(rows[:, bd.TS_US] > before_us)):
                limit = int(rows[late[0], bd.COMMIT_LSN])
                rows = rows[: late[0]]
                if limit <= start.lsn:
                    return None
            cut = _cut(rows, max_bytes, max_rows)
            whole = cut == len(rows)
            end = limit if whole else int(rows[cut - 1, bd.END_LSN])
            ts_ms = int(rows[cut - 1, bd.TS_US]) // 1000 if cut else 0
            truncations = _truncations(rows[:cut], self._truncated)
            return WalRange(
                self._at(end, ts_ms or start.ts_ms),
                has_changes=_has_changes(rows[:cut]),
                ddl_ahead=not whole and bool(rows[cut, bd.FLAGS] & bd.HAS_RELATION),
                is_far=end - start.lsn >= FAR_BYTES,
                left=_within(rows[:cut], self._left),
                truncated=tuple(sorted({table for t in truncations for table in t.tables}, key=str)),
                may_have_signals=bool((rows[:cut, bd.FLAGS] & bd.HAS_SIGNALS).any()),
                truncations=truncations,
                relations=_relations(rows[:cut], self._described),
            )

    def is_late_after(self, start: PostgresPosition, before_us: int) -> bool:
        """Whether the next transaction after `start` is known, and was committed after a time."""
        with self._changed:
            rows = self._between(start.lsn, self._head)
            return bool(len(rows)) and int(rows[0, bd.TS_US]) > before_us

    def events(self, start: PostgresPosition, end: PostgresPosition) -> bytes | None:
        """The bytes of the transactions in (start, end]; None when they are not all held.

        Raises:
            PositionLostError: the batch was planned with another log, of a server that was replaced.
        """
        with self._changed:
            self._check()
            if start.lsn < self._start.lsn:
                return None
            # a repeated batch was planned by another process: its events may not have arrived yet
            self._changed.wait_for(lambda: self._failure is not None or self._head >= end.lsn, _REPEAT_S)
            self._require(end)
            if self._head < end.lsn or self._incoming is None:
                return None
            rows = self._between(start.lsn, end.lsn)
            if not _has_changes(rows):
                return b""
            first, last = int(rows[0, bd.FROM]), int(rows[-1, bd.TO])
            held = self._held.between(first, last)
            return None if held is None else self._incoming.index.preamble(first) + held

    def leads_to(self, position: PostgresPosition) -> bool:
        """Whether the log that is read can reach `position`: False when the server was replaced."""
        with self._changed:
            return self._history is None or self._history.leads_to(position)

    def wait_until(self, lsn: int, timeout_s: float | None) -> bool:
        """Wait until the server has decoded all below `lsn`; return whether it has."""
        with self._changed:
            self._check()
            self._changed.wait_for(lambda: self._failure is not None or self._head >= lsn, timeout_s)
            self._check()
            return self._head >= lsn

    def confirm(self, position: PostgresPosition) -> None:
        """Confirm that the stream no longer needs the log below `position`.

        Raises:
            PositionLostError: it belongs to another log, of a server that was replaced.
        """
        lsn = position.lsn
        with self._changed:
            if self._confirmed is not None and lsn <= self._confirmed.lsn:
                return
            self._require(position)
            self._confirmed = position
            while self._txns and int(self._txns[0][-1, bd.COMMIT_LSN]) < lsn:
                done = int(self._txns.popleft()[-1, bd.TO])
                self._held.let_go(done)
                self._left = [(offset, names) for offset, names in self._left if offset >= done]
                self._truncated = [t for t in self._truncated if t.offset >= done]
                self._described = [d for d in self._described if d.offset >= done]
                if self._incoming is not None:
                    self._incoming.index.forget(done)
            if self._stream is not None:
                self._stream.confirm(lsn)
                self._stream.wake()
            self._changed.notify_all()

    # ---- inside; the lock is held ----

    def _at(self, lsn: int, ts_ms: int = 0) -> PostgresPosition:
        if self._history is None:
            return replace(self._start, lsn=lsn, ts_ms=ts_ms)
        return self._history.position(lsn, ts_ms)

    def _require(self, position: PostgresPosition) -> None:
        """Reject a position that the log does not have, if a log is being read."""
        if self._stream is not None:
            self._stream.history.require(position, self._options, self._head)

    def _between(self, start: int, end: int) -> np.ndarray:
        """The transactions in (start, end]."""
        parts = [
            rows[(rows[:, bd.COMMIT_LSN] >= start) & (rows[:, bd.COMMIT_LSN] < end)] for rows in self._txns
        ]
        return np.concatenate(parts) if parts else np.zeros((0, bd.COLUMNS), np.int64)

    # ---- the thread ----

    def _follow(self) -> None:
        start = self._start
        while not self._is_closed():
            try:
                self._follow_from(start)
            except (TailraceError, DatabaseError, InterfaceError, OSError) as error:
                failure = translate(error, "following the log")
                if not failure.retryable:
                    raise failure from None if failure is error else error
                start = self._restart()

    def _interrupt(self) -> None:
        with self._changed:
            if self._stream is not None:
                self._stream.wake()

    def _follow_from(self, start: PostgresPosition) -> None:
        stream = retrying(self._options, lambda: self._open(start), "following the log", sleep=self._pause)
        try:
            with self._changed:
                if self._confirmed is not None:
                    stream.history.require(self._confirmed, self._options)
                self._stream, self._history = stream, stream.history
                incoming = self._incoming = Incoming(
                    stream,
                    self._captures,
                    start.lsn,
                    self._options.wants_message,
                    self._contradicted,
                    has_signals=lambda table: self._options.has_signals(str(table)),
                    differs=self._differs,
                )
                if self._confirmed is not None:
                    stream.confirm(self._confirmed.lsn)
            self._connected(stream.history)
            while True:
                came = incoming.next(60)
                with self._changed:
                    if came is not None:
                        self._take(*came, incoming.head)
                    while not self._closed and self._held.size >= HELD_BYTES:
                        self._changed.wait(_REST_S)
                        stream.send_feedback()
                    if self._closed:
                        return
        finally:
            with self._changed:
                self._stream = None
            stream.close()

    def _open(self, start: PostgresPosition) -> LogStream:
        self._require_open()
        return open_log(self._options, start, binary=self._binary, own_slot=True)

    def _pause(self, seconds: float) -> None:
        """Wait, but not beyond `close`."""
        with self._changed:
            self._changed.wait_for(self._is_closed, seconds)

    def _take(self, offset: int, data: bytes, found: Indexed, head: int) -> None:
        if len(found.transactions):
            self._txns.append(found.transactions)
            self._ended = int(found.transactions[-1, bd.TO])
        self._left += found.left
        self._truncated += found.truncated
        self._described += found.relations
        self._held.add(offset, data, self._ended)
        self._head = head
        self._changed.notify_all()

    def _restart(self) -> PostgresPosition:
        """Forget all but the confirmed position after a lost connection; return where to continue."""
        with self._changed:
            self._txns.clear()
            self._left.clear()
            self._truncated.clear()
            self._described.clear()
            self._held = HeldLog(HELD_BYTES // 2)
            self._ended = 0
            self._start = max(self._start, self._confirmed or self._start, key=lambda p: p.order)
            self._head = self._start.lsn
            self._changed.notify_all()
            return self._start


def _has_changes(rows: np.ndarray) -> bool:
    return bool((rows[:, bd.FLAGS] & bd.HAS_WANTED).any())


def _truncations(rows: np.ndarray, known: Sequence[Truncation]) -> tuple[LoggedTruncation, ...]:
    """The TRUNCATEs of some transactions, in log order."""
    if not known:
        return ()
    found = [
        LoggedTruncation(
            truncation.tables,
            truncation.lsn,
            int(row[bd.COMMIT_LSN]),
            int(row[bd.TS_US]),
            int(row[bd.XID]),
        )
        for row in rows[(rows[:, bd.FLAGS] & bd.HAS_TRUNCATE) != 0]
        for truncation in known
        if truncation.is_of(row)
    ]
    return tuple(sorted(found, key=lambda t: (t.commit_lsn, t.lsn)))


def _relations(rows: np.ndarray, known: Sequence[Described]) -> tuple[LoggedRelation, ...]:
    """The descriptions in some transactions, in log order."""
    found = []
    for described in known:
        offset = described.offset
        for number in np.flatnonzero((rows[:, bd.FROM] <= offset) & (offset < rows[:, bd.TO])):
            begins = number == 0 and described.is_first
            lsn = int(rows[number, bd.COMMIT_LSN])
            found.append(LoggedRelation(described.relation, lsn, begins))
    return tuple(found)


def _within(rows: np.ndarray, noted: list[tuple[int, tuple[T, ...]]]) -> tuple[T, ...]:
    """What is noted at offsets within some transactions."""
    found = {
        what
        for offset, noted_there in noted
        if ((rows[:, bd.FROM] <= offset) & (offset < rows[:, bd.TO])).any()
        for what in noted_there
    }
    return tuple(sorted(found, key=str))


def _cut(rows: np.ndarray, max_bytes: int | None, max_rows: int | None) -> int:
    """How many of the transactions fit a batch: one schema of each table, and within the limits."""
    cut = len(rows)
    most = BATCH_BYTES if max_bytes is None else min(max_bytes, BATCH_BYTES)
    for sizes, bound in ((rows[:, bd.TO] - rows[:, bd.FROM], most), (rows[:, bd.ROWS], max_rows)):
        if bound is not None:
            cut = min(cut, int(np.searchsorted(sizes.cumsum(), bound)) + 1)
    truncating = np.flatnonzero(rows[:cut, bd.FLAGS] & bd.HAS_TRUNCATE)
    if len(truncating) > MOST_TRUNCATIONS:
        cut = int(truncating[MOST_TRUNCATIONS])
    described = np.flatnonzero(rows[1:cut, bd.FLAGS] & bd.HAS_RELATION)
    return int(described[0]) + 1 if len(described) else cut

r"""The driver's view of the log: one thread that reads it once and indexes transactions, never rows.

    dump --blocks--> TransactionIndex --rows--> segments --end_after--> batches' ends
                 |-> HeldEvents: raw bytes of the newest captured transactions, for small batches
                 \-> LogRelay: all bytes, in memory that tasks on this host read

The thread runs ahead of Spark's requests, but only so far: when four batches' worth of finished transactions
are waiting, or the relay is full, it stops reading, and the server waits with it. A transaction that has not
ended does not count, else one larger than that would block itself.

A position that is returned is always a transaction boundary and carries every GTID in the log up to it:
the GTIDs of the position it was counted from, and those scanned since. The same holds for the XA
transactions that are prepared and open there. The rows of an XA transaction that is committed within a range
count in that range, wherever it was prepared.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tailrace.config.options import SourceOptions
from tailrace.errors import StateError
from tailrace.model.table import TableId
from tailrace.printable import printable
from tailrace.sources.base import LogRange
from tailrace.sources.follower import LogFollower
from tailrace.sources.mysql import catalog
from tailrace.sources.mysql.binlog.dump import DumpStream
from tailrace.sources.mysql.binlog.held import BinlogOffset, HeldEvents, RawEvents, number_of
from tailrace.sources.mysql.binlog.history import CrashWatch, require_history, require_kept
from tailrace.sources.mysql.binlog.logfiles import LogFile, binary_logs, end_of_log
from tailrace.sources.mysql.binlog.relay import RELAY_BYTES, LogRelay
from tailrace.sources.mysql.connection import ReconnectingConnection, folds_names
from tailrace.sources.mysql.gtid import GtidSet, gtid_text
from tailrace.sources.mysql.position import MySqlPosition, Prepared
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.wire.kernels.boundaries import (
    COMPRESSED,
    END,
    FLAGS,
    GNO,
    HAS_DDL,
    HAS_SIGNALS,
    HAS_WANTED,
    NO_TRANSACTION,
    ROWS,
    SOURCE,
    START,
    TS_US,
    WANTED,
    XA_END,
)
from tailrace.sources.mysql.wire.rare.rewrites import rewrites_rows
from tailrace.sources.mysql.wire.rare.xa import OpenTransactions, XaMark
from tailrace.sources.mysql.wire.transactions import DdlStatement, TransactionIndex, Transactions

_log = logging.getLogger(__name__)

#: Raw bytes of captured transactions that are held.
HELD_BYTES = 8 << 20
#: How many batches the thread may be ahead; of the largest, two.
BATCHES_AHEAD = 4
#: The thread holds no events while it is ahead by so many times the bytes that it may hold: the batches of a
#: backlog are larger.
_HELD_AHEAD = 4
#: Most schema changes that a batch begins with: its end offset names each.
MOST_SCHEMA_CHANGES = 100
_STATUS_AGE_S = 1.0
#: Bytes of transactions that do not concern the stream at which it moves on: nothing fills up meanwhile.
_MUCH_OF_OTHERS = 8 << 20
#: How often a full relay is asked whether tasks have read of it, seconds.
_RELAY_POLL_S = 0.02
#: An offset above all others.
_EVERYTHING: BinlogOffset = (1 << 62, 0)


@dataclass(frozen=True)
class BinlogRange(LogRange):
    """How far a batch may go, and what it covers.

    `is_far` says that a limit ended it: more is known behind it.

    Args:
        captured_bytes: bytes of row events of captured tables in it, and of the transactions that were
            prepared before it and are committed in it; 0: it need not be read.
        transactions: how many it holds.
        rows: rows of captured tables in it; 0 where rows are not counted.
        ddl: schema changes in it, each before any row of its tables.
        later_ddl: schema changes known to follow it, in log order: the tables may already have the schema
            after them.
    """

    captured_bytes: int = 0
    transactions: int = 0
    rows: int = 0
    ddl: tuple[DdlStatement, ...] = ()
    later_ddl: tuple[DdlStatement, ...] = ()

    @property
    def alters_tables(self) -> bool:
        """Whether the catalog must be read again: a key may have changed that no row shows."""
        return super().alters_tables or bool(self.ddl)


@dataclass(frozen=True)
class _Segment:
    """Transactions of one file, in log order, as `TransactionIndex` gave them."""

    file: str
    number: int
    rows: np.ndarray
    ddl: tuple[DdlStatement, ...]
    xa: tuple[XaMark, ...]

    def within(self, start: BinlogOffset, end: BinlogOffset) -> _Segment | None:
        """The transactions in (start, end]."""
        ends = self.rows[:, END]
        low = 0 if start[0] < self.number else len(ends)
        if start[0] == self.number:
            low = int(np.searchsorted(ends, start[1], "right"))
        high = len(ends) if end[0] > self.number else 0
        if end[0] == self.number:
            high = int(np.searchsorted(ends, end[1], "right"))
        if low >= high:
            return None
        if (low, high) == (0, len(ends)):
            return self
        return self.part(low, high)

    def part(self, low: int, high: int) -> _Segment:
        """The transactions from number `low` to `high` - 1, at least one."""
        first, last = int(self.rows[low, START]), int(self.rows[high - 1, END])
        ddl = tuple(change for change in self.ddl if first <= change.start < last)
        xa = tuple(mark for mark in self.xa if first <= mark.start < last)
        return _Segment(self.file, self.number, self.rows[low:high], ddl, xa)

    def sizes(self, open_: OpenTransactions) -> tuple[np.ndarray, np.ndarray]:
        """Bytes and rows of each transaction, and of the prepared one it commits; moves `open_` along."""
        sizes, rows = self.rows[:, END] - self.rows[:, START], self.rows[:, ROWS].copy()
        for mark, prepared in open_.move(self.file, self.xa):
            at = int(np.searchsorted(self.rows[:, START], mark.start))
            sizes[at] += prepared.end - prepared.start
            rows[at] += prepared.rows
        return sizes, rows


def _leading(segment: _Segment, changes: np.ndarray) -> int:
    """How many schema changes a batch may begin with.

    They come before any row of captured tables, and no two concern the same table: so none of them divides a
    table's rows. A migration of many tables takes few batches.

    Args:
        segment: the log from the batch's start on.
        changes: indices of its transactions with schema changes.
    """
    starts, ends = segment.rows[:, START], segment.rows[:, END]
    with_rows = np.flatnonzero(segment.rows[:, FLAGS] & (HAS_WANTED | XA_END | COMPRESSED))
    concerned: set[TableId] = set()
    count = 0
    for index in changes[:MOST_SCHEMA_CHANGES]:
        statements = [s for s in segment.ddl if starts[index] <= s.start < ends[index]]
        tables = {table for statement in statements for table in statement.tables}
        drops_database = any(statement.dropped_database for statement in statements)
        if (len(with_rows) and index > with_rows[0]) or (count and (drops_database or tables & concerned)):
            break
        count += 1
        if drops_database:
            break
        concerned |= tables
    return count


class BinlogFollower(LogFollower):
    """Follows the log from a position on; safe to use from several threads.

    Args:
        options: the server and the limits.
        start: a transaction boundary.
        captures: whether a table is captured; called by the thread.
        held_bytes: raw bytes of captured transactions to hold.
    """

    def __init__(
        self,
        options: SourceOptions,
        start: MySqlPosition,
        captures: Callable[[TableId], bool],
        *,
        held_bytes: int = HELD_BYTES,
    ) -> None:
        super().__init__()
        self._options = options
        self._start = start
        self._index = TransactionIndex(
            captures,
            count_rows=options.max_rows_per_trigger is not None,
            holds_captured=self._holds_captured,
            has_signals=lambda table: options.has_signals(str(table)),
            folds=self._folds,
        )
        #: Databases without captured tables that were written with statements.
        self._others: set[str] = set()
        self._most_ahead = max(BATCHES_AHEAD * options.batch_bytes[0], 2 * options.batch_bytes[1])
        self._segments: deque[_Segment] = deque()
        self._ahead = 0
        self._head = start
        self._head_gtids = GtidSet.parse(start.gtids)
        self._head_open = OpenTransactions(start.prepared)
        self._reported: BinlogOffset = (start.file_number, start.pos)
        #: The end of the last transactions that concern the stream.
        self._last_change = self._reported
        #: Bytes of whole transactions beyond the last range of `end_after`.
        self._unreported = 0
        self._read_upto = start
        self._forgotten = self._reported
        self._held = HeldEvents(held_bytes, self._reported)
        self._most_held_ahead = _HELD_AHEAD * held_bytes
        # batches that are larger than the relay never lie in it
        self._relay_bytes = RELAY_BYTES if options.batch_bytes[1] <= RELAY_BYTES else 0
        self._relay = LogRelay(self._reported, self._relay_bytes)
        self._stream: DumpStream | None = None
        self._status: tuple[float, tuple[str, int], list[LogFile]] | None = None
        self._folds_names: bool | None = None
        self._status_lock = threading.Lock()
        self._status_connection = ReconnectingConnection(options, "asking where the log ends")

    # -- requests by Spark ----------------------------------------------------------------------------

    def end_after(
        self,
        start: MySqlPosition,
        *,
        max_bytes: int | None,
        max_rows: int | None,
        upto: MySqlPosition | None = None,
        before_us: int | None = None,
    ) -> BinlogRange | None:
        """How far a batch that starts at `start` may go.

        At least one transaction, then as many as stay within both limits. A batch ends before a schema
        change of captured tables, unless it begins with it: see `_leading`.

        Args:
            start: end of the previous batch; the index before it is dropped.
            max_bytes: bytes of log, or None.
            max_rows: rows of captured tables, or None; needs the option maxRowsPerTrigger.
            upto: the range ends here at the latest, or None.
            before_us: the range ends before the first transaction that was committed later, or None.

        Returns:
            The range, or None when there is nothing new.

        Raises:
            StateError: `start` lies before the followed part of the log, or on another server.
            TailraceError: the error that ended the thread.
        """
        with self._changed:
            self._check()
            if start.order < self._start.order or start.server != self._start.server:
                raise StateError(
                    f"the log is followed from `{self._start}` on, not from `{start}`",
                    f"it is on server `{self._start.server}`, the requested position on `{start.server}`",
                    code="TR-8004",
                )
            offset = (start.file_number, start.pos)
            self._forget(offset)
            limit = (upto.file_number, upto.pos) if upto else _EVERYTHING
            found = self._collect(
                start, offset, limit, max_bytes=max_bytes, max_rows=max_rows, before_us=before_us
            )
            self._reported = (found.end.file_number, found.end.pos) if found else max(self._reported, offset)
            if not self._has_news():
                self._unreported = 0
            return found

    def is_late_after(self, start: MySqlPosition, before_us: int) -> bool:
        """Whether the next transaction after `start` is known, and was committed after a time."""
        with self._changed:
            self._check()
            for whole in self._segments:
                segment = whole.within((start.file_number, start.pos), _EVERYTHING)
                if segment is None:
                    continue
                real = segment.rows[segment.rows[:, FLAGS] & NO_TRANSACTION == 0]
                if len(real):
                    return bool(_is_late(real[:1], before_us)[0])
        return False

    def _forget(self, offset: BinlogOffset) -> None:
        self._forgotten = max(self._forgotten, offset)
        while self._segments:
            first = self._segments[0]
            if (first.number, int(first.rows[-1, END])) > offset:
                break
            self._segments.popleft()
        self._ahead = sum(int(s.rows[-1, END] - s.rows[0, START]) for s in self._segments)
        self._relay.forget(offset)
        self._changed.notify_all()

    def _collect(
        self,
        start: MySqlPosition,
        offset: BinlogOffset,
        limit: BinlogOffset,
        *,
        max_bytes: int | None,
        max_rows: int | None,
        before_us: int | None,
    ) -> BinlogRange | None:
        taken: list[_Segment] = []
        used = rows = 0
        open_ = OpenTransactions(start.prepared)
        for whole in self._segments:
            segment = whole.within(offset, limit)
            if segment is None:
                continue
            table = segment.rows
            count = len(table)
            sizes, numbers = segment.sizes(open_)
            if max_bytes is not None:
                sizes = used + np.cumsum(sizes)
                count = min(count, int(np.searchsorted(sizes, max_bytes, "right")))
                used = int(sizes[-1])
            if max_rows is not None:
                numbers = rows + np.cumsum(numbers)
                count = min(count, int(np.searchsorted(numbers, max_rows, "right")))
                rows = int(numbers[-1])
            if not taken:
                count = max(count, 1)
            changes = np.flatnonzero(table[:, FLAGS] & HAS_DDL)
            if not taken:
                changes = changes[_leading(segment, changes) :]
            if len(changes) and changes[0] <= count:
                count = int(changes[0])
            if before_us is not None and len(late := np.flatnonzero(_is_late(table, before_us))):
                count = min(count, int(late[0]))
            if count:
                taken.append(segment.part(0, count))
            if count < len(table):
                break
        if not taken:
            return None
        everything = np.concatenate([segment.rows for segment in taken])
        end = self._position(start, taken)
        rest = (end.file_number, end.pos)
        behind = [s.within(rest, _EVERYTHING) for s in self._segments if s.ddl]
        committed = [prepared for _, prepared in self._committed(start, taken)]
        captured_bytes = int(everything[:, WANTED].sum()) + sum(p.end - p.start for p in committed)
        ddl = tuple(change for segment in taken for change in segment.ddl)
        later_ddl = tuple(change for segment in behind if segment is not None for change in segment.ddl)
        return BinlogRange(
            end,
            has_changes=captured_bytes > 0 or bool(ddl),
            ddl_ahead=bool(later_ddl),
            created=tuple(table for change in (*ddl, *later_ddl) for table in created_by(change)),
            rewritten=tuple(t for change in ddl if rewrites_rows(change.text) for t in change.tables),
            dropped_databases=tuple(name for change in ddl if (name := change.dropped_database)),
            is_far=rest < min((self._head.file_number, self._head.pos), limit),
            may_have_signals=self._may_have_signals(everything),
            captured_bytes=captured_bytes,
            transactions=int((everything[:, FLAGS] & NO_TRANSACTION == 0).sum()),
            rows=int(everything[:, ROWS].sum()) + sum(p.rows for p in committed),
            ddl=ddl,
            later_ddl=later_ddl,
        )

    def _may_have_signals(self, rows: np.ndarray) -> bool:
        """Whether transactions may have rows of the table of signals: those of some are not known."""
        unknown = COMPRESSED | XA_END
        return self._options.signal_data_collection is not None and bool(
            (rows[:, FLAGS] & (HAS_SIGNALS | unknown)).any()
        )

    def _within(self, start: BinlogOffset, end: BinlogOffset) -> list[_Segment]:
        """The indexed transactions in (start, end]."""
        return [part for s in self._segments if (part := s.within(start, end)) is not None]

    def _position(self, start: MySqlPosition, taken: list[_Segment]) -> MySqlPosition:
        """The end of `taken`, which starts at `start`."""
        gtids, open_ = GtidSet.parse(start.gtids), OpenTransactions(start.prepared)
        ts_ms = start.ts_ms
        for segment in taken:
            self._count(gtids, segment.rows)
            open_.move(segment.file, segment.xa)
            ts_ms = _last_ts_ms(segment.rows, ts_ms)
        last = taken[-1]
        return MySqlPosition(
            last.file,
            int(last.rows[-1, END]),
            str(gtids),
            start.server,
            start.epoch,
            ts_ms,
            tuple(open_),
        )

    @staticmethod
    def _committed(start: MySqlPosition, segments: list[_Segment]) -> list[tuple[XaMark, Prepared]]:
        """The prepared transactions that are committed in segments behind `start`."""
        open_ = OpenTransactions(start.prepared)
        return [found for segment in segments for found in open_.move(segment.file, segment.xa)]

    def _count(self, gtids: GtidSet, rows: np.ndarray) -> None:
        """Add the GTIDs of transactions."""
        sources = rows[:, SOURCE]
        # mostly one server's: then they need not be sorted
        different = sources[:1] if (sources == sources[0]).all() else np.unique(sources)
        for source in different.tolist():
            if source >= 0:
                gtids.add_numbers(self._index.sources[source], rows[sources == source, GNO])

    def _identified(self, change: DdlStatement, rows: np.ndarray) -> DdlStatement:
        """A statement with the GTID and the time of its transaction, which is one of `rows`."""
        row = rows[np.searchsorted(rows[:, START], change.start, "right") - 1]
        source = int(row[SOURCE])
        gtid = gtid_text(self._index.sources[source], int(row[GNO])) if source >= 0 else ""
        return replace(change, gtid=gtid, ts_us=int(row[TS_US]))

    def read_upto(self) -> MySqlPosition:
        """The end of the last event read, which may be in the midst of a transaction."""
        with self._changed:
            self._check()
            return self._read_upto

    def head(self) -> MySqlPosition:
        """The end of the last whole transaction seen."""
        with self._changed:
            self._check()
            head = self._head
            return MySqlPosition(
                head.file,
                head.pos,
                str(self._head_gtids),
                head.server,
                head.epoch,
                head.ts_ms,
                tuple(self._head_open),
            )

    def blocks(self, start: MySqlPosition, end: MySqlPosition) -> list[RawEvents] | None:
        """The captured transactions' events in (start, end], or None if they are not all held.

        Transactions that are committed in it and were prepared before it come first.
        """
        with self._changed:
            self._check()
            known = self._known(start, end)
            if known is None:
                return None
            low, high = known
            pieces = self._held.between(low, high)
            if pieces is None or not start.prepared:
                return pieces
            if low < self._forgotten:
                return None
            parts = self._within(low, high)
            earlier: list[RawEvents] = []
            for _, prepared in self._committed(start, parts):
                if prepared in start.prepared:
                    number = number_of(prepared.file)
                    held = self._held.between((number, prepared.start), (number, prepared.end))
                    if held is None:
                        return None
                    earlier += held
            return earlier + pieces

    def relayed(self, start: MySqlPosition, end: MySqlPosition) -> bytes | None:
        """Where tasks on this host find all events in (start, end], or None if the relay lacks some."""
        with self._changed:
            self._check()
            known = self._known(start, end)
            return None if known is None else self._relay.between(*known)

    def relayed_bytes(self, start: MySqlPosition, end: MySqlPosition) -> int:
        """Bytes of (start, end] that tasks on this host would find in the relay; 0 if it lacks some."""
        with self._changed:
            self._check()
            known = self._known(start, end)
            return 0 if known is None else self._relay.size(*known)

    def _known(self, start: MySqlPosition, end: MySqlPosition) -> tuple[BinlogOffset, BinlogOffset] | None:
        """The offsets of (start, end], None if the thread has not read all of it."""
        low, high = (start.file_number, start.pos), (end.file_number, end.pos)
        is_read = high <= (self._head.file_number, self._head.pos) and start.epoch == end.epoch
        return (low, high) if is_read else None

    def boundaries(self, start: MySqlPosition, end: MySqlPosition, n: int) -> list[MySqlPosition]:
        """Ends of at most `n` slices of about equal bytes of (start, end]; the last is `end`.

        A part of the log that is not, or no longer, indexed stays one slice.
        """
        with self._changed:
            self._check()
            low, high = (start.file_number, start.pos), (end.file_number, end.pos)
            parts = self._within(low, high)
            if n <= 1 or not parts:
                return [end]
            open_ = OpenTransactions(start.prepared)
            sizes = np.concatenate([p.sizes(open_)[0] for p in parts]).cumsum()
            cuts = set(np.searchsorted(sizes, sizes[-1] * np.arange(1, n) / n).tolist())
            cuts.discard(len(sizes) - 1)
            found, done, position = [], 0, start
            for part in parts:
                begun = 0
                for cut in sorted(c - done for c in cuts if done <= c < done + len(part.rows)):
                    position = self._position(position, [part.part(begun, cut + 1)])
                    found.append(position)
                    begun = cut + 1
                if begun < len(part.rows):
                    position = self._position(position, [part.part(begun, len(part.rows))])
                done += len(part.rows)
            return [*found, end]

    def xa_between(self, start: MySqlPosition, end: MySqlPosition) -> list[XaMark] | None:
        """The prepares and ends of XA transactions in (start, end], None if it is not wholly indexed."""
        with self._changed:
            self._check()
            low, high = (start.file_number, start.pos), (end.file_number, end.pos)
            if low < self._forgotten or high > (self._head.file_number, self._head.pos):
                return None
            return [mark for part in self._within(low, high) for mark in part.xa]

    def lag_bytes(self, position: MySqlPosition) -> int:
        """Bytes of log behind `position` on the server, at most a second old.

        Raises:
            SourceError: the server does not report it.
        """
        with self._status_lock:
            if self._status is None or time.monotonic() - self._status[0] > _STATUS_AGE_S:
                self._status = self._status_connection.run(_log_status, "asking where the log ends")
            _, (file, pos), files = self._status
        number = position.file_number
        if number_of(file) == number:
            return max(0, pos - position.pos)
        sizes = {number_of(log.name): log.size for log in files}
        between = sum(size for other, size in sizes.items() if number < other < number_of(file))
        return max(0, sizes.get(number, position.pos) - position.pos) + between + pos

    def caught_up(self, position: MySqlPosition) -> bool:
        """Whether the log ended at `position` a moment ago."""
        return self.lag_bytes(position) == 0

    def wait(self, timeout_s: float) -> bool:
        """Wait until the log goes beyond the last range of `end_after`; return whether it does."""
        with self._changed:
            self._check()
            self._changed.wait_for(lambda: self._failure is not None or self._has_news(), timeout_s)
            return self._has_news()

    def wait_for_changes(self, timeout_s: float) -> None:
        """Wait until what goes beyond the last range of `end_after` concerns the stream, or is much.

        Others' transactions alone are no reason to plan a batch, which takes some milliseconds.
        """

        def is_due() -> bool:
            is_much = self._unreported >= _MUCH_OF_OTHERS
            return self._failure is not None or self._last_change > self._reported or is_much

        with self._changed:
            self._check()
            self._changed.wait_for(is_due, timeout_s)

    def _has_news(self) -> bool:
        return (self._head.file_number, self._head.pos) > self._reported

    def close(self) -> None:
        """Stop following."""
        super().close()
        with self._changed:
            self._relay.close()
        with self._status_lock:
            self._status_connection.close()

    def _folds(self) -> bool:
        """Whether the names in statements stand for names in lower case."""
        with self._status_lock:
            if self._folds_names is None:
                self._folds_names = self._status_connection.run(folds_names, "asking for the case of names")
            return self._folds_names

    # -- the thread -----------------------------------------------------------------------------------

    def _follow(self) -> None:
        with self._changed:
            if self._is_closed():
                return
            self._stream = DumpStream(
                self._options,
                self._start.file,
                self._start.pos,
                blocking=True,
                server=self._start.server,
                verify=lambda connection: require_history(connection, self._known_gtids()),
            )
        crashes = CrashWatch(self._start.file)
        for block in self._stream.blocks():
            if ended := crashes.crashed_before(block):
                self._require_kept(ended)
            done = self._index.feed(block)
            with self._changed:
                if self._ahead > self._most_held_ahead:
                    self._held.skip(block)
                else:
                    self._held.add(block, done, self._index.open_since)
                self._relay.add(block)
                if len(done.rows):
                    self._append(done)
                end = block.pos + block.end - block.start
                self._read_upto = replace(self._start, file=block.file, pos=end)
                while not self._may_continue():
                    self._changed.wait(_RELAY_POLL_S if self._ahead < self._most_ahead else None)
                if self._is_closed():
                    return

    def _known_gtids(self) -> GtidSet:
        with self._changed:
            return self._head_gtids.copy()

    def _require_kept(self, file: str) -> None:
        """Raise PositionLostError if the server may have lost transactions when it crashed."""
        with self._status_lock:
            self._status_connection.run(lambda c: require_kept(c, printable(file)), "asking about a crash")

    def _holds_captured(self, database: str) -> bool:
        """Whether a database that a statement in the log writes to holds captured tables."""
        if database in self._others:
            return False
        with self._status_lock:
            found = self._status_connection.run(
                lambda c: catalog.holds_captured(c, database, self._options.captures), f"reading {database}"
            )
        if not found:
            self._others.add(database)
            _log.warning(
                "the log has statements instead of rows of database `%s`, which holds no captured table: "
                "what their triggers, functions or cascades changed in captured tables is missing",
                printable(database),
            )
        return found

    def _may_continue(self) -> bool:
        if self._closed:
            return True
        if self._ahead >= self._most_ahead:
            return False
        if not self._relay.has_room():
            if 2 * self._ahead >= self._relay_bytes:
                return False
            self._relay.skip()  # a transaction that has not ended fills it
        return True

    def _interrupt(self) -> None:
        with self._changed:
            stream = self._stream
        if stream is not None:
            stream.close()

    def _append(self, done: Transactions) -> None:
        rows = done.rows
        ddl = tuple(self._identified(change, rows) for change in done.ddl)
        self._segments.append(_Segment(done.file, number_of(done.file), rows, ddl, tuple(done.xa)))
        size = int(rows[-1, END] - rows[0, START])
        self._ahead += size
        self._unreported += size
        self._count(self._head_gtids, rows)
        self._head_open.move(done.file, done.xa)
        old = self._head
        self._head = MySqlPosition(
            done.file, int(rows[-1, END]), "", old.server, old.epoch, _last_ts_ms(rows, old.ts_ms)
        )
        if (rows[:, FLAGS] & ~NO_TRANSACTION).any():
            self._last_change = (self._head.file_number, self._head.pos)
        self._changed.notify_all()


def created_by(change: DdlStatement) -> tuple[TableId, ...]:
    """The captured tables that a statement creates; a hint: the catalog shows what it misses."""
    return tuple(table for table in change.tables if table == change.created)


def _is_late(rows: np.ndarray, before_us: int) -> np.ndarray:
    """For each transaction whether it was committed after a time."""
    late: np.ndarray = (rows[:, TS_US] > before_us) & (rows[:, FLAGS] & NO_TRANSACTION == 0)
    return late


def _log_status(connection: BoundedConnection) -> tuple[float, tuple[str, int], list[LogFile]]:
    """The time of asking, the log's end, and its files."""
    return time.monotonic(), end_of_log(connection), binary_logs(connection)


def _last_ts_ms(rows: np.ndarray, otherwise: int) -> int:
    real: Iterator[int] = iter((rows[rows[:, TS_US] > 0, TS_US][-1:] // 1000).tolist())
    return next(real, otherwise)

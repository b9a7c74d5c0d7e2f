"""Follows the log on the driver: its transactions in short, by one LogMiner run for each new part of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import oracledb

from tailrace.config.options import SourceOptions
from tailrace.errors import PositionLostError
from tailrace.model.split import LogSplit
from tailrace.model.table import TableId
from tailrace.sources.base import Log, LogRange
from tailrace.sources.oracle.clock import to_us
from tailrace.sources.oracle.connection import Connection, connect, retrying
from tailrace.sources.oracle.logminer.index import LogIndex
from tailrace.sources.oracle.logminer.miner import Miner
from tailrace.sources.oracle.position import OraclePosition

#: No further log is read while so many transactions wait for a batch: it bounds the index.
_MOST_WAITING = 100_000
#: LogMiner runs follow each other after this time at the earliest: each costs the server some CPU.
POLL_S = 1.0
#: Rows are read as of positions that are at most this old, so that their undo is there.
_YOUNG_MS = 10 * 60 * 1000


class OracleLog(Log):
    """See `tailrace.sources.base.Log`.

    Args:
        options: the stream's options.
        start: the position to follow from.
        knows: whether a table's changes count.
    """

    def __init__(
        self, options: SourceOptions, start: OraclePosition, knows: Callable[[TableId], bool]
    ) -> None:
        self._options = options
        self._start = start
        self._knows = knows
        self._lock = threading.Lock()
        self._miner: Miner | None = None
        self._index: LogIndex | None = None
        self._mined_at: float | None = None
        #: Whether the log has further files behind what was read last.
        self._has_more = False
        #: Up to where `range_after` knew the log when it was called last.
        self._known = start.scn

    def range_after(
        self,
        start: OraclePosition,
        *,
        upto: OraclePosition | None,
        max_bytes: int | None,
        max_rows: int | None,
        for_rows: bool = False,  # noqa: ARG002 - any position can be read as of
        before_us: int | None = None,
    ) -> LogRange | None:
        """The next batch's share of the log after `start`; with `upto`, None only when that is reached."""
        limit = None if upto is None else upto.scn
        if limit is not None and start.scn >= limit:
            return None
        with self._lock:
            index = self._read_on(start)
            while True:
                self._known = index.frontier
                found = index.range_after(
                    start,
                    upto=limit,
                    max_rows=max_rows,
                    max_bytes=max_bytes,
                    before_us=before_us,
                    is_signals=lambda table: self._options.has_signals(str(table)),
                )
                late = before_us is not None and any(
                    c.ts_us > before_us for c in index.between(start.scn, index.frontier)
                )
                if found is not None or limit is None or late:
                    return found
                self._pause(POLL_S)
                index = self._read_on(start)

    def head(self) -> OraclePosition:
        """The last position known to be in the log."""
        return self.read_upto()

    def wait(self, timeout_s: float) -> None:
        """Wait until there is more of the log."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            with self._lock:
                if self._read_on(self._start).frontier > self._known:
                    return
            time.sleep(min(left, POLL_S))

    def read_upto(self) -> OraclePosition:
        """The position up to which LogMiner has read the log."""
        with self._lock:
            if self._index is None or self._index.frontier <= self._start.scn:
                return self._start
            return self._index.position(self._index.frontier, self._start)

    def is_caught_up(self, position: OraclePosition) -> bool:
        """Whether a position is young enough for its undo to be there."""
        head = self.read_upto()
        return not (head.ts_ms and position.ts_ms) or head.ts_ms - position.ts_ms <= _YOUNG_MS

    def splits(self, split: LogSplit, slices: int) -> list[LogSplit]:  # noqa: ARG002 - one LogMiner run
        """The split: its task reads the range by LogMiner."""
        return [split]

    def close(self) -> None:
        """Stop following."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._miner is not None:
            self._miner.close()
        self._miner = None

    def _pause(self, seconds: float) -> None:
        self._lock.release()
        try:
            time.sleep(seconds)
        finally:
            self._lock.acquire()

    def _read_on(self, start: OraclePosition) -> LogIndex:
        """The index, with what the log has since the last look."""
        if self._index is None or start.scn < self._start.scn:
            self._index = LogIndex(start.since, self._captures, self._times())
            self._mined_at = None
        self._start = start
        self._index.forget(start.scn)
        is_due = self._has_more or self._mined_at is None or time.monotonic() - self._mined_at >= POLL_S
        while is_due and len(self._index.commits) < _MOST_WAITING:
            self._has_more = retrying(self._options, self._mine, "reading the log by LogMiner")
            self._mined_at = time.monotonic()
            is_due = self._has_more and not (self._index.frontier > start.scn and self._index.commits)
        return self._index

    def _mine(self) -> bool:
        """Read the next file, up to where it is certain; whether there are more."""
        assert self._index is not None
        try:
            if self._miner is None or not self._miner.is_open:
                self._miner = Miner(self._options, "reading the log")
            if self._miner.database != self._start.database:
                raise another_database(self._start.database, self._miner.database)
            since = self._index.frontier + 1
            file = self._miner.files(since)[0]
            upto = None if file.next is None else file.next - 1
            self._index.add(self._miner.heads(since, upto), upto)
        except (oracledb.Error, OSError):
            self._drop()
            raise
        return upto is not None

    def _times(self) -> Callable[[str], int]:
        def ask(connection: Connection) -> Callable[[str], int]:
            with connection:
                return to_us(connection)

        doing = "asking for the time"
        return retrying(self._options, lambda: ask(connect(self._options, purpose=doing)), doing)

    def _captures(self, table: TableId) -> bool:
        return self._knows(table) or self._options.has_signals(str(table))


def another_database(known: str, found: str) -> PositionLostError:
    """The error of a stream whose positions are those of another database."""
    return PositionLostError(
        "the database is not the one that the stream's position belongs to",
        f"DBID and SCN of RESETLOGS were {known}, and are {found}: another database, or one that was opened "
        "with RESETLOGS; its SCNs cannot be compared",
        "name the former database in url; else set onPositionLost: refresh, or start a new stream",
        code="TR-4623",
    )

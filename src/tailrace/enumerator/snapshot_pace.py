"""How fast tables may be read: limits that protect the source, in first snapshots and when read again.

    rows and bytes per second   a batch reads what has accrued since the last one, at most `MOST_S` of it
    windows of the day          outside them no rows are read
    sessions, replication lag   no rows are read while the server has more than the option says
    server of snapshotUrl       no rows are read while it is lost or too late
    log that the server holds   no rows are read while it holds more for the stream than the option says

Only the planning of a batch depends on all this: it decides how far the cursors move, never what a range of
keys holds. So a batch that is replayed reads the same rows at once. The log is followed all the time, and
faster while no rows are read: a batch then holds nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from tailrace.config.option_values import DayWindow
from tailrace.config.options import SourceOptions
from tailrace.sources.base import Activity

_log = logging.getLogger(__name__)

#: Most seconds of a rate that accrue while nothing is read.
MOST_S = 10.0
#: Seconds between two looks at the server's activity.
LOOK_S = 1.0


@dataclass
class _Bucket:
    """What may be read of one kind, at a rate per second. Negative: more was read than was due."""

    rate: int
    left: float
    at: float

    def fill(self, now: float) -> None:
        """Add what has accrued by `now`."""
        self.left = min(self.rate * MOST_S, self.left + self.rate * (now - self.at))
        self.at = now


class SnapshotPace:
    """The limits of one stream.

    Args:
        options: the stream's options.
        activity: asks the server.
        clock: monotonic seconds.
        wall: the local time of day.
        sleep: waits for some seconds.
        rows_held: why the server of `snapshotUrl` cannot be read; "": it can be.
        held_log: the bytes of log that the server holds for the stream; None: not known.
        has_accrued: whether what a second brings may be read at once.

    Attributes:
        held_by: why no rows are read now, by the last `look`; "": they are, or a rate is used up.
    """

    def __init__(
        self,
        options: SourceOptions,
        activity: Callable[[], Activity],
        clock: Callable[[], float],
        wall: Callable[[], datetime] = datetime.now,
        sleep: Callable[[float], None] = time.sleep,
        *,
        rows_held: Callable[[], str] = lambda: "",
        held_log: Callable[[], int | None] = lambda: None,
        has_accrued: bool = True,
    ) -> None:
        self._options = options
        self._activity = activity
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._rows_held = rows_held
        self._held_log = held_log
        self._rows = self._bucket(options.snapshot_max_rows_per_second, has_accrued=has_accrued)
        self._bytes = self._bucket(options.snapshot_max_bytes_per_second, has_accrued=has_accrued)
        self._looked_at: float | None = None
        self._busy = ""
        self.held_by = ""

    def _bucket(self, rate: int | None, *, has_accrued: bool) -> _Bucket | None:
        return None if rate is None else _Bucket(rate, rate if has_accrued else 0, self._clock())

    @property
    def limits_bytes(self) -> bool:
        """Whether the size of rows matters."""
        return self._bytes is not None

    @property
    def may_read(self) -> bool:
        """Whether a batch may read rows, by the last `look`."""
        return not self.held_by and all(bucket.left > 0 for bucket in self._buckets)

    def look(self, *, ends: bool = False) -> None:
        """Find out whether a batch may read rows; for all that is asked until the next call.

        Args:
            ends: whether the stream ends once it has read its tables: then no more of the log is read than
                there was, and what the server holds grows.

        Raises:
            TailraceError: the server's activity is limited, and cannot be seen.
        """
        now = self._clock()
        for bucket in self._buckets:
            bucket.fill(now)
        self.held_by = self._closed() or self._too_busy(now) or ("" if ends else self._behind())

    def wait(self) -> None:
        """Wait until a batch may read rows; a window of the day that is closed is not waited for."""
        if self.held_by and not self._closed():
            _log.warning("no rows of tables are read for now: %s", self.held_by)
        while not self.may_read and not self._closed():
            due = [1 / b.rate - b.left / b.rate for b in self._buckets if b.left <= 0]
            self._sleep(max(LOOK_S if self.held_by else 0.0, *due, 0.01))
            self.look(ends=True)

    def chunks(self, chunk_rows: int, splits: int, row_bytes: int | None) -> tuple[int, int]:
        """The rows of a chunk and the number of chunks that a batch may read, at least one.

        Args:
            chunk_rows: rows of a chunk without limits.
            splits: chunks without limits.
            row_bytes: the mean size of a row of the first table, None if it is unknown.
        """
        rates, left = [], []
        if self._rows is not None:
            rates.append(self._rows.rate)
            left.append(self._rows.left)
        if self._bytes is not None and row_bytes:
            rates.append(self._bytes.rate // row_bytes)
            left.append(self._bytes.left / row_bytes)
        if rates:
            chunk_rows = max(1, min(chunk_rows, *rates))  # a chunk holds at most what a second brings
            splits = max(1, min(splits, int(min(left) // chunk_rows)))
        return chunk_rows, splits

    def planned(self, rows: int, row_bytes: int | None) -> None:
        """A batch reads rows."""
        if self._rows is not None:
            self._rows.left -= rows
        if self._bytes is not None:
            self._bytes.left -= rows * (row_bytes or 0)

    @property
    def _buckets(self) -> list[_Bucket]:
        return [bucket for bucket in (self._rows, self._bytes) if bucket is not None]

    def _closed(self) -> str:
        windows: tuple[DayWindow, ...] = self._options.snapshot_windows
        now = self._wall().time()
        if not windows or any(window.has(now) for window in windows):
            return ""
        return f"outside of snapshotWindows ({', '.join(map(str, windows))})"

    def _behind(self) -> str:
        most = self._options.snapshot_max_held_log_bytes
        held = None if most is None else self._held_log()
        if most is None or held is None or held <= most:
            return ""
        return f"the server holds {held:,} bytes of log, more than snapshotMaxHeldLogBytes ({most:,})"

    def _too_busy(self, now: float) -> str:
        most, lag = self._options.snapshot_max_active_sessions, self._options.snapshot_max_replica_lag
        by_replica = self._options.snapshot_url is not None
        if most is None and lag is None and not by_replica:
            return ""
        if self._looked_at is None or now - self._looked_at >= LOOK_S:
            self._looked_at, self._busy = now, self._rows_held() if by_replica else ""
            if self._busy or (most is None and lag is None):
                return self._busy
            found = self._activity()
            if most is not None and found.sessions > most:
                self._busy = f"{found.sessions} active sessions, more than snapshotMaxActiveSessions ({most})"
            elif lag is not None and found.replica_lag_s is not None and found.replica_lag_s > lag:
                behind = f"a replica is {found.replica_lag_s:.0f} s behind"
                self._busy = f"{behind}, more than snapshotMaxReplicaLag ({lag} s)"
        return self._busy

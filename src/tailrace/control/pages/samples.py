"""Samples of each subscription's lag and throughput, for plots and estimates of time.

One every 10 s is kept in memory for an hour, 12 kB for a subscription; one every two minutes in the database
for a day (`control.measurements`), which servers share: a plot goes on where the last server left off.
"""

from __future__ import annotations

import logging
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from tailrace.control import measurements
from tailrace.control.measurements import SLOT_S, Measured, last_day
from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.pages.overview import Sums, being_read, sums_of
from tailrace.errors import TransientControlError

_log = logging.getLogger(__name__)

#: Seconds between samples in memory, and how many of them there are.
FINE_S = 10
_FINE = 3600 // FINE_S
#: Rows of the database further apart than this, seconds, have a gap between them: no server ran.
_GAP_S = 2.5 * SLOT_S
_US = 1_000_000
#: A rate is the mean of that many of the newest samples.
_MEAN_OF = 6
_NOTHING = float("nan")
_COLUMNS = ("at", "lag", "changes", "rows")


class _Ring:
    """The newest samples: time, lag, changes and rows a second."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._columns = tuple(array("d") for _ in range(4))

    def add(self, *values: float) -> None:
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
            if len(column) > self._most + self._most // 8:  # cut seldom: a cut moves everything
                del column[: len(column) - self._most]

    def columns(self) -> tuple[array[float], ...]:
        return tuple(column[-self._most :] for column in self._columns)


@dataclass
class _Series:
    """The samples of one subscription, and the counts behind the newest."""

    fine: _Ring = field(default_factory=lambda: _Ring(_FINE))
    at_us: int = 0
    changes: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Rates:
    """What a subscription does a second, in the mean of the last minute; None: not known yet.

    Args:
        changes: changes written.
        rows: rows read by snapshots.
    """

    changes: float | None = None
    rows: float | None = None


class Sampler:
    """Takes a sample of all subscriptions every 10 s, in a thread of its own.

    Args:
        database: of the control plane.
    """

    def __init__(self, database: ControlDatabase) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._series: dict[int, _Series] = {}
        #: Of each table that is being read: time and rows when that was seen first, and last.
        self._tables: dict[tuple[int, str, str], tuple[int, int, int, int]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="tailrace-samples", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def take(self) -> None:
        """Take one sample now.

        Raises:
            TransientControlError: the database does not answer.
        """
        now, sums, reading, is_due = self._database.read(_look)
        with self._lock:
            self._add(now, sums)
            before = self._tables
            self._tables = {}
            for id_, source, table, rows in reading:
                key = (id_, source, table)
                first = before.get(key)
                if first is None or rows < first[3]:  # read anew
                    first = (now, rows, now, rows)
                self._tables[key] = (first[0], first[1], now, rows)
        if is_due:
            found = {id_: Measured(now, _lag(now, of), of.changes, of.rows) for id_, of in sums.items()}
            measurements.keep(self._database, now, found)

    def rates(self, id_: int) -> Rates:
        """What a subscription does a second."""
        with self._lock:
            series = self._series.get(id_)
            if series is None:
                return Rates()
            _, _, changes, rows = series.fine.columns()
        return Rates(_mean(changes), _mean(rows))

    def seconds_left(self, id_: int, source: str, table: str, rows: int, estimated: int) -> float | None:
        """How long the rest of a table's reading will take; None: not known yet."""
        with self._lock:
            seen = self._tables.get((id_, source, table))
        if seen is None or seen[2] == seen[0] or seen[3] == seen[1]:
            return None
        rate = (seen[3] - seen[1]) / (seen[2] - seen[0]) * 1e6
        return max(0, estimated - rows) / rate

    def plot(self, id_: int, *, day: bool) -> dict[str, list[float | None]]:
        """Columns of a plot: time in seconds since 1970, lag in seconds, changes and rows a second.

        Args:
            id_: the subscription's number.
            day: a day; else an hour.
        """
        columns = _columns(self._database.read(lambda connection: last_day(connection, id_)))
        with self._lock:
            fine = self._series.get(id_, _Series()).fine.columns()
        if not day and fine[0]:  # what this server has not seen itself comes from the database
            older = sum(1 for at in columns[0] if at < fine[0][0])
            columns = [[*kept[:older], *mine] for kept, mine in zip(columns, fine, strict=True)]
        if not day:
            begin = bisect_left(columns[0], self._database.now_us() / _US - _FINE * FINE_S)
            columns = [column[begin:] for column in columns]
        return {
            name: [None if value != value else round(value, 3) for value in column]  # noqa: PLR0124 - NaN
            for name, column in zip(_COLUMNS, columns, strict=True)
        }

    def _add(self, now: int, sums: Mapping[int, Sums]) -> None:
        self._series = {id_: self._series.get(id_, _Series()) for id_ in sums}
        for id_, found in sums.items():
            series = self._series[id_]
            lag_us = _lag(now, found)
            lag = _NOTHING if lag_us is None else lag_us / _US
            changes = rows = _NOTHING
            if series.at_us and now > series.at_us:
                seconds = (now - series.at_us) / 1e6
                # A table that is gone takes its counts with it.
                changes = max(0, found.changes - series.changes) / seconds
                rows = max(0, found.rows - series.rows) / seconds
            series.at_us, series.changes, series.rows = now, found.changes, found.rows
            series.fine.add(now / 1e6, lag, changes, rows)

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                self.take()
            except TransientControlError as error:
                _log.warning("no sample of the pipelines: %s", error.message)
            self._stop.wait(max(1.0, FINE_S - (time.monotonic() - begun)))


def _mean(column: array[float]) -> float | None:
    known = [value for value in column[-_MEAN_OF:] if value == value]  # noqa: PLR0124 - NaN
    return sum(known) / len(known) if known else None


def _look(connection: Connection) -> tuple[int, Mapping[int, Sums], list[tuple[int, str, str, int]], bool]:
    now = int(connection.execute(select(now_us())).scalar_one())
    return now, sums_of(connection), being_read(connection), measurements.is_due(connection, now)


def _lag(now: int, found: Sums) -> int | None:
    return None if found.complete_us is None else max(0, now - found.complete_us)


def _columns(kept: Sequence[Measured]) -> list[list[float]]:
    """The columns of a plot: a row of nothing stands where no server ran."""
    rows: list[tuple[float, ...]] = []
    before: Measured | None = None
    for one in kept:
        seconds = 0.0 if before is None else (one.at_us - before.at_us) / _US
        changes = read = _NOTHING
        if before is not None and seconds > _GAP_S:
            rows.append((before.at_us / _US + SLOT_S, _NOTHING, _NOTHING, _NOTHING))
        elif before is not None and seconds > 0:
            # a table that is gone takes its counts with it
            changes = max(0, one.changes - before.changes) / seconds
            read = max(0, one.rows - before.rows) / seconds
        lag = _NOTHING if one.lag_us is None else one.lag_us / _US
        rows.append((one.at_us / _US, lag, changes, read))
        before = one
    return [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]

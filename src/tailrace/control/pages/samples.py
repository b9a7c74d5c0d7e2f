"""Samples of each subscription's lag and throughput, kept in memory for plots and estimates of time.

Any server sees the whole database, so any server can show all plots, since it started. Two resolutions are
kept: 10 s for an hour, 2 min for a day: 35 kB for a subscription.
"""

from __future__ import annotations

import logging
import threading
import time
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import select

from tailrace.control.metadata.database import ControlDatabase, now_us
from tailrace.control.pages.overview import Sums, being_read, sums_of
from tailrace.errors import TransientControlError

_log = logging.getLogger(__name__)

#: Seconds between samples, and between those that are kept for a day.
FINE_S = 10
COARSE_S = 120
_FINE = 3600 // FINE_S
_COARSE = 86_400 // COARSE_S
#: A rate is the mean of that many of the newest samples.
_MEAN_OF = 6
_NOTHING = float("nan")


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

    @property
    def newest(self) -> float:
        return self._columns[0][-1] if self._columns[0] else 0.0


@dataclass
class _Series:
    """The samples of one subscription, and the counts behind the newest."""

    fine: _Ring = field(default_factory=lambda: _Ring(_FINE))
    coarse: _Ring = field(default_factory=lambda: _Ring(_COARSE))
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
        now, sums, reading = self._database.read(
            lambda connection: (
                int(connection.execute(select(now_us())).scalar_one()),
                sums_of(connection),
                being_read(connection),
            )
        )
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
        with self._lock:
            series = self._series.get(id_, _Series())
            columns = (series.coarse if day else series.fine).columns()
        names = ("at", "lag", "changes", "rows")
        return {
            name: [None if value != value else round(value, 3) for value in column]  # noqa: PLR0124 - NaN
            for name, column in zip(names, columns, strict=True)
        }

    def _add(self, now: int, sums: Mapping[int, Sums]) -> None:
        self._series = {id_: self._series.get(id_, _Series()) for id_ in sums}
        for id_, found in sums.items():
            series = self._series[id_]
            lag = _NOTHING if found.complete_us is None else max(0, now - found.complete_us) / 1e6
            changes = rows = _NOTHING
            if series.at_us and now > series.at_us:
                seconds = (now - series.at_us) / 1e6
                # A table that is gone takes its counts with it.
                changes = max(0, found.changes - series.changes) / seconds
                rows = max(0, found.rows - series.rows) / seconds
            series.at_us, series.changes, series.rows = now, found.changes, found.rows
            series.fine.add(now / 1e6, lag, changes, rows)
            if now / 1e6 - series.coarse.newest >= COARSE_S:
                series.coarse.add(now / 1e6, lag, *(_or_nothing(_mean(c)) for c in series.fine.columns()[2:]))

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


def _or_nothing(value: float | None) -> float:
    return _NOTHING if value is None else value

"""A stream's progress, computed from Spark's reports and the sink's counts. Pure; `view` shows it.

    snapshot   per table: rows read of an estimated number, rows per second, time left
    log        rows per second, lag behind the server in milliseconds and bytes
    complete   the time, by the source's clock, up to which the target holds everything

Spark's reports carry the stream offset at the newest batch's end (`endOffset`) and that of a stream without
lag (`latestOffset`), both as written by `enumerator.offset`; with the latter comes the time up to which the
former is complete (`enumerator.freshness`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.sinks.base import Written
from tailrace.sources.base import Lag, Position

#: Rates are means over this time.
_WINDOW_S = 15.0


class Rate:
    """Events per second over the last `_WINDOW_S` seconds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()
        self.total = 0

    def add(self, count: int, now_s: float) -> None:
        """Add `count` events at `now_s`."""
        if not self._marks:
            self._marks.append((now_s, self.total))
        self.total += count
        self._marks.append((now_s, self.total))

    def start(self, now_s: float) -> None:
        """Start counting at `now_s`."""
        if not self._marks:
            self._marks.append((now_s, 0))

    def per_second(self, now_s: float) -> float:
        """The rate at `now_s`; 0 if unknown."""
        while len(self._marks) > 2 and self._marks[1][0] < now_s - _WINDOW_S:
            self._marks.popleft()
        if not self._marks or now_s <= self._marks[0][0]:
            return 0.0
        first_s, first = self._marks[0]
        return (self.total - first) / (now_s - first_s)


@dataclass
class TableView:
    """One table's snapshot.

    Args:
        rows: rows of the snapshot read so far.
        estimated: rows in total, as estimated when it began; 0: unknown.
        done: whether it is finished.
    """

    rows: int = 0
    estimated: int = 0
    done: bool = False
    rate: Rate = field(default_factory=Rate)

    @property
    def share(self) -> float:
        """Share that is done, 0 to 1; with too low an estimate it stays below 1 until the end."""
        if self.done:
            return 1.0
        return min(self.rows / self.estimated, 0.99) if self.estimated else 0.0

    def eta_s(self, now_s: float) -> float | None:
        """Seconds left, None if unknown."""
        rate = self.rate.per_second(now_s)
        left = self.estimated - self.rows
        return left / rate if rate > 0 and left > 0 and not self.done else None


@dataclass
class StreamView:
    """A stream's state, as users see it.

    Args:
        position_type: the class of the positions in the stream's offsets.
        batch: newest batch in the sink.
        complete_ts_ms: the target holds everything committed up to this time by the source's clock, except
            for tables whose rows are still being read; None: unknown yet.
        unfinished: the tables whose rows are still being read, for the first time or again.
        lag_ms: age of the newest change in the target, while changes are missing; 0: none is missing.
        lag_bytes: bytes of the log left to read, None across log files.
        lag_files: log files left to read.
        held_bytes: bytes of the log that the server has, or holds back, from the stream's position on.
        left_bytes: bytes of log until the server no longer does; None: no limit, or not known.
        room_s: seconds until the server may remove the log at the position; None: never, or not known.
        log_rate: bytes per second by which the server's log grows.
        is_slowed: whether rows of tables are read slowly, as others use the server.
        pending_rows: changes that are durable and that readers of the targets do not see yet.
        parked: tables that the stream leaves out, with the commit time of the last change that targets have
            of each, milliseconds since 1970 UTC; None: not known, or they lack rows of it.
        sinks: the sinks' names, each with what is parked of it: a sink as a whole (None), or tables.
    """

    position_type: type[Position]
    tables: dict[str, TableView] = field(default_factory=dict)
    snapshot: Rate = field(default_factory=Rate)
    changes: Rate = field(default_factory=Rate)
    batch: int | None = None
    complete_ts_ms: int | None = None
    unfinished: frozenset[str] = frozenset()
    lag_ms: int | None = None
    lag_bytes: int | None = None
    lag_files: int = 0
    held_bytes: int | None = None
    left_bytes: int | None = None
    room_s: float | None = None
    log_rate: float | None = None
    is_slowed: bool = False
    pending_rows: int | None = None
    parked: Mapping[str, int | None] = field(default_factory=dict)
    sinks: Mapping[str, list[str | None]] = field(default_factory=dict)

    def written(self, batch_id: int, written: list[Written], now_s: float) -> None:
        """Record a batch that the sink has written."""
        self.batch = batch_id
        self.snapshot.add(sum(w.snapshot_rows for w in written), now_s)
        self.changes.add(sum(w.changes for w in written), now_s)
        for part in written:
            if part.snapshot_rows:
                self.tables.setdefault(str(part.table), TableView()).rate.add(part.snapshot_rows, now_s)

    def progress(self, progress: Mapping[str, Any], now_s: float, clock_ms: int) -> None:
        """Record a report of Spark.

        Args:
            progress: the report as JSON.
            now_s: a monotonic time.
            clock_ms: the time of day, milliseconds since 1970 UTC.
        """
        self.pending_rows = progress.get("pendingRows", self.pending_rows)
        self.sinks = {
            name: [entry["table"] for entry in parked]
            for name, parked in (progress.get("parkedSinks") or {}).items()
        }
        sources = progress.get("sources") or []
        if not sources:
            return
        end = _offset(sources[0].get("endOffset"))
        if not end or not end.get("log"):
            return
        self._tables(end, now_s)
        latest = _offset(sources[0].get("latestOffset")) or {}
        head = latest.get("log")
        room = latest.get("room") or {}
        self.held_bytes, self.left_bytes = room.get("held"), room.get("left")
        self.room_s, self.log_rate = room.get("s"), room.get("rate")
        self.is_slowed = bool(latest.get("slowed_by"))
        if head and "held_bytes" in head:  # newer
            self.held_bytes, self.left_bytes = head["held_bytes"], head.get("left_bytes")
        complete_us = latest.get("complete_us")
        if complete_us is not None:
            self.complete_ts_ms = complete_us // 1000
        self._log(
            self.position_type.from_json(end["log"]),
            self.position_type.from_json(head or end["log"]),
            clock_ms,
        )

    def complete_of(self, table: str) -> int | None:
        """As `complete_ts_ms`, of one table; None while its rows are being read."""
        if table in self.parked:
            return self.parked[table]
        return None if table in self.unfinished else self.complete_ts_ms

    def _tables(self, end: Mapping[str, Any], now_s: float) -> None:
        again = {name for name, state in (end.get("again") or {}).items() if not state["done"]}
        self.unfinished = frozenset(again | (end.get("tables") or {}).keys())
        self.parked = {name: _parked_ms(entry) for name, entry in (end.get("parked") or {}).items()}
        for name in self.parked:
            self.tables.pop(name, None)
        for name, state in (end.get("tables") or {}).items():
            table = self.tables.setdefault(name, TableView())
            table.rows, table.estimated, table.done = state["n"], state["e"], False
            table.rate.start(now_s)
        for name, rows in (end.get("done") or {}).items():
            # null: never snapshotted
            if rows is not None:
                table = self.tables.setdefault(name, TableView())
                table.rows, table.done = rows, True

    def _log(self, end: Position, head: Position, clock_ms: int) -> None:
        lag = end.lag_to(head)
        if lag == Lag(0, 0):
            self.lag_ms, self.lag_bytes, self.lag_files = 0, 0, 0
            return
        self.lag_ms = max(clock_ms - end.ts_ms, 0) if end.ts_ms else None
        self.lag_files = max(lag.files, 0)
        self.lag_bytes = None if lag.size is None else max(lag.size, 0)

    @property
    def snapshot_done(self) -> bool:
        """Whether no table's snapshot is unfinished."""
        return all(table.done for table in self.tables.values())


def schema_changes(progress: Mapping[str, Any]) -> Iterator[str]:
    """The kinds of the schema changes of the batch that a report is about."""
    for source in progress.get("sources") or []:
        end = _offset(source.get("endOffset")) or {}
        for event in end.get("schema") or ():
            yield from (change["kind"] for change in event["changes"])


def _parked_ms(entry: Mapping[str, Any]) -> int | None:
    """The commit time of the last change that targets have of a parked table, if they have its rows."""
    log = entry.get("log") if entry.get("had") == "all" else None
    return (log or {}).get("ts_ms") or None


def _offset(value: Any) -> Mapping[str, Any] | None:
    """A stream offset, which Spark gives as JSON values or as their text."""
    if isinstance(value, str):
        value = json.loads(value)
    return value if isinstance(value, dict) else None

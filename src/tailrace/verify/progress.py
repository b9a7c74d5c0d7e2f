"""How far a comparison is: the source's rows that are read, of an estimate; shown on a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tailrace.pipeline.progress import Rate, TableView
from tailrace.pipeline.view import short, table_bars, time_left


class ReadProgress:
    """Hears, from any thread, of the source's rows that are read. This one does nothing about it."""

    def begin(self, tables: Mapping[str, tuple[int, int]]) -> None:
        """Tables are read now, or once more.

        Args:
            tables: by name, the estimated number of rows, and in how many parts they are read.
        """

    def read(self, table: str, rows: int) -> None:
        """Some rows of a table were read."""

    def ended(self, table: str) -> None:
        """A part of a table was read to its end."""


NO_PROGRESS = ReadProgress()


class ComparisonView(ReadProgress):
    """Shows how far a comparison is, if the console is a terminal; a context manager."""

    def __init__(self, console: Console) -> None:
        self._lock = threading.Lock()
        self._tables: dict[str, TableView] = {}
        self._parts: dict[str, int] = {}
        self._rate = Rate()
        self._live = None
        if console.is_terminal:
            self._live = Live(
                console=console, get_renderable=self._render, refresh_per_second=4, transient=True
            )

    def __enter__(self) -> ComparisonView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, tables: Mapping[str, tuple[int, int]]) -> None:
        """See ReadProgress."""
        now_s = time.monotonic()
        with self._lock:
            self._rate.start(now_s)
            for name, (rows, parts) in tables.items():
                self._tables[name] = TableView(estimated=rows, done=not parts)
                self._tables[name].rate.start(now_s)
                self._parts[name] = parts

    def read(self, table: str, rows: int) -> None:
        """See ReadProgress."""
        now_s = time.monotonic()
        with self._lock:
            self._tables[table].rows += rows
            self._tables[table].rate.add(rows, now_s)
            self._rate.add(rows, now_s)

    def ended(self, table: str) -> None:
        """See ReadProgress."""
        with self._lock:
            self._parts[table] -= 1
            self._tables[table].done = not self._parts[table]

    def _render(self) -> RenderableType:
        with self._lock:
            now_s = time.monotonic()
            if not self._tables:
                return Text("opening source and targets")
            if all(table.done for table in self._tables.values()):
                rows = sum(table.rows for table in self._tables.values())
                return Text(f"all {rows:,} source rows are read; comparing them with the targets")
            return Group(table_bars(self._tables, now_s), Text(self._summary(now_s)))

    def _summary(self, now_s: float) -> str:
        tables = self._tables.values()
        rate = self._rate.per_second(now_s)
        left = sum(max(table.estimated - table.rows, 0) for table in tables if not table.done)
        parts = [
            f"comparing: {sum(table.rows for table in tables):,} source rows read, {left:,} left",
            f"{short(rate)} rows/s",
        ]
        if rate > 0 and left > 0:
            parts.append(time_left(left / rate))
        return ", ".join(parts)

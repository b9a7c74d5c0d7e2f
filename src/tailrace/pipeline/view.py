"""A stream's progress on the terminal: bars that move in place, or lines where there is no TTY."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tailrace.errors import TailraceError, coded
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.progress import StreamView, TableView
from tailrace.printable import printable, printable_lines
from tailrace.sinks.base import Written
from tailrace.sources import registry

#: Time between two lines without a TTY, seconds.
LINE_INTERVAL_S = 5.0
#: ... of a stream in which nothing happens but that time passes.
IDLE_INTERVAL_S = 300.0
#: A lag that differs by this much is news, milliseconds.
_LAG_NEWS_MS = 10_000
#: Most tables shown; unfinished ones come first.
_MOST_TABLES = 12
#: Most parked tables that are named.
_MOST_NAMED = 3


class ProgressView:
    """Shows a stream's progress; a context manager. Several threads may report events.

    Args:
        console: the console to print to.
        dialect: the source's database, see `sources.registry`.
        interval_s: time between two lines without a TTY, seconds.
        source: the name of the stream's source if there are several: lines and notices begin with it.
        has_lines: print lines on a terminal, too: bars of several streams would overwrite each other.
    """

    def __init__(
        self,
        console: Console,
        dialect: str,
        interval_s: float = LINE_INTERVAL_S,
        *,
        source: str = "",
        has_lines: bool = False,
    ) -> None:
        self._prefix = f"{source}: " if source else ""
        self._has_bars = console.is_terminal and not has_lines
        self._console = console
        self._interval_s = interval_s
        self._view = StreamView(registry.position_type(dialect))
        self._lock = threading.Lock()
        self._last_line = ""
        #: What the last line told, apart from rates and times, and when it was printed.
        self._last_news: object = None
        self._last_at = float("-inf")
        self._step = "connecting"
        self._ended = threading.Event()
        self._stopping = False
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)
        self._lines = threading.Thread(target=self._print_lines, name="progress", daemon=True)

    def __enter__(self) -> ProgressView:
        if self._has_bars:
            self._live.start()
        else:
            self._lines.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._has_bars:
            self._live.stop()
        else:
            self._lines.join()
            self._line(is_last=True)

    # ---- events --------------------------------------------------------------------------------------

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """See `Watcher`."""
        with self._lock:
            self._view.progress(progress, time.monotonic(), int(time.time() * 1000))

    def on_written(self, batch_id: int, written: list[Written]) -> None:
        """See `Watcher`."""
        with self._lock:
            self._view.written(batch_id, written, time.monotonic())

    def on_batch(self, run: BatchRun) -> None:
        """See `Watcher`."""

    def on_restart(self, error: TailraceError, attempt: int, pause_s: float) -> None:
        """See `Watcher`."""
        message = printable(coded(error.message, error.code))
        self._console.print(
            Text(f"{self._prefix}stream lost ({message}); start {attempt} again in {pause_s:.0f} s", "yellow")
        )

    def on_trouble(self, error: TailraceError | None) -> None:
        """See `Watcher`."""
        told = "the source answers again"
        if error is not None:
            told = f"no answer from the source, tried again: {printable(coded(error.message, error.code))}"
        self._console.print(Text(self._prefix + told, "yellow"))

    def on_step(self, step: str) -> None:
        """See `Watcher`."""
        self._step = step

    def on_notice(self, text: str) -> None:
        """See `Watcher`."""
        self._console.print(Text(self._prefix + printable_lines(text), "yellow"))

    def summary(self) -> str:
        """The stream's state in one line."""
        with self._lock:
            return self._summary(time.monotonic())

    def stopping(self) -> None:
        """Show that a stop was requested."""
        self._stopping = True
        if not self._has_bars:
            self._console.print("stopping after the running batch; once more to stop at once")

    # ---- a terminal ----------------------------------------------------------------------------------

    def _render(self) -> RenderableType:
        with self._lock:
            now_s = time.monotonic()
            parts: list[RenderableType] = []
            if self._view.tables and not self._view.snapshot_done:
                parts.append(table_bars(self._view.tables, now_s))
            parts.append(Text(self._summary(now_s)))
            if self._stopping and not self._ended.is_set():
                parts.append(Text("stopping after the running batch; Ctrl-C again to stop at once", "yellow"))
            return Group(*parts)

    # ---- lines ---------------------------------------------------------------------------------------

    def _print_lines(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._line()

    def _line(self, *, is_last: bool = False) -> None:
        now_s = time.monotonic()
        with self._lock:
            line, news = self._summary(now_s), self._news()
        is_due = is_last or news != self._last_news or now_s - self._last_at >= IDLE_INTERVAL_S
        if line != self._last_line and is_due:
            self._last_line, self._last_news, self._last_at = line, news, now_s
            self._console.print(
                f"{datetime.now(UTC):%H:%M:%S}  {self._prefix}{line}", highlight=False, soft_wrap=True
            )

    def _news(self) -> object:
        view = self._view
        tables = {name: (table.rows, table.done) for name, table in view.tables.items()}
        lag = (view.lag_ms or 0) // _LAG_NEWS_MS, view.lag_files
        return self._step if view.batch is None else None, tables, view.changes.total, lag

    def _summary(self, now_s: float) -> str:
        view = self._view
        if view.batch is None and not view.tables and view.complete_ts_ms is None:
            return self._step
        parts = []
        if view.tables:
            done = sum(t.done for t in view.tables.values())
            rows = sum(t.rows for t in view.tables.values())
            left = sum(max(t.estimated - t.rows, 0) for t in view.tables.values() if not t.done)
            if view.snapshot_done:
                parts.append(f"snapshot done: {rows:,} rows of {done} tables")
            else:
                share = rows / (rows + left) if rows + left else 0.0
                rate = view.snapshot.per_second(now_s)
                parts.append(
                    f"snapshot {min(share, 0.99):.0%}: {rows:,} rows, {done} of {len(view.tables)} tables"
                    f" done, {short(rate)} rows/s"
                )
        parts.append(f"{view.changes.total:,} changes, {short(view.changes.per_second(now_s))}/s")
        lag = _lag(view)
        if lag:
            parts.append(lag)
        if view.complete_ts_ms is not None:
            at = datetime.fromtimestamp(view.complete_ts_ms / 1000, UTC)
            text = f"complete up to {at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} UTC"
            parts.append(text + _exception(view))
        parked = [*(f"sink {name}" for name, left_out in view.sinks.items() if left_out), *view.parked]
        if parked:
            named = ", ".join(map(printable, parked[:_MOST_NAMED]))
            more = len(parked) - _MOST_NAMED
            parts.append(f"parked: {named}" + (f" and {more} more" if more > 0 else ""))
        if view.batch is not None:
            parts.append(f"batch {view.batch}")
        return " · ".join(parts)


def table_bars(tables: Mapping[str, TableView], now_s: float) -> Table:
    """A bar for each table of which rows are read, unfinished ones first."""
    grid = Table.grid(padding=(0, 2))
    ordered = sorted(tables.items(), key=lambda item: (item[1].done, item[0]))
    for name, table in ordered[:_MOST_TABLES]:
        grid.add_row(
            Text(printable(name)),
            ProgressBar(total=1.0, completed=table.share, width=30),
            _rows(table),
            "done" if table.done else f"{short(table.rate.per_second(now_s))} rows/s",
            time_left(table.eta_s(now_s)),
        )
    if len(ordered) > _MOST_TABLES:
        grid.add_row(f"and {len(ordered) - _MOST_TABLES} more tables")
    return grid


def _exception(view: StreamView) -> str:
    """The tables for which "complete" does not hold yet."""
    if not view.unfinished:
        return ""
    first = printable(min(view.unfinished))
    return f" except {first if len(view.unfinished) == 1 else f'{len(view.unfinished)} tables'}"


def _lag(view: StreamView) -> str | None:
    if view.lag_ms == 0 and view.lag_bytes == 0:
        return "no lag"
    size = f"{view.lag_files} log files" if view.lag_bytes is None else f"{short(view.lag_bytes)}B"
    if view.lag_ms is None:
        return f"lag {size}" if view.lag_bytes or view.lag_files else None
    return f"lag {view.lag_ms:,} ms, {size}"


def _rows(table: TableView) -> str:
    return f"{table.rows:,} rows" if table.done else f"{table.rows:,} of ~{table.estimated:,} rows"


def time_left(seconds: float | None) -> str:
    """How long something takes yet; "" if that is not known."""
    if seconds is None:
        return ""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d} left"


def short(number: float) -> str:
    """A number with three digits, and the space before its unit."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} "

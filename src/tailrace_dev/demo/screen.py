"""The demo's terminal output: one line per step, animated while it runs; plain lines without a TTY."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tailrace.printable import printable


class Step:
    """A running step; `text` is its final line."""

    def __init__(self, screen: Screen, title: str) -> None:
        self._screen = screen
        self.text = title

    def update(self, text: str) -> None:
        """Show the step's progress; on a TTY only."""
        self._screen.update(text)


class Screen:
    """Prints steps."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._status = console.status("")

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """A step: its title is animated while it runs; one line with its duration remains."""
        started = time.monotonic()
        step = Step(self, title)
        self._status.update(title)
        if self.console.is_terminal:
            self._status.start()
        try:
            yield step
        except BaseException:
            step.text = f"not finished: {title}"
            raise
        finally:
            self._status.stop()
            self._line(step, started)

    def update(self, text: str) -> None:
        """Change the animated line."""
        self._status.update(text)

    def note(self, text: str, style: str = "") -> None:
        """A line between steps."""
        self.console.print(Text("         " + printable(text), style=style), soft_wrap=True)

    def output(self, text: str) -> None:
        """The output of another program, indented."""
        for line in text.rstrip().splitlines():
            style = "red" if "DIFFERENT" in line or "missing" in line else "dim"
            self.note(line, style)

    def summary(self, rows: list[tuple[str, str]]) -> None:
        """Names and values."""
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for name, value in rows:
            table.add_row(name, value)
        self.console.print()
        self.console.print(Padding(table, (0, 0, 0, 2)))

    def snippet(self, title: str, text: str) -> None:
        """Text to copy, at the left margin."""
        self.console.print()
        self.console.print(Text(title, style="bold"))
        self.console.print()
        for line in text.strip().splitlines():
            self.console.print(Text(line), soft_wrap=True)

    def _line(self, step: Step, started: float) -> None:
        took = f"{time.monotonic() - started:5.1f} s"
        self.console.print(Text.assemble((took, "dim"), "  ", step.text), soft_wrap=True)

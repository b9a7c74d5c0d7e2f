"""Prints changes to the terminal. A batch that comes again is printed again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tailrace.config.sinks import ConsoleSettings
from tailrace.formats.row import to_rows
from tailrace.model.cell import decode_cell
from tailrace.model.moments import rows_to_python
from tailrace.model.table import TableId
from tailrace.printable import printable
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, Unit, Written
from tailrace.sinks.route import Router

#: Longest text of one value.
_WIDTH = 40
#: Least width of a folded column of a table.
_FOLDED = 6


class ConsoleSink:
    """Prints the first changes of each batch, those of each source table together.

    Args:
        settings: how many changes.
        router: names the targets.
    """

    def __init__(self, settings: ConsoleSettings, router: Router) -> None:
        self._settings = settings
        self._router = router
        self._console = Console()

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        return Capabilities(
            Delivery.AT_LEAST_ONCE, Order.BY_SEQ, Unit.ROW, holds_rows=False, follows_schema=True
        )

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`: readers see what is durable."""
        return 0

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`: every printed change names its table, so tables need no targets."""

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        left = self._settings.rows
        for part in batch.table_batches:
            if left <= 0:
                break
            cells = part.cells_of(batch.frame).limit(left).toLocalIterator()
            rows = list(_rows((c["cell"] for c in cells), left))
            left -= len(rows)
            title = f"batch {batch.id} · {part.table} · {part.kind}"
            own = {column.name for schema in part.schemas for column in schema.columns}
            self._console.print(shown_rows(title, rows, own, self._console.width))
        rest = sum(part.changes for part in batch.table_batches) - (self._settings.rows - left)
        if rest > 0:
            self._console.print(f"batch {batch.id}: {rest:,} more changes")
        return [Written.of(part, self._router.target(part.table)) for part in batch.table_batches]

    def close(self) -> None:
        """See `Sink.close`."""


def shown_rows(
    title: str, rows: Sequence[Mapping[str, str]], own: Collection[str], width: int
) -> Table | Text:
    """Changes for a terminal, no value cut: a table, or `name=value` where it would be too narrow to be read.

    Args:
        title: the title.
        rows: the changes' columns by name; each has the same.
        own: names of the source's columns: in a table, their values stay in one line.
        width: columns of the terminal.
    """
    widths = {name: max(map(len, (printable(name), *(row[name] for row in rows)))) for name in rows[0]}
    least = sum(needed if name in own else min(needed, _FOLDED) for name, needed in widths.items())
    if least + 3 * len(widths) + 1 > width:  # each column takes three more for its border and padding
        return Text("\n".join([printable(title), *_pairs(rows, width)]), overflow="fold")
    shown = Table(title=Text(printable(title)), title_justify="left")
    for name in widths:
        shown.add_column(Text(printable(name)), no_wrap=name in own, overflow="fold")
    for row in rows:
        shown.add_row(*map(Text, row.values()))
    return shown


def _pairs(rows: Sequence[Mapping[str, str]], width: int) -> Iterator[str]:
    """The lines of rows: a row begins a line, and those that it goes on in are indented."""
    for row in rows:
        line = ""
        for name, text in row.items():
            pair = f"{printable(name)}={text}"
            if line and len(line) + 2 + len(pair) > width:
                yield line
                line = ""
                pair = f"  {pair}"
            line += f"  {pair}" if line else pair
        yield line


def _rows(cells: Iterator[bytes], limit: int) -> Iterator[dict[str, str]]:
    for cell in cells:
        batch = decode_cell(bytes(cell))
        head = to_rows(batch.slice(0, limit))
        for row in rows_to_python(head):
            yield {name: _shown(value) for name, value in row.items()}
        limit -= head.num_rows
        if limit <= 0:
            return


def _shown(value: object) -> str:
    text = "·" if value is None else value.hex() if isinstance(value, bytes) else printable(str(value))
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"

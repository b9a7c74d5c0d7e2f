"""The writers of one task, one after the other: rows of SHARES come in the order of their writers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from tailrace.errors import concerning
from tailrace.model.cell import decode_cell
from tailrace.model.change import ChangeBatch
from tailrace.sinks.messages.reports import stopped_report


class ShareWriter(Protocol):
    """Writes one writer's share of a batch."""

    def write(self, batch: ChangeBatch) -> None:
        """Write one cell's changes."""

    def finish(self) -> pa.RecordBatch:
        """Make the share durable; its row of REPORT."""


W = TypeVar("W", bound=ShareWriter)


class Turns(Generic[W]):
    """The writers' turns.

    Args:
        open_writer: begins the turn of the writer with a number.
    """

    def __init__(self, open_writer: Callable[[int], W]) -> None:
        self._open_writer = open_writer
        #: The writer whose turn it is; after an error the one to give up.
        self.present: W | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write rows of SHARES; a row of REPORT for each writer."""
        number = -1
        for rows in batches:
            for writer, cell in zip(rows.column(0).to_pylist(), rows.column(2), strict=True):
                if not len(cell.as_buffer()):  # `shares.STOP`
                    yield stopped_report(writer)
                    return
                if self.present is not None and number != writer:
                    yield self.present.finish()
                    self.present = None
                if self.present is None:
                    number, self.present = writer, self._open_writer(writer)
                changes = decode_cell(cell.as_buffer())
                with concerning(changes.table.id, sink=True):
                    self.present.write(changes)
        if self.present is not None:
            yield self.present.finish()
            self.present = None

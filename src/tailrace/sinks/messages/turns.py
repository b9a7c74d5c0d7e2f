"""The writers of one task, one after the other."""

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
        self._number = -1
        #: The writer whose turn it is; after an error the one to give up.
        self.present: W | None = None

    def begin(self, writer: int) -> W:
        """Begin the turn of a writer, before its changes come or when they do."""
        self._number, self.present = writer, self._open_writer(writer)
        return self.present

    def write(self, shares: Iterable[tuple[int, ChangeBatch | None]]) -> Iterator[pa.RecordBatch]:
        """Write shares; a row of REPORT for each writer.

        Args:
            shares: the writers' numbers, in their order, with changes; None stops the writer.
        """
        for writer, changes in shares:
            if changes is None:
                yield stopped_report(writer)
                return
            if self.present is not None and self._number != writer:
                yield self.present.finish()
                self.present = None
            present = self.present or self.begin(writer)
            with concerning(changes.table.id, sink=True):
                present.write(changes)
        if self.present is not None:
            yield self.present.finish()
            self.present = None


def of_shares(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, ChangeBatch | None]]:
    """Rows of SHARES as `Turns.write` takes them."""
    for rows in batches:
        for writer, cell in zip(rows.column(0).to_pylist(), rows.column(2), strict=True):
            data = cell.as_buffer()
            yield writer, decode_cell(data) if len(data) else None  # `shares.STOP` is empty

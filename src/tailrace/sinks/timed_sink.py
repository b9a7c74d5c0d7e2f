"""A sink as a run has it: its batches are timed under its name, and written under the run's lease."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tailrace.model.table import TableId
from tailrace.sinks.base import Capabilities, CellBatch, Sink, Written
from tailrace.sinks.timings import WRITE


@dataclass(frozen=True)
class TimedSink:
    """A `Sink` that notes when another one began and ended to write a batch.

    Args:
        sink: the other.
        name: its name in its pipeline.
        lease: see `StreamId`.
    """

    sink: Sink
    name: str
    lease: int = 0

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink`."""
        return self.sink.capabilities

    @property
    def pending_rows(self) -> int:
        """See `Sink`."""
        return self.sink.pending_rows

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink`."""
        self.sink.claim(tables)

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink`."""
        with batch.timings.step(self.name, WRITE):
            stream = replace(batch.stream, lease=self.lease)
            return self.sink.write(replace(batch, stream=stream, sink=self.name))

    def close(self) -> None:
        """See `Sink`."""
        self.sink.close()

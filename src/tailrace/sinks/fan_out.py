"""One stream into several sinks: each batch is written to one sink after the other.

A batch is done when all sinks have it. A batch that comes again is given to all sinks again; each skips what
it has already. So a sink that fails stops the others too, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tailrace.model.table import TableId
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, Sink, Unit, Written


class SeveralSinks:
    """Writes each batch to all of `sinks`.

    Args:
        sinks: the sinks in the order to write a batch to them; not empty.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that all sinks have. See `Sink.capabilities`."""
        each = [sink.capabilities for sink in self._sinks]
        return Capabilities(
            min((c.delivery for c in each), key=list(Delivery)[::-1].index),
            min((c.order for c in each), key=list(Order)[::-1].index),
            max((c.unit for c in each), key=list(Unit).index),
            holds_rows=all(c.holds_rows for c in each),
            follows_schema=all(c.follows_schema for c in each),
        )

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`."""
        return sum(sink.pending_rows for sink in self._sinks)

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        listed = list(tables)
        for sink in self._sinks:
            sink.claim(listed)

    def write(self, batch: CellBatch) -> list[Written]:
        """Write to all sinks; the first sink's result. See `Sink.write`."""
        cached = replace(batch, once=batch.frame)
        written = [sink.write(cached) for sink in self._sinks]
        return written[0]

    def close(self) -> None:
        """See `Sink.close`."""
        for sink in self._sinks:
            sink.close()

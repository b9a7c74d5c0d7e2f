"""One stream into several sinks: each batch into one after the other.

A batch is done once all have it, and one that comes again is given to all again: each leaves out what it has.
So what one sink cannot take holds up the others too, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tailrace.model.table import TableId
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, Sink, Unit, Written


class SeveralSinks:
    """Writes each batch to all of `sinks`.

    Args:
        sinks: in the order in which a batch is written; not empty.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks

    @property
    def capabilities(self) -> Capabilities:
        """What holds for all of them. See `Sink.capabilities`."""
        each = [sink.capabilities for sink in self._sinks]
        return Capabilities(
            min((c.delivery for c in each), key=list(Delivery)[::-1].index),
            min((c.order for c in each), key=list(Order)[::-1].index),
            max((c.unit for c in each), key=list(Unit).index),
            holds_rows=all(c.holds_rows for c in each),
            follows_schema=all(c.follows_schema for c in each),
        )

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        listed = list(tables)
        for sink in self._sinks:
            sink.claim(listed)

    def write(self, batch: CellBatch) -> list[Written]:
        """What the first sink wrote. See `Sink.write`."""
        cached = replace(batch, once=batch.frame)
        written = [sink.write(cached) for sink in self._sinks]
        return written[0]

    def close(self) -> None:
        """See `Sink.close`."""
        for sink in self._sinks:
            sink.close()

"""One stream into several sinks: each batch is written to one sink after the other.

A batch is done when all sinks have it. A batch that comes again is given to all sinks again; each skips what
it has already. So a sink that fails stops the others too, and nothing is lost; unless it is parked, as a
whole or with some tables (docs/design/0008-parking.md): then it is given the batch without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace

from pyspark.sql import functions as f

from tailrace.model.parked import without_tables
from tailrace.model.table import TableId
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, Sink, Unit, Written


class SeveralSinks:
    """Writes each batch to all of the sinks.

    Args:
        makers: what makes each sink, by name, in the order to write a batch to them; not empty.
        tells_apart: whether errors of the source are to be told from errors of a sink. This costs a pass over
            the batch, before the first sink has it.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Sink]], *, tells_apart: bool = False) -> None:
        self._makers = makers
        self._tells_apart = tells_apart
        self._sinks = {name: make() for name, make in makers.items()}
        self._left_out: Mapping[str, frozenset[str] | None] = {}
        #: The sinks that were given a batch.
        self._begun: set[str] = set()
        #: The sink that the last call failed in; None: none, or outside of them.
        self.failed: str | None = None

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that all sinks have. See `Sink.capabilities`."""
        each = [sink.capabilities for sink in self._sinks.values()]
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
        return sum(sink.pending_rows for sink in self._sinks.values())

    def leave_out(self, left_out: Mapping[str, frozenset[str] | None]) -> None:
        """Write the next batches without parked sinks.

        A sink whose part changes is made anew: its targets may have been changed meanwhile.

        Args:
            left_out: by sink: the tables that it is not given (`database.table`); None: it is given nothing.
        """
        self.failed = None
        for name, make in self._makers.items():
            now = left_out.get(name, frozenset())
            if now == self._left_out.get(name, frozenset()):
                continue
            self._drop(name)
            if now is not None:
                self._sinks[name] = make()
        self._left_out = dict(left_out)
        self._sinks = {name: self._sinks[name] for name in self._makers if name in self._sinks}

    def _drop(self, name: str) -> None:
        sink = self._sinks.pop(name, None)
        if sink is None or name not in self._begun:
            return  # closing it might merge what an earlier run has left, and its target may be out of reach
        self._begun.discard(name)
        try:
            sink.close()
        except Exception:
            self.failed = name
            raise

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        listed = list(tables)
        for sink in self._sinks.values():
            sink.claim(listed)

    def write(self, batch: CellBatch) -> list[Written]:
        """Write to all sinks; of each table, what the first sink that has it wrote. See `Sink.write`."""
        self.failed = None
        cached = replace(batch, once=batch.frame)
        if self._tells_apart:
            cached.table_batches  # noqa: B018 - the source is read here, not in a sink
        found: dict[TableId, list[Written]] = {}
        for name, sink in self._sinks.items():
            self._begun.add(name)
            try:
                written = self._write(sink, cached, self._left_out.get(name) or frozenset())
            except Exception:
                self.failed = name
                raise
            new = {part.table for part in written} - found.keys()
            for part in written:
                if part.table in new:
                    found.setdefault(part.table, []).append(part)
        return [part for parts in found.values() for part in parts]

    def _write(self, sink: Sink, batch: CellBatch, tables: frozenset[str]) -> list[Written]:
        if not tables:
            return sink.write(batch)
        part = replace(
            batch,
            once=batch.frame.where(~f.col("table").isin(*sorted(tables))),
            end=None if batch.end is None else without_tables(batch.end, tables),
            left_out=batch.left_out | tables,
        )
        with closing(part):
            return sink.write(part)

    def close(self) -> None:
        """See `Sink.close`."""
        for sink in self._sinks.values():
            sink.close()

"""Chunk ends asked for ahead: while Spark runs one batch, the server counts off the chunks of the next.

Finding where a chunk ends costs the server an index scan over the chunk. A key that ended a chunk a moment
ago is a good end still, whatever was written since: ranges between keys miss nothing. Only "fewer rows
remain" is never taken from a guess, as it makes the chunk open-ended (design §1, trap 6).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from tailrace.enumerator.snapshot import Boundary
from tailrace.errors import TailraceError
from tailrace.model.split import Key
from tailrace.model.table import TableSchema


@dataclass
class _Chain:
    """The ends of consecutive chunks of one table, found one after the other."""

    table: TableSchema
    after: Key | None
    rows: int
    count: int
    ends: dict[Key | None, Key] = field(default_factory=dict)


class BoundaryPrefetch:
    """A `Boundary` that knows some answers already.

    Args:
        boundary: asks the server; called by one thread at a time.
    """

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._chain: _Chain | None = None
        self._thread: threading.Thread | None = None

    def __call__(self, table: TableSchema, after: Key | None, rows: int) -> Key | None:
        """The key `rows` rows after `after`, None when fewer remain."""
        self._settle()
        chain = self._chain
        if chain is not None and (chain.table, chain.rows) == (table, rows):
            end = chain.ends.get(after)
            if end is not None:
                return end
        return self._boundary(table, after, rows)

    def prepare(self, table: TableSchema, after: Key | None, rows: int, count: int) -> None:
        """Begin to find the ends of the `count` chunks behind `after`."""
        self._settle()
        self._chain = _Chain(table, after, rows, count)
        self._thread = threading.Thread(
            target=self._find, args=(self._chain,), name="tailrace-chunks", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Wait for what is under way."""
        self._settle()

    def _settle(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _find(self, chain: _Chain) -> None:
        after = chain.after
        for _ in range(chain.count):
            try:
                end = self._boundary(chain.table, after, chain.rows)
            except TailraceError:
                return  # who needs the answer asks again, and is told what is wrong
            if end is None:
                return
            chain.ends[after] = end
            after = end

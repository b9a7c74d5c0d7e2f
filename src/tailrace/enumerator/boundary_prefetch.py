"""Prefetch of chunk boundaries: while Spark runs one batch, the server finds the chunks of the next.

Finding the end of a chunk may cost the server an index scan over the chunk. A key that ended a chunk a moment
ago is still a valid end, whatever was written since: ranges between keys omit no row. Only the answer "fewer
rows remain" is never prefetched, because it makes the chunk open-ended: rows inserted since then would make
the last chunk arbitrarily large.
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
    """The ends of consecutive chunks of one table."""

    table: TableSchema
    after: Key | None
    rows: int
    count: int
    #: (key before the chunk, its end); a list, as keys of bytes cannot be hashed.
    ends: list[tuple[Key | None, Key]] = field(default_factory=list)


class BoundaryPrefetch:
    """A `Boundary` that returns prefetched ends if it has them.

    Args:
        boundary: queries the server; called by one thread at a time.
    """

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._chain: _Chain | None = None
        self._thread: threading.Thread | None = None

    def __call__(self, table: TableSchema, after: Key | None, rows: int) -> Key | None:
        """The key `rows` rows after `after`, None if fewer remain."""
        self._join()
        chain = self._chain
        if chain is not None and (chain.table, chain.rows) == (table, rows):
            end = next((end for start, end in chain.ends if start == after), None)
            if end is not None:
                return end
        return self._boundary(table, after, rows)

    def prepare(self, table: TableSchema, after: Key | None, rows: int, count: int) -> None:
        """Start finding the ends of the `count` chunks after `after`."""
        self._join()
        self._chain = _Chain(table, after, rows, count)
        self._thread = threading.Thread(
            target=self._find, args=(self._chain,), name="tailrace-chunks", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Wait until the prefetch has ended."""
        self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _find(self, chain: _Chain) -> None:
        after = chain.after
        for _ in range(chain.count):
            try:
                end = self._boundary(chain.table, after, chain.rows)
            except TailraceError:
                return  # the next call queries the server again and raises the error
            if end is None:
                return
            chain.ends.append((after, end))
            after = end

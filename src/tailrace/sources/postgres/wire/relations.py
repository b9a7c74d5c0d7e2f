"""The relations that have been described, in the form in which kernels look them up."""

from __future__ import annotations

import numpy as np

from tailrace.model.table import TableId


class Relations:
    """A hash table by oid, at most half full: entries of (oid + 1, slot); slot -1: not captured.

    Attributes:
        address: of the entries.
        mask: number of entries less one; they are a power of two.
    """

    def __init__(self) -> None:
        self._tables: dict[int, TableId] = {}
        self._resize(256)

    def add(self, oid: int, slot: int, table: TableId) -> None:
        """Add a relation, in place of its earlier description."""
        self._tables[oid] = table
        if 2 * len(self._tables) > self.mask:
            old = self._entries[self._entries[:, 0] != 0]
            self._resize(4 * len(self._entries))
            for number, known in old.tolist():
                self._entries[self._place(number - 1)] = number, known
        self._entries[self._place(oid)] = oid + 1, slot

    def table(self, oid: int) -> TableId | None:
        """The name of a relation, None if it has not been described."""
        return self._tables.get(oid)

    def _resize(self, size: int) -> None:
        self._entries = np.zeros((size, 2), np.int64)
        self.address, self.mask = self._entries.ctypes.data, size - 1

    def _place(self, oid: int) -> int:
        i = oid & self.mask
        while self._entries[i, 0] not in (0, oid + 1):
            i = (i + 1) & self.mask
        return i

"""The table maps a decoder has seen, in the form in which `scan_events` looks them up."""

from __future__ import annotations

import numpy as np

from tailrace.kernels.memory import SLACK
from tailrace.sources.mysql.wire.kernels import events as ev

#: No table map of a table id has been seen.
UNKNOWN = -2


class KnownMaps:
    """A hash table by table id, at most half full.

    Attributes:
        count: table maps known.
        address: of the entries (MAP_ words of `events`).
        mask: number of entries less one; they are a power of two.
    """

    def __init__(self) -> None:
        self.count = 0
        self._resize(1024)
        self._bodies: dict[int, np.ndarray] = {}

    def add(self, body: bytes, slot: int) -> None:
        """Add the map of `slot`, in place of an earlier one with its id."""
        id_ = int.from_bytes(body[:6], "little")
        self._bodies[id_] = kept = np.frombuffer(body + bytes(SLACK), np.uint8)
        if 2 * self.count > self.mask:
            old = self._entries[self._entries[:, ev.MAP_ID] != 0]
            self._resize(4 * len(self._entries))
            for entry in old:
                self._entries[self._index(int(entry[ev.MAP_ID]) - 1)] = entry
        index = self._index(id_)
        self.count += self._entries[index, ev.MAP_ID] == 0
        self._entries[index] = id_ + 1, kept.ctypes.data, len(body), slot

    def _resize(self, size: int) -> None:
        self._entries = np.zeros((size, 4), np.int64)
        self.address, self.mask = self._entries.ctypes.data, size - 1

    def slot(self, id_: int) -> int:
        """The slot of a table id; -1 for a table that is not captured; or UNKNOWN."""
        entry = self._entries[self._index(id_)]
        return int(entry[ev.MAP_SLOT]) if entry[ev.MAP_ID] else UNKNOWN

    def body(self, id_: int) -> bytes:
        """The map of a table id, without header and checksum."""
        return self._bodies[id_][:-SLACK].tobytes()

    def _index(self, id_: int) -> int:
        i = id_ & self.mask
        while self._entries[i, ev.MAP_ID] not in (0, id_ + 1):
            i = (i + 1) & self.mask
        return i

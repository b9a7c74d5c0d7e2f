"""What XA transactions have prepared, set aside until they end.

    XA START ── begin ──▶ capturing ── XA_PREPARE ──▶ prepared ── XA COMMIT ──▶ decoded, as of the commit
                              │                          └────── XA ROLLBACK ─▶ dropped
                              └── ONE PHASE ──▶ decoded where it stands

What is set aside are the events' bytes, copied; rows that may vanish are never decoded. Beyond a limit only
the place is remembered: then the events are read from the log again when they count. So are those of
transactions that were prepared before the range that is decoded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tailrace.kernels.memory import SLACK
from tailrace.sources.mysql.position import Prepared

#: Bytes set aside, of all transactions together.
LIMIT = 32 << 20


@dataclass(frozen=True)
class SetAside:
    """The events of an XA transaction.

    Args:
        place: where they are in the log.
        data: their bytes with SLACK behind, None where they are not held.
        checksum: bytes of checksum at each event's end.
        shapes: how often a table had changed its shape when it was prepared.
    """

    place: Prepared
    data: np.ndarray | None = None
    checksum: int = 0
    shapes: int = 0


class Asides:
    """The transactions that are prepared and open, and the one that is being captured.

    Args:
        prepared: those open where decoding starts.
    """

    def __init__(self, prepared: Iterable[Prepared] = ()) -> None:
        self._open = {place.xid: SetAside(place) for place in prepared}
        self._bytes = 0
        self._file = ""
        self._start = self._checksum = 0
        self._taken: bytearray | None = None
        self.capturing = False

    @property
    def open(self) -> tuple[Prepared, ...]:
        """The transactions that are prepared and open where decoding has come to, in log order."""
        return tuple(found.place for found in self._open.values())

    def begin(self, file: str, start: int, checksum: int) -> None:
        """A transaction begins whose events, from offset `start` on, are to be captured."""
        self._file, self._start, self._checksum = file, start, checksum
        self._taken, self.capturing = bytearray(), True

    def take(self, origin: int, upto: int) -> None:
        """Copy what is captured up to an offset in the file.

        Args:
            origin: address at which the file's first byte would be.
            upto: the offset.
        """
        if self._taken is None:
            return
        begun = self._start + len(self._taken)
        if self._bytes + upto - self._start > LIMIT:
            self._taken = None
        else:
            self._taken += ctypes.string_at(origin + begun, upto - begun)

    def captured(self, xid: str, end: int, shapes: int) -> SetAside:
        """What was captured; its transaction ends at offset `end`."""
        data = None
        if self._taken is not None:
            data = np.frombuffer(bytes(self._taken) + bytes(SLACK), np.uint8)
        self._taken, self.capturing = None, False
        return SetAside(Prepared(xid, self._file, self._start, end), data, self._checksum, shapes)

    def prepare(self, found: SetAside, *, wanted: bool) -> None:
        """A transaction is prepared; one that is not `wanted` has no rows of wanted tables."""
        self.end(found.place.xid)
        if not wanted:
            return
        self._open[found.place.xid] = found
        self._bytes += 0 if found.data is None else len(found.data)

    def end(self, xid: str) -> SetAside | None:
        """A prepared transaction ends: what is known of it, None if nothing was wanted of it."""
        found = self._open.pop(xid, None)
        if found is not None and found.data is not None:
            self._bytes -= len(found.data)
        return found

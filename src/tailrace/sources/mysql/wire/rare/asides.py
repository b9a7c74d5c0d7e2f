"""Events of prepared XA transactions, set aside until the transactions end.

    XA START ── begin ──▶ capturing ── XA_PREPARE ──▶ prepared ── XA COMMIT ──▶ decoded, as of the commit
                              │                          └────── XA ROLLBACK ─▶ dropped
                              └── ONE PHASE ──▶ decoded where it stands

The events' bytes are copied; rows that may be rolled back are never decoded. Beyond a limit only the offsets
are kept, and the events are read from the log again when they are committed. So are those of transactions
that were prepared before the decoded range.
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
        transaction: its file and offsets in the log.
        data: their bytes with SLACK behind, None where they are not held.
        checksum: bytes of checksum at each event's end.
        schema_changes: how often a table had changed its schema when it was prepared.
    """

    transaction: Prepared
    data: np.ndarray | None = None
    checksum: int = 0
    schema_changes: int = 0


class Asides:
    """The transactions that are prepared and open, and the one that is being captured.

    Args:
        prepared: those open where decoding starts.
    """

    def __init__(self, prepared: Iterable[Prepared] = ()) -> None:
        self._open = {transaction.xid: SetAside(transaction) for transaction in prepared}
        self._bytes = 0
        self._file = ""
        self._start = self._checksum = 0
        self._taken: bytearray | None = None
        self.capturing = False

    @property
    def open(self) -> tuple[Prepared, ...]:
        """The transactions that are prepared and open at the decoder's position, in log order."""
        return tuple(found.transaction for found in self._open.values())

    def begin(self, file: str, start: int, checksum: int) -> None:
        """Begin to capture a transaction's events, from offset `start` on."""
        self._file, self._start, self._checksum = file, start, checksum
        self._taken, self.capturing = bytearray(), True

    def take(self, origin: int, upto: int) -> None:
        """Copy the captured events up to an offset in the file.

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

    def captured(self, xid: str, end: int, schema_changes: int) -> SetAside:
        """The captured events of the transaction, which ends at offset `end`."""
        data = None
        if self._taken is not None:
            data = np.frombuffer(bytes(self._taken) + bytes(SLACK), np.uint8)
        self._taken, self.capturing = None, False
        return SetAside(Prepared(xid, self._file, self._start, end), data, self._checksum, schema_changes)

    def prepare(self, found: SetAside, *, has_rows: bool) -> None:
        """Note that a transaction is prepared; if not `has_rows`, it has no rows of captured tables."""
        self.end(found.transaction.xid)
        if not has_rows:
            return
        self._open[found.transaction.xid] = found
        self._bytes += 0 if found.data is None else len(found.data)

    def end(self, xid: str) -> SetAside | None:
        """End a prepared transaction; return its events, None if it has no rows of captured tables."""
        found = self._open.pop(xid, None)
        if found is not None and found.data is not None:
            self._bytes -= len(found.data)
        return found

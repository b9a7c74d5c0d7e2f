"""XA transactions in the log, and which are open at a position of it.

    GTID a, XA START x, rows, XA END x, XA_PREPARE x         prepared: the rows may be rolled back
    GTID b, XA COMMIT x | XA ROLLBACK x                      another transaction, any time later

MariaDB has it in GTID a's flags and writes no XA START. An xid is written as in SQL,
`X'gtrid',X'bqual',formatID`, in lower-case hex: in messages, in positions and in the log's own text.

Source: mysql libs/mysql/binlog/event/control_events.h, class XA_prepare_event; sql/xa.h, `XID::serialize`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from tailrace.errors import DecodeError
from tailrace.sources.mysql.position import Prepared

_HEAD = struct.Struct("<BIII")
_STATEMENT = re.compile(
    r"\s*XA\s+(COMMIT|ROLLBACK)\s+X'((?:[0-9A-F]{2})*)'\s*,\s*X'((?:[0-9A-F]{2})*)'\s*,\s*(\d+)\s*", re.I
)
_LONGEST = 128


class XaStep(Enum):
    """The effect of a transaction of the log on an XA transaction."""

    PREPARES = 0
    COMMITS = 1
    ROLLS_BACK = 2


@dataclass(frozen=True, slots=True)
class XaMark:
    """A transaction of the log that prepares or ends an XA transaction.

    Args:
        step: its effect.
        xid: the XA transaction.
        start: offset of its start.
        end: offset of its end.
        has_rows: PREPARES: whether it has rows of captured tables.
        rows: PREPARES: rows of captured tables in it; 0 where rows are not counted.
    """

    step: XaStep
    xid: str
    start: int
    end: int
    has_rows: bool = False
    rows: int = 0


class OpenTransactions:
    """The XA transactions with captured rows that are prepared and open; moves along the log.

    Args:
        prepared: those open at the start.
    """

    def __init__(self, prepared: Iterable[Prepared] = ()) -> None:
        self._open = {found.xid: found for found in prepared}

    def __iter__(self) -> Iterator[Prepared]:
        return iter(self._open.values())

    def move(self, file: str, marks: Iterable[XaMark]) -> list[tuple[XaMark, Prepared]]:
        """Move over marks of a file; return those that commit a known transaction, with that transaction."""
        committed = []
        for mark in marks:
            found = self._open.pop(mark.xid, None)
            if mark.step is XaStep.PREPARES and mark.has_rows:
                self._open[mark.xid] = Prepared(mark.xid, file, mark.start, mark.end, mark.rows)
            elif mark.step is XaStep.COMMITS and found is not None:
                committed.append((mark, found))
        return committed


def xid_of(format_id: int, gtrid: bytes, bqual: bytes) -> str:
    """An xid as SQL writes it; the log keeps 32 bits of the format's number."""
    return f"X'{gtrid.hex()}',X'{bqual.hex()}',{format_id & 0xFFFFFFFF}"


def prepare_of(body: bytes, where: str) -> tuple[str, bool]:
    """The xid of an XA_PREPARE event, and whether it commits at once (ONE PHASE).

    Args:
        body: the event without header and checksum.
        where: file and offset, for errors.

    Raises:
        DecodeError: it is malformed.
    """
    if len(body) >= _HEAD.size:
        one_phase, format_id, gtrid, bqual = _HEAD.unpack_from(body)
        data = body[_HEAD.size :]
        if gtrid + bqual <= min(len(data), _LONGEST):
            return xid_of(format_id, data[:gtrid], data[gtrid : gtrid + bqual]), bool(one_phase)
    raise DecodeError("an XA_PREPARE event of the log is malformed", f"at {where}", code="TR-5201")


def end_of(text: str, where: str) -> tuple[XaStep, str]:
    """The effect of a statement XA COMMIT or XA ROLLBACK, and its xid.

    Raises:
        DecodeError: the statement does not have the form that servers log.
    """
    match = _STATEMENT.fullmatch(text)
    if match is None:
        raise DecodeError(
            "a statement that ends an XA transaction cannot be read", f"at {where}", code="TR-5201"
        )
    step = XaStep.COMMITS if match[1].upper() == "COMMIT" else XaStep.ROLLS_BACK
    return step, xid_of(int(match[4]), bytes.fromhex(match[2]), bytes.fromhex(match[3]))

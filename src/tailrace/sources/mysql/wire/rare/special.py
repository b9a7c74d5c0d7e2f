"""Events that are rare enough for Python: statements, tagged GTIDs, and events that are rejected."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tailrace.errors import DecodeError, PositionLostError, SourceError
from tailrace.model.table import TableId
from tailrace.sources.mysql.wire import mariadb
from tailrace.sources.mysql.wire.kernels import events as ev
from tailrace.sources.mysql.wire.rare.statements import (
    Statement,
    classify,
    executed,
    first_words,
    refuse_statement,
    selects_rows,
    statement_of,
)

_IGNORABLE_FLAG = 0x80
_TAG = re.compile(rb"[a-z_][a-z0-9_]{0,31}")


@dataclass(frozen=True)
class SpecialEvent:
    """One event, copied out of its block.

    Args:
        type: type byte.
        flags: of the header.
        ts_s: when it was executed, seconds since 1970 UTC.
        server_id: server that first executed it.
        size: bytes in the log, header and checksum included.
        body: the bytes between header and checksum.
        where: file and offset, for errors.
    """

    type: int
    flags: int
    ts_s: int
    server_id: int
    size: int
    body: bytes
    where: str

    @classmethod
    def at(cls, address: int, checksum: int, where: str) -> SpecialEvent:
        """The event at an address, whose header was checked by `scan_events`."""
        header = ctypes.string_at(address, ev.HEADER)
        size = int.from_bytes(header[9:13], "little")
        return cls(
            header[4],
            int.from_bytes(header[17:19], "little"),
            int.from_bytes(header[:4], "little"),
            int.from_bytes(header[5:9], "little"),
            size,
            ctypes.string_at(address + ev.HEADER, size - ev.HEADER - checksum),
            where,
        )


def check(
    event: SpecialEvent,
    dirty: bool,
    wanted: Callable[[TableId], bool],
    holds_captured: Callable[[str], bool],
) -> bool:
    """Accept an event, or reject it.

    Args:
        event: the event.
        dirty: whether its transaction has changed rows of captured tables.
        wanted: whether a table is captured.
        holds_captured: whether a database holds captured tables.

    Returns:
        Whether it ends its transaction.

    Raises:
        SourceError: it holds changes in a form that cannot be captured.
        PositionLostError: it says that events are missing from the log.
        DecodeError: its type is unknown.
    """
    where = f"at {event.where}"
    match event.type:
        case ev.QUERY | ev.QUERY_COMPRESSED:
            database, text = statement_of(plain_body(event))
            text = executed(text)
            if classify(text) is Statement.ROWS or selects_rows(text):
                refuse_statement(text, database, event.where, wanted, holds_captured)
                return False
            return _ends(text, dirty, where)
        case ev.EXECUTE_LOAD_QUERY:
            database, text = statement_of(event.body, loads=True)
            refuse_statement(text, database, event.where, wanted, holds_captured)
        case ev.INCIDENT:
            raise PositionLostError(
                "the server says that its log lacks events (INCIDENT)",
                where,
                "set onPositionLost: refresh (pipelines: on-position-lost: refresh): every table is read "
                "again, in place",
                code="TR-4108",
            )
        case _ if not event.flags & _IGNORABLE_FLAG:
            raise DecodeError(
                f"the log holds an event of unknown type {event.type}",
                f"{where}; it may hold changes",
                "turn off the server feature that writes it, or upgrade Tailrace",
                code="TR-4403",
            )
    return False


def plain_body(event: SpecialEvent) -> bytes:
    """The body of a QUERY event, or of a packed one."""
    if event.type == ev.QUERY_COMPRESSED:
        return mariadb.plain_query(event.body, f"at {event.where}")
    return event.body


def text_of(event: SpecialEvent) -> bytes:
    """The text of a QUERY event, whose lengths `scan_events` has checked, or of a packed one."""
    body = plain_body(event)
    return body[13 + int.from_bytes(body[11:13], "little") + body[8] + 1 :]


def _ends(text: str, dirty: bool, where: str) -> bool:
    """Whether a statement ends its transaction."""
    first, second = first_words(text)
    if first == "ROLLBACK" and dirty:
        raise SourceError(
            "the log holds changes of captured tables that were rolled back",
            f"{where}: the transaction mixes tables of transactional and other engines",
            "use InnoDB for all tables that are changed together with captured ones",
            code="TR-4402",
        )
    return first in ("COMMIT", "ROLLBACK") and not second


def gtid_tagged(event: SpecialEvent) -> np.ndarray:
    """The transaction's record of a GTID_TAGGED event.

    Version, size and highest necessary field come first, then fields by ascending number: 0 flags, 1 UUID (16
    integers), 2 number (signed), 3 tag, 4 and 5 for replicas, 6 commit time. An integer's first byte has as
    many low bits set as bytes follow it.

    Raises:
        DecodeError: it is malformed, or of a later version.

    Source: mysql libs/mysql/serialization; libs/mysql/binlog/event/control_events.h, class Gtid_event.
    """
    reader = _Varints(event.body, f"at {event.where}")
    version, _, _ = reader.take(), reader.take(), reader.take()
    if version != 1:
        raise DecodeError(
            f"a tagged GTID of version {version}", f"at {event.where}; known is version 1", code="TR-4403"
        )
    uuid, number, tag, ts_us = b"", 0, b"", event.ts_s * 1000000
    while reader.at < len(event.body):
        field = reader.take()
        if field == 1:
            uuid = bytes(reader.take() & 255 for _ in range(16))
        elif field == 2:
            number = reader.take() >> 1
        elif field == 3:
            tag = reader.text(reader.take())
        elif field == 6:
            ts_us = reader.take()
            break
        else:
            reader.take()
    if len(uuid) != 16 or not _TAG.fullmatch(tag) or ts_us >> 62 or number >> 62:
        raise DecodeError("a tagged GTID is malformed", f"at {event.where}", code="TR-5201")
    record = np.zeros(ev.TX_WORDS, np.int64)
    record[: ev.TX_UUID] = ts_us, event.server_id, -1, 1, number, len(tag)
    record[ev.TX_UUID :] = np.frombuffer((uuid + tag).ljust(8 * (ev.TX_WORDS - ev.TX_UUID), b"\0"), np.int64)
    return record


class _Varints:
    """Reads the integers of the server's serialization library."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.at = 0
        self.where = where

    def take(self) -> int:
        first = self.text(1)[0]
        more = (~first & (first + 1)).bit_length() - 1
        return int.from_bytes(bytes([first]) + self.text(more), "little") >> (more + 1)

    def text(self, n: int) -> bytes:
        if n > len(self.data) - self.at:
            raise DecodeError("a tagged GTID is malformed", self.where, code="TR-5201")
        self.at += n
        return self.data[self.at - n : self.at]

"""Parts of the log that only MariaDB writes: its GTIDs, compressed events, compressed columns.

    GTID 162                 opens a transaction, without a BEGIN, unless it is standalone (one statement)
    GTID_LIST 163            at a file's head: the last GTID of every domain and server in the log before it
    QUERY_COMPRESSED 165     a QUERY whose text is packed
    ..._ROWS_COMPRESSED 166  to 171: row events whose rows are packed (1 with version 1 headers, 2 with 2)
    ANNOTATE_ROWS 160, BINLOG_CHECKPOINT 161, START_ENCRYPTION 164     say nothing about rows

Packed text and rows (`log_bin_compress`): a byte 1aaannnn with the algorithm (0: zlib) and the number of
bytes of the length, the length (big-endian), the stream. A packed column (`COMPRESSED`): 0x00 and the value
as it is; or a byte mmmmwnnn with the method (8: zlib), whether the stream has no zlib header, and the number
of bytes of the length, the length (big-endian), the stream.

Source: MariaDB sql/log_event.h, sql/log_event.cc (`binlog_buf_uncompress`, `row_log_event_uncompress`),
sql/field.cc (`Field_longstr::uncompress`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from tailrace.errors import DecodeError

#: The plain row event of each packed one.
_PLAIN = {166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
_UPDATES = (24, 31)
_HEADER = 19
#: Most unpacked bytes of a value or event: the server's limit of a packet.
_LONGEST = 1 << 30
_LIST_COUNT = (1 << 28) - 1
_LIST_ENTRY = struct.Struct("<IIQ")


def gtid_list(body: bytes) -> Iterator[tuple[int, int, int]]:
    """(domain, server id, number) of each entry of a GTID_LIST event, in the order of the log.

    Args:
        body: the event without its header and its checksum.

    Raises:
        DecodeError: it is malformed.
    """
    count = int.from_bytes(body[:4], "little") & _LIST_COUNT
    if len(body) < 4 + count * _LIST_ENTRY.size:
        raise DecodeError("the log's GTID_LIST event cannot be read", code="TR-5201")
    return _LIST_ENTRY.iter_unpack(body[4 : 4 + count * _LIST_ENTRY.size])


def plain_query(body: bytes, where: str) -> bytes:
    """The body of a QUERY_COMPRESSED event as one of a QUERY event. Raises DecodeError."""
    text = 13 + int.from_bytes(body[11:13], "little") + body[8] + 1 if len(body) > 12 else len(body)
    return body[:text] + _unpacked(body[text:], where)


def plain_rows(event: bytes, where: str) -> bytes:
    """A packed row event as a plain one.

    Args:
        event: with its header, without its checksum.
        where: file and offset, for errors.

    Raises:
        DecodeError: it is malformed.
    """
    kind = _PLAIN[event[4]]
    at = _HEADER + 8
    if kind >= 30:
        at += int.from_bytes(event[at : at + 2], "little")  # the extra data's length counts itself
    columns, at = _packed_integer(event, at, where)
    at += (columns + 7) // 8 * (2 if kind in _UPDATES else 1)
    if at >= len(event):
        raise _malformed(where)
    rows = _unpacked(event[at:], where)
    size = at + len(rows)
    return event[:4] + bytes([kind]) + event[5:9] + struct.pack("<I", size) + event[13:at] + rows


def plain_value(packed: bytes, where: str) -> bytes:
    """A value of a COMPRESSED column. Raises DecodeError."""
    if not packed:
        return b""
    head, length = packed[0], packed[0] & 7
    if not head:
        return packed[1:]
    if head >> 4 != 8:
        raise DecodeError("a value is packed by an unknown method", f"{where}: {head >> 4}", code="TR-4403")
    size = int.from_bytes(packed[1 : 1 + length], "big")
    return _inflated(packed[1 + length :], size, where, raw=bool(head & 8))


def _unpacked(packed: bytes, where: str) -> bytes:
    head = packed[0] if packed else 0
    length = head & 7
    if head & 0xF0 != 0x80 or not 1 <= length <= 4:
        raise _malformed(where)
    return _inflated(packed[1 + length :], int.from_bytes(packed[1 : 1 + length], "big"), where)


def _inflated(stream: bytes, size: int, where: str, *, raw: bool = False) -> bytes:
    if size > _LONGEST:
        raise DecodeError(
            "a compressed event or value of the log is too large",
            f"{where}: {size} bytes, the limit is {_LONGEST}",
            code="TR-5204",
        )
    inflate = zlib.decompressobj(-zlib.MAX_WBITS if raw else zlib.MAX_WBITS)
    try:
        plain = inflate.decompress(stream, size + 1)
    except zlib.error as error:
        raise _malformed(where) from error
    if len(plain) != size or not inflate.eof:
        raise _malformed(where)
    return plain


def _packed_integer(data: bytes, at: int, where: str) -> tuple[int, int]:
    if at < len(data):
        size = {252: 2, 253: 3, 254: 8}.get(data[at], 0)
        if at + 1 + size <= len(data):
            value = int.from_bytes(data[at + 1 : at + 1 + size], "little") if size else data[at]
            return value, at + 1 + size
    raise _malformed(where)


def _malformed(where: str) -> DecodeError:
    return DecodeError("a compressed event or value of the log is malformed", where, code="TR-5201")

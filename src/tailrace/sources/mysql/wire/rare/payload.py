"""TRANSACTION_PAYLOAD events: whole transactions, compressed (`binlog_transaction_compression`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.errors import DecodeError
from tailrace.kernels.memory import SLACK
from tailrace.sources.mysql.wire.rare.xa import prepare_of

#: Most bytes a payload may unpack to: twice an offset within it must fit the row part of `seq`.
_MAX_PAYLOAD = 1 << 30
#: Bytes unpacked at a time.
_PIECE = 4 << 20
#: Payloads up to this size are unpacked at once, as fast as only their beginning.
_AT_ONCE = 64 << 10
#: Bytes that hold a payload's first event.
_BEGINNING = 1024
#: Ways a payload may be compressed.
_ZSTD, _NONE = 0, 255
_CODEC = pa.Codec("zstd")
_HEADER, _QUERY, _XA_PREPARE = 19, 2, 38


def unpack(body: bytes, where: str) -> Iterator[tuple[np.ndarray, int]]:
    """The events in a TRANSACTION_PAYLOAD, as pieces of whole events with SLACK behind, and their offsets.

    Unpacked step by step, to bound memory.

    Args:
        body: the event without header and checksum.
        where: file and offset, for errors.

    Raises:
        DecodeError: it is malformed, or too large.

    Source: mysql libs/mysql/binlog/event/codecs/binary.cc (fields: 1 size, 2 compression, 3 unpacked size).
    """
    where = f"at {where}"
    packed, compressed, size = _opened(body, where)
    try:
        pieces = _pieces(packed, compressed, size)
        offset, rest = 0, bytearray()
        for piece in pieces:
            rest += piece
            whole = _whole_events(rest)
            if offset + whole > _MAX_PAYLOAD:
                raise DecodeError("a compressed transaction is too large", where, code="TR-5204")
            if whole:
                yield np.frombuffer(bytes(rest[:whole]) + bytes(SLACK), np.uint8), offset
            offset += whole
            del rest[:whole]
    except (OSError, pa.ArrowInvalid) as error:
        raise DecodeError("a compressed transaction cannot be unpacked", where, code="TR-5201") from error
    if rest:
        raise DecodeError("a compressed transaction ends within an event", where, code="TR-5201")


def prepared_in(body: bytes, where: str) -> str | None:
    """The xid that a TRANSACTION_PAYLOAD prepares; None for a transaction that commits at once.

    Only its beginning is unpacked, unless that is an XA START. Args and Raises as `unpack`.
    """
    packed, compressed, size = _opened(body, f"at {where}")
    try:
        first = bytes(next(_pieces(packed, compressed, size, _BEGINNING), b""))
    except (OSError, pa.ArrowInvalid) as error:
        raise DecodeError(
            "a compressed transaction cannot be unpacked", f"at {where}", code="TR-5201"
        ) from error
    event = first[: int.from_bytes(first[9:13], "little")]
    if len(event) < _HEADER + 13 or event[4] != _QUERY:
        return None
    text = event[_HEADER + 13 + int.from_bytes(event[30:32], "little") + event[27] + 1 :]
    if not text.startswith((b"XA START", b"XA BEGIN")):
        return None
    last = b""
    for piece, _ in unpack(body, where):
        last = _last_event(piece[:-SLACK].tobytes())
    if last[4:5] != bytes([_XA_PREPARE]):
        raise DecodeError(
            "a compressed XA transaction does not end in XA PREPARE", f"at {where}", code="TR-5201"
        )
    xid, one_phase = prepare_of(last[_HEADER:], where)
    return None if one_phase else xid


def _opened(body: bytes, where: str) -> tuple[pa.Buffer, bool, int]:
    """The packed bytes, whether they are compressed, and their unpacked size."""
    fields, at = _payload_fields(body, where)
    size, compression = fields.get(3, _MAX_PAYLOAD), fields.get(2)
    if size > _MAX_PAYLOAD:
        raise DecodeError(
            "a compressed transaction is too large",
            f"{where}: {size} bytes, the limit is {_MAX_PAYLOAD}",
            code="TR-5204",
        )
    if compression not in (_ZSTD, _NONE):
        raise DecodeError(
            "a compressed transaction has an unknown compression", f"{where}: {compression}", code="TR-4403"
        )
    return pa.py_buffer(body).slice(at), compression == _ZSTD, size


def _pieces(
    packed: pa.Buffer, compressed: bool, size: int, most: int = _PIECE
) -> Iterator[pa.Buffer | bytes]:
    if compressed and size <= max(most, _AT_ONCE):
        yield _CODEC.decompress(packed, size)
        return
    data: pa.NativeFile = pa.BufferReader(packed)
    if compressed:
        data = pa.CompressedInputStream(data, "zstd")
    while piece := data.read(most):
        yield piece


def _payload_fields(body: bytes, where: str) -> tuple[dict[int, int], int]:
    fields: dict[int, int] = {}
    at = 0
    try:
        while True:
            type_, at = _packed(body, at)
            if type_ == 0 and at <= len(body):
                return fields, at
            size, at = _packed(body, at)
            fields[type_] = _packed(body, at)[0]
            at += size
    except IndexError as error:
        raise DecodeError("a compressed transaction is malformed", where, code="TR-5201") from error


def _packed(body: bytes, at: int) -> tuple[int, int]:
    first = body[at]
    size = {252: 2, 253: 3, 254: 8}.get(first, 0)
    return (int.from_bytes(body[at + 1 : at + 1 + size], "little") if size else first), at + 1 + size


def _whole_events(data: bytearray) -> int:
    """Size of the whole events that `data` begins with; an invalid size ends them."""
    at = 0
    while len(data) - at >= _HEADER:
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        if size < _HEADER or size > len(data) - at:
            break
        at += size
    return at


def _last_event(events: bytes) -> bytes:
    at = 0
    while (size := int.from_bytes(events[at + 9 : at + 13], "little")) < len(events) - at:
        at += size
    return events[at:]

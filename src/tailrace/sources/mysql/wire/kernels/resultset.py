"""Rows of the binary protocol as columns: a kernel over framed packets.

    packet    length (3, little-endian), sequence number (1), payload
    row       0x00, null bitmap of (columns + 9) / 8 bytes whose first two bits are unused, values
    end       0xFE and less than 9 bytes          error   0xFF

A payload of 2^24 - 1 bytes or more continues in the next packet. The kernel stops before such a row
(SPLIT_ROW): its payload is joined and decoded by itself, since speed does not matter for rows of 16 MB.

Values are the same bytes as those decoded from the log: DECIMALs have the column's scale, invalid dates
(zero, partial, the 30th of February) are read as the column's type says, BINARY(n) has its padding.

The server converts text to UTF-8, correctly but for one case: the surrogates that a ucs2 column may hold come
as three bytes each, which is not UTF-8. Such columns are checked.

Kernels here are C-like, see `memory`: every read is checked against the end of its packet.

Source: MySQL internals, "Binary Protocol Resultset Row", "Binary Protocol Value".
"""

from __future__ import annotations

import numpy as np

from tailrace.errors import DecodeError
from tailrace.kernels.columns import (
    CAPACITY,
    DATA,
    KIND,
    P1,
    P2,
    VALIDITY,
    VALUES,
    WORDS,
    ColumnBuffers,
)
from tailrace.kernels.decimals import parse_decimal
from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import (
    copy,
    ld8,
    ld16,
    ld32,
    ld64,
    lds8,
    lds16,
    lds32,
    set_bit,
    st8,
    st16,
    st32,
    st64,
)
from tailrace.kernels.utf8 import is_utf8
from tailrace.model.table import TableSchema
from tailrace.model.types import MAX_DECIMAL_DIGITS, ColumnType, Kind
from tailrace.sources.mysql.wire.kernels.lookup import TABLES
from tailrace.sources.mysql.wire.kernels.temporal import (
    MAX_MOMENT_TEXT,
    NO_DATE,
    days,
    write_clock,
    write_day,
)

#: Why the kernel stopped.
MORE, FULL, END, ERROR, SPLIT_ROW, BAD_ROW, BAD_VALUE, BAD_TEXT, ZERO_DATE = range(9)
#: Bits of a reason; the higher bits have its column, if any.
_REASON_BITS = 8
#: Length of a packet that another one continues.
LONGEST_PACKET = 0xFFFFFF

# how a value is read; P1 and P2 where they are used
_SIGNED = 1  # P1 bytes on the wire, P2 bytes in the column
_UNSIGNED = 2  # likewise
_UNSIGNED_64 = 3  # to decimal128
_DATA = 4  # length and bytes, unchanged
_DECIMAL = 5  # text; P1 precision, P2 scale
_BOOLEAN = 6
_DATE = 7  # P1: whether an invalid date is an error
_DATETIME = 8  # likewise
_TIME = 9
_CHECKED_TEXT = 10  # as _DATA, if it is UTF-8
_DATE_TEXT = 11  # dates as MySQL prints them
_DATETIME_TEXT = 12  # likewise; P1 digits of the fraction

_WORD = 8
_ROW_BYTES = 8 * WORDS


@inline
def _row(p, end, columns, count, row, kt):
    """Decode the row with payload [p, end) into row `row`. Returns MORE (done), FULL or an error."""
    bitmap = p + 1
    p = bitmap + ((count + 9) >> 3)
    if p > end:
        return np.int64(BAD_ROW)
    for i in range(count):
        d = columns + _ROW_BYTES * i
        kind = ld64(d + _WORD * KIND)
        values = ld64(d + _WORD * VALUES)
        bit = i + 2
        if (ld8(bitmap + (bit >> 3)) >> (bit & 7)) & 1:
            if kind == _DATA or kind >= _CHECKED_TEXT:
                st32(values + 4 * row + 4, ld32(values + 4 * row))
            continue
        valid = True
        if kind == _SIGNED or kind == _UNSIGNED:
            width = ld64(d + _WORD * P1)
            if end - p < width:
                return np.int64(BAD_ROW)
            if width == 4:
                v = lds32(p) if kind == _SIGNED else ld32(p)
            elif width == 8:
                v = ld64(p)
            elif width == 1:
                v = lds8(p) if kind == _SIGNED else ld8(p)
            else:
                v = lds16(p) if kind == _SIGNED else ld16(p)
            p += width
            out = ld64(d + _WORD * P2)
            if out == 4:
                st32(values + 4 * row, v)
            elif out == 8:
                st64(values + 8 * row, v)
            elif out == 2:
                st16(values + 2 * row, v)
            else:
                st8(values + row, v)
        elif kind == _DATA or kind == _DECIMAL or kind == _BOOLEAN or kind == _CHECKED_TEXT:
            if p >= end:
                return np.int64(BAD_ROW)
            n = ld8(p)
            p += 1
            if n >= 251:
                width = np.int64(2) if n == 252 else np.int64(3) if n == 253 else np.int64(8)
                if n == 251 or n == 255 or end - p < width:
                    return np.int64(BAD_ROW)
                n = ld16(p) if width == 2 else ld32(p) & 0xFFFFFF if width == 3 else ld64(p)
                p += width
            if n < 0 or n > end - p:
                return np.int64(BAD_ROW)
            if kind == _DATA or kind == _CHECKED_TEXT:
                at = ld32(values + 4 * row)
                if at + n > ld64(d + _WORD * CAPACITY):
                    return np.int64(FULL)
                if kind == _CHECKED_TEXT and not is_utf8(p, n):
                    return np.int64(BAD_TEXT | i << _REASON_BITS)
                copy(ld64(d + _WORD * DATA) + at, p, n)
                st32(values + 4 * row + 4, at + n)
            elif kind == _DECIMAL:
                if not parse_decimal(p, n, ld64(d + _WORD * P1), ld64(d + _WORD * P2), values + 16 * row):
                    return np.int64(BAD_VALUE | i << _REASON_BITS)
            else:
                if n != 1 or ld8(p) > 1:
                    return np.int64(BAD_VALUE | i << _REASON_BITS)
                if ld8(p):
                    set_bit(values, row)
            p += n
        elif kind >= _DATE:
            if p >= end:
                return np.int64(BAD_ROW)
            n = ld8(p)
            p += 1
            if n > end - p:
                return np.int64(BAD_ROW)
            if kind == _TIME:
                v = np.int64(0)
                if n != 0:
                    if (n != 8 and n != 12) or ld32(p + 1) > 34:
                        return np.int64(BAD_VALUE | i << _REASON_BITS)
                    v = ld32(p + 1) * 86400 + ld8(p + 5) * 3600 + ld8(p + 6) * 60 + ld8(p + 7)
                    v *= 1000000
                    if n == 12:
                        v += ld32(p + 8)
                    if ld8(p):
                        v = -v
                st64(values + 8 * row, v)
            else:
                if n != 0 and n != 4 and n != 7 and n != 11:
                    return np.int64(BAD_VALUE | i << _REASON_BITS)
                year = ld16(p) if n else np.int64(0)
                month = ld8(p + 2) if n else np.int64(0)
                day = ld8(p + 3) if n else np.int64(0)
                seconds = ld8(p + 4) * 3600 + ld8(p + 5) * 60 + ld8(p + 6) if n >= 7 else np.int64(0)
                us = ld32(p + 7) if n == 11 else np.int64(0)
                if year > 9999 or month > 12 or day > 31 or seconds >= 86400 or us > 999999:
                    return np.int64(BAD_VALUE | i << _REASON_BITS)
                if kind == _DATE or kind == _DATETIME:
                    v = days(year, month, day, kt)
                    valid = v != NO_DATE
                    if not valid and ld64(d + _WORD * P1):
                        return np.int64(ZERO_DATE | i << _REASON_BITS)
                    if kind == _DATE:
                        st32(values + 4 * row, v)
                    else:
                        st64(values + 8 * row, (v * 86400 + seconds) * 1000000 + us)
                else:
                    at = ld32(values + 4 * row)
                    if at + MAX_MOMENT_TEXT > ld64(d + _WORD * CAPACITY):
                        return np.int64(FULL)
                    o = write_day(ld64(d + _WORD * DATA) + at, year, month, day)
                    if kind == _DATETIME_TEXT:
                        o = write_clock(o, seconds * 1000000 + us, ld64(d + _WORD * P1))
                    st32(values + 4 * row + 4, o - ld64(d + _WORD * DATA))
            p += n
        else:  # _UNSIGNED_64
            if end - p < 8:
                return np.int64(BAD_ROW)
            st64(values + 16 * row, ld64(p))
            st64(values + 16 * row + 8, 0)
            p += 8
        if valid:
            set_bit(ld64(d + _WORD * VALIDITY), row)
    if p != end:
        return np.int64(BAD_ROW)
    return np.int64(MORE)


@entry("int64(int64,int64,int64,int64,int64)")
def _decode_row(p, end, columns, count, kt):
    """Decode one joined payload into row 0."""
    if p >= end or ld8(p) != 0:
        return np.int64(BAD_ROW)
    return _row(p, end, columns, count, 0, kt)


@entry("int64(int64,int64,int64,int64,int64,int64,int64)")
def _decode_packets(p, end, columns, count, rows, state, kt):
    """Decode packets of [p, end) into rows up to `rows`.

    state (int64 each), in and out: 0 in: address that only the first row may reach beyond; out: address of
    the first packet that was not decoded, 1 number of rows, 2 the next packet's sequence number.
    """
    limit = ld64(state)
    row = ld64(state + 8)
    number = ld64(state + 16)
    why = np.int64(MORE)
    while True:
        if end - p < 4:
            break
        header = ld32(p)
        n = header & LONGEST_PACKET
        if header >> 24 != number or n == 0:
            why = np.int64(BAD_ROW)
            break
        if n == LONGEST_PACKET:
            why = np.int64(SPLIT_ROW)
            break
        if end - p - 4 < n:
            break
        first = ld8(p + 4)
        if first == 0:
            if row >= rows or (row > 0 and p + 4 + n > limit):
                why = np.int64(FULL)
                break
            why = _row(p + 4, p + 4 + n, columns, count, row, kt)
            if why != MORE:
                break
            row += 1
        elif first == 0xFE and n < 9:
            why = np.int64(END)
            break
        else:
            why = np.int64(ERROR if first == 0xFF else BAD_ROW)
            break
        p += 4 + n
        number = (number + 1) & 255
    st64(state, p)
    st64(state + 8, row)
    st64(state + 16, number)
    return why


class RowDecoder:
    """Decodes rows of one result set into column buffers.

    Args:
        table: schema of the rows.
    """

    def __init__(self, table: TableSchema) -> None:
        self._table = table
        self._types = [c.type.arrow for c in table.columns]
        self._plan = [_how(c.type) for c in table.columns]
        self._state = np.zeros(3, np.int64)

    def buffers(self, rows: int, data_bytes: int) -> ColumnBuffers:
        """Room for `rows` rows with `data_bytes` bytes in each variable-length column."""
        buffers = ColumnBuffers(self._types, rows, data_bytes)
        for descriptor, (kind, p1, p2) in zip(buffers.descriptors, self._plan, strict=True):
            descriptor[KIND], descriptor[P1], descriptor[P2] = kind, p1, p2
        return buffers

    def packets(
        self, span: tuple[int, int], limit: int, buffers: ColumnBuffers, row: int, number: int
    ) -> tuple[int, int, int, int]:
        """Decode the whole packets of a span of memory.

        Args:
            span: address of the first packet's header, and address behind the last byte received; SLACK
                bytes there can be read.
            limit: a row that ends behind this address is not decoded (FULL), unless it is the buffers' first.
            buffers: from `buffers`.
            row: rows they hold already.
            number: the first packet's sequence number.

        Returns:
            Why it stopped (MORE: more bytes are needed, FULL: the buffers are, END, ERROR or SPLIT_ROW),
            the address of the packet it stopped at, the number of rows now, that packet's number.

        Raises:
            DecodeError: a packet is not a row of this schema.
        """
        state = self._state
        state[:] = limit, row, number
        why = _decode_packets(
            *span,
            buffers.descriptors.ctypes.data,
            len(self._types),
            buffers.rows,
            state.ctypes.data,
            TABLES,
        )
        self._require_good(why)
        return why, int(state[0]), int(state[1]), int(state[2])

    def payload(self, payload: np.ndarray, length: int, buffers: ColumnBuffers) -> None:
        """Decode one row's joined payload as row 0.

        Args:
            payload: uint8 array of `length` bytes and SLACK more.
            length: bytes of the payload.
            buffers: from `buffers`, with room for `length` bytes of data.

        Raises:
            DecodeError: it is not a row of this schema.
        """
        start = payload.ctypes.data
        self._require_good(
            _decode_row(start, start + length, buffers.descriptors.ctypes.data, len(self._types), TABLES)
        )

    def _require_good(self, why: int) -> None:
        reason = why & ((1 << _REASON_BITS) - 1)
        if reason == BAD_ROW:
            raise DecodeError(
                f"a row of a SELECT from table `{self._table.id}` cannot be decoded",
                "its packet has fewer or more bytes than its columns' types need",
                code="TR-5202",
            )
        if reason in _PROBLEMS:
            column = self._table.columns[why >> _REASON_BITS].name
            raise DecodeError(
                f"{_PROBLEMS[reason]} in column `{self._table.id}.{column}`",
                "in a row of a SELECT",
                ZERO_DATE_HINT if reason == ZERO_DATE else None,
                code="TR-5010" if reason == ZERO_DATE else "TR-5203",
            )


_PROBLEMS = {
    BAD_VALUE: "a value that is not valid for its type",
    BAD_TEXT: "text that is not valid in its character set",
    ZERO_DATE: "a zero or partial date",
}
#: How to fix zero dates where `zeroDates` makes them an error.
ZERO_DATE_HINT = "change such values; or set the option zeroDates to text or null for this column"


def _how(type_: ColumnType) -> tuple[int, int, int]:
    match type_.kind:
        case Kind.INTEGER:
            bits = type_.bits or 64
            if not type_.unsigned:
                width = {8: 1, 16: 2, 24: 4, 32: 4, 64: 8}[bits]
                return _SIGNED, width, width
            if bits == 64:
                return _UNSIGNED_64, 0, 0
            return (_UNSIGNED, *{8: (1, 2), 16: (2, 4), 24: (4, 4), 32: (4, 8)}[bits])
        case Kind.FLOAT:
            return _SIGNED, 4, 4
        case Kind.DOUBLE:
            return _SIGNED, 8, 8
        case Kind.YEAR:
            return _UNSIGNED, 2, 4
        case Kind.DECIMAL:
            assert type_.precision is not None
            assert type_.scale is not None
            if type_.precision > MAX_DECIMAL_DIGITS:
                return _DATA, 0, 0
            return _DECIMAL, type_.precision, type_.scale
        case Kind.BOOLEAN:
            return _BOOLEAN, 0, 0
        case Kind.DATE:
            if type_.zero_dates == "text":
                return _DATE_TEXT, 0, 0
            return _DATE, int(type_.zero_dates == "error"), 0
        case Kind.DATETIME | Kind.INSTANT:
            if type_.zero_dates == "text":
                return _DATETIME_TEXT, type_.fraction or 0, 0
            return _DATETIME, int(type_.zero_dates == "error"), 0
        case Kind.TIME:
            return _TIME, 0, 0
        case Kind.STRING | Kind.ENUM | Kind.SET if (type_.collation or "").startswith("ucs2_"):
            return _CHECKED_TEXT, 0, 0
        case _:
            return _DATA, 0, 0

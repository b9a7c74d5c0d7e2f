"""The kernel for one value, in binary form or as text: into the Arrow buffers of its column.

One compiled kernel serves COPY, the log and the elements of arrays, so a value becomes the same bytes from
each. A column's plan is data: the descriptors of `kernels.columns`, where KIND is one of the K_ below and P1,
P2 are that kind's own (see `plan`).

Kernels are C-like; the rules are in `kernels.memory`. The caller has checked a value's bytes against the end
of its container; here they are checked against the type.

Source: PostgreSQL src/backend/utils/adt/*.c, the `send` functions; manual, "Data Types".
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.decimals import parse_decimal
from tailrace.kernels.declarations import inline
from tailrace.kernels.floattext import DOUBLE, SINGLE, parse_float
from tailrace.kernels.memory import be32, be64, copy, ld8, ld16, ld32, ld64, set_bit, st8, st16, st32, st64
from tailrace.kernels.utf8 import copy_utf8
from tailrace.sources.postgres.wire.kernels import moments, names
from tailrace.sources.postgres.wire.kernels.moments import (
    parse_moment,
    parse_time,
    read_date,
    read_timestamp,
    write_interval,
    write_timetz,
)
from tailrace.sources.postgres.wire.kernels.names import write_bits, write_inet, write_mac, write_uuid
from tailrace.sources.postgres.wire.kernels.numeric import be16, read_decimal128, write_numeric
from tailrace.sources.postgres.wire.kernels.outcome import (
    BAD_TEXT,
    MALFORMED,
    NEEDS_TEXT,
    NO_ROOM,
    NOT_HELD,
    OK,
)

#: How a value is read. From K_VARIABLE on the output has offsets and data. P1 and P2 of K_DECIMAL are
#: precision and scale, P1 of K_MAC its bytes.
(
    K_INT8,
    K_INT4,
    K_INT2,
    K_UINT4,
    K_FLOAT8,
    K_FLOAT4,
    K_TIMESTAMP,
    K_DATE,
    K_TIME,
    K_BOOL,
    K_BIT1,
    K_DECIMAL,
    K_MONEY,
    K_TEXT,
    K_VERSIONED,
    K_BYTEA,
    K_NUMERIC,
    K_UUID,
    K_INET,
    K_MAC,
    K_INTERVAL,
    K_TIMETZ,
    K_BITS,
    K_TEXT_ONLY,
    K_LIST,
    K_VECTOR,
) = range(26)
K_VARIABLE = K_TEXT

#: Word of a column's descriptor that `columns` leaves to decoders, and its bits: COPY gives the column as
#: text; a value that its Arrow type does not hold is null.
FLAGS = 7
AS_TEXT, UNFIT_IS_NULL = 1, 2

_DAY_US = 86_400_000_000


@inline
def _parse_integer(p, n, least, most):
    """(value, whether it is one) of a decimal integer between two bounds."""
    end = p + n
    negative = n > 0 and ld8(p) == 45
    if negative:
        p += 1
    if p >= end or end - p > 19:
        return np.int64(0), False
    value = np.uint64(0)
    while p < end:
        c = ld8(p) - 48
        if c < 0 or c > 9:
            return np.int64(0), False
        value = value * np.uint64(10) + np.uint64(c)
        p += 1
    if value > np.uint64(1 << 63) or (not negative and value == np.uint64(1 << 63)):
        return np.int64(0), False
    signed = np.int64(0) - np.int64(value) if negative else np.int64(value)
    return signed, signed >= least and signed <= most


@inline
def _parse_money(p, n):
    """(cents, whether it is one) of money as lc_monetary C prints it: `-$1,234.50`."""
    end = p + n
    negative = n > 0 and ld8(p) == 45
    value = np.uint64(0)
    digits = np.int64(0)
    while p < end:
        c = ld8(p)
        p += 1
        if c >= 48 and c <= 57:
            value = value * np.uint64(10) + np.uint64(c - 48)
            digits += 1
        elif c != 45 and c != 36 and c != 44 and c != 46:
            return np.int64(0), False
    if digits < 3 or digits > 19:
        return np.int64(0), False
    return (np.int64(0) - np.int64(value) if negative else np.int64(value)), True


@inline
def _read_text(p, n, row, k, f, d, tables):
    """A value of fixed width from text."""
    ok = True
    if k == K_INT8 or k == K_INT4 or k == K_INT2 or k == K_UINT4:
        if k == K_INT8:
            v, ok = _parse_integer(p, n, -(2**63), 2**63 - 1)
        elif k == K_INT4:
            v, ok = _parse_integer(p, n, -(2**31), 2**31 - 1)
        elif k == K_INT2:
            v, ok = _parse_integer(p, n, -(2**15), 2**15 - 1)
        else:
            v, ok = _parse_integer(p, n, 0, 2**32 - 1)
        if k == K_INT4:
            st32(f + 4 * row, v)
        elif k == K_INT2:
            st16(f + 2 * row, v)
        else:
            st64(f + 8 * row, v)
    elif k == K_FLOAT8:
        v, ok = parse_float(p, n, DOUBLE, tables)
        st64(f + 8 * row, v)
    elif k == K_FLOAT4:
        v, ok = parse_float(p, n, SINGLE, tables)
        st32(f + 4 * row, v)
    elif k == K_TIMESTAMP or k == K_DATE:
        if k == K_DATE:
            v, status = parse_moment(p, n, moments.DATE)
            st32(f + 4 * row, v)
        else:
            v, status = parse_moment(p, n, moments.TIMESTAMP)
            st64(f + 8 * row, v)
        return status
    elif k == K_TIME:
        v, q = parse_time(p, p + n)
        ok = q == p + n and v <= _DAY_US
        st64(f + 8 * row, v)
    elif k == K_BOOL or k == K_BIT1:
        c = ld8(p)
        ok = n == 1 and (c == 116 or c == 102 if k == K_BOOL else c == 49 or c == 48)
        if ok and (c == 116 or c == 49):
            set_bit(f, row)
    elif k == K_DECIMAL:
        if (n >= 3 and ld8(p) > 57) or (n >= 9 and ld8(p + 1) > 57):  # NaN, Infinity, -Infinity
            return np.int64(NOT_HELD)
        ok = parse_decimal(p, n, ld64(d + 8), ld64(d + 16), f + 16 * row)
    else:
        v, ok = _parse_money(p, n)
        st64(f + 16 * row, v)
        st64(f + 16 * row + 8, v >> 63)
    return np.int64(OK if ok else MALFORMED)


@inline
def _read_binary(p, n, row, k, f, d, tables):
    """A value of fixed width from its binary form."""
    if k == K_DECIMAL:
        return read_decimal128(p, n, ld64(d + 8), ld64(d + 16), f + 16 * row, tables)
    if k == K_INT8 or k == K_FLOAT8 or k == K_TIMESTAMP or k == K_TIME or k == K_MONEY:
        if n != 8:
            return np.int64(MALFORMED)
        if k == K_TIMESTAMP:
            v, status = read_timestamp(p)
            st64(f + 8 * row, v)
            return status
        v = be64(p)
        if k == K_MONEY:
            st64(f + 16 * row, v)
            st64(f + 16 * row + 8, v >> 63)
            return np.int64(OK)
        if k == K_TIME and (v < 0 or v > _DAY_US):
            return np.int64(MALFORMED)
        st64(f + 8 * row, v)
        return np.int64(OK)
    if k == K_INT4 or k == K_FLOAT4 or k == K_DATE or k == K_UINT4:
        if n != 4:
            return np.int64(MALFORMED)
        if k == K_DATE:
            v, status = read_date(p)
            st32(f + 4 * row, v)
            return status
        v = be32(p)
        if k == K_UINT4:
            st64(f + 8 * row, v)
        else:
            st32(f + 4 * row, v)
        return np.int64(OK)
    if k == K_INT2:
        if n != 2:
            return np.int64(MALFORMED)
        st16(f + 2 * row, be16(p))
        return np.int64(OK)
    if k == K_BOOL:
        if n != 1 or ld8(p) > 1:
            return np.int64(MALFORMED)
        if ld8(p):
            set_bit(f, row)
        return np.int64(OK)
    # K_BIT1
    if n != 5 or be32(p) != 1:
        return np.int64(MALFORMED)
    if ld8(p + 4) & 0x80:
        set_bit(f, row)
    return np.int64(OK)


@inline
def _unhex(c):
    """The value of a hexadecimal digit, 16 or more if it is not one."""
    if c <= 57:
        return c - 48 if c >= 48 else np.int64(16)
    c |= 32
    return c - 87 if c >= 97 else np.int64(16)


@inline
def _copy_hex(p, n, o, limit):
    """BYTEA as text, backslash, x and hexadecimal digits: the address after its bytes, or minus a status."""
    if n < 2 or n & 1 or ld16(p) != 0x785C:
        return np.int64(-MALFORMED)
    if o + n // 2 > limit:
        return np.int64(-NO_ROOM)
    end = p + n
    p += 2
    while p < end:
        high = _unhex(ld8(p))
        low = _unhex(ld8(p + 1))
        if high > 15 or low > 15:
            return np.int64(-MALFORMED)
        st8(o, high << 4 | low)
        o += 1
        p += 2
    return o


@inline
def _copy_vector(p, n, text, o, limit, tables):
    """A vector's numbers as float32, little-endian: the address after them, or minus a status."""
    if not text:
        if n < 4 or n != 4 + 4 * be16(p):
            return np.int64(-MALFORMED)
        if o + n > limit:
            return np.int64(-NO_ROOM)
        for j in range(be16(p)):
            st32(o + 4 * j, be32(p + 4 + 4 * j))
        return o + n - 4
    end = p + n - 1
    if n < 2 or ld8(p) != 91 or ld8(end) != 93:
        return np.int64(-MALFORMED)
    p += 1
    while p < end:
        q = p
        while q < end and ld8(q) != 44:
            q += 1
        if o + 4 > limit:
            return np.int64(-NO_ROOM)
        v, ok = parse_float(p, q - p, SINGLE, tables)
        if not ok:
            return np.int64(-MALFORMED)
        st32(o, v)
        o += 4
        p = q + 1
    return o


@inline
def _copy_text(p, n, o, limit):
    if o + n > limit:
        return np.int64(-NO_ROOM)
    if not copy_utf8(o, p, n):
        return np.int64(-BAD_TEXT)
    return o + n


@inline
def _variable(p, n, text, k, o, limit, d, tables):
    """A value with offsets and data at o: the address after it, or minus a status."""
    if k == K_TEXT:
        return _copy_text(p, n, o, limit)
    if k == K_BYTEA:
        if text:
            return _copy_hex(p, n, o, limit)
        if o + n > limit:
            return np.int64(-NO_ROOM)
        copy(o, p, n)
        return o + n
    if k == K_LIST:
        if o + n + 1 > limit:
            return np.int64(-NO_ROOM)
        st8(o, 1 if text else 0)
        copy(o + 1, p, n)
        return o + n + 1
    if k == K_VECTOR:
        return _copy_vector(p, n, text, o, limit, tables)
    if text:
        return _copy_text(p, n, o, limit)
    if k == K_VERSIONED:
        if n < 1 or ld8(p) != 1:
            return np.int64(-MALFORMED)
        return _copy_text(p + 1, n - 1, o, limit)
    if k == K_NUMERIC:
        return write_numeric(p, n, o, limit, tables)
    if k == K_TEXT_ONLY:
        return np.int64(-NEEDS_TEXT)
    if k == K_BITS:
        return write_bits(p, n, o, limit)
    if o + max(names.MAX_TEXT, moments.MAX_TEXT) > limit:
        return np.int64(-NO_ROOM)
    if k == K_INET:
        return write_inet(p, n, o, tables)
    q = np.int64(0)
    if k == K_UUID:
        if n == 16:
            q = write_uuid(p, o)
    elif k == K_MAC:
        if n == ld64(d + 8):
            q = write_mac(p, n, o)
    elif k == K_INTERVAL:
        if n == 16:
            q = write_interval(p, o, tables)
    elif n == 12:
        q = write_timetz(p, o, tables)
    return q if q != 0 else np.int64(-MALFORMED)


@inline
def read_value(p, n, text, row, d, tables):
    """Put a value that is not NULL into its column.

    Args:
        p: address of its bytes, SLACK readable behind them.
        n: their number.
        text: whether they are its text, else its binary form.
        row: row to write.
        d: address of the column's descriptor.
        tables: TABLES.

    Returns:
        OK, or another `outcome`.
    """
    k = ld64(d)
    f = ld64(d + 32)
    if k >= K_VARIABLE:
        base = ld64(d + 40)
        end = _variable(p, n, text, k, base + ld32(f + 4 * row), base + ld64(d + 48), d, tables)
        if end < 0:
            return -end
        st32(f + 4 * row + 4, end - base)
    else:
        if text:
            status = _read_text(p, n, row, k, f, d, tables)
        else:
            status = _read_binary(p, n, row, k, f, d, tables)
        if status == NOT_HELD and ld64(d + 8 * FLAGS) & UNFIT_IS_NULL:
            return np.int64(OK)
        if status != OK:
            return status
    set_bit(ld64(d + 24), row)
    return np.int64(OK)


@inline
def no_value(row, d):
    """Leave a column's row without a value."""
    if ld64(d) >= K_VARIABLE:
        f = ld64(d + 32)
        st32(f + 4 * row + 4, ld32(f + 4 * row))

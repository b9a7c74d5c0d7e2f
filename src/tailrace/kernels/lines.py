r"""Rows as lines of text: tabs between values, `\N` for NULL, escapes for bytes that would end a value.

C-like; the rules are in `kernels.memory`. Both MySQL's LOAD DATA and PostgreSQL's COPY read these lines. A
column is a block of WORDS int64:

    KIND      how its value is written, one of the constants below
    VALIDITY  address of its validity bitmap, 0: no nulls
    VALUES    address of its fixed-width values, int32 offsets or bitmap
    DATA      address of its data if it has offsets; FLOATS: address of its numbers
    OFFSET    index of its first row in these buffers
    DETAIL    DECIMAL: scale. MOMENT, TIME: digits of the fraction. BITS: number of bits. TEXT: 1 if the
              server needs its character set

The kernel writes rows until all are written or the output is full: a row is written completely or not at all.

With STYLE TUPLES rows are `(_binary'1',NULL),(...)`, for INSERT, if a MySQL server does not accept LOAD DATA.
The server converts text to any column's type, and takes `_binary` text byte by byte; JSON and UUIDs need a
character set.

Source: MySQL reference manual, "LOAD DATA Statement"; PostgreSQL manual, "COPY", Text Format.
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.arrow import get_bit, is_null, load_integer
from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.floats import write_double, write_float
from tailrace.kernels.memory import ld8, ld32, ld64, lds32, st8, st16, st32, st64
from tailrace.kernels.tables import HEX
from tailrace.kernels.text import (
    BACKSLASHES,
    HIGHS,
    NO_ROOM,
    below_blank,
    civil,
    write_clock,
    write_integer,
    write_padded,
    write_two,
    write_unsigned,
    zero_bytes,
)

(
    INT8,  # the first four: as in `kernels.arrow`
    INT16,
    INT32,
    INT64,
    FLOAT,
    DOUBLE,
    BOOLEAN,  # 0 or 1
    BIT,  # the byte 0 or 1
    DECIMAL,
    DATE,  # year 0 is written as 1 BC
    MYSQL_DATE,  # year 0 is written as 0000
    MOMENT,
    MYSQL_MOMENT,
    TIME,
    YEAR,  # int32 in four digits
    TEXT,  # from here on: with offsets
    BYTES,  # in hexadecimal
    BITS,  # big-endian bytes as zeros and ones
    FLOATS,  # list of float32
) = range(19)

KIND, VALIDITY, VALUES, DATA, OFFSET, DETAIL = range(6)
WORDS = 6

(
    ROWS,
    COLUMNS,  # address of the columns' blocks
    COUNT,  # number of columns
    OUT,
    CAPACITY,
    ROW,  # next row to write
    USED,  # bytes written
    STYLE,
) = range(8)
JOB = 8

LINES, TUPLES = range(2)

#: Most bytes of a value whose length does not depend on the data.
_FIXED = 64
#: Most bytes of a float32 and the comma after it.
_FLOAT = 20
_DAY_US = 86_400_000_000
_TAB, _NEWLINE, _RETURN, _QUOTE, _BACKSLASH = 9, 10, 13, 39, 92
# pieces of text as little-endian words
_BINARY, _UTF8MB4, _INFINITY = (int.from_bytes(t, "little") for t in (b"_binary'", b"_utf8mb4", b"infinity"))
#: PostgreSQL's infinite dates and moments are the least and the greatest number.
_LAST_DAY, _LAST_MOMENT = (1 << 31) - 1, (1 << 63) - 1


@inline
def _plain(word):
    """Whether none of eight bytes is a backslash or below a blank."""
    x = np.uint64(word)
    return (below_blank(x) | zero_bytes(x ^ BACKSLASHES)) & HIGHS == np.uint64(0)


@inline
def _write_text(to, source, length):
    """Bytes, with a backslash before those that would end a value: 2 * length bytes at most."""
    stop = source + length
    while source < stop:
        if stop - source >= 8:
            word = ld64(source)
            if _plain(word):
                st64(to, word)
                source += 8
                to += 8
                continue
        byte = ld8(source)
        source += 1
        if byte == _BACKSLASH:
            st16(to, 0x5C5C)
            to += 2
        elif byte == _TAB:
            st16(to, 0x745C)
            to += 2
        elif byte == _NEWLINE:
            st16(to, 0x6E5C)
            to += 2
        elif byte == _RETURN:
            st16(to, 0x725C)
            to += 2
        else:
            st8(to, byte)
            to += 1
    return to


@inline
def _write_quoted(to, source, length):
    """Bytes as in a string literal of MySQL: 2 * length bytes at most."""
    for i in range(length):
        byte = ld8(source + i)
        if byte == _BACKSLASH or byte == _QUOTE:
            st8(to, _BACKSLASH)
            to += 1
        elif byte == 0:
            st8(to, _BACKSLASH)
            to += 1
            byte = np.int64(48)
        st8(to, byte)
        to += 1
    return to


@inline
def _write_hex(to, source, length, tables):
    r"""Bytes as `\x` and two digits each; the backslash is doubled: 3 + 2 * length bytes."""
    st16(to, 0x5C5C)
    st8(to + 2, 120)
    to += 3
    for i in range(length):
        byte = ld8(source + i)
        st8(to, ld8(tables + HEX + (byte >> 4)))
        st8(to + 1, ld8(tables + HEX + (byte & 15)))
        to += 2
    return to


@inline
def _write_bits(to, source, length, bits):
    """The lowest `bits` of big-endian bytes, as one character each: `bits` bytes."""
    for i in range(bits):
        at = bits - 1 - i
        byte = length - 1 - (at >> 3)
        st8(to + i, 48 + ((ld8(source + byte) >> (at & 7)) & 1 if byte >= 0 else 0))
    return to + bits


@inline
def _write_floats(to, source, count, tables):
    """Numbers in braces: _FLOAT bytes each and two more."""
    st8(to, 123)
    to += 1
    for i in range(count):
        if i > 0:
            st8(to, 44)
            to += 1
        to = _write_float(to, ld32(source + 4 * i), tables)
    st8(to, 125)
    return to + 1


@inline
def _write_special(to, negative, nan):
    """NaN, Infinity or -Infinity: 9 bytes."""
    if nan:
        st16(to, 0x614E)
        st8(to + 2, 78)
        return to + 3
    if negative:
        st8(to, 45)
        to += 1
    st64(to, 0x7974696E69666E49)
    return to + 8


@inline
def _write_infinity(to, negative):
    """Infinity or -infinity: 9 bytes."""
    if negative:
        st8(to, 45)
        to += 1
    st64(to, _INFINITY)
    return to + 8


@inline
def _write_float(to, bits, tables):
    if bits & 0x7F800000 == 0x7F800000:
        return _write_special(to, bits & 0x80000000 != 0, bits & 0x7FFFFF != 0)
    return write_float(to, bits, tables)


@inline
def _write_double(to, bits, tables):
    if bits & 0x7FF0000000000000 == 0x7FF0000000000000:
        return _write_special(to, bits < 0, bits & 0xFFFFFFFFFFFFF != 0)
    return write_double(to, bits, tables)


@inline
def _write_digits(to, low, high, tables):
    """A uint128 in decimal: 39 bytes at most."""
    if high == np.uint64(0):
        return write_unsigned(to, low, tables)
    mask, shift, billion = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1_000_000_000)
    a, b, c, d = high >> shift, high & mask, low >> shift, low & mask
    at = to + 45
    groups = 0
    while (a | b | c | d) != np.uint64(0):
        rest = a % billion
        a = a // billion
        rest = rest << shift | b
        b = rest // billion
        rest = (rest - b * billion) << shift | c
        c = rest // billion
        rest = (rest - c * billion) << shift | d
        d = rest // billion
        at -= 9
        write_padded(at, np.int64(rest - d * billion), 9)
        groups += 1
    skip = 0
    while ld8(at + skip) == 48:
        skip += 1
    length = 9 * groups - skip
    for i in range(length):
        st8(to + i, ld8(at + skip + i))
    return to + length


@inline
def _write_decimal(to, address, scale, tables):
    """A decimal128 with `scale` digits after the point: touches 46 bytes at most."""
    low, high = np.uint64(ld64(address)), ld64(address + 8)
    top = np.uint64(high)
    if high < 0:
        st8(to, 45)
        to += 1
        low = ~low + np.uint64(1)
        top = ~top
        if low == np.uint64(0):
            top += np.uint64(1)
    end = _write_digits(to, low, top, tables)
    if scale <= 0:
        for _ in range(-scale):
            st8(end, 48)
            end += 1
        return end
    digits = end - to
    if digits <= scale:  # 0.00digits
        pad = scale - digits
        for i in range(digits):
            st8(to + scale + 1 - i, ld8(end - 1 - i))
        st16(to, 0x2E30)
        for i in range(pad):
            st8(to + 2 + i, 48)
        return to + scale + 2
    for i in range(scale):
        st8(end - i, ld8(end - 1 - i))
    st8(end - scale, 46)
    return end + 1


@inline
def _write_day(to, day, zero, tables):
    """A date; years below 1 as numbers if `zero`, else as years BC (the caller adds ` BC`)."""
    year, month, date = civil(day)
    if year <= 0 and not zero:
        year = 1 - year
    to = write_padded(to, year, 4) if year < 10_000 else write_integer(to, year, tables)
    st8(to, 45)
    to = write_two(to + 1, month, tables)
    st8(to, 45)
    return write_two(to + 1, date, tables)


@inline
def _write_era(to, day, zero):
    """` BC` after a date before year 1; day -719528 is the first of year 0."""
    if zero or day >= -719162:
        return to
    st16(to, 0x4220)
    st8(to + 2, 67)
    return to + 3


@inline
def _write_moment(to, us, fraction, zero, tables):
    day = us // _DAY_US
    to = _write_day(to, day, zero, tables)
    st8(to, 32)
    to = write_clock(to + 1, us - day * _DAY_US, fraction, tables)
    return _write_era(to, day, zero)


@inline
def _write_time(to, us, fraction, tables):
    if us < 0:
        st8(to, 45)
        to += 1
        us = -us
    return write_clock(to, us, fraction, tables)


@inline
def _write_fixed(to, kind, column, at, tables):
    """A value whose length does not depend on the data: _FIXED bytes at most."""
    values = ld64(column + 8 * VALUES)
    if kind <= INT64:
        return write_integer(to, load_integer(values, kind, at), tables)
    if kind == DECIMAL:
        return _write_decimal(to, values + 16 * at, ld64(column + 8 * DETAIL), tables)
    if kind == DOUBLE:
        return _write_double(to, ld64(values + 8 * at), tables)
    if kind == FLOAT:
        return _write_float(to, ld32(values + 4 * at), tables)
    if kind == DATE or kind == MYSQL_DATE:
        day = lds32(values + 4 * at)
        if kind == DATE and (day == _LAST_DAY or day == -_LAST_DAY - 1):
            return _write_infinity(to, day < 0)
        return _write_era(_write_day(to, day, kind == MYSQL_DATE, tables), day, kind == MYSQL_DATE)
    if kind == MOMENT or kind == MYSQL_MOMENT:
        us = ld64(values + 8 * at)
        if kind == MOMENT and (us == _LAST_MOMENT or us == -_LAST_MOMENT - 1):
            return _write_infinity(to, us < 0)
        return _write_moment(to, us, ld64(column + 8 * DETAIL), kind == MYSQL_MOMENT, tables)
    if kind == YEAR:
        return write_padded(to, lds32(values + 4 * at), 4)
    if kind == TIME:
        return _write_time(to, ld64(values + 8 * at), ld64(column + 8 * DETAIL), tables)
    bit = get_bit(values, at)
    st8(to, bit if kind == BIT else 48 + bit)
    return to + 1


@inline
def _write_variable(to, end, kind, column, at, style, tables):
    """A value with offsets; NO_ROOM beyond `end`."""
    offsets = ld64(column + 8 * VALUES) + 4 * at
    start = lds32(offsets)
    length = lds32(offsets + 4) - start
    source = ld64(column + 8 * DATA)
    if kind == TEXT:
        if to + 2 * length > end:
            return np.int64(NO_ROOM)
        if style == TUPLES:
            return _write_quoted(to, source + start, length)
        return _write_text(to, source + start, length)
    if kind == FLOATS:
        if to + _FLOAT * length + 2 > end:
            return np.int64(NO_ROOM)
        return _write_floats(to, source + 4 * start, length, tables)
    if kind == BYTES:
        if to + 2 * length + 3 > end:
            return np.int64(NO_ROOM)
        return _write_hex(to, source + start, length, tables)
    bits = ld64(column + 8 * DETAIL)
    if to + bits > end:
        return np.int64(NO_ROOM)
    return _write_bits(to, source + start, length, bits)


@inline
def _write_value(to, end, column, row, style, tables):
    """One value; NO_ROOM beyond `end`."""
    kind = ld64(column + 8 * KIND)
    at = row + ld64(column + 8 * OFFSET)
    if is_null(ld64(column + 8 * VALIDITY), at):
        if style == TUPLES:
            st32(to, 0x4C4C554E)
            return to + 4
        st16(to, 0x4E5C)
        return to + 2
    if style == TUPLES:
        if kind == TEXT and ld64(column + 8 * DETAIL) != 0:
            st64(to, _UTF8MB4)
            st8(to + 8, _QUOTE)
            to += 9
        else:
            st64(to, _BINARY)
            to += 8
        if kind == BIT and get_bit(ld64(column + 8 * VALUES), at) == 0:
            st16(to, 0x305C)
            to += 2
        elif kind >= TEXT:
            to = _write_variable(to, end, kind, column, at, style, tables)
            if to < 0:
                return np.int64(NO_ROOM)
        else:
            to = _write_fixed(to, kind, column, at, tables)
        st8(to, _QUOTE)
        return to + 1
    if kind >= TEXT:
        return _write_variable(to, end, kind, column, at, style, tables)
    return _write_fixed(to, kind, column, at, tables)


@inline
def _write_row(to, end, job, row, tables):
    """One row; NO_ROOM beyond `end`."""
    style = ld64(job + 8 * STYLE)
    column = ld64(job + 8 * COLUMNS)
    if to + 2 > end:
        return np.int64(NO_ROOM)
    if style == TUPLES:
        if to > ld64(job + 8 * OUT):
            st8(to, 44)
            to += 1
        st8(to, 40)
        to += 1
    for i in range(ld64(job + 8 * COUNT)):
        if to + _FIXED + 16 > end:
            return np.int64(NO_ROOM)
        if i > 0:
            st8(to, 44 if style == TUPLES else _TAB)
            to += 1
        to = _write_value(to, end, column, row, style, tables)
        if to < 0:
            return np.int64(NO_ROOM)
        column += 8 * WORDS
    if to + 1 > end:
        return np.int64(NO_ROOM)
    st8(to, 41 if style == TUPLES else _NEWLINE)
    return to + 1


@entry("void(int64, int64)")
def write_lines(job, tables):
    """Write rows from ROW on until all are written or the output is full."""
    rows = ld64(job + 8 * ROWS)
    row = ld64(job + 8 * ROW)
    out = ld64(job + 8 * OUT)
    end = out + ld64(job + 8 * CAPACITY)
    to = out + ld64(job + 8 * USED)
    while row < rows:
        after = _write_row(to, end, job, row, tables)
        if after < 0:
            break
        to = after
        row += 1
    st64(job + 8 * ROW, row)
    st64(job + 8 * USED, to - out)

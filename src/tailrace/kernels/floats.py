"""Floating-point numbers as Java writes them. C-like; the rules are in `memory`.

The text is that of `Double.toString` and `Float.toString` of JDK 19 and later: plain from 1e-3 up to 1e7,
else `1.0E10`, always with a digit after the point. NaN and the infinities are strings, in quotes, as Jackson
writes them: JSON has no such numbers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.floattext import DOUBLE, SINGLE
from tailrace.kernels.memory import SLACK, ld8, ld32, ld64, st8, st32, st64
from tailrace.kernels.shortest import shortest, write_plain, write_zero
from tailrace.kernels.tables import TABLES
from tailrace.kernels.text import count_digits, write_integer, write_unsigned

#: Most bytes of a number's text.
_LONGEST = 26
# pieces of text as little-endian words
_NAN, _INFINITY = (int.from_bytes(t, "little") for t in (b'NaN"', b"Infinity"))


@inline
def _write_special(to, negative, is_nan):
    """NaN or an infinity in quotes: 11 bytes at most."""
    st8(to, 34)
    if is_nan:
        st32(to + 1, _NAN)
        return to + 5
    to += 1
    if negative:
        st8(to, 45)
        to += 1
    st64(to, _INFINITY)
    st8(to + 8, 34)
    return to + 9


@inline
def _write(to, negative, bits, width, tables):
    """A number, from its bits without the sign bit."""
    if bits >> width[0] == width[2]:
        return _write_special(to, negative, bits != width[2] << width[0])
    if negative:
        st8(to, 45)
        to += 1
    if bits == 0:
        return write_zero(to)
    digits, tens = shortest(bits, width, 2, tables)
    n = count_digits(digits, tables)
    point = n + tens  # digits before the decimal point
    if point >= -2 and point <= 7:
        return write_plain(to, digits, tens, point, tables)
    write_unsigned(to + 1, digits, tables)
    st8(to, ld8(to + 1))
    st8(to + 1, 46)
    to += n + 1
    if n == 1:
        st8(to, 48)
        to += 1
    st8(to, 69)
    return write_integer(to + 1, point - 1, tables)


@inline
def write_double(to, bits, tables):
    """A float64, from its bits: 26 bytes at most."""
    return _write(to, bits < 0, bits & 0x7FFFFFFFFFFFFFFF, DOUBLE, tables)


@inline
def write_float(to, bits, tables):
    """A float32, from its bits (the low 32): 16 bytes at most."""
    return _write(to, bits & 0x80000000 != 0, bits & 0x7FFFFFFF, SINGLE, tables)


@entry("int64(int64,int64,int64,int64,int64,int64)")
def _write_all(values, wide, rows, offsets, out, tables):
    """Write `rows` numbers, float64 if `wide` and else float32; returns the number of bytes."""
    to = out
    for i in range(rows):
        if wide:
            to = write_double(to, ld64(values + 8 * i), tables)
        else:
            to = write_float(to, ld32(values + 4 * i), tables)
        st32(offsets + 4 * i + 4, to - out)
    return to - out


def texts(array: pa.Array) -> pa.StringArray:
    """The text of each number of a float32 or float64 array; null as null."""
    wide = pa.types.is_float64(array.type)
    rows = len(array)
    values = array.buffers()[1].address + (8 if wide else 4) * array.offset if rows else 0
    offsets = np.zeros(rows + 1, np.int32)
    out = np.empty(_LONGEST * rows + SLACK, np.uint8)
    used = _write_all(values, int(wide), rows, offsets.ctypes.data, out.ctypes.data, TABLES)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out[:used])]
    made = pa.Array.from_buffers(pa.string(), rows, buffers)
    return pc.if_else(array.is_valid(), made, None) if array.null_count else made

"""Floating-point numbers as Java writes them. C-like; the rules are in `memory`.

The text is that of `Double.toString` and `Float.toString` of JDK 19 and later: plain from 1e-3 up to 1e7,
else `1.0E10`, always with a digit after the point. NaN and infinities are written as null; MySQL stores none.
"""

from __future__ import annotations

from tailrace.kernels.floattext import DOUBLE, SINGLE
from tailrace.kernels.memory import inline, ld8, st8
from tailrace.kernels.shortest import shortest, write_plain, write_zero
from tailrace.kernels.text import count_digits, write_integer, write_null, write_unsigned


@inline
def _write(to, negative, bits, width, tables):
    """A number, from its bits without the sign bit."""
    if negative:
        st8(to, 45)
        to += 1
    if bits == 0:
        return write_zero(to)
    if bits >> width[0] == width[2]:
        return write_null(to)
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

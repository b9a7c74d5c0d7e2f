"""Floating-point numbers as the shortest decimal text that reads back as the same number.

The digits are found by Schubfach: of the decimals in the interval that rounds to the number, the
shortest, and of those the nearest. One routine serves both widths, since 128-bit powers of ten are
more than enough for the narrow one. The text is Java's (`Double.toString` of JDK 19 and later): plain from
1e-3 up to 1e7, else `1.0E10`, always with a digit behind the point. Bits that are no number are
written as null; MySQL stores none.

Source: Raffaello Giulietti, "The Schubfach way to render doubles" (2020).
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.memory import inline, ld8, ld64, mulhi, st8, st16
from tailrace.kernels.tables import POWER_HIGH, POWER_LOW, POWERS_OF_TEN
from tailrace.kernels.text import write_integer, write_null, write_padded, write_unsigned


@inline
def _scaled(high, low, x):
    """The high 64 bits of a 128-bit power times x, the lowest bit set if anything lies below it."""
    carry = mulhi(low, x)
    result = mulhi(high, x)
    middle = high * x
    total = middle + carry
    if total < middle:
        result += np.uint64(1)
    return result | (np.uint64(1) if total > np.uint64(1) else np.uint64(0))


@inline
def _shortest(significand, exponent, closer, tables):
    """Digits and power of ten of significand * 2**exponent.

    `closer`: the number below is only half as far away as the one above (a power of two).
    """
    if exponent <= 0 and exponent > -53:
        shift = np.uint64(-exponent)
        if (significand >> shift) << shift == significand:
            return significand >> shift, np.int64(0)
    tens = np.int64(0)
    even = significand & np.uint64(1) == np.uint64(0)
    four = np.uint64(4)
    tiny = np.uint64(3 if exponent == -1074 else 8)
    if significand < tiny and exponent < -148:
        significand *= np.uint64(10)  # the smallest numbers of either width have two digits, too
        tens = np.int64(-1)
    around = significand << np.uint64(2)
    k = (exponent * 1262611 - (524031 if closer else 0)) >> 22
    shift = np.uint64(exponent + ((-k * 1741647) >> 19) + 1)
    high = np.uint64(ld64(tables + POWER_HIGH + 8 * (292 - k)))
    low = np.uint64(ld64(tables + POWER_LOW + 8 * (292 - k)))
    below = _scaled(high, low, (around - np.uint64(1 if closer else 2)) << shift)
    value = _scaled(high, low, around << shift)
    above = _scaled(high, low, (around + np.uint64(2)) << shift)
    if not even:
        below += np.uint64(1)
        above -= np.uint64(1)
    s = value >> np.uint64(2)
    if s >= np.uint64(100):
        tenth = s // np.uint64(10)
        forty = tenth * np.uint64(40)
        down = below <= forty
        up = forty + np.uint64(40) <= above
        if down != up:
            return tenth + (np.uint64(1) if up else np.uint64(0)), k + 1 + tens
    s4 = s << np.uint64(2)
    down = below <= s4
    up = s4 + four <= above
    if down == up:
        middle = s4 + np.uint64(2)
        up = value > middle or (value == middle and s & np.uint64(1) == np.uint64(1))
    return s + (np.uint64(1) if up else np.uint64(0)), k + tens


@inline
def _write_java(to, digits, tens, tables):
    """Write digits * 10**tens as Java prints it; digits > 0."""
    while digits >= np.uint64(10):
        tenth = digits // np.uint64(10)
        if tenth * np.uint64(10) != digits:
            break
        digits = tenth
        tens += 1
    n = np.int64(1)
    while n < 18 and digits >= np.uint64(ld64(tables + POWERS_OF_TEN + 8 * n)):
        n += 1
    point = n + tens  # digits before the decimal point
    if point < -2 or point > 7:
        write_unsigned(to + 1, digits, tables)
        st8(to, ld8(to + 1))
        st8(to + 1, 46)
        to += n + 1
        if n == 1:
            st8(to, 48)
            to += 1
        st8(to, 69)
        return write_integer(to + 1, point - 1, tables)
    if point <= 0:
        st16(to, 0x2E30)
        to += 2
        for _ in range(-point):
            st8(to, 48)
            to += 1
        return write_unsigned(to, digits, tables)
    if tens >= 0:
        to = write_unsigned(to, digits, tables)
        for _ in range(tens):
            st8(to, 48)
            to += 1
        st16(to, 0x302E)
        return to + 2
    unit = np.uint64(ld64(tables + POWERS_OF_TEN - 8 * tens))
    whole = digits // unit
    to = write_unsigned(to, whole, tables)
    st8(to, 46)
    return write_padded(to + 1, np.int64(digits - whole * unit), -tens)


@inline
def _write_zero(to):
    st16(to, 0x2E30)
    st8(to + 2, 48)
    return to + 3


@inline
def write_double(to, bits, tables):
    """A float64 from its bits: 26 bytes at most."""
    if bits < 0:
        st8(to, 45)
        to += 1
        bits &= 0x7FFFFFFFFFFFFFFF
    if bits == 0:
        return _write_zero(to)
    exponent = bits >> 52
    fraction = np.uint64(bits & 0xFFFFFFFFFFFFF)
    if exponent == 0x7FF:
        return write_null(to)
    if exponent == 0:
        digits, tens = _shortest(fraction, np.int64(-1074), False, tables)
    else:
        closer = fraction == np.uint64(0) and exponent > 1
        digits, tens = _shortest(fraction | np.uint64(1 << 52), exponent - 1075, closer, tables)
    return _write_java(to, digits, tens, tables)


@inline
def write_float(to, bits, tables):
    """A float32 from its bits (the low 32): 16 bytes at most."""
    if bits & 0x80000000:
        st8(to, 45)
        to += 1
    bits &= 0x7FFFFFFF
    if bits == 0:
        return _write_zero(to)
    exponent = bits >> 23
    fraction = np.uint64(bits & 0x7FFFFF)
    if exponent == 0xFF:
        return write_null(to)
    if exponent == 0:
        digits, tens = _shortest(fraction, np.int64(-149), False, tables)
    else:
        closer = fraction == np.uint64(0) and exponent > 1
        digits, tens = _shortest(fraction | np.uint64(1 << 23), exponent - 150, closer, tables)
    return _write_java(to, digits, tens, tables)

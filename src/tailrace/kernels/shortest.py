"""The shortest decimal that reads back as the same floating-point number. C-like; the rules are in `memory`.

Schubfach finds the digits: of the decimals in the interval that rounds to the number, the shortest, and of
these the nearest. One routine serves both widths, because 128-bit powers of ten are more than enough for the
narrow one. The layout of digits and exponent differs: `floats` writes them as Java does,
`sources.mysql.wire.kernels.doubles` as MySQL does.

Source: Raffaello Giulietti, "The Schubfach way to render doubles" (2020).
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import ld64, mulhi, st8, st16
from tailrace.kernels.tables import POWER_HIGH, POWER_LOW, POWERS_OF_TEN
from tailrace.kernels.text import write_padded, write_unsigned


@inline
def _scaled(high, low, x):
    """The high 64 bits of a 128-bit power times x; the lowest bit is set if any lower bit is."""
    carry = mulhi(low, x)
    result = mulhi(high, x)
    middle = high * x
    total = middle + carry
    if total < middle:
        result += np.uint64(1)
    return result | (np.uint64(1) if total > np.uint64(1) else np.uint64(0))


@inline
def _in_interval(significand, exponent, closer, least, tables):
    """Digits and power of ten of significand * 2**exponent; see `shortest`.

    `closer`: the next smaller number is only half as far away as the next larger one (a power of two).
    """
    if exponent <= 0 and exponent > -53:
        shift = np.uint64(-exponent)
        if (significand >> shift) << shift == significand:
            return significand >> shift, np.int64(0)
    tens = np.int64(0)
    even = significand & np.uint64(1) == np.uint64(0)
    four = np.uint64(4)
    tiny = np.uint64(3 if exponent == -1074 else 8)
    if least == 2 and significand < tiny and exponent < -148:
        significand *= np.uint64(10)  # the smallest numbers of either width
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
    if s >= np.uint64(10 if least == 1 else 100):
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
def shortest(bits, width, least, tables):
    """Digits, without trailing zeros, and power of ten of the shortest decimal.

    Args:
        bits: bits of a positive, finite number.
        width: DOUBLE or SINGLE.
        least: 1, or 2 for Java's rule: the nearest of the decimals with up to two digits.
        tables: TABLES.
    """
    fraction, bias, _ = width
    exponent = bits >> fraction
    significand = np.uint64(bits & ((1 << fraction) - 1))
    closer = significand == np.uint64(0) and exponent > 1
    if exponent == 0:
        exponent = np.int64(1)
    else:
        significand |= np.uint64(1 << fraction)
    digits, tens = _in_interval(significand, exponent - bias - fraction, closer, least, tables)
    while digits >= np.uint64(10):
        tenth = digits // np.uint64(10)
        if tenth * np.uint64(10) != digits:
            break
        digits = tenth
        tens += 1
    return digits, tens


@inline
def write_plain(to, digits, tens, point, tables):
    """Digits * 10**tens without an exponent, always with a digit after the point.

    `point`: number of digits before the point; if negative, of zeros between the point and the first digit.
    """
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
def write_zero(to):
    """0.0: 3 bytes."""
    st16(to, 0x2E30)
    st8(to + 2, 48)
    return to + 3

"""Floating-point numbers from decimal text, correctly rounded. C-like; the rules are in `memory`.

The text's digits, 19 at most, are multiplied by its power of ten as 64 by 128 bits, which suffices to round
every such number correctly in either width. Databases print no more digits than the number needs, 17.

Source: Daniel Lemire, "Number Parsing at a Gigabyte per Second" (2021); Noble Mushtak and Daniel Lemire,
"Fast Number Parsing Without Fallback" (2023).
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import ld8, ld16, ld32, ld64, leading_zeros, mulhi
from tailrace.kernels.tables import READING_HIGH, READING_LOW

#: Bits of the fraction, the exponent's bias, and its greatest value: of float64 and of float32.
DOUBLE = (52, 1023, 2047)
SINGLE = (23, 127, 255)
_LEAST_TENS, _MOST_TENS = -342, 308
_MOST_DIGITS = 19


@inline
def _rounded(digits, tens, width, tables):
    """The bits, without a sign, of digits * 10**tens; `width` is DOUBLE or SINGLE."""
    fraction, bias, most = width
    if digits == np.uint64(0) or tens < _LEAST_TENS:
        return np.int64(0)
    if tens > _MOST_TENS:
        return np.int64(most) << fraction
    zeros = leading_zeros(digits)
    digits <<= np.uint64(zeros)
    power = np.uint64(ld64(tables + READING_HIGH + 8 * (tens - _LEAST_TENS)))
    low = digits * power
    high = np.uint64(mulhi(digits, power))
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(fraction + 3)
    if high & mask == mask:  # lower bits may carry into the significant ones
        rest = np.uint64(mulhi(digits, np.uint64(ld64(tables + READING_LOW + 8 * (tens - _LEAST_TENS)))))
        low += rest
        if low < rest:
            high += np.uint64(1)
    upper = np.int64(high >> np.uint64(63))
    shift = np.uint64(upper + 61 - fraction)
    bits = high >> shift
    exponent = ((217706 * tens) >> 16) + 63 + upper - zeros + bias
    one = np.uint64(1)
    if exponent <= 0:
        if exponent < -62:
            return np.int64(0)
        bits >>= np.uint64(1 - exponent)
        bits = (bits + (bits & one)) >> one
        return np.int64(bits)  # rounding up to a normal number sets the exponent's lowest bit
    if (
        low <= one
        and tens >= (-4 if fraction == 52 else -17)
        and tens <= (23 if fraction == 52 else 10)
        and bits & np.uint64(3) == one
        and bits << shift == high
    ):
        bits -= one  # a tie: round to even
    bits = (bits + (bits & one)) >> one
    if bits >= np.uint64(2) << np.uint64(fraction):
        bits = one << np.uint64(fraction)
        exponent += 1
    if exponent >= most:
        return np.int64(most) << fraction
    return (exponent << fraction) | np.int64(bits & ~(one << np.uint64(fraction)))


@inline
def parse_float(p, n, width, tables):
    """Parse n bytes of text at p, also `NaN` and `Infinity`. Returns the bits, and whether it is valid.

    Args:
        p: address.
        n: bytes.
        width: DOUBLE or SINGLE.
        tables: TABLES.
    """
    fraction, _, most = width
    end = p + n
    sign = np.int64(0)
    if p < end and ld8(p) == 45:
        sign = np.int64(1) << (63 if fraction == 52 else 31)
        p += 1
    if p >= end:
        return np.int64(0), False
    if ld8(p) > 57:
        if end - p == 3 and ld16(p) == 0x614E and ld8(p + 2) == 0x4E and sign == 0:
            return (np.int64(most) << fraction) | (np.int64(1) << (fraction - 1)), True
        if end - p == 8 and ld32(p) == 0x69666E49 and ld32(p + 4) == 0x7974696E:
            return sign | (np.int64(most) << fraction), True
        return np.int64(0), False
    digits = np.uint64(0)
    count = np.int64(0)  # significant digits
    seen = np.int64(0)
    tens = np.int64(0)
    point = False
    while p < end:
        c = ld8(p)
        if c == 46 and not point:
            point = True
        else:
            c -= 48
            if c < 0 or c > 9:
                break
            seen += 1
            if count > 0 or c > 0:
                count += 1
                if count > _MOST_DIGITS:
                    return np.int64(0), False
            digits = digits * np.uint64(10) + np.uint64(c)
            if point:
                tens -= 1
        p += 1
    if seen == 0:
        return np.int64(0), False
    if p < end:
        if ld8(p) | 32 != 101 or end - p < 2:
            return np.int64(0), False
        p += 1
        negative = ld8(p) == 45
        if negative or ld8(p) == 43:
            p += 1
        if p >= end or end - p > 4:
            return np.int64(0), False
        given = np.int64(0)
        while p < end:
            c = ld8(p) - 48
            if c < 0 or c > 9:
                return np.int64(0), False
            given = 10 * given + c
            p += 1
        tens += -given if negative else given
    return sign | _rounded(digits, tens, width, tables), True

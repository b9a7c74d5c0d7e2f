"""NUMERIC in binary form: to decimal128, or to the text that the server prints.

    digits 2, weight 2, sign 2, display scale 2, then so many digits of base 10000, 2 bytes each;
    the first one counts 10000 ** weight

Kernels are C-like; the rules are in `kernels.memory`.

Source: PostgreSQL src/backend/utils/adt/numeric.c (numeric_send, get_str_from_var).
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.decimals import append, store_decimal128
from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import ld8, ld64, st8, st64
from tailrace.kernels.tables import POWERS_OF_TEN
from tailrace.kernels.text import write_padded, write_unsigned
from tailrace.sources.postgres.wire.kernels.outcome import MALFORMED, NO_ROOM, NOT_HELD, OK

_NEGATIVE, _NAN, _INFINITY, _MINUS_INFINITY = 0x4000, 0xC000, 0xD000, 0xF000
_MOST_SCALE = 16383
_FOLD = np.uint64(10**16)


@inline
def be16(p):
    """Big-endian load of two bytes."""
    return ld8(p) << 8 | ld8(p + 1)


@inline
def _is_sound(p, n):
    """Whether n bytes at p are a NUMERIC; its digits are not checked."""
    if n < 8:
        return False
    sign = be16(p + 4)
    if sign != 0 and sign != _NEGATIVE and sign != _NAN and sign != _INFINITY and sign != _MINUS_INFINITY:
        return False
    return n == 8 + 2 * be16(p) and be16(p + 6) <= _MOST_SCALE


@inline
def _weight(p):
    return (be16(p + 2) ^ 0x8000) - 0x8000


@inline
def read_decimal128(p, n, precision, scale, to, tables):
    """NUMERIC of n bytes at p as decimal128 at `to`. Returns OK, MALFORMED or NOT_HELD."""
    if not _is_sound(p, n):
        return np.int64(MALFORMED)
    sign = be16(p + 4)
    if sign >= _NAN:
        return np.int64(NOT_HELD)
    digits = be16(p)
    low = np.uint64(0)
    high = np.uint64(0)
    if digits > 0:
        left = 4 * (_weight(p) + 1) + scale  # decimal digits from the first of the first group on
        first = be16(p + 8)
        unused = (3 if first < 10 else 2 if first < 100 else 1) if first < 1000 else 0
        if left - unused > precision or left <= 0:
            return np.int64(NOT_HELD)
        chunk = np.uint64(0)
        factor = np.uint64(1)
        i = np.int64(0)
        while left > 0:
            group = be16(p + 8 + 2 * i) if i < digits else np.int64(0)
            i += 1
            if group > 9999:
                return np.int64(MALFORMED)
            if left >= 4:
                chunk = chunk * np.uint64(10000) + np.uint64(group)
                factor *= np.uint64(10000)
                left -= 4
            else:
                below = ld64(tables + POWERS_OF_TEN + 8 * (4 - left))
                above = np.uint64(ld64(tables + POWERS_OF_TEN + 8 * left))
                part = group // below
                if part * below != group:
                    return np.int64(NOT_HELD)
                chunk = chunk * above + np.uint64(part)
                factor *= above
                left = np.int64(0)
            if factor == _FOLD or left == 0:
                low, high = append(low, high, factor, chunk)
                chunk = np.uint64(0)
                factor = np.uint64(1)
        if i < digits:
            return np.int64(NOT_HELD)
    store_decimal128(to, low, high, sign == _NEGATIVE)
    return np.int64(OK)


@inline
def write_numeric(p, n, o, limit, tables):
    """NUMERIC of n bytes at p as text at o: the address after it, or minus NO_ROOM or MALFORMED."""
    if not _is_sound(p, n):
        return np.int64(-MALFORMED)
    sign = be16(p + 4)
    digits = be16(p)
    weight = _weight(p)
    scale = be16(p + 6)
    if o + 16 + 4 * max(weight, np.int64(0)) + scale > limit:
        return np.int64(-NO_ROOM)
    if sign == _NAN:
        st64(o, 0x4E614E)
        return o + 3
    if sign == _NEGATIVE or sign == _MINUS_INFINITY:
        st8(o, 45)
        o += 1
    if sign >= _INFINITY:
        st64(o, 0x7974696E69666E49)
        return o + 8
    if weight < 0:
        st8(o, 48)
        o += 1
    for i in range(weight + 1):
        group = be16(p + 8 + 2 * i) if i < digits else np.int64(0)
        if group > 9999:
            return np.int64(-MALFORMED)
        o = write_unsigned(o, np.uint64(group), tables) if i == 0 else write_padded(o, group, 4)
    if scale > 0:
        st8(o, 46)
        o += 1
        end = o + scale
        i = weight + 1
        while o < end:
            group = be16(p + 8 + 2 * i) if i >= 0 and i < digits else np.int64(0)
            if group > 9999:
                return np.int64(-MALFORMED)
            o = write_padded(o, group, 4)
            i += 1
        o = end
    return o

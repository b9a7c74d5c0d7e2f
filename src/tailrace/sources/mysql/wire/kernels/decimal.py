"""Kernels for MySQL's packed DECIMAL: groups of nine digits in four bytes, the ends in fewer.

A negative number has all bits inverted; the first bit is inverted once more, so that bytes sort.

Source: mysql strings/decimal.cc, decimal2bin.
"""

import numpy as np

from tailrace.kernels.decimals import append, store_decimal128
from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import be32, ld8, ld64, st8, st64
from tailrace.kernels.tables import POWERS_OF_TEN
from tailrace.kernels.text import write_integer, write_padded
from tailrace.sources.mysql.wire.kernels.lookup import T_DIGIT_BYTES

#: Most digits, and most after the point (MySQL: 30, MariaDB: 38).
MAX_PRECISION, MAX_SCALE = 65, 38
#: Most bytes `write_decimal` writes, the width of its last store included.
MAX_TEXT = 90


@inline
def decimal_bytes(precision, scale, kt):
    """Bytes of a packed DECIMAL(precision, scale)."""
    whole = precision - scale
    return (
        4 * (whole // 9 + scale // 9)
        + ld8(kt + T_DIGIT_BYTES + whole % 9)
        + ld8(kt + T_DIGIT_BYTES + scale % 9)
    )


@inline
def _groups(p, precision, scale, g, kt):
    """The number's groups as int64 at g: (count, negative); count -1: not a decimal."""
    whole = precision - scale
    head = whole % 9
    tail = scale % 9
    negative = ld8(p) < 128
    m = np.int64(-1) if negative else np.int64(0)
    top = np.int64(0x80000000)
    bad = False
    if head:
        nb = ld8(kt + T_DIGIT_BYTES + head)
        v = ((be32(p) ^ top ^ m) & 0xFFFFFFFF) >> (32 - 8 * nb)
        top = np.int64(0)
        p += nb
        st64(g, v)
        bad = v >= ld64(kt + POWERS_OF_TEN + 8 * head)
    else:
        st64(g, 0)
    n = np.int64(1)
    for _ in range(whole // 9 + scale // 9):
        v = (be32(p) ^ top ^ m) & 0xFFFFFFFF
        st64(g + 8 * n, v)
        bad = bad or v > 999999999
        top = np.int64(0)
        p += 4
        n += 1
    if tail:
        nb = ld8(kt + T_DIGIT_BYTES + tail)
        v = ((be32(p) ^ top ^ m) & 0xFFFFFFFF) >> (32 - 8 * nb)
        st64(g + 8 * n, v)
        n += 1
        bad = bad or v >= ld64(kt + POWERS_OF_TEN + 8 * tail)
    return np.int64(-1) if bad else n, negative


@inline
def read_decimal128(p, precision, scale, g, o, kt):
    """The packed DECIMAL at p (precision <= 38) as Arrow's decimal128 at o; False if it is malformed."""
    n, negative = _groups(p, precision, scale, g, kt)
    if n < 0:
        return False
    tail = scale % 9
    last = ld64(kt + POWERS_OF_TEN + 8 * tail) if tail else np.int64(1000000000)
    if precision <= 18:
        v = ld64(g)
        for i in range(1, n - 1):
            v = v * 1000000000 + ld64(g + 8 * i)
        if n > 1:
            v = v * last + ld64(g + 8 * (n - 1))
        if negative:
            v = -v
        st64(o, v)
        st64(o + 8, v >> 63)
        return True
    lo = np.uint64(ld64(g))
    hi = np.uint64(0)
    for i in range(1, n):
        f = np.uint64(last if i == n - 1 else 1000000000)
        lo, hi = append(lo, hi, f, np.uint64(ld64(g + 8 * i)))
    store_decimal128(o, lo, hi, negative)
    return True


@inline
def write_decimal(p, precision, scale, g, o, kt):
    """The packed DECIMAL at p as MySQL prints it; 0 if it is malformed. Needs MAX_TEXT bytes."""
    n, negative = _groups(p, precision, scale, g, kt)
    if n < 0:
        return np.int64(0)
    if negative:
        st8(o, 45)
        o += 1
    tail = scale % 9
    fractions = scale // 9 + (1 if tail else 0)
    whole = n - fractions
    i = 0
    while i < whole - 1 and ld64(g + 8 * i) == 0:
        i += 1
    o = write_integer(o, ld64(g + 8 * i), kt)
    i += 1
    while i < whole:
        o = write_padded(o, ld64(g + 8 * i), 9)
        i += 1
    if scale:
        st8(o, 46)
        o += 1
        for j in range(fractions):
            o = write_padded(o, ld64(g + 8 * (whole + j)), tail if (j == fractions - 1 and tail) else 9)
    return o

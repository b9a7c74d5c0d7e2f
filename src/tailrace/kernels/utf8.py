"""Validation and copying of UTF-8. C-like; the rules are in `memory`."""

from __future__ import annotations

import numpy as np

from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import ld8, ld64, st64

_HIGH_BITS = np.int64(-0x7F7F7F7F7F7F7F80)


@inline
def is_ascii(p, n):
    """Whether all n bytes at p are below 128. Reads up to 7 bytes beyond them."""
    end = p + n
    bits = np.int64(0)
    while end - p >= 8:
        bits |= ld64(p)
        p += 8
    if p < end:
        bits |= ld64(p) & ((np.int64(1) << (8 * (end - p))) - 1)
    return bits & _HIGH_BITS == 0


@inline
def is_utf8(p, n):
    """Whether the n bytes at p are well-formed UTF-8 (Unicode 3.9, table 3-7)."""
    end = p + n
    while p < end:
        b = ld8(p)
        if b < 0x80:
            p += 1
            continue
        more = 1 if b < 0xE0 else (2 if b < 0xF0 else 3)
        if b < 0xC2 or b > 0xF4 or end - p <= more:
            return False
        c = ld8(p + 1)
        if c & 0xC0 != 0x80:
            return False
        if (b == 0xE0 and c < 0xA0) or (b == 0xED and c > 0x9F):
            return False
        if (b == 0xF0 and c < 0x90) or (b == 0xF4 and c > 0x8F):
            return False
        if more > 1 and ld8(p + 2) & 0xC0 != 0x80:
            return False
        if more > 2 and ld8(p + 3) & 0xC0 != 0x80:
            return False
        p += 1 + more
    return True


@inline
def copy_utf8(o, p, n):
    """Copy n bytes of UTF-8; False if they are not well-formed."""
    end = p + n
    bits = np.int64(0)
    q = p
    while end - q >= 8:
        x = ld64(q)
        st64(o, x)
        bits |= x
        q += 8
        o += 8
    if q < end:
        x = ld64(q)
        st64(o, x)
        bits |= x & ((np.int64(1) << (8 * (end - q))) - 1)
    return bits & _HIGH_BITS == 0 or is_utf8(p, n)

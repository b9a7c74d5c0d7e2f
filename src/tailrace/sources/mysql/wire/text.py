"""Kernels for text: UTF-8 checked while it is copied, latin1 turned into UTF-8, base64."""

import numpy as np

from tailrace.kernels.memory import copy, inline, ld8, ld32, ld64, st8, st32, st64
from tailrace.sources.mysql.wire.lookup import T_BASE64, T_LATIN1

_HIGH_BITS = np.int64(-0x7F7F7F7F7F7F7F80)


@inline
def is_ascii(p, n):
    """Whether all n bytes at p are below 128. Reads up to 7 bytes more."""
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
    """Copy n bytes of UTF-8; False if they are none."""
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


@inline
def write_latin1(o, limit, p, n, kt):
    """N bytes of MySQL's latin1 as UTF-8: the address after them, -1 if they do not fit."""
    if o + n > limit:
        return np.int64(-1)
    if is_ascii(p, n):
        copy(o, p, n)
        return o + n
    end = p + n
    while p < end:
        if o + 3 > limit:
            return np.int64(-1)
        x = ld32(kt + T_LATIN1 + 4 * ld8(p))
        st32(o, x)
        o += x >> 24
        p += 1
    return o


@inline
def write_base64(o, p, n, kt):
    """Bytes in base64 as MySQL prints it in JSON: an escaped line feed between lines of 76 letters."""
    i = 0
    while i < n:
        if i and i % 57 == 0:
            st8(o, 92)
            st8(o + 1, 110)
            o += 2
        a = ld8(p + i)
        b = ld8(p + i + 1) if i + 1 < n else np.int64(0)
        c = ld8(p + i + 2) if i + 2 < n else np.int64(0)
        st8(o, ld8(kt + T_BASE64 + (a >> 2)))
        st8(o + 1, ld8(kt + T_BASE64 + (((a & 3) << 4) | (b >> 4))))
        st8(o + 2, ld8(kt + T_BASE64 + (((b & 15) << 2) | (c >> 6))) if i + 1 < n else 61)
        st8(o + 3, ld8(kt + T_BASE64 + (c & 63)) if i + 2 < n else 61)
        o += 4
        i += 3
    return o

"""Decimals from text and from chunks of digits. C-like; the rules are in `memory`."""

from __future__ import annotations

import numpy as np

from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import ld8, mulhi, st64


@inline
def append(low, high, factor, chunk):
    """A uint128, given as two halves, times `factor` plus `chunk`, which is less than `factor`."""
    high = high * factor + np.uint64(mulhi(low, factor))
    low = low * factor + chunk
    if low < chunk:
        high += np.uint64(1)
    return low, high


@inline
def store_decimal128(to, low, high, negative):
    """Store a uint128, given as two halves, or its negative, as decimal128 at `to`."""
    if negative:
        low = ~low + np.uint64(1)
        high = ~high
        if low == np.uint64(0):
            high += np.uint64(1)
    st64(to, np.int64(low))
    st64(to + 8, np.int64(high))


@inline
def parse_decimal(p, n, precision, scale, to):
    """Parse n bytes of text at p to a decimal128 at `to`, padded to `scale`. False if invalid or too long."""
    end = p + n
    negative = False
    if n > 0 and ld8(p) == 45:  # -
        negative = True
        p += 1
    if p >= end:
        return False
    low = np.uint64(0)
    high = np.uint64(0)
    chunk = np.uint64(0)
    factor = np.uint64(1)
    digits = np.int64(0)  # significant ones
    fraction = np.int64(-1)  # digits after the point, -1: no point yet
    while True:
        if p < end:
            c = ld8(p)
            p += 1
            if c == 46:  # .
                if fraction >= 0:
                    return False
                fraction = np.int64(0)
                continue
            c -= 48
            if c < 0 or c > 9:
                return False
        else:
            c = np.int64(0)
            if fraction < 0:
                fraction = np.int64(0)
            if fraction >= scale:
                break
        if fraction >= 0:
            fraction += 1
            if fraction > scale:
                return False
        if digits > 0 or c > 0:
            digits += 1
            if digits > precision:
                return False
        chunk = chunk * np.uint64(10) + np.uint64(c)
        factor *= np.uint64(10)
        if factor == np.uint64(10**18):
            low, high = append(low, high, factor, chunk)
            chunk = np.uint64(0)
            factor = np.uint64(1)
    if factor > np.uint64(1):
        low, high = append(low, high, factor, chunk)
    store_decimal128(to, low, high, negative)
    return True

"""Rows to 64-bit hashes and checksums, column by column. C-like; rules in `kernels.memory`.

A row's hash is a chain: `state[row] = mix(state[row] ^ word)` over the words of its values, column by column.
Every step is a bijection of the state, so two rows collide only by chance (2**-64). NULL has a word of its
own, and a text's length is hashed, too, so that bytes cannot move between neighbouring columns unnoticed.

    fixed width   1, 2, 4 or 8 bytes: one word, sign-extended      16 bytes: two words
    text, bytes   their length, then 8 bytes a word, the last one zero-padded
    booleans      the bit

Inputs are buffers of Arrow arrays, which have no SLACK: nothing is read beyond a value's end.

Source: the mixing step is the finalizer of MurmurHash3 (Appleby, public domain) with the constants of
Stafford's variant 13.
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.arrow import get_bit, is_null
from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import ld8, ld32, ld64, lds8, lds16, lds32, st64

_NULL = np.uint64(0x9FB21C651E98DF25)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


@inline
def _mix(state, word):
    x = (state ^ np.uint64(word)) + _STEP
    x = (x ^ (x >> _S30)) * _M1
    x = (x ^ (x >> _S27)) * _M2
    return x ^ (x >> _S31)


@entry("void(int64, int64, int64, int64, int64, int64)")
def hash_fixed(states, rows, validity, values, offset, width):
    """Hash a column with values of `width` bytes (1, 2, 4, 8, 16) into `rows` uint64 at `states`.

    Both buffers are given by their start; the first value has index `offset`.
    """
    for row in range(rows):
        i = offset + row
        at = states + 8 * row
        state = np.uint64(ld64(at))
        if is_null(validity, i):
            state = _mix(state, _NULL)
        elif width == 8:
            state = _mix(state, ld64(values + 8 * i))
        elif width == 4:
            state = _mix(state, lds32(values + 4 * i))
        elif width == 16:
            state = _mix(_mix(state, ld64(values + 16 * i)), ld64(values + 16 * i + 8))
        elif width == 2:
            state = _mix(state, lds16(values + 2 * i))
        else:
            state = _mix(state, lds8(values + i))
        st64(at, np.int64(state))


@entry("void(int64, int64, int64, int64, int64)")
def hash_bits(states, rows, validity, values, offset):
    """Hash a column of booleans into `rows` uint64 at `states`."""
    for row in range(rows):
        i = offset + row
        at = states + 8 * row
        bit = get_bit(values, i)
        word = _NULL if is_null(validity, i) else np.uint64(bit)
        st64(at, np.int64(_mix(np.uint64(ld64(at)), word)))


@entry("void(int64, int64, int64, int64, int64, int64, int64)")
def hash_variable(states, rows, validity, offsets, data, offset, wide):
    """Hash a column of text or bytes into `rows` uint64 at `states`; `wide`: its offsets are int64."""
    for row in range(rows):
        i = offset + row
        at = states + 8 * row
        state = np.uint64(ld64(at))
        if is_null(validity, i):
            st64(at, np.int64(_mix(state, _NULL)))
            continue
        if wide:
            start, end = ld64(offsets + 8 * i), ld64(offsets + 8 * i + 8)
        else:
            start, end = ld32(offsets + 4 * i), ld32(offsets + 4 * i + 4)
        state = _mix(state, end - start)
        source, stop = data + start, data + end
        while source + 8 <= stop:
            state = _mix(state, ld64(source))
            source += 8
        if source < stop:
            word = np.int64(0)
            for j in range(stop - source):
                word |= ld8(source + j) << (8 * j)
            state = _mix(state, word)
        st64(at, np.int64(state))


@entry("void(int64, int64, int64, int64, int64, int64)")
def add_to_buckets(keys, states, rows, buckets, counts, sums):
    """Add each row to the bucket of its key's hash: one to its count, the row's hash to its sum.

    Args:
        keys: address of the keys' hashes, uint64.
        states: address of the rows' hashes, uint64.
        rows: number of both.
        buckets: number of buckets, a power of two.
        counts: address of the buckets' counts, int64.
        sums: address of the buckets' sums, uint64; they wrap around.
    """
    for row in range(rows):
        bucket = ld64(keys + 8 * row) & (buckets - 1)
        st64(counts + 8 * bucket, ld64(counts + 8 * bucket) + 1)
        st64(sums + 8 * bucket, ld64(sums + 8 * bucket) + ld64(states + 8 * row))

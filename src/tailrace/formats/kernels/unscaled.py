"""A decimal's unscaled value as the bytes of Java's BigInteger, in base64. C-like; rules in `kernels.memory`.

`BigInteger.toByteArray` returns the fewest big-endian two's complement bytes that represent the value.
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import ld8, ld32, ld64, st8, st32
from tailrace.kernels.text import write_base64

#: Bytes of scratch memory for the writers: 32 for limbs, 32 for big-endian bytes.
SCRATCH = 64
_LIMBS = 8


@inline
def shortest_bytes(to, source, length):
    """A little-endian two's complement number as the fewest big-endian bytes; returns their number."""
    sign = np.int64(255) if ld8(source + length - 1) > 127 else np.int64(0)
    while length > 1 and ld8(source + length - 1) == sign and (ld8(source + length - 2) ^ sign) < 128:
        length -= 1
    reverse(to, source, length)
    return length


@inline
def reverse(to, source, length):
    """Copy bytes in reverse order."""
    for i in range(length):
        st8(to + i, ld8(source + length - 1 - i))


@inline
def write_decimal128(to, value, scratch, tables):
    """The decimal128 at address `value`: 26 bytes at most."""
    low = ld64(value)
    length = shortest_bytes(scratch, value, 8 if ld64(value + 8) == low >> 63 else 16)
    return write_base64(to, scratch, length, tables)


@inline
def decimal_limbs(to, source, length):
    """The unscaled value of a decimal given as text (`-12.50`), up to 76 digits: 32 little-endian bytes."""
    for i in range(_LIMBS):
        st32(to + 4 * i, 0)
    negative = False
    for i in range(length):
        byte = ld8(source + i)
        if byte == 45:
            negative = True
        elif byte >= 48 and byte <= 57:
            carry = byte - 48
            for j in range(_LIMBS):
                carry += ld32(to + 4 * j) * 10
                st32(to + 4 * j, carry & 0xFFFFFFFF)
                carry >>= 32
    if negative:
        carry = np.int64(1)
        for j in range(_LIMBS):
            carry += ld32(to + 4 * j) ^ 0xFFFFFFFF
            st32(to + 4 * j, carry & 0xFFFFFFFF)
            carry >>= 32


@inline
def write_decimal_text(to, source, length, scratch, tables):
    """The decimal given as text (`-12.50`), up to 76 digits: 46 bytes at most."""
    decimal_limbs(scratch, source, length)
    length = shortest_bytes(scratch + 4 * _LIMBS, scratch, np.int64(4 * _LIMBS))
    return write_base64(to, scratch + 4 * _LIMBS, length, tables)


@inline
def write_reversed(to, source, length, scratch, tables):
    """Up to 32 bytes in reverse order, in base64."""
    reverse(scratch, source, length)
    return write_base64(to, scratch, length, tables)

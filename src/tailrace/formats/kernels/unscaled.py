"""A decimal's unscaled value as the bytes of Java's BigInteger, in base64. C-like; rules in `kernels.memory`.

`BigInteger.toByteArray` gives the fewest big-endian two's complement bytes that hold the value.
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.memory import inline, ld8, ld32, ld64, st8, st32
from tailrace.kernels.text import write_base64

#: Bytes of scratch memory that the writers need: 32 for limbs, 32 for bytes in order.
SCRATCH = 64
_LIMBS = 8


@inline
def _write_little_endian(to, source, length, scratch, tables):
    """The fewest bytes of a little-endian two's complement number of `length` bytes."""
    sign = np.int64(255) if ld8(source + length - 1) > 127 else np.int64(0)
    while length > 1 and ld8(source + length - 1) == sign and (ld8(source + length - 2) ^ sign) < 128:
        length -= 1
    for i in range(length):
        st8(scratch + i, ld8(source + length - 1 - i))
    return write_base64(to, scratch, length, tables)


@inline
def write_decimal128(to, value, scratch, tables):
    """The decimal128 at address `value`: 26 bytes at most."""
    low = ld64(value)
    length = 8 if ld64(value + 8) == low >> 63 else 16
    return _write_little_endian(to, value, length, scratch, tables)


@inline
def write_decimal_text(to, source, length, scratch, tables):
    """The decimal written as text (`-12.50`), up to 76 digits: 46 bytes at most."""
    for i in range(_LIMBS):
        st32(scratch + 4 * i, 0)
    negative = False
    for i in range(length):
        byte = ld8(source + i)
        if byte == 45:
            negative = True
        elif byte >= 48 and byte <= 57:
            carry = byte - 48
            for j in range(_LIMBS):
                carry += ld32(scratch + 4 * j) * 10
                st32(scratch + 4 * j, carry & 0xFFFFFFFF)
                carry >>= 32
    if negative:
        carry = np.int64(1)
        for j in range(_LIMBS):
            carry += ld32(scratch + 4 * j) ^ 0xFFFFFFFF
            st32(scratch + 4 * j, carry & 0xFFFFFFFF)
            carry >>= 32
    return _write_little_endian(to, scratch, np.int64(4 * _LIMBS), scratch + 4 * _LIMBS, tables)


@inline
def write_reversed(to, source, length, scratch, tables):
    """Up to 32 bytes in base64, the last one first."""
    for i in range(length):
        st8(scratch + i, ld8(source + length - 1 - i))
    return write_base64(to, scratch, length, tables)

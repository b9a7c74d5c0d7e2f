"""Constant tables of the text kernels, in one block of memory that is passed to kernels by address.

A cached kernel cannot contain an address, so every kernel that writes text has a parameter `tables`, the
block's address (`TABLES`), and adds one of the offsets below. A module that needs further tables creates a
block that begins with PARTS.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def _power_of_ten(k: int) -> int:
    """10**k to 128 significant bits, rounded up: the multipliers of Schubfach."""
    shift = ((k * 1741647) >> 19) - 127
    if k < 0:
        return -(-(1 << -shift) // int(10**-k))
    value = int(10**k)
    scaled = value >> shift if shift >= 0 else value << -shift
    return scaled + (1 if shift > 0 and scaled << shift != value else 0)


def _truncated_power_of_ten(k: int) -> int:
    """10**k to 128 significant bits for parsing numbers: truncated, plus 1 for negative k."""
    if k < 0:
        bits = int(10**-k).bit_length() + 127
        value = (1 << bits) // int(10**-k) + 1
    else:
        value = int(10**k) << 128
    return value >> (value.bit_length() - 128)


def _escapes() -> np.ndarray:
    """By byte: 0 unescaped, 1 numeric escape, 2 first of four bytes in UTF-8, else the escape's letter."""
    table = np.zeros(256, np.uint8)
    table[:32] = 1
    table[0xF0:] = 2
    for byte, letter in ((b"\b", b"b"), (b"\t", b"t"), (b"\n", b"n"), (b"\f", b"f"), (b"\r", b"r")):
        table[byte[0]] = letter[0]
    table[ord('"')], table[ord("\\")] = ord('"'), ord("\\")
    return table


_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_POWERS = [_power_of_ten(k) for k in range(-292, 325)]
_READING = [_truncated_power_of_ten(k) for k in range(-342, 309)]
PARTS: tuple[np.ndarray, ...] = (
    np.array([x >> 64 for x in _POWERS], np.uint64),
    np.array([x & (2**64 - 1) for x in _POWERS], np.uint64),
    np.array([10**i for i in range(19)], np.int64),
    _escapes(),
    np.frombuffer(b"".join(b"%02d" % i for i in range(100)), np.uint8),
    np.frombuffer(b"0123456789ABCDEF", np.uint8),
    np.frombuffer(_BASE64, np.uint8),
    np.frombuffer(bytes(c for a in _BASE64 for b in _BASE64 for c in (a, b)), np.uint8),
    np.array([x >> 64 for x in _READING], np.uint64),
    np.array([x & (2**64 - 1) for x in _READING], np.uint64),
)


def block(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, list[int]]:
    """Concatenate tables in one block of memory; returns it with the offset of each."""
    offsets, at = [], 0
    for part in parts:
        offsets.append(at)
        at += (part.nbytes + 63) & ~63
    memory = np.zeros(at + 64, np.uint8)
    for part, offset in zip(parts, offsets, strict=True):
        memory[offset : offset + part.nbytes] = part.reshape(-1).view(np.uint8)
    return memory, offsets


_MEMORY, _OFFSETS = block(PARTS)
#: Address of the block.
TABLES = _MEMORY.ctypes.data
#: Offsets in it: high and low halves of 10**-292..10**324, powers of ten up to 10**18, JSON escapes,
#: two digits of 0..99, hex digits, base64 digits, two base64 digits of 12 bits, high and low halves of
#: 10**-342..10**308 for parsing numbers.
(
    POWER_HIGH,
    POWER_LOW,
    POWERS_OF_TEN,
    ESCAPES,
    TWO_DIGITS,
    HEX,
    BASE64,
    BASE64_PAIRS,
    READING_HIGH,
    READING_LOW,
) = _OFFSETS

"""Constant tables of the kernels, in one block of memory whose address (`TABLES`) each entry is given.

A table is at `TABLES + T_...`. The offsets are compile-time constants; the address is not, so it travels
as an argument, by the name `kt`.
"""

from __future__ import annotations

import numpy as np


def _power_of_ten(k: int) -> int:
    """The 126-bit approximation of 10**k from above that Schubfach needs."""
    r = ((k * 1741647) >> 19) - 127
    if k >= 0:
        v = int(10**k)
        x = v >> r if r >= 0 else v << -r
        return x + (1 if r > 0 and (x << r) != v else 0)
    return -(-(1 << -r) // int(10**-k))


def _crc32() -> np.ndarray:
    """CRC-32 (IEEE) for slicing by 16: 16 tables of 256."""
    crc = np.zeros((16, 256), np.uint32)
    row = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        row = np.where(row & 1, (row >> 1) ^ np.uint32(0xEDB88320), row >> 1)
    crc[0] = row
    for k in range(1, 16):
        crc[k] = crc[0][crc[k - 1] & 255] ^ (crc[k - 1] >> 8)
    return crc


def _json_escapes() -> np.ndarray:
    """Per byte: 0 as it is, 1 by its code in hex, else the letter after the backslash."""
    escapes = np.zeros(256, np.uint8)
    escapes[:32] = 1
    for byte, letter in zip(b'"\\\b\t\n\f\r', b'"\\btnfr', strict=True):
        escapes[byte] = letter
    return escapes


def _place(tables: list[np.ndarray]) -> tuple[np.ndarray, list[int]]:
    offsets = []
    size = 0
    for table in tables:
        offsets.append(size)
        size += (table.nbytes + 63) & ~63
    memory = np.zeros(size + 64, np.uint8)
    for table, offset in zip(tables, offsets, strict=True):
        memory[offset : offset + table.nbytes] = table.reshape(-1).view(np.uint8)
    return memory, offsets


_POWERS = [_power_of_ten(k) for k in range(-292, 325)]
_MEMORY, _OFFSETS = _place(
    [
        np.array([x >> 64 for x in _POWERS], np.uint64),
        np.array([x & (2**64 - 1) for x in _POWERS], np.uint64),
        np.array([10**i for i in range(19)], np.int64),
        _crc32(),
        _json_escapes(),
        np.frombuffer(b"".join(b"%02d" % i for i in range(100)), np.uint8),
        np.frombuffer(b"".join(b"%02x" % i for i in range(256)), np.uint8),
        np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8),
        np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.uint8),
        np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0], np.uint8),
    ]
)
#: Offsets: high and low words of the powers of ten from -292 on; 10**i as int64; CRC-32; JSON escapes;
#: two decimal digits; two hex digits; base64; bytes of 0..9 decimal digits; days of a month.
(
    T_POWER_HIGH,
    T_POWER_LOW,
    T_TEN,
    T_CRC,
    T_ESCAPE,
    T_DIGITS,
    T_HEX,
    T_BASE64,
    T_DIGIT_BYTES,
    T_MONTH_DAYS,
) = _OFFSETS
#: The tables' address.
TABLES: int = _MEMORY.ctypes.data

"""Tables that only MySQL's kernels need, in one block of memory with those of `kernels.tables`.

Each entry has the block's address, `TABLES`, as an argument named `kt`, and passes it on to the functions
that it shares with other kernels. A table is at `kt + T_...`.
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.tables import PARTS, block


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
    """Per byte: 0: unchanged, 1: by its code in hex, else the letter after the backslash."""
    escapes = np.zeros(256, np.uint8)
    escapes[:32] = 1
    for byte, letter in zip(b'"\\\b\t\n\f\r', b'"\\btnfr', strict=True):
        escapes[byte] = letter
    return escapes


_OWN = (
    _crc32(),
    _json_escapes(),
    np.frombuffer(b"".join(b"%02x" % i for i in range(256)), np.uint8),
    np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.uint8),
    np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0], np.uint8),
)
_MEMORY, _OFFSETS = block((*PARTS, *_OWN))
#: Offsets: CRC-32; JSON escapes; two hex digits; bytes of 0..9 decimal digits; days of a month.
T_CRC, T_ESCAPE, T_HEX, T_DIGIT_BYTES, T_MONTH_DAYS = _OFFSETS[len(PARTS) :]
#: The tables' address.
TABLES: int = _MEMORY.ctypes.data

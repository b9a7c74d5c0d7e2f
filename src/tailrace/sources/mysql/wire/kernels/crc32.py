"""Kernel for the log's checksums: CRC-32, 16 bytes a step."""

import numpy as np

from tailrace.kernels.declarations import inline
from tailrace.kernels.memory import ld8, ld32, ld64
from tailrace.sources.mysql.wire.kernels.lookup import T_CRC


@inline
def crc32(p, n, kt):
    """CRC-32 (IEEE, as zlib's) of n bytes."""
    c = np.int64(0xFFFFFFFF)
    e = p + n
    T = kt + T_CRC
    while e - p >= 16:
        x = ld64(p) ^ c
        y = ld64(p + 8)
        c = (
            ld32(T + 15360 + 4 * (x & 255))
            ^ ld32(T + 14336 + 4 * ((x >> 8) & 255))
            ^ ld32(T + 13312 + 4 * ((x >> 16) & 255))
            ^ ld32(T + 12288 + 4 * ((x >> 24) & 255))
            ^ ld32(T + 11264 + 4 * ((x >> 32) & 255))
            ^ ld32(T + 10240 + 4 * ((x >> 40) & 255))
            ^ ld32(T + 9216 + 4 * ((x >> 48) & 255))
            ^ ld32(T + 8192 + 4 * ((x >> 56) & 255))
            ^ ld32(T + 7168 + 4 * (y & 255))
            ^ ld32(T + 6144 + 4 * ((y >> 8) & 255))
            ^ ld32(T + 5120 + 4 * ((y >> 16) & 255))
            ^ ld32(T + 4096 + 4 * ((y >> 24) & 255))
            ^ ld32(T + 3072 + 4 * ((y >> 32) & 255))
            ^ ld32(T + 2048 + 4 * ((y >> 40) & 255))
            ^ ld32(T + 1024 + 4 * ((y >> 48) & 255))
            ^ ld32(T + 4 * ((y >> 56) & 255))
        )
        p += 16
    while p < e:
        c = ld32(T + 4 * ((c ^ ld8(p)) & 255)) ^ (c >> 8)
        p += 1
    return c ^ 0xFFFFFFFF

"""Kafka's partitioning by the bytes of a key. C-like; rules in `kernels.memory`.

Inputs are buffers of Arrow arrays, which have no SLACK: nothing is read beyond a key's end.

Source: Kafka's `Utils.murmur2` and `Utils.toPositive` (org.apache.kafka.common.utils), used by its Java
producer; the hash is Appleby's MurmurHash2 (public domain) with a fixed seed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.kernels.arrow import is_null
from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import ld8, ld32, st32

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_S13, _S15, _S24 = np.uint32(13), np.uint32(15), np.uint32(24)


@inline
def _murmur2(p, n):
    h = np.uint32(_SEED ^ np.uint32(n))
    end = p + (n & ~3)
    while p < end:
        k = np.uint32(np.uint32(ld32(p)) * _M)
        k = np.uint32((k ^ (k >> _S24)) * _M)
        h = np.uint32(np.uint32(h * _M) ^ k)
        p += 4
    rest = n & 3
    if rest:
        tail = np.int64(0)
        for j in range(rest):
            tail |= ld8(p + j) << (8 * j)
        h = np.uint32((h ^ np.uint32(tail)) * _M)
    h = np.uint32((h ^ (h >> _S13)) * _M)
    return np.uint32(h ^ (h >> _S15))


@entry("void(int64, int64, int64, int64, int64, int64, int64)")
def _choose(rows, validity, offsets, data, first, partitions, out):
    for row in range(rows):
        i = first + row
        partition = np.int64(0)
        if not is_null(validity, i):
            start, end = ld32(offsets + 4 * i), ld32(offsets + 4 * i + 4)
            partition = (np.int64(_murmur2(data + start, end - start)) & 0x7FFFFFFF) % partitions
        st32(out + 4 * row, partition)


def partitions_of(keys: pa.BinaryArray, partitions: int) -> np.ndarray:
    """The partition of each key, as int32; 0 for a null key.

    Args:
        keys: the keys' bytes.
        partitions: number of the topic's partitions.
    """
    out = np.zeros(len(keys), np.int32)
    validity, offsets, data = (0 if b is None else b.address for b in keys.buffers())
    _choose(len(keys), validity, offsets, data, keys.offset, partitions, out.ctypes.data)
    return out

"""Checksums of rows by bucket, the same for source pages and for what Spark hands to a task. Pure.

A row belongs to the bucket that its key's bytes hash to: no collation, no order, so both sides agree
without asking anybody. A bucket's checksum is its number of rows and the wrapping sum of their hashes:
rows may come in any order and any portions, and checksums of portions add up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.kernels.hashing import add_to_buckets
from tailrace.kernels.rowhash import hash_rows

#: Buckets of every table: 64 KB of checksums; a differing row makes 1/4096 of its table be read again.
BUCKETS = 4096


@dataclass(frozen=True)
class Checksums:
    """Counts (int64) and sums (uint64) of BUCKETS buckets."""

    counts: np.ndarray
    sums: np.ndarray

    @classmethod
    def empty(cls) -> Checksums:
        """Of no rows."""
        return cls(np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.uint64))

    @property
    def rows(self) -> int:
        """How many rows went into it."""
        return int(self.counts.sum())

    def add(self, rows: pa.RecordBatch, key: Iterable[str]) -> None:
        """Take `rows` in."""
        keys = hash_rows([rows.column(name) for name in key], rows.num_rows)
        states = hash_rows(rows.columns, rows.num_rows)
        add_to_buckets(
            keys.ctypes.data,
            states.ctypes.data,
            rows.num_rows,
            BUCKETS,
            self.counts.ctypes.data,
            self.sums.ctypes.data,
        )

    def merge(self, other: Checksums) -> None:
        """Take in what went into `other`."""
        np.add(self.counts, other.counts, out=self.counts)
        np.add(self.sums, other.sums, out=self.sums)

    def differing(self, other: Checksums) -> np.ndarray:
        """Numbers of the buckets that are not the same in `other`, ascending."""
        return np.flatnonzero((self.counts != other.counts) | (self.sums != other.sums))

    def to_bytes(self) -> bytes:
        """For `from_bytes`."""
        return self.counts.tobytes() + self.sums.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Checksums:
        """What `to_bytes` wrote."""
        return cls(
            np.frombuffer(data, np.int64, BUCKETS).copy(),
            np.frombuffer(data, np.uint64, BUCKETS, 8 * BUCKETS).copy(),
        )


def bucket_of(rows: pa.RecordBatch, key: Iterable[str]) -> np.ndarray:
    """Each row's bucket."""
    keys = hash_rows([rows.column(name) for name in key], rows.num_rows)
    return (keys & np.uint64(BUCKETS - 1)).astype(np.int64)

"""Checksums of rows by bucket, the same for pages of the source and for Arrow batches of a Spark task. Pure.

A row belongs to the bucket that its key's bytes hash to. Neither collation nor order matters, so both sides
agree without coordination. A bucket's checksum is its number of rows and the wrapping sum of their hashes:
rows may come in any order and in any batches, and checksums of batches add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.kernels.hashing import add_to_buckets
from tailrace.kernels.rowhash import hash_rows

#: Buckets of every table: 64 KB of checksums; for one differing row 1/4096 of its table is read again.
BUCKETS = 4096


@dataclass(frozen=True)
class Checksums:
    """Counts (int64) and sums (uint64) of BUCKETS buckets."""

    counts: np.ndarray
    sums: np.ndarray

    @classmethod
    def empty(cls) -> Checksums:
        """The checksums of no rows."""
        return cls(np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.uint64))

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Checksums:
        """The checksums of all rows of `batches`, keyed by the columns `key`."""
        sums = cls.empty()
        for rows in batches:
            sums.add(rows, key)
        return sums

    @property
    def rows(self) -> int:
        """The number of rows added."""
        return int(self.counts.sum())

    def add(self, rows: pa.RecordBatch, key: Iterable[str]) -> None:
        """Add `rows`, keyed by the columns `key`."""
        keys = key_hashes(rows, key)
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
        """Add the rows of `other`."""
        np.add(self.counts, other.counts, out=self.counts)
        np.add(self.sums, other.sums, out=self.sums)

    def differing(self, other: Checksums) -> np.ndarray:
        """Numbers of the buckets that differ from those of `other`, ascending."""
        return np.flatnonzero((self.counts != other.counts) | (self.sums != other.sums))

    def to_bytes(self) -> bytes:
        """Serialize for `from_bytes`."""
        return self.counts.tobytes() + self.sums.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Checksums:
        """Read what `to_bytes` wrote."""
        return cls(
            np.frombuffer(data, np.int64, BUCKETS).copy(),
            np.frombuffer(data, np.uint64, BUCKETS, 8 * BUCKETS).copy(),
        )


@dataclass(frozen=True)
class Shards:
    """Some rows of a target.

    Args:
        column: the column that names the table of each row.
        values: what it holds in these rows.
    """

    column: str
    values: tuple[str, ...]

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of `rows`."""
        return rows.filter(pc.is_in(rows.column(self.column), pa.array(self.values, pa.string())))


def key_hashes(rows: pa.RecordBatch, key: Iterable[str]) -> np.ndarray:
    """The uint64 hash of each row's key."""
    return hash_rows([rows.column(name) for name in key], rows.num_rows)


def is_one_of(hashes: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which of `hashes` are among `known`, which are ascending."""
    if not len(known):
        return np.zeros(len(hashes), bool)
    at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    found: np.ndarray = known[at] == hashes
    return found


def bucket_of(rows: pa.RecordBatch, key: Iterable[str]) -> np.ndarray:
    """Each row's bucket."""
    return (key_hashes(rows, key) & np.uint64(BUCKETS - 1)).astype(np.int64)


def rows_in(rows: pa.RecordBatch, key: Iterable[str], buckets: np.ndarray) -> pa.RecordBatch:
    """The rows that belong to one of `buckets`."""
    return rows.filter(pa.array(np.isin(bucket_of(rows, key), buckets)))

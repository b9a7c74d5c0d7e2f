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

from tailrace.errors import SchemaMismatchError
from tailrace.kernels.hashing import add_to_buckets, hash_bits, hash_fixed, hash_variable

#: Buckets of every table: 64 KB of checksums; a differing row makes 1/4096 of its table be read again.
BUCKETS = 4096

_WIDTHS = (1, 2, 4, 8, 16)


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


def hash_rows(columns: Iterable[pa.Array], rows: int) -> np.ndarray:
    """The uint64 hash of each row of `columns`, in the order of the columns.

    Equal arrays have equal hashes wherever their buffers begin; the types must be the same on both sides.

    Raises:
        SchemaMismatchError: a column is neither fixed-width nor text, bytes or boolean.
    """
    states = np.zeros(rows, np.uint64)
    if rows:
        for column in columns:
            _take_in(states, column)
    return states


def _take_in(states: np.ndarray, column: pa.Array) -> None:
    type_, at, n = column.type, states.ctypes.data, len(column)
    if pa.types.is_null(type_):
        raise SchemaMismatchError("a column without a type cannot be compared", f"found {type_}")
    buffers = column.buffers()
    validity = _address(buffers[0])
    if pa.types.is_boolean(type_):
        hash_bits(at, n, validity, _address(buffers[1]), column.offset)
    elif _has_offsets(type_):
        wide = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
        hash_variable(at, n, validity, _address(buffers[1]), _address(buffers[2]), column.offset, int(wide))
    elif pa.types.is_primitive(type_) or pa.types.is_decimal128(type_):
        width = type_.bit_width // 8
        if width not in _WIDTHS:
            raise SchemaMismatchError(f"a column of {type_} cannot be compared")
        hash_fixed(at, n, validity, _address(buffers[1]), column.offset, width)
    else:
        raise SchemaMismatchError(f"a column of {type_} cannot be compared")


def _has_offsets(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_large_binary(type_)
    )


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)

"""How the changes of a batch become the parts of a change log, each of which is inserted once.

    the changes of one table and kind ──▶ buckets, by their hash ──▶ sorted by `_seq` and hash ──▶ parts

A part is one INSERT of one block, and has a name: the same part of a batch that comes again has the same
changes. So it depends on nothing but the changes: their number makes the number of buckets, their sizes the
ends of parts. (The rows of a snapshot in one batch have one `_seq`: the hash tells them apart.) It depends on
no setting, no cell, no order of Spark's, and not on other tables of the target: one of these may be parked,
and left out, when the batch comes again.

What inserts a part once:

* *The server's memory.* The INSERT has a token, made of stream, batch and part. The server keeps the tokens
  of the last blocks (`non_replicated_deduplication_window`), and skips a block that has one of these. So a
  task that is run again, and one that outlives its attempt, change nothing.
* *The table itself.* Each row has its batch and part. Before a batch is written, the driver asks for the
  parts that are there (`present`): they are skipped, however long ago they were written.
* *A count.* After a batch is written, each of its tables must have as many rows as the batch has changes
  (`require_whole`). Where a server has forgotten a token, or rows are missing, the batch is an error, and no
  duplicate stays unnoticed.

This division is a stored form: a batch that was begun by one version of Tailrace may be completed by the
next. tests/unit/sinks/clickhouse/test_division.py has its fixture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.kernels.rowhash import hash_rows

#: Most changes of a bucket, on average, and some bytes of a part.
_CHANGES, _BYTES = 50_000, 32 << 20
#: What a value has beside its own bytes.
_VALUE_BYTES = 8


def bucket_count(changes: int) -> int:
    """The number of buckets of one table's changes of one kind."""
    return max(1, -(-changes // _CHANGES))


def hashes_of(seq: pa.Array, rows: pa.RecordBatch) -> pa.Array:
    """What tells changes apart, the same for equal ones.

    Args:
        seq: their `_seq`.
        rows: the row after each change, or the deleted one.
    """
    return pa.array(hash_rows([seq, *rows.columns], len(seq)))


def buckets_of(hashes: pa.Array, count: int) -> np.ndarray:
    """The bucket of each change."""
    numbers: np.ndarray = (hashes.to_numpy() >> np.uint64(32)) % np.uint64(count)
    return numbers.astype(np.int64)


def sizes_of(columns: int, images: Iterable[pa.StructArray], rows: int) -> pa.Array:
    """Some measure of each change's bytes, the same for equal ones.

    Args:
        columns: number of the table's columns.
        images: the rows before and after the changes, as far as some change has one.
        rows: number of changes.
    """
    sizes = np.full(rows, 2 * _VALUE_BYTES * columns, np.int64)
    for column in (column for image in images for column in image.flatten()):
        if pa.types.is_list(column.type):
            sizes += _VALUE_BYTES * pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
            items = column.flatten()
            if pa.types.is_string(items.type) or pa.types.is_binary(items.type):
                lengths = pc.binary_length(items).fill_null(0).to_numpy()
                parents = pc.list_parent_indices(column).to_numpy()
                sizes += np.bincount(parents, lengths, len(sizes)).astype(np.int64)
        elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            sizes += pc.binary_length(column).fill_null(0).to_numpy()
    return pa.array(sizes)


def parts(sizes: pa.Array) -> Iterator[tuple[int, int]]:
    """The first row and the number of rows of each part of a bucket, whose rows are sorted."""
    numbers = np.cumsum(sizes.to_numpy()) // _BYTES
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield int(start), int(end - start)


def part_name(table: str, kind: str, bucket: int, part: int) -> str:
    """The name of a part among those of a batch."""
    return f"{table}:{kind}:{bucket}.{part}"


def group_of(name: str) -> str:
    """The table and kind of a part, as the beginning of its name."""
    return name.rpartition(":")[0]

"""The shares of a batch: the changes of each writer, split by key.

All changes of a key, from all cells of a batch, go to one writer, which writes them in the order of `seq`. A
key update is a delete and a create in one cell, whose keys may belong to two writers. A message of each half
may name the other half's key, so each of the two writers gets both halves, and writes its own only
(`owned_by`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from tailrace.formats.debezium.headers import key_updates
from tailrace.kernels.rowhash import hash_rows
from tailrace.model.change import ChangeBatch
from tailrace.reader.log import keys_of

#: Columns of the rows of shares.
SHARES = "writer int, seq string, cell binary"
_SHARES = pa.schema([("writer", pa.int32()), ("seq", pa.string()), ("cell", pa.binary())])
#: An empty cell, sorted before all others of a writer, stops the writer before it begins.
STOP = pa.py_buffer(b"")


class Dividing(Protocol):
    """How a batch is divided among writers."""

    @property
    def writers(self) -> int:
        """The number of writers."""

    @property
    def undivided(self) -> frozenset[str]:
        """The tables that go to one writer undivided: their key has several schemas in the batch."""

    def ordered(self, batch: ChangeBatch) -> ChangeBatch:
        """Changes with the columns that decide their writers as their key."""


def share_row(writer: int, seq: str | pa.StringScalar, data: pa.Buffer) -> pa.RecordBatch:
    """A row of SHARES."""
    ends = pa.py_buffer(np.array([0, data.size], np.int32))
    one = pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])
    arrays = [pa.array([writer], pa.int32()), pa.array([seq], pa.string()), one]
    return pa.RecordBatch.from_arrays(arrays, schema=_SHARES)


def cut(share: Dividing, batch: ChangeBatch) -> Iterator[tuple[int, ChangeBatch]]:
    """The changes of each writer, in their order; both halves of a key update for either writer."""
    writers = writers_of(share, batch)
    if (writers == writers[0]).all():
        yield int(writers[0]), batch
        return
    rows = np.arange(len(batch))
    first = key_updates(batch)
    if len(first):
        first = first[writers[first] != writers[first + 1]]
        rows = np.concatenate([rows, first, first + 1])
        writers = np.concatenate([writers, writers[first + 1], writers[first]])
    order = np.lexsort((rows, writers))
    rows, writers = rows[order], writers[order]
    sorted_ = batch.take(pa.array(rows))
    starts = np.flatnonzero(np.diff(writers, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        yield int(writers[start]), sorted_.slice(int(start), int(end - start))


def writers_of(share: Dividing, batch: ChangeBatch) -> np.ndarray:
    """The writer of each change."""
    table = str(batch.table.id)
    ordered = share.ordered(batch)
    if share.writers == 1 or table in share.undivided or not ordered.table.key:
        return np.full(len(batch), zlib.crc32(table.encode()) % share.writers, np.int64)
    hashes = hash_rows(keys_of(ordered).flatten(), len(batch))
    return np.asarray((hashes % np.uint64(share.writers)).astype(np.int64))


def owned_by(share: Dividing, writer: int, batch: ChangeBatch) -> np.ndarray | None:
    """Which changes the writer has to write: not the other halves of key updates; None: all of them."""
    if share.writers == 1 or not len(key_updates(batch)):
        return None
    return np.asarray(writers_of(share, batch) == writer)

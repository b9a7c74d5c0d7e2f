"""Rows that are kept for later: in memory up to a limit, then in files that no name leads to.

A rewind keeps the row at P of every key that was touched since. Tables of wide rows that are changed all over
while a page is read would fill a task's memory, so what exceeds `MOST_BYTES` waits on disk.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

#: Bytes of rows that are kept in memory.
MOST_BYTES = 64 << 20
#: Rows that are read or returned at once.
PIECE_ROWS = 8192


class SpilledRows:
    """Rows in the order in which they were added.

    Args:
        type_: their type.
        most_bytes: bytes of rows that are kept in memory.
    """

    def __init__(self, type_: pa.StructType, most_bytes: int = MOST_BYTES) -> None:
        self._schema = pa.schema([pa.field("row", type_)])
        self._most_bytes = most_bytes
        #: Files, and the rows of each of their batches.
        self._files: list[tuple[pa.RecordBatchFileReader, list[int]]] = []
        self._kept: list[pa.StructArray] = []
        self._bytes = self._count = 0

    def append(self, rows: pa.StructArray) -> None:
        """Add rows; they may be written to disk. Raises OSError if that is full."""
        if len(rows):
            self._kept.append(rows)
            self._count += len(rows)
            self._bytes += rows.nbytes
        if self._bytes > self._most_bytes:
            self._spill()

    def where(self, mask: np.ndarray) -> Iterator[pa.StructArray]:
        """The rows for which `mask` is true, a few thousand at a time."""
        at = 0
        for reader, sizes in self._files:
            for number, rows in enumerate(sizes):
                wanted, at = mask[at : at + rows], at + rows
                if wanted.any():
                    yield reader.get_batch(number).column(0).filter(pa.array(wanted))
        for kept in self._kept:
            for start in range(0, len(kept), PIECE_ROWS):
                piece = kept.slice(start, PIECE_ROWS)
                wanted, at = mask[at : at + len(piece)], at + len(piece)
                if wanted.any():
                    yield piece.filter(pa.array(wanted))

    def everything(self) -> Iterator[pa.StructArray]:
        """All rows, a few thousand at a time."""
        return self.where(np.ones(self._count, bool))

    def take(self, places: np.ndarray) -> pa.StructArray:
        """The rows at some places, in that order."""
        order = np.argsort(places, kind="stable")
        wanted = places[order]
        found, start = [], 0
        for reader, sizes in self._files:
            for number, size in enumerate(sizes):
                if len(here := _within(wanted, start, size)):
                    found.append(reader.get_batch(number).column(0).take(here))
                start += size
        for kept in self._kept:
            if len(here := _within(wanted, start, len(kept))):
                found.append(kept.take(here))
            start += len(kept)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        rows = pa.concat_arrays(found) if found else pa.array([], self._schema.field("row").type)
        return rows.take(pa.array(back))

    def _spill(self) -> None:
        handle, path = tempfile.mkstemp(prefix="tailrace-rewind-")
        os.close(handle)
        sizes: list[int] = []
        try:
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, self._schema) as writer:
                for rows in self._kept:
                    for start in range(0, len(rows), PIECE_ROWS):
                        piece = rows.slice(start, PIECE_ROWS)
                        writer.write_batch(pa.RecordBatch.from_arrays([piece], schema=self._schema))
                        sizes.append(len(piece))
            self._files.append((pa.ipc.open_file(pa.OSFile(path)), sizes))
        finally:
            Path(path).unlink()
        self._kept, self._bytes = [], 0


def _within(places: np.ndarray, start: int, size: int) -> pa.Array:
    """Those of sorted places that lie in a piece, counted from its start."""
    low, high = np.searchsorted(places, (start, start + size))
    return pa.array(places[low:high] - start)

"""Rows into data files of a bounded size, row group by row group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

import pyarrow as pa

#: A row group is written when so many bytes are held.
_ROW_GROUP_BYTES = 64 << 20

Ended_co = TypeVar("Ended_co", covariant=True)


class OpenFile(Protocol[Ended_co]):
    """A data file that is being written."""

    def write(self, rows: pa.Table) -> None:
        """Add a row group."""

    def end(self) -> Ended_co:
        """No more rows; what there is to be said of the file."""


def write_rolling(
    batches: Iterable[pa.RecordBatch], begin: Callable[[], OpenFile[Ended_co]], file_bytes: int
) -> list[Ended_co]:
    """`batches` as files; no file where there is no row.

    Args:
        batches: rows of one schema.
        begin: begins a file.
        file_bytes: a file is ended when it has more bytes, counted uncompressed.

    Returns:
        What `end` said of each file.
    """
    ended: list[Ended_co] = []
    file: OpenFile[Ended_co] | None = None
    held: list[pa.RecordBatch] = []
    held_bytes = taken = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if file is None:
            file, taken = begin(), 0
        held.append(batch)
        held_bytes += batch.nbytes
        taken += batch.nbytes
        if held_bytes > _ROW_GROUP_BYTES or taken > file_bytes:
            file.write(pa.Table.from_batches(held))
            held, held_bytes = [], 0
        if taken > file_bytes:
            ended.append(file.end())
            file = None
    if file is not None:
        if held:
            file.write(pa.Table.from_batches(held))
        ended.append(file.end())
    return ended

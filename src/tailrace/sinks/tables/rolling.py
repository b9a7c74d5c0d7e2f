"""Writes rows into data files of bounded size, row group by row group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

#: A row group is written once this many bytes are buffered.
ROW_GROUP_BYTES = 64 << 20

Info_co = TypeVar("Info_co", covariant=True)


class OpenFile(Protocol[Info_co]):
    """A data file that is being written."""

    def write(self, rows: pa.Table) -> None:
        """Add a row group."""

    def end(self) -> Info_co:
        """Close the file; what is known of it."""


class RollingFiles(Generic[Info_co]):
    """Files of rows of one schema. Without rows there is no file.

    Args:
        begin: opens a file.
        file_bytes: a file is closed once it has more bytes, counted uncompressed.
    """

    def __init__(self, begin: Callable[[], OpenFile[Info_co]], file_bytes: int) -> None:
        self._begin = begin
        self._file_bytes = file_bytes
        self._ended: list[Info_co] = []
        self._file: OpenFile[Info_co] | None = None
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        #: Bytes of buffered rows, not in a file yet.
        self.held_bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether a file is open."""
        return self._file is not None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if batch.num_rows == 0:
            return
        self._held.append(batch)
        self.held_bytes += batch.nbytes
        self._size += batch.nbytes
        if self._size > self._file_bytes:
            self.roll()
        elif self.held_bytes > ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as a row group; opens a file if none is open."""
        if self._held:
            self._file = self._file or self._begin()
            self._file.write(pa.Table.from_batches(self._held))
            self._held, self.held_bytes = [], 0

    def roll(self) -> None:
        """Close the file; more rows go to another one."""
        self.flush()
        if self._file is not None:
            self._ended.append(self._file.end())
            self._file, self._size = None, 0

    def fill(self, batches: Iterable[pa.RecordBatch]) -> list[Info_co]:
        """Add all of `batches`, close the last file; see `end`."""
        for batch in batches:
            self.add(batch)
        return self.end()

    def end(self) -> list[Info_co]:
        """Close the last file; the results of `OpenFile.end`."""
        self.roll()
        return self._ended

"""Rows into data files of a bounded size, row group by row group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

#: A row group is written when so many bytes are held.
ROW_GROUP_BYTES = 64 << 20

Ended_co = TypeVar("Ended_co", covariant=True)


class OpenFile(Protocol[Ended_co]):
    """A data file that is being written."""

    def write(self, rows: pa.Table) -> None:
        """Add a row group."""

    def end(self) -> Ended_co:
        """No more rows; what there is to be said of the file."""


class RollingFiles(Generic[Ended_co]):
    """Rows of one schema as files; no file where there is no row.

    Args:
        begin: begins a file.
        file_bytes: a file is ended when it has more bytes, counted uncompressed.
    """

    def __init__(self, begin: Callable[[], OpenFile[Ended_co]], file_bytes: int) -> None:
        self._begin = begin
        self._file_bytes = file_bytes
        self._ended: list[Ended_co] = []
        self._file: OpenFile[Ended_co] | None = None
        self._held: list[pa.RecordBatch] = []
        self._taken = 0
        #: Bytes of rows that are not in a file yet.
        self.held_bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a file that more rows go to."""
        return self._file is not None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if batch.num_rows == 0:
            return
        self._held.append(batch)
        self.held_bytes += batch.nbytes
        self._taken += batch.nbytes
        if self._taken > self._file_bytes:
            self.roll()
        elif self.held_bytes > ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is held as a row group; only now is a file begun."""
        if self._held:
            self._file = self._file or self._begin()
            self._file.write(pa.Table.from_batches(self._held))
            self._held, self.held_bytes = [], 0

    def roll(self) -> None:
        """End the file; more rows go to another one."""
        self.flush()
        if self._file is not None:
            self._ended.append(self._file.end())
            self._file, self._taken = None, 0

    def fill(self, batches: Iterable[pa.RecordBatch]) -> list[Ended_co]:
        """Add all of `batches` and end."""
        for batch in batches:
            self.add(batch)
        return self.end()

    def end(self) -> list[Ended_co]:
        """No more rows; what `OpenFile.end` said of each file."""
        self.roll()
        return self._ended

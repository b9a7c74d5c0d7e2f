"""Data files: written by Spark's tasks from Arrow columns, through the table's own FileIO."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyspark.sql import DataFrame

from tailrace.model.change import ChangeBatch
from tailrace.sinks.unpack import Unpack
from tailrace.spark.jvm import map_in_arrow

#: A row group is written when so much is held, a file is ended when it has so many bytes, uncompressed.
_ROW_GROUP_BYTES, _FILE_BYTES = 64 << 20, 512 << 20


@dataclass(frozen=True)
class Place:
    """Where files go.

    Args:
        io: reaches them, here and in tasks.
        directory: their directory.
        schema: their columns, with field ids.
    """

    io: FileIO
    directory: str
    schema: pa.Schema

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[str]:
        """`batches` as files; their paths; no file where there is no row."""
        paths: list[str] = []
        writer: _Writer | None = None
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if writer is None:
                paths.append(f"{self.directory}/{uuid.uuid4()}.parquet")
                writer = _Writer(self.io, paths[-1], self.schema)
            if writer.add(batch) > _FILE_BYTES:
                writer.close()
                writer = None
        if writer is not None:
            writer.close()
        return paths


class _Writer:
    """One file."""

    def __init__(self, io: FileIO, path: str, schema: pa.Schema) -> None:
        self._stream: Any = io.new_output(path).create()
        self._file = pq.ParquetWriter(self._stream, schema, compression="zstd", store_schema=False)
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> int:
        """Take rows; the bytes of all taken."""
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        self._bytes += batch.nbytes
        if self._held_bytes > _ROW_GROUP_BYTES:
            self._flush()
        return self._bytes

    def close(self) -> None:
        """End the file."""
        self._flush()
        self._file.close()
        self._stream.close()

    def _flush(self) -> None:
        if self._held:
            rows = pa.Table.from_batches(self._held).select(self._schema.names)
            self._file.write_table(rows.cast(self._schema))
            self._held, self._held_bytes = [], 0


def write_cells(cells: DataFrame, unpack: Unpack, place: Place) -> list[str]:
    """The rows of `cells` (one column `cell`) as files, one or more per task; their paths."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (
            unpack(ChangeBatch.from_cell(cell.as_buffer())) for batch in batches for cell in batch.column(0)
        )
        yield paths_batch(place.write(rows))

    return [row[0] for row in map_in_arrow(cells, run, "path string").collect()]


def read(io: FileIO, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A file, or some columns of it."""
    with io.new_input(path).open() as stream:
        return pq.read_table(stream, columns=None if columns is None else list(columns))


def paths_batch(paths: Sequence[str]) -> pa.RecordBatch:
    """Paths as a task hands them over."""
    return pa.RecordBatch.from_arrays([pa.array(paths, pa.string())], ["path"])

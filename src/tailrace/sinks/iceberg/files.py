"""Data files, which Spark's tasks write from Arrow columns through the table's own FileIO."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import DataFrame

from tailrace.sinks.tables.parquet import ENCODING, bounds_of
from tailrace.sinks.tables.rolling import RollingFiles
from tailrace.sinks.tables.staging import Recipe
from tailrace.spark.cells import changes_of
from tailrace.spark.jvm import map_in_arrow

#: A file is closed once it has this many bytes, uncompressed.
_FILE_BYTES = 512 << 20


@dataclass(frozen=True)
class FileTarget:
    """Where and how data files are written.

    Args:
        io: accesses the files, in the driver and in tasks.
        directory: their directory.
        schema: their columns, with field ids.
    """

    io: FileIO
    directory: str
    schema: pa.Schema

    def write(self, batches: Iterable[pa.RecordBatch], *, file_bytes: int | None = _FILE_BYTES) -> list[str]:
        """Write `batches` into files; without rows there is no file.

        Args:
            batches: rows of the schema.
            file_bytes: a file is closed once it has more bytes, uncompressed; None: write a single file.

        Returns:
            The paths of the files.
        """
        return self.rolling(file_bytes).fill(batches)

    def rolling(self, file_bytes: int | None = _FILE_BYTES) -> RollingFiles[str]:
        """Files to be filled."""
        return RollingFiles(lambda: _File(self), sys.maxsize if file_bytes is None else file_bytes)


class _File:
    """An open file."""

    def __init__(self, target: FileTarget) -> None:
        self._path = f"{target.directory}/{uuid.uuid4()}.parquet"
        self._schema = target.schema
        self._stream: Any = target.io.new_output(self._path).create()
        self._writer = pq.ParquetWriter(self._stream, self._schema, store_schema=False, **ENCODING)

    def write(self, rows: pa.Table) -> None:
        """See OpenFile."""
        self._writer.write_table(rows.select(self._schema.names).cast(self._schema))

    def end(self) -> str:
        """See OpenFile."""
        self._writer.close()
        self._stream.close()
        return self._path


def write_cells(cells: DataFrame, recipe: Recipe[str]) -> list[str]:
    """Write the rows of `cells` (one column `cell`) into files, one or more per task; their paths.

    The cells may have older schemas than the recipe's.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        paths = recipe.begin().fill(map(recipe.unpack, changes_of(batches)))
        yield pa.RecordBatch.from_arrays([pa.array(paths, pa.string())], ["path"])

    return [row[0] for row in map_in_arrow(cells, run, "path string").collect()]


def read(
    io: FileIO, path: str, columns: Sequence[str] | None = None, *, within: pc.Expression | None = None
) -> pa.Table:
    """Read a file, or some of its columns, or the rows that meet a condition."""
    with io.new_input(path).open() as stream:
        return pq.read_table(stream, columns=None if columns is None else list(columns), filters=within)


def read_fitted(io: FileIO, path: str, schema: pa.Schema) -> pa.Table:
    """Read some of the table's present columns, which an older file may lack."""
    with io.new_input(path).open() as stream:
        file: Any = pq.ParquetFile(stream)
        held = _names_in(file.schema_arrow, schema)
        return fitted(file.read(columns=[name for name in held if name is not None]), schema)


def described(io: FileIO, metadata: TableMetadata, path: str) -> DataFile:
    """A file with its statistics, for a commit.

    Columns with dates or times that Python lacks (B.C., after 9999, infinite) have no bounds.
    """
    try:
        return parquet_file_to_data_file(io, metadata, path)
    except OverflowError:
        with io.new_input(path).open() as stream:
            footer = pq.read_metadata(stream)
        columns = [
            footer.row_group(g).column(c)
            for g in range(footer.num_row_groups)
            for c in range(footer.num_columns)
        ]
        beyond = {c.path_in_schema for c in columns if c.is_stats_set and bounds_of(c.statistics) is None}
        counted = {f"write.metadata.metrics.column.{name}": "counts" for name in beyond}
        changed = metadata.model_copy(update={"properties": {**metadata.properties, **counted}})
        return parquet_file_to_data_file(io, changed, path)


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows of an older file, with the table's present columns."""
    columns = [
        pa.nulls(rows.num_rows, field.type) if name is None else rows.column(name).cast(field.type)
        for name, field in zip(_names_in(rows.schema, schema), schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _names_in(held: pa.Schema, schema: pa.Schema) -> list[str | None]:
    """The name of each of a table's columns in an older file; None if the file lacks it.

    A column is known by its id: it may have been renamed since, or dropped and another of its name added. By
    name only if one side has no ids, as with files of changed keys.
    """
    ids = {id_: field.name for field in held if (id_ := _id_of(field)) is not None}
    names: list[str | None] = []
    for field in schema:
        id_ = _id_of(field)
        if id_ is not None and ids:
            names.append(ids.get(id_))
        else:
            names.append(field.name if field.name in held.names else None)
    return names


def _id_of(field: pa.Field) -> bytes | None:
    return (field.metadata or {}).get(b"PARQUET:field_id")

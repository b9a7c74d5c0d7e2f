"""Rows on their way into a Delta table: in cells still, or in files that one pass has made of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from tailrace.sinks.tables.parquet import DataFile, write_cells
from tailrace.spark.cells import Unpack, unpacked


@dataclass(frozen=True)
class StagedFiles:
    """Files of rows that are not part of a table yet.

    Args:
        directory: where they lie, on the table's own file system.
        files: they themselves.
        columns: the source's columns that they were made for.
    """

    directory: str
    files: Sequence[DataFile]
    columns: pa.Schema


@dataclass(frozen=True)
class NewRows:
    """Rows of one table.

    Args:
        cells: the cells (one column `cell`) that they are in; asked for only if they are read.
        unpack: makes rows of a cell.
        fields: the rows' columns.
        staging: where they are already, if they are.
    """

    cells: Callable[[], DataFrame]
    unpack: Unpack
    fields: pa.Schema
    staging: StagedFiles | None = None

    def into(self, directory: str) -> Sequence[DataFile]:
        """Put them into `directory`, as files that nothing names yet."""
        if self.staging is None:
            return write_cells(self.cells(), self.unpack, self.fields, directory)
        Path(directory).mkdir(parents=True, exist_ok=True)
        for file in self.staging.files:
            Path(self.staging.directory, file.name).rename(Path(directory, file.name))
        return self.staging.files

    def frame(self) -> DataFrame:
        """They as Spark's rows."""
        return unpacked(self.cells(), self.unpack, self.fields)

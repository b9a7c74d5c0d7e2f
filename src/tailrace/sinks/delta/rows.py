"""New rows of a Delta table: in cells, or in files that one pass over the batch has staged."""

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
    """Files that are not part of a table yet.

    Args:
        directory: their directory, on the table's own file system.
        files: the files.
        columns: the source's columns that they were written for.
    """

    directory: str
    files: Sequence[DataFile]
    columns: pa.Schema

    def into(self, directory: str) -> Sequence[DataFile]:
        """Put them into `directory`."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        for file in self.files:
            Path(self.directory, file.name).rename(Path(directory, file.name))
        return self.files


@dataclass(frozen=True)
class NewRows:
    """New rows of one table.

    Args:
        cells: gives the cells (one column `cell`) with the rows; called only if they are read.
        unpack: makes rows of a cell.
        fields: the rows' columns.
        staged: files with the rows, if they are staged already.
    """

    cells: Callable[[], DataFrame]
    unpack: Unpack
    fields: pa.Schema
    staged: StagedFiles | None = None

    def into(self, directory: str) -> Sequence[DataFile]:
        """Put the rows into `directory`, as files that belong to no table yet."""
        if self.staged is not None:
            return self.staged.into(directory)
        return write_cells(self.cells(), self.unpack, self.fields, directory)

    def frame(self) -> DataFrame:
        """The rows as a DataFrame."""
        return unpacked(self.cells(), self.unpack, self.fields)

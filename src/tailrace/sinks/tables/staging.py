"""Rows of a batch as staged files: what one pass over its cells writes for tables (`sinks.single_pass`).

Each task fills files of all tables side by side, and stops at the first cell that there is no recipe for.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from tailrace.errors import concerning
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.sinks.base import CellBatch
from tailrace.sinks.tables.rolling import ROW_GROUP_BYTES, RollingFiles
from tailrace.spark.cells import TableBatch, Unpack, changes_of
from tailrace.spark.jvm import map_in_arrow

File = TypeVar("File")
Staged = TypeVar("Staged")

#: Files that a task keeps open at the same time (they have a row group already).
_MOST_OPEN = 64
_REPORT = pa.schema([("report", pa.binary())])


@dataclass(frozen=True)
class Recipe(Generic[File]):
    """How tasks write the changes of one table into files.

    Args:
        schema: the table's schema.
        unpack: makes rows of changes.
        begin: opens files for the rows.
    """

    schema: TableSchema
    unpack: Unpack
    begin: Callable[[], RollingFiles[File]]


@dataclass(frozen=True)
class StagedBatch(Generic[Staged]):
    """A batch, and its files that are staged already.

    Args:
        is_complete: whether there was a recipe for everything that the batch holds; if not, the files must
            not be used.
        table_batches: what the batch holds.
        files: staged files by table and kind.
    """

    is_complete: bool
    table_batches: list[TableBatch]
    files: dict[tuple[str, str], Staged]

    @classmethod
    def of(cls, batch: CellBatch) -> StagedBatch[Staged]:
        """What `batch` holds; no files are staged."""
        return cls(True, batch.table_batches, {})


def stage(
    cells: DataFrame,
    recipes: Mapping[tuple[str, str], Recipe[File]],
    label: Callable[[tuple[str, str], list[File]], Staged],
) -> StagedBatch[Staged]:
    """Write the rows of `cells` into files, in one pass.

    Args:
        cells: one column, `cell`.
        recipes: by table and kind of cell.
        label: adds to the files of a recipe what the commit must know of them.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        report = pickle.dumps(_write(changes_of(batches), recipes))
        yield pa.RecordBatch.from_arrays([pa.array([report], pa.binary())], schema=_REPORT)

    found: dict[tuple[str, str], _Written[File]] = {}
    is_complete = True
    for row in map_in_arrow(cells, run, "report binary").collect():
        report: _Report[File] = pickle.loads(row["report"])  # noqa: S301 - our own
        is_complete &= report.is_complete
        for key, written in report.written.items():
            found.setdefault(key, _Written()).add(written)
    parts = [
        TableBatch(
            recipes[key].schema.id,
            key[1],
            written.changes,
            written.cells,
            (recipes[key].schema,),
            (recipes[key].schema,),
        )
        for key, written in sorted(found.items())
    ]
    return StagedBatch(is_complete, parts, {key: label(key, written.files) for key, written in found.items()})


@dataclass
class _Written(Generic[File]):
    """What a task has read of one table's cells, and the files it has written."""

    changes: int = 0
    cells: int = 0
    files: list[File] = field(default_factory=list)

    def add(self, other: _Written[File]) -> None:
        self.changes += other.changes
        self.cells += other.cells
        self.files += other.files


@dataclass
class _Report(Generic[File]):
    """What a task has written, up to the first cell that there was no recipe for."""

    is_complete: bool
    written: dict[tuple[str, str], _Written[File]]


def _write(changes: Iterable[ChangeBatch], recipes: Mapping[tuple[str, str], Recipe[File]]) -> _Report[File]:
    """Write all of `changes`, or those before the first that there is no recipe for; runs in a task."""
    found: dict[tuple[str, str], _Written[File]] = {}
    filled: dict[tuple[str, str], RollingFiles[File]] = {}
    held, is_complete = 0, True
    for batch in changes:
        key = (str(batch.table.id), batch.kind)
        recipe = recipes.get(key)
        if recipe is None or recipe.schema.text != batch.table.text:
            is_complete = False
            break
        if key not in filled:
            filled[key], found[key] = recipe.begin(), _Written()
        found[key].add(_Written(len(batch), 1))
        files = filled[key]
        held -= files.held_bytes
        with concerning(batch.table.id, sink=True):
            files.add(recipe.unpack(batch))
        held += files.held_bytes
        if held > ROW_GROUP_BYTES:
            held = _relieve(filled.values())
    for key, files in filled.items():
        found[key].files += files.end()
    return _Report(is_complete, found)


def _relieve(filled: Collection[RollingFiles[File]]) -> int:
    """Flush the fullest files, and close some if too many are open; the bytes that are held then."""
    held = sum(files.held_bytes for files in filled)
    for files in sorted(filled, key=lambda files: files.held_bytes, reverse=True):
        if held <= ROW_GROUP_BYTES // 2:
            break
        held -= files.held_bytes
        files.flush()
        if sum(files.is_open for files in filled) > _MOST_OPEN:
            files.roll()
    return held

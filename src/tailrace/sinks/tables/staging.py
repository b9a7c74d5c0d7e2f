"""A batch's rows as files by one pass over its cells, if every table is met with the shape it had last.

What a batch holds is known when its cells have been read; how its rows are to be written must be known
before. So cells are kept, looked at and then written: three jobs of Spark, and more with several tables. But
nearly all batches hold what those before them held: then tasks write each table's rows as they read its
cells, and say what they met. Should one of them meet anything else, all that was written is thrown away, and
the batch goes the long way, as do the next ones until one has brought nothing new.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from tailrace.model.cell import LOG, SNAPSHOT
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableId, TableSchema
from tailrace.sinks.tables.rolling import ROW_GROUP_BYTES, RollingFiles
from tailrace.spark.cells import TableBatch, Unpack, changes_of
from tailrace.spark.jvm import map_in_arrow

File = TypeVar("File")

#: Files that a task fills at the same time, of those that have a row group already.
_MOST_OPEN = 64
_REPORT = pa.schema([("met", pa.binary())])


@dataclass(frozen=True)
class Recipe(Generic[File]):
    """How the changes of one table become files; goes to tasks.

    Args:
        shape: the table's shape.
        unpack: makes rows of them.
        begin: opens files for the rows.
    """

    shape: TableSchema
    unpack: Unpack
    begin: Callable[[], RollingFiles[File]]


@dataclass(frozen=True)
class StagedBatch(Generic[File]):
    """What a pass has written.

    Args:
        is_whole: there was a recipe for all that was met; else the files are good for nothing.
        parts: what the batch holds.
        files: of each part, by table and kind.
    """

    is_whole: bool
    parts: list[TableBatch]
    files: Mapping[tuple[str, str], list[File]]


def stage(cells: DataFrame, recipes: Mapping[tuple[str, str], Recipe[File]]) -> StagedBatch[File]:
    """Write the rows of `cells`.

    Args:
        cells: one column, `cell`.
        recipes: by table and kind of cell.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        met = pickle.dumps(_write(changes_of(batches), recipes))
        yield pa.RecordBatch.from_arrays([pa.array([met], pa.binary())], schema=_REPORT)

    found: dict[tuple[str, str], _Met[File]] = {}
    is_whole = True
    for row in map_in_arrow(cells, run, "met binary").collect():
        report: _Report[File] = pickle.loads(row["met"])  # noqa: S301 - our own
        is_whole &= report.is_whole
        for key, met in report.met.items():
            found.setdefault(key, _Met()).add(met)
    parts = [
        TableBatch(recipes[key].shape.id, key[1], met.changes, met.cells, (recipes[key].shape,))
        for key, met in sorted(found.items())
    ]
    return StagedBatch(is_whole, parts, {key: met.files for key, met in found.items()})


@dataclass
class _Met(Generic[File]):
    """What of one table's cells a task has met, and the files it has made of it."""

    changes: int = 0
    cells: int = 0
    files: list[File] = field(default_factory=list)

    def add(self, other: _Met[File]) -> None:
        self.changes += other.changes
        self.cells += other.cells
        self.files += other.files


@dataclass
class _Report(Generic[File]):
    """What a task has met, up to what there was no recipe for."""

    is_whole: bool
    met: dict[tuple[str, str], _Met[File]]


def _write(changes: Iterable[ChangeBatch], recipes: Mapping[tuple[str, str], Recipe[File]]) -> _Report[File]:
    """In a task: write all of `changes`, or those before the first that there is no recipe for."""
    found: dict[tuple[str, str], _Met[File]] = {}
    filled: dict[tuple[str, str], RollingFiles[File]] = {}
    held, is_whole = 0, True
    for batch in changes:
        key = (str(batch.table.id), SNAPSHOT if batch.is_snapshot else LOG)
        recipe = recipes.get(key)
        if recipe is None or recipe.shape.text != batch.table.text:
            is_whole = False
            break
        if key not in filled:
            filled[key], found[key] = recipe.begin(), _Met()
        found[key].add(_Met(len(batch), 1))
        files = filled[key]
        held -= files.held_bytes
        files.add(recipe.unpack(batch))
        held += files.held_bytes
        if held > ROW_GROUP_BYTES:
            held = _relieved(filled.values())
    for key, files in filled.items():
        found[key].files += files.end()
    return _Report(is_whole, found)


def _relieved(filled: Collection[RollingFiles[File]]) -> int:
    """Hold no more rows of many tables than of one, and not many files open; the bytes that are held then."""
    held = sum(files.held_bytes for files in filled)
    for files in sorted(filled, key=lambda files: files.held_bytes, reverse=True):
        if held <= ROW_GROUP_BYTES // 2:
            break
        held -= files.held_bytes
        files.flush()
        if sum(files.is_open for files in filled) > _MOST_OPEN:
            files.roll()
    return held


class ExpectedSchemas:
    """What the next batch is expected to hold: the shapes that tables were last met with.

    A batch that holds anything else is found out after its cells have been read in vain. What is new seldom
    comes alone: so after one such batch nothing is expected until one has brought nothing new.
    """

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, str], TableSchema] = {}
        self._was_wrong = False

    def met(self, parts: Iterable[TableBatch]) -> None:
        """A batch that is written held `parts`."""
        last = {(str(part.table), part.kind): part.shapes[-1] for part in parts}
        self._was_wrong = self._was_wrong and any(self._shapes.get(k) != shape for k, shape in last.items())
        self._shapes |= last

    def forget(self, tables: Iterable[TableId]) -> None:
        """These tables are gone."""
        gone = set(map(str, tables))
        self._shapes = {key: shape for key, shape in self._shapes.items() if key[0] not in gone}

    def was_wrong(self) -> None:
        """A batch held anything else."""
        self._was_wrong = True

    def shapes(self) -> Mapping[tuple[str, str], TableSchema]:
        """The shapes by table and kind of cell; empty where nothing is expected."""
        return {} if self._was_wrong else self._shapes

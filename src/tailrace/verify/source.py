"""The source side: every row of a table as of a batch's end, with the target's columns.

The rows are read like those of a snapshot: `read_snapshot` over the whole key range, as of P(n). So they are
exact while writers run, however long it takes. The log since P(n) is read once per range.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from dataclasses import field as default
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.config.options import SourceOptions
from tailrace.enumerator.snapshot import KeyRange
from tailrace.enumerator.snapshot_pace import SnapshotPace
from tailrace.errors import SchemaMismatchError
from tailrace.model.split import Key, SnapshotSplit
from tailrace.model.table import TableSchema
from tailrace.reader.snapshot import read_snapshot
from tailrace.sinks.tables.columns import stored_schema, stored_type
from tailrace.sinks.tables.text_form import as_text, becomes_text
from tailrace.sources import registry
from tailrace.sources.base import Source
from tailrace.verify.checksum import Checksums, rows_in
from tailrace.verify.kept import KeptComparison, RangeRead
from tailrace.verify.progress import ReadProgress

#: Rows of one SELECT: bounds the memory of a reader.
PAGE_ROWS = 50_000
#: How often to look whether a reader that is held may go on, seconds.
_HELD_S = 0.2
#: A table is read in several ranges concurrently if each has at least this many rows.
RANGE_ROWS = 400_000


@dataclass(frozen=True)
class SourceTable:
    """A table, and the part of it that must be in the target.

    Args:
        schema: its current schema.
        estimated_rows: the catalog's estimate.
        unfinished: whether its first snapshot was still running at the batch's end.
        cursor: the snapshot's cursor at that time; None: no row had been read.
        shard: a column of the target that its rows have in addition, and what it holds in each; None: none.
    """

    schema: TableSchema
    estimated_rows: int
    unfinished: bool = False
    cursor: Key | None = None
    shard: tuple[str, str] | None = None

    @property
    def columns(self) -> pa.Schema:
        """The columns that a target of it has."""
        columns = stored_schema(self.schema)
        return columns if self.shard is None else columns.append(pa.field(self.shard[0], pa.string()))

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns that a target of it has."""
        return self.schema.key if self.shard is None else (*self.schema.key, self.shard[0])

    @property
    def begun(self) -> bool:
        """Whether any row must be in the target."""
        return not self.unfinished or self.cursor is not None


def ranges(source: Source, table: SourceTable, most: int) -> list[KeyRange]:
    """Divide `table` into key ranges that are read concurrently.

    Args:
        source: the database.
        table: the table.
        most: most ranges; fewer if they would be smaller than RANGE_ROWS.
    """
    if not table.begun:
        return []
    if table.unfinished:
        return [KeyRange(None, table.cursor)]
    parts = max(1, min(most, table.estimated_rows // RANGE_ROWS))
    found: list[KeyRange] = []
    after: Key | None = None
    while len(found) < parts - 1:
        upto = source.boundary(table.schema, after, table.estimated_rows // parts)
        if upto is None:
            break
        found.append(KeyRange(after, upto))
        after = upto
    return [*found, KeyRange(after, None)]


def by_table(parts: Sequence[tuple[SourceTable, KeyRange]]) -> dict[str, tuple[int, int]]:
    """For each table of `parts` its estimated number of rows, and the number of its parts."""
    names = [str(table.schema.id) for table, _ in parts]
    return {
        name: (table.estimated_rows, names.count(name)) for name, (table, _) in zip(names, parts, strict=True)
    }


@dataclass(frozen=True)
class Reader:
    """Reads key ranges as of one position.

    Args:
        options: the source's options.
        as_of: the position, as JSON.
        stopping: set to cancel reading.
        progress: hears of rows that are read.
        pace: the limits of reading; None: there are none.
        page_rows: rows of one SELECT.
        keeps_times: whether targets hold times of a day as such, rather than as numbers of microseconds.
        kept: notes how far ranges are read; None: nothing does.
    """

    options: SourceOptions
    as_of: Any
    stopping: threading.Event
    progress: ReadProgress
    pace: SnapshotPace | None = None
    page_rows: int = PAGE_ROWS
    keeps_times: bool = False
    kept: KeptComparison | None = None
    _lock: threading.Lock = default(default_factory=threading.Lock)

    def checksums(
        self, table: SourceTable, part: RangeRead, columns: pa.Schema, key: Sequence[str]
    ) -> Checksums:
        """The checksums of the rows in `part`; those that were read before are not read again."""
        name, kept = str(table.schema.id), self.kept

        def note(upto: Key | None) -> None:
            if kept is not None and not self.stopping.is_set():
                kept.read(name, part, upto)

        if not part.done:
            for rows in self._rows(table, part.rest, columns, note):
                part.sums.add(rows, key)
            note(None)
        self.progress.ended(name)
        return part.sums

    def rows(
        self, table: SourceTable, part: KeyRange, columns: pa.Schema, key: Sequence[str], buckets: np.ndarray
    ) -> pa.Table:
        """The rows in `part` that belong to some buckets."""
        kept = [rows_in(rows, key, buckets) for rows in self._rows(table, part, columns)]
        self.progress.ended(str(table.schema.id))
        return pa.Table.from_batches(kept, columns)

    def _rows(
        self,
        table: SourceTable,
        part: KeyRange,
        columns: pa.Schema,
        on_page: Callable[[Key | None], None] = lambda _: None,
    ) -> Iterator[pa.RecordBatch]:
        split = SnapshotSplit(table.schema, part.after, part.upto, self.as_of, self.page_rows)
        with closing(registry.session(self.options)) as session:
            for batch in read_snapshot(session.located(split), session, exact=True, on_page=on_page):
                if self.stopping.is_set():
                    return
                self.progress.read(str(table.schema.id), len(batch))
                rows = batch.image("after")
                self._hold(rows)
                yield as_stored(rows, columns, table.schema, table.shard, keeps_times=self.keeps_times)

    def _hold(self, rows: pa.StructArray) -> None:
        """Wait until more may be read than `rows`."""
        pace = self.pace
        if pace is None or not len(rows):
            return
        with self._lock:
            pace.look()
            pace.planned(len(rows), rows.nbytes // len(rows))
            while not pace.may_read and not self.stopping.wait(_HELD_S):
                pace.look()


def as_stored(
    rows: pa.StructArray,
    columns: pa.Schema,
    table: TableSchema,
    shard: tuple[str, str] | None = None,
    *,
    keeps_times: bool = False,
) -> pa.RecordBatch:
    """Convert rows of the source to the columns and types of a target; columns the source lacks are null.

    Args:
        rows: row images.
        columns: the target's columns.
        table: the source's table, for errors.
        shard: see `SourceTable`.
        keeps_times: as of Reader.

    Raises:
        SchemaMismatchError: values do not fit the target's type.
    """
    by_name = {field.name.lower(): rows.field(i) for i, field in enumerate(rows.type)}
    if shard is not None:
        by_name[shard[0].lower()] = pa.repeat(pa.scalar(shard[1], pa.string()), len(rows))
    arrays = []
    for field in columns:
        array = by_name.get(field.name.lower())
        if array is None:
            array = pa.nulls(len(rows), field.type)
        elif becomes_text(field.type, array.type):
            array = as_text(array if keeps_times else array.cast(stored_type(array.type)))
        elif array.type != field.type:
            try:
                array = array.cast(stored_type(array.type)).cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise SchemaMismatchError(
                    f"column `{field.name}` of `{table.id}` cannot be compared",
                    f"the source's values do not fit the target's type {field.type}",
                    "verify again after the pipeline has processed the column's change",
                    code="TR-8105",
                ) from None
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=columns)

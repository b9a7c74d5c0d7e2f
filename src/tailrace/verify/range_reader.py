"""A key range of the source as of a batch's end, with the target's columns: read by a task, or the driver.

The rows are read like those of a snapshot: `read_snapshot` over the range, as of P(n). So they are exact
while writers run, however long it takes. The log since P(n) is read once per range.

A task has a range and its reader alone. So the limits of reading are a reader's own, its share of those of
all: nothing is counted for several tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
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
from tailrace.sinks.replica.list_columns import as_bytes
from tailrace.sinks.tables.columns import stored_schema, stored_type
from tailrace.sinks.tables.text_form import as_text, becomes_text
from tailrace.sources import registry
from tailrace.verify.checksum import Checksums, rows_in
from tailrace.verify.foreign import as_plain_json, is_json

#: Rows of one SELECT: bounds the memory of a reader.
PAGE_ROWS = 50_000


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


@dataclass(frozen=True)
class SourceRange:
    """A key range that is compared.

    Args:
        table: its table.
        part: the range.
        columns: the columns to compare, with the target's types.
        key: names of the key columns.
    """

    table: SourceTable
    part: KeyRange
    columns: pa.Schema
    key: tuple[str, ...]

    @property
    def name(self) -> str:
        """The table's name."""
        return str(self.table.schema.id)


def _ignored(_: object) -> None:
    """Hears of something that nobody wants to know."""


@dataclass(frozen=True)
class RangeReader:
    """Reads key ranges as of one position; tasks get it pickled.

    Args:
        options: the source's options; if it is paced, with the limits of this reader.
        as_of: the position, as JSON.
        page_rows: rows of one SELECT.
        keeps_times: whether targets hold times of a day as such, rather than as numbers of microseconds.
        is_paced: whether it reads within the limits of the options.
    """

    options: SourceOptions
    as_of: Any
    page_rows: int = PAGE_ROWS
    keeps_times: bool = False
    is_paced: bool = False

    def __getstate__(self) -> dict[str, Any]:
        # A secret may refer to a file or variable of the driver's machine: tasks elsewhere get its value.
        return {**self.__dict__, "options": self.options.for_tasks()}

    def within(self, limits: SourceOptions, readers: int) -> RangeReader:
        """The same for one of `readers` that together keep to limits, as of snapshots.

        Args:
            limits: options with the limits; windows of the day are not among them.
            readers: how many read at the same time.
        """
        rows, size = (
            None if rate is None else max(1, rate // readers)
            for rate in (limits.snapshot_max_rows_per_second, limits.snapshot_max_bytes_per_second)
        )
        options = replace(
            self.options,
            snapshot_max_rows_per_second=rows,
            snapshot_max_bytes_per_second=size,
            snapshot_max_active_sessions=limits.snapshot_max_active_sessions,
            snapshot_max_replica_lag=limits.snapshot_max_replica_lag,
            snapshot_windows=(),
        )
        return replace(self, options=options, page_rows=min(self.page_rows, rows or PAGE_ROWS), is_paced=True)

    def add(
        self,
        work: SourceRange,
        sums: Checksums,
        *,
        on_rows: Callable[[int], None] = _ignored,
        on_page: Callable[[Key | None], None] = _ignored,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Add the rows of a range to checksums.

        Args:
            work: the range.
            sums: the checksums.
            on_rows: hears of numbers of rows that are read; may raise an error.
            on_page: hears of the key up to which all rows are added, as of `read_snapshot`.
            sleep: waits for some seconds while nothing may be read; may raise an error.
        """
        for rows in self._read(work, on_rows, on_page, sleep):
            sums.add(rows, work.key)

    def rows(
        self,
        work: SourceRange,
        buckets: np.ndarray,
        *,
        on_rows: Callable[[int], None] = _ignored,
        sleep: Callable[[float], None] = time.sleep,
    ) -> pa.Table:
        """The rows of a range that belong to some buckets; arguments as of `add`."""
        read = self._read(work, on_rows, _ignored, sleep)
        return pa.Table.from_batches([rows_in(rows, work.key, buckets) for rows in read], work.columns)

    def _read(
        self,
        work: SourceRange,
        on_rows: Callable[[int], None],
        on_page: Callable[[Key | None], None],
        sleep: Callable[[float], None],
    ) -> Iterator[pa.RecordBatch]:
        table = work.table
        split = SnapshotSplit(table.schema, work.part.after, work.part.upto, self.as_of, self.page_rows)
        with ExitStack() as stack:
            session = stack.enter_context(closing(registry.session(self.options)))
            pace = self._pace(stack, sleep)
            for batch in read_snapshot(session.located(split), session, exact=True, on_page=on_page):
                rows = batch.image("after")
                on_rows(len(rows))
                if pace is not None:
                    keep_to(pace, rows)
                yield as_stored(rows, work.columns, table.schema, table.shard, keeps_times=self.keeps_times)

    def _pace(self, stack: ExitStack, sleep: Callable[[float], None]) -> SnapshotPace | None:
        """The limits of reading a range; None: there are none."""
        if not self.is_paced:
            return None
        source = stack.enter_context(closing(registry.source(self.options)))
        # nothing has accrued: else each range would begin with what a second brings
        return SnapshotPace(self.options, source.activity, time.monotonic, sleep=sleep, has_accrued=False)


def keep_to(pace: SnapshotPace, rows: pa.StructArray) -> None:
    """Wait until more may be read than `rows`."""
    if len(rows):
        pace.look()
        pace.planned(len(rows), rows.nbytes // len(rows))
        pace.wait()


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
        elif is_json(field):
            array = as_plain_json(array)
        elif pa.types.is_binary(field.type) and pa.types.is_list(array.type):
            array = as_bytes(array)  # vectors, where the target's server has none
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

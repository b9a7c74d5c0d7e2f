"""`spark.read.format("tailrace")`: the tables as they are now, all of them at one position of the log.

    plan    P = the log's end ─▶ key ranges of every table
    tasks   each range as of P, read like a stream's snapshot split (`reader.snapshot`)

Spark plans a DataFrame once, so all its actions see the rows as of P. Where that needs a snapshot that the
planning connection holds (PostgreSQL), one task chooses P and reads everything, in each action anew: Spark
plans in a process that does not wait for the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError
from tailrace.machine import cores
from tailrace.model.split import Key, SnapshotSplit
from tailrace.sources import registry
from tailrace.sources.base import CapturedTable, Source
from tailrace.spark.partition import SplitPartition, read_split
from tailrace.spark.row_layouts import RowLayout
from tailrace.spark.user_errors import in_short

#: Most rows of one SELECT: this bounds a task's memory, not the range's size.
PAGE_ROWS = 65_536
#: Ranges of a table, for each task that runs at the same time, at most.
_RANGES_PER_TASK = 8


class TablesPartition(InputPartition):
    """All tables; the task chooses the position."""

    def __init__(self) -> None:
        super().__init__(None)


class TailraceReader(DataSourceReader):
    """Plans and reads the tables at one position.

    Args:
        options: the options of the read.
        layout: converts rows to those of the selected shape.
    """

    def __init__(self, options: SourceOptions, layout: RowLayout) -> None:
        # `snapshot`: rows without a log after them need neither slot nor publication
        self._options = replace(options, starting_position="snapshot")
        self._layout = layout

    def __getstate__(self) -> dict[str, Any]:
        # A secret may refer to a file or variable of the driver's machine: tasks elsewhere get its value.
        return {**self.__dict__, "_options": self._options.for_tasks()}

    @in_short
    def partitions(self) -> Sequence[InputPartition]:
        """The key ranges of every table, as of the log's end."""
        with closing(registry.source(self._options)) as source:
            source.require()
            if source.holds_snapshots:
                return [TablesPartition()]
            splits = list(_splits(source, self._options))
        return [SplitPartition((split,)) for split in splits]

    @in_short
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        if isinstance(partition, SplitPartition):
            for split in partition.splits:
                yield from read_split(split, self._options, self._layout, follows=False)
            return
        with closing(registry.source(self._options)) as source:
            for split in _splits(source, self._options):
                yield from read_split(split, self._options, self._layout, follows=False)


def _splits(source: Source, options: SourceOptions) -> Iterator[SnapshotSplit]:
    """Every table, as of one position."""
    tables = source.tables()
    if not tables:
        raise ConfigError(
            "no table is captured",
            f"no table matches {options.choice}",
            "each pattern must match a whole `database.table`; a dot matches any character",
            code="TR-1401",
        )
    as_of = source.as_of(source.starting_position())
    for table in tables:
        if not options.reads_rows_of(str(table.schema.id)):
            continue
        for after, upto in _ranges(source, table, options):
            yield SnapshotSplit(table.schema, after, upto, as_of, PAGE_ROWS)


def _ranges(
    source: Source, table: CapturedTable, options: SourceOptions
) -> Iterator[tuple[Key | None, Key | None]]:
    """Key ranges of a table: chunks as a stream's, larger ones of a table with many rows."""
    tasks = options.snapshot_parallelism or cores()
    most = tasks * _RANGES_PER_TASK
    rows = max(options.snapshot_chunk_rows, table.estimated_rows // most)
    after: Key | None = None
    while not source.holds_snapshots:
        upto = source.boundary(table.schema, after, rows)
        if upto is None:
            break
        yield after, upto
        after = upto
    yield after, None

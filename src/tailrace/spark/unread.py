"""Splits in place of their cells: the tasks that write a batch read them.

A pipeline's source gives Spark one row for each partition: what is to be read. The sink's functions, which
run in tasks of the same job, turn it into cells (`cells_in`). Else every change would go from the Python
process that reads it through Spark's JVM into the one that writes it, which costs an appending sink a third
of its CPU time. Where a batch is cached, its cells are read first (`read`).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from tailrace.config.options import SourceOptions
from tailrace.model.cell import CELL_SCHEMA
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.partition import SplitPartition, read_partition
from tailrace.spark.row_layouts import CellLayout
from tailrace.spark.trouble import note_trouble
from tailrace.spark.user_errors import in_short

#: The row of a partition, pickled with the stream's options, as Spark pickles a reader.
UNREAD_SCHEMA = pa.schema([("split", pa.binary())])


def unread_row(partition: SplitPartition, options: SourceOptions) -> pa.RecordBatch:
    """A partition in place of its cells.

    Args:
        partition: the partition.
        options: the stream's options, those for tasks.
    """
    packed = pickle.dumps((partition, options))
    return pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], schema=UNREAD_SCHEMA)


def is_unread(frame: DataFrame) -> bool:
    """Whether a frame holds splits in place of cells."""
    names: list[str] = UNREAD_SCHEMA.names
    return frame.columns == names


def columns_of(frame: DataFrame, *names: str) -> DataFrame:
    """Columns of the cells in a frame, for tasks that call `cells_in`: they read splits themselves."""
    return frame if is_unread(frame) else frame.select(*names)


def read(frame: DataFrame) -> DataFrame:
    """The cells of a frame, all columns; tasks read them."""
    if not is_unread(frame):
        return frame
    return map_in_arrow(
        frame, lambda batches: cells_in(batches, CELL_SCHEMA.names), from_arrow_schema(CELL_SCHEMA)
    )


@in_short
def cells_in(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The cells in a task's rows; splits among them are read.

    Args:
        batches: the rows, those of `columns_of`.
        names: columns of the cells that the rows have.
    """
    for batch in batches:
        if batch.schema.names != UNREAD_SCHEMA.names:
            yield batch
            continue
        note_trouble()
        for split in batch.column(0):
            partition, options = pickle.loads(split.as_py())  # noqa: S301 - our own
            for cells in read_partition(partition, options, CellLayout()):
                yield cells.select(names)

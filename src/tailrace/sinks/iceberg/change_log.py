"""Change logs whose tables are read again receive true differences only (`sinks.tables.corrections`).

The rows of a reading are written into files that belong to no snapshot, beside the keys that changes of the
log leave; `seen` says which. The batch that ends the reading adds the corrections, in its own commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyspark.sql import DataFrame, SparkSession

from tailrace.sinks.iceberg.files import FileTarget, fitted, write_cells
from tailrace.sinks.iceberg.seen import Unseen
from tailrace.sinks.tables.corrections import corrections
from tailrace.sinks.tables.rows import log_fields, remaining_keys
from tailrace.sinks.tables.staging import Recipe
from tailrace.spark.cells import TableBatch, spark_schema
from tailrace.spark.jvm import map_in_arrow


def left_keys(part: TableBatch, frame: DataFrame, keys: FileTarget) -> list[str]:
    """Write the keys that changes of the log leave; the paths of the files.

    Args:
        part: the changes.
        frame: the batch's cells.
        keys: writes the files; its schema has the key's columns.
    """
    bare = pa.schema([pa.field(column.name, column.type) for column in keys.schema])
    recipe = Recipe(part.schemas[-1], remaining_keys(bare), partial(keys.rolling, None))
    return write_cells(part.cells_of(frame), recipe)


def correction_files(
    session: SparkSession,
    unseen: Unseen,
    held: Sequence[str],
    columns: pa.Schema,
    data: FileTarget,
    *,
    ts_ms: int,
) -> list[str]:
    """Write what a change log lacks at the end of a reading; the paths of the data files.

    Args:
        session: runs the tasks.
        unseen: the reading's files, and the table.
        held: the paths of the change log's files.
        columns: the source's columns.
        data: writes data files.
        ts_ms: the time of deletions, milliseconds since 1970 UTC; 0: unknown.
    """
    rows = pa.schema([pa.field(column.name, column.type) for column in log_fields(columns)])
    keys = pa.schema([columns.field(name) for name in unseen.key])
    log = _rows_of(session, data.io, held, rows)
    if unseen.shard is not None:
        log = log.where(log[f"`{unseen.shard.replace('`', '``')}`"] == unseen.table)
    found = corrections(
        log,
        _rows_of(session, data.io, unseen.rows, rows),
        _rows_of(session, data.io, unseen.files, keys),
        columns,
        key=unseen.key,
        ts_ms=ts_ms,
        marks=unseen.marks,
    )

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array(data.write(batches), pa.string())], ["path"])

    return [row[0] for row in map_in_arrow(found, run, "path string").collect()]


def _rows_of(session: SparkSession, io: FileIO, paths: Sequence[str], schema: pa.Schema) -> DataFrame:
    """The rows of files, which may lack columns, a batch of rows at a time."""
    if not paths:
        return session.createDataFrame([], spark_schema(schema))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                with io.new_input(path).open() as stream:
                    file = pq.ParquetFile(stream)
                    names = [name for name in schema.names if name in file.schema_arrow.names]
                    for rows in file.iter_batches(columns=names):
                        yield from fitted(pa.Table.from_batches([rows]), schema).to_batches()

    work = session.createDataFrame([(path,) for path in paths], "path string")
    return map_in_arrow(work.repartition(len(paths)), run, spark_schema(schema))

"""Cells in Spark: what a batch of them holds, table by table, and their rows, unpacked by Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tailrace.model.cell import decode_cell, table_of_head
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableId, TableSchema
from tailrace.spark.jvm import map_in_arrow

#: Rows of one Arrow batch on its way into the JVM: more are slower.
_ROWS_PER_BATCH = 8192

#: Makes rows of a cell's changes.
Unpack = Callable[[ChangeBatch], pa.RecordBatch]


@dataclass(frozen=True)
class TableBatch:
    """The snapshot or log cells of one table in one batch.

    Args:
        table: the table.
        kind: SNAPSHOT or LOG.
        changes: changes in them.
        cells: how many cells.
        shapes: the table's shapes in them, in log order.
    """

    table: TableId
    kind: str
    changes: int
    cells: int
    shapes: tuple[TableSchema, ...]

    def cells_of(self, frame: DataFrame) -> DataFrame:
        """This part's cells: one column `cell`."""
        return frame.where((f.col("table") == str(self.table)) & (f.col("kind") == self.kind)).select("cell")


def table_batches(frame: DataFrame) -> list[TableBatch]:
    """The parts of a batch, sorted by table, snapshot after log."""
    found: dict[tuple[str, str], list[tuple[str, int, int, TableSchema]]] = {}
    # An IPC stream begins with four bytes 0xff, the schema message's length (little endian), the message.
    length = f.conv(f.concat(*(f.hex(f.substring("cell", byte, 1)) for byte in (8, 7, 6, 5))), 16, 10).cast(
        "int"
    )
    heads = frame.groupBy("table", "kind", "fingerprint").agg(
        f.sum("changes").alias("changes"),
        f.count("*").alias("cells"),
        f.min("min_seq").alias("seq"),
        # lengths and labels are no part of a fingerprint: the newest say what a target must hold
        f.max_by(f.col("cell").substr(f.lit(1), length + 8), "max_seq").alias("head"),
    )
    for row in heads.collect():
        shape = table_of_head(bytes(row["head"]))
        found.setdefault((row["table"], row["kind"]), []).append(
            (row["seq"], row["changes"], row["cells"], shape)
        )
    parts = []
    for (_, kind), shapes in sorted(found.items()):
        shapes.sort(key=lambda s: s[0])
        parts.append(
            TableBatch(
                shapes[-1][3].id,
                kind,
                sum(s[1] for s in shapes),
                sum(s[2] for s in shapes),
                tuple(s[3] for s in shapes),
            )
        )
    return parts


def changes_of(batches: Iterable[pa.RecordBatch]) -> Iterator[ChangeBatch]:
    """The changes in a task's cells (one column `cell`)."""
    for batch in batches:
        for cell in batch.column(0):
            yield decode_cell(cell.as_buffer())


def unpacked(cells: DataFrame, unpack: Unpack, schema: pa.Schema) -> DataFrame:
    """The rows of `cells` (one column `cell`)."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in map(unpack, changes_of(batches)):
            for start in range(0, rows.num_rows, _ROWS_PER_BATCH):
                yield rows.slice(start, _ROWS_PER_BATCH)

    return map_in_arrow(cells, run, spark_schema(schema))


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark types of stored columns; wall-clock times stay without a zone."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)

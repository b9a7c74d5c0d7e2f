"""Cells in Spark: the contents of a batch by table, and the decoding of cells in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tailrace.model.cell import decode_cell, table_of_head
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableId, TableSchema
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.unread import cells_in

#: Rows of one Arrow batch sent to the JVM; larger batches are slower.
_ROWS_PER_BATCH = 8192

#: Converts a cell's changes to rows.
Unpack = Callable[[ChangeBatch], pa.RecordBatch]


@dataclass(frozen=True)
class TableBatch:
    """The cells of one kind of one table in one batch.

    Args:
        table: the table.
        kind: SNAPSHOT, LOG or REREAD.
        changes: number of changes.
        cells: number of cells.
        schemas: the table's schemas in these cells, in log order. One stands for all that have the same
            columns with the same types; a column may be NULL where any of these lets it be.
        cell_schemas: the same as the cells have them, in log order, each once.
    """

    table: TableId
    kind: str
    changes: int
    cells: int
    schemas: tuple[TableSchema, ...]
    cell_schemas: tuple[TableSchema, ...]

    def cells_of(self, frame: DataFrame) -> DataFrame:
        """The cells of this table and kind in `frame`: one column `cell`."""
        return frame.where((f.col("table") == str(self.table)) & (f.col("kind") == self.kind)).select("cell")


def table_batches(frame: DataFrame) -> list[TableBatch]:
    """The contents of a batch of cells, sorted by table, log before snapshot."""
    found: dict[tuple[str, str], list[tuple[str, int, int, TableSchema, list[TableSchema]]]] = {}
    # An IPC stream begins with four bytes 0xff, the length of the schema message (little-endian), the
    # message.
    length = f.conv(f.concat(*(f.hex(f.substring("cell", byte, 1)) for byte in (8, 7, 6, 5))), 16, 10).cast(
        "int"
    )
    head = f.col("cell").substr(f.lit(1), length + 8)
    heads = frame.groupBy("table", "kind", "fingerprint").agg(
        f.sum("changes").alias("changes"),
        f.count("*").alias("cells"),
        f.min("min_seq").alias("seq"),
        # a fingerprint covers neither lengths nor labels: the newest schema has those that a target needs
        f.max_by(head, "max_seq").alias("head"),
        f.collect_set(head).alias("heads"),
    )
    for row in heads.collect():
        newest = table_of_head(bytes(row["head"]))
        held = [*{table_of_head(bytes(head)) for head in row["heads"]} - {newest}, newest]
        found.setdefault((row["table"], row["kind"]), []).append(
            (row["seq"], row["changes"], row["cells"], _with_nulls_of(newest, held), held)
        )
    batches = []
    for (_, kind), rows in sorted(found.items()):
        _, changes, cells, schemas, of_cells = zip(*sorted(rows, key=lambda r: r[0]), strict=True)
        listed = tuple(chain.from_iterable(of_cells))
        batches.append(TableBatch(schemas[-1].id, kind, sum(changes), sum(cells), schemas, listed))
    return batches


def _with_nulls_of(schema: TableSchema, others: Iterable[TableSchema]) -> TableSchema:
    """`schema`, whose columns may be NULL where one of `others` lets them be."""
    found = [column for other in (*others, schema) for column in other.columns if column.nullable]
    nullable, declared = {c.name for c in found}, {c.name for c in found if not c.gone}
    columns = (
        replace(c, nullable=True, gone=c.name not in declared) if c.name in nullable else c
        for c in schema.columns
    )
    return replace(schema, columns=tuple(columns))


def changes_of(batches: Iterable[pa.RecordBatch]) -> Iterator[ChangeBatch]:
    """Decode a task's cells (one column `cell`), or read them (`unread`)."""
    for batch in cells_in(batches, ["cell"]):
        for cell in batch.column(0):
            yield decode_cell(cell.as_buffer())


def unpacked(cells: DataFrame, unpack: Unpack, schema: pa.Schema) -> DataFrame:
    """Convert `cells` (one column `cell`) to rows.

    Args:
        cells: the cells.
        unpack: converts the changes of one cell to rows.
        schema: schema of these rows.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in map(unpack, changes_of(batches)):
            for start in range(0, rows.num_rows, _ROWS_PER_BATCH):
                yield rows.slice(start, _ROWS_PER_BATCH)

    return map_in_arrow(cells, run, spark_schema(schema))


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow schema; wall-clock times have no zone."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)

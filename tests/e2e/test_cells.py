"""What Spark finds in a batch of cells."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from tailrace.model.change import LOG
from tailrace.model.table import Column
from tailrace.spark.cells import table_batches
from tests.support.cells import CELL_SCHEMA, cell_row
from tests.support.changes import INT, changes, table


def test_column_may_be_null_in_targets_where_one_cell_lets_it_be(spark: SparkSession) -> None:
    optional = table(("id", INT), ("a", INT), key=("id",))
    needed = replace(
        optional, columns=tuple(Column(c.name, c.type, nullable=False) for c in optional.columns)
    )
    rows = [("c", None, {"id": 1, "a": 1})]
    for first, last in ((optional, needed), (needed, optional)):
        cells = [cell_row(LOG, changes(schema, rows, at)) for at, schema in enumerate((first, last, last))]
        (found,) = table_batches(spark.createDataFrame(cells, CELL_SCHEMA))
        assert (found.changes, found.cells, found.schemas) == (3, 3, (optional,))
        assert found.cell_schemas == (first, last)

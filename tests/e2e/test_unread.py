"""Splits that the tasks of a sink read, in place of cells that Spark's JVM passes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.model.cell import CELL_SCHEMA, decode_cell
from tailrace.pipeline.supervisor import read_cells
from tailrace.spark.cells import changes_of
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.unread import cells_in, columns_of, is_unread, read
from tailrace_dev.servers import MySqlServer


@pytest.fixture
def stream(mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path) -> Any:
    """Runs a stream of the database's tables to its end; calls a function with each batch."""
    pipeline = parse_pipeline(
        f"source: {{url: 'mysql://{mysql.host}:{mysql.port}', user: {mysql.user}, password: {mysql.password},"
        f" tables: '{database}.*', snapshot-chunk-rows: 3}}\n"
        f"sink: {{type: json, path: '{tmp_path}/lake'}}\n"
        f"pipeline: {{checkpoint: '{tmp_path}/checkpoint'}}\n"
    )

    def run(look: Any) -> None:
        writer = read_cells(spark, pipeline).writeStream.foreachBatch(lambda frame, _: look(frame))
        writer = writer.option("checkpointLocation", pipeline.checkpoint).trigger(availableNow=True)
        writer.start().awaitTermination()

    return run


def read_by_tasks(frame: DataFrame) -> list[tuple[str, str]]:
    """The kind and position of each change, read in the tasks of one action."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for changes in changes_of(batches):
            yield pa.RecordBatch.from_pydict(
                {"kind": [changes.kind] * len(changes), "seq": changes.origin.column("seq")}
            )

    found = map_in_arrow(columns_of(frame, "cell"), run, "kind string, seq string").collect()
    return sorted((row["kind"], row["seq"]) for row in found)


def test_tasks_read_splits_as_often_as_there_are_actions(
    mysql: MySqlServer, database: str, stream: Any
) -> None:
    mysql.execute(
        f"CREATE TABLE {database}.t (id BIGINT PRIMARY KEY)",
        f"INSERT INTO {database}.t VALUES (1), (2), (3), (4), (5), (6), (7)",
    )
    found: list[tuple[str, str]] = []

    def look(frame: DataFrame) -> None:
        assert is_unread(frame)
        first = read_by_tasks(frame)
        mysql.execute(f"DELETE FROM {database}.t WHERE id = 1")  # after the batch's end
        cells = read(frame)
        assert cells.columns == CELL_SCHEMA.names
        assert not is_unread(cells)
        assert first == read_by_tasks(frame) == read_by_tasks(cells)
        rows = cells.collect()
        assert sum(row["changes"] for row in rows) == len(first)
        assert {row["table"] for row in rows} == {f"{database}.t"}
        assert all(len(decode_cell(bytes(row["cell"]))) == row["changes"] for row in rows)
        found.extend(first)

    stream(look)
    assert [kind for kind, _ in found] == ["snapshot"] * 7
    mysql.execute(f"INSERT INTO {database}.t VALUES (8), (9)")
    found.clear()
    stream(look)
    assert [kind for kind, _ in found] == ["log"] * 3


def test_cells_are_passed_on() -> None:
    cells = pa.RecordBatch.from_pydict({"min_seq": ["1"], "cell": [b"x"]})
    assert list(cells_in([cells], ["min_seq", "cell"])) == [cells]

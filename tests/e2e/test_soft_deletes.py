"""TRUNCATE and DROP of tables whose transform marks deleted rows: targets keep the rows, marked."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.registry import make_sinks
from tailrace_dev.servers import MySqlServer
from tests.e2e.test_mariadb import _Quiet


def test_rows_of_truncated_and_dropped_tables_are_marked(
    spark: SparkSession, mysql: MySqlServer, database: str, tmp_path: Path
) -> None:
    pipeline = parse_pipeline(
        f"source: {{url: 'mysql://{mysql.host}:{mysql.port}', user: {mysql.user},"
        f" password: {mysql.password}, tables: '{database}.[tu]',"
        " on-truncate: soft-delete, on-drop-table: soft-delete}\n"
        "transform:\n"
        "  - source-table: '.*'\n"
        "    projection: \"*, upper(name) AS big, __data_event_type__ = '-D' AS deleted\"\n"
        "    converter-after-transform: SOFT_DELETE\n"
        f"sink: {{type: delta, path: {tmp_path}/lake, merge-interval: 0}}\n"
        "pipeline: {name: marks, trigger: available-now}\n"
    )

    def run() -> dict[str, dict[int, tuple[Any, ...]]]:
        """`big` and `deleted` by table and id."""
        sink = make_sinks(pipeline)
        try:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()
        finally:
            sink.close()
        tables = {}
        for name in "tu":
            frame = spark.read.format("delta").load(f"{tmp_path}/lake/{database}.{name}")
            tables[name] = {row["id"]: (row["big"], row["deleted"]) for row in frame.collect()}
        return tables

    mysql.execute(
        f"USE {database}",
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(10))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        "CREATE TABLE u LIKE t",
        "INSERT INTO u SELECT * FROM t",
    )
    whole = {1: ("A", False), 2: ("B", False), 3: ("C", False)}
    assert run() == {"t": whole, "u": whole}
    mysql.execute(
        f"USE {database}",
        "DELETE FROM t WHERE id = 3",
        "TRUNCATE t",
        "INSERT INTO t VALUES (2, 'new'), (4, 'd')",
        "DROP TABLE u",
    )
    assert run() == {
        "t": {1: ("A", True), 2: ("NEW", False), 3: ("C", True), 4: ("D", False)},
        "u": {1: ("A", True), 2: ("B", True), 3: ("C", True)},
    }

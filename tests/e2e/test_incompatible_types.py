"""A column's type changes at the source to one that its targets cannot hold: INT to VARCHAR, and back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.registry import make_sinks
from tests.e2e.test_mariadb import _Quiet
from tests.support.sinks.iceberg import table_rows


@pytest.mark.slow  # the contract suite has the same for each sink
@pytest.mark.parametrize("product", ["mysql", "postgres"])
def test_column_with_another_type_continues_in_a_column_of_its_own(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, product: str
) -> None:
    server = request.getfixturevalue(product)
    if product == "postgres":
        name, schema, more = request.getfixturevalue("postgres_database"), "public", ", slot-name: retyped"
        url = f"postgresql://{server.host}:{server.port}/{name}"
        to_text = "ALTER TABLE t ALTER COLUMN v TYPE varchar(20)"
        to_number = "ALTER TABLE t ALTER COLUMN v TYPE int USING v::int"

        def execute(*statements: str) -> Any:
            return server.execute(*statements, database=name)
    else:
        name = schema = request.getfixturevalue("database")
        url, more = f"mysql://{server.host}:{server.port}", ""
        to_text, to_number = "ALTER TABLE t MODIFY v VARCHAR(20)", "ALTER TABLE t MODIFY v INT"

        def execute(*statements: str) -> Any:
            return server.execute(f"USE {name}", *statements)

    execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
    )
    policy = "on-incompatible-type: new-column"
    pipeline = parse_pipeline(
        f"source: {{url: '{url}', user: {server.user}, password: {server.password},"
        f" tables: '{schema}.(t|other)'{more}}}\n"
        "sink:\n"
        f"  - {{type: delta, path: {tmp_path}/delta, merge-interval: 0, {policy}}}\n"
        f"  - {{type: iceberg, path: {tmp_path}/iceberg, {policy}}}\n"
        "pipeline: {name: retyped, trigger: available-now}\n",
    )

    def run() -> list[dict[int, tuple[Any, ...]]]:
        """The rows of both targets after a run: `v` and `v__string` by id."""
        sink = make_sinks(pipeline)
        try:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()
        finally:
            sink.close()
        delta = spark.read.format("delta").load(f"{tmp_path}/delta/{schema}.t").collect()
        both = [row.asDict() for row in delta], table_rows(tmp_path / "iceberg", f"{schema}.t").to_pylist()
        return [{row["id"]: (row["v"], row.get("v__string")) for row in rows} for rows in both]

    assert run() == [{1: (10, None), 2: (20, None), 3: (30, None)}] * 2
    execute("UPDATE t SET v = 11 WHERE id = 1", to_text, "UPDATE t SET v = 'two' WHERE id = 2")
    execute("DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (4, '04')", "INSERT INTO other VALUES (1)")
    assert run() == [{1: (None, "11"), 2: (None, "two"), 4: (None, "04")}] * 2
    execute("UPDATE t SET v = '2' WHERE id = 2", to_number, "UPDATE t SET v = 5 WHERE id = 4")
    assert run() == [{1: (11, None), 2: (2, None), 4: (5, None)}] * 2

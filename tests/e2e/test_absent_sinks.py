"""A sink that is left out of the pipeline file for a time, and then catches up, on a real server."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.errors import TailraceError
from tailrace.failpoints import VARIABLE
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.registry import make_sinks
from tests.e2e.test_mariadb import _Quiet


def test_sink_that_was_left_out_equals_its_tables_when_it_is_back(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the batch that it is back with comes again; the other sink flows meanwhile."""
    table = f"{database}.t"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT)",
        f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3)",
    )

    def run(sinks: Sequence[str]) -> None:
        listed = ", ".join(
            f"{{type: delta, path: {tmp_path / name}, mode: upsert, merge-interval: 0}}" for name in sinks
        )
        pipeline = parse_pipeline(
            f"source: {{url: 'mysql://{mysql.host}:{mysql.port}', user: {mysql.user},"
            f" password: {mysql.password}, tables: '{table}'}}\n"
            f"sink: [{listed}]\n"
            f"pipeline: {{trigger: available-now, checkpoint: {tmp_path / 'checkpoint'}, restarts: 0}}\n"
        )
        with closing(make_sinks(pipeline)) as sink:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()

    def rows(name: str) -> dict[int, int]:
        found = spark.read.format("delta").load(str(tmp_path / name / table)).collect()
        return {row["id"]: row["a"] for row in found}

    run(["one", "two"])
    mysql.execute(f"DELETE FROM {table} WHERE id = 1", f"UPDATE {table} SET a = 20 WHERE id = 2")
    run(["one"])
    assert (rows("one"), rows("two")) == ({2: 20, 3: 3}, {1: 1, 2: 2, 3: 3})
    mysql.execute(f"INSERT INTO {table} VALUES (4, 4)")
    monkeypatch.setenv(VARIABLE, f"sink.committed=raise@{tmp_path / 'token'}")
    with suppress(TailraceError):
        run(["one", "two"])
    monkeypatch.delenv(VARIABLE)
    run(["one", "two"])
    run(["one", "two"])
    assert (rows("one"), rows("two")) == ({2: 20, 3: 3, 4: 4},) * 2

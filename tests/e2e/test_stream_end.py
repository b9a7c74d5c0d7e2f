"""`tailrace run` of a pipeline that ends by `ending-position`: by itself, once, wherever it is killed."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.model import TriggerMode
from tests.e2e.test_parking import Running, mysql_source
from tests.support.pipelines import PipelineProcess, delta_rows


def test_pipeline_ends_by_itself_with_any_trigger(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path
) -> None:
    table = f"{database}.t"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES (1, 1), (2, 2)"
    )
    source = mysql_source(mysql, table, **{"ending-position": "latest"})
    pipeline = Running(spark, tmp_path, source=source, pipeline={"trigger": "continuous"})
    assert pipeline.run() is None
    mysql.execute(f"UPDATE {table} SET v = 9")
    assert pipeline.held(table) == [(1, 1), (2, 2)]
    assert pipeline.run() is None
    assert pipeline.watcher.notices[-1] == "the stream has reached its end before"
    later = Running(spark, tmp_path, source=mysql_source(mysql, table))  # without the setting
    later.pipeline = replace(
        pipeline.pipeline,
        source=later.pipeline.source,
        source_options=later.pipeline.source_options,
        settings=replace(pipeline.pipeline.settings, trigger=TriggerMode.AVAILABLE_NOW),
    )
    assert later.run() is None
    assert pipeline.held(table) == [(1, 9), (2, 9)]


@pytest.mark.slow
def test_pipeline_that_is_killed_ends_at_its_end_and_does_nothing_more(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path
) -> None:
    table = f"{database}.t"
    values = ", ".join(f"({i}, {i})" for i in range(40))
    mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES {values}")
    process = PipelineProcess(
        tmp_path,
        mysql,
        table,
        pipeline={"trigger": "continuous"},
        **{"ending-position": "latest", "snapshot-chunk-rows": 10},
    )
    expected = [{"id": i, "v": i} for i in range(40)]
    assert process.run(failpoint="sink.committed") != 0
    mysql.execute(f"UPDATE {table} SET v = v + 100 WHERE id > 20", f"DELETE FROM {table} WHERE id = 39")
    mysql.execute(f"INSERT INTO {table} VALUES (39, 0)")
    writing = threading.Event()

    def write() -> None:
        while not writing.wait(0.1):
            mysql.execute(f"UPDATE {table} SET v = v + 1")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        # which ends the planner: the stream starts it again
        assert process.run(failpoint="offset.planned") == 0, process.output()
    finally:
        writing.set()
        writer.join()
    assert "has reached its end" in process.output()
    assert sorted(held(spark, process, table), key=lambda row: row["id"]) == expected
    offsets = sorted(entry.name for entry in (process.targets / "_tailrace/checkpoint/offsets").iterdir())
    assert process.run() == 0, process.output()
    assert "has reached its end before" in process.output()
    left = sorted(entry.name for entry in (process.targets / "_tailrace/checkpoint/offsets").iterdir())
    assert left == offsets
    assert sorted(held(spark, process, table), key=lambda row: row["id"]) == expected


def held(spark: SparkSession, process: PipelineProcess, table: str) -> list[dict[str, Any]]:
    rows = delta_rows(spark, process.targets / table)
    return [{"id": row["id"], "v": row["v"]} for row in rows]

"""A run with nothing to do is known for one before Spark is started, and no other run is taken for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.pipeline import all_read as module
from tailrace.pipeline.all_read import all_read, note_all_read
from tailrace.spark.requests import RequestDirectory, requests_path
from tests.e2e.test_parking import Running, mysql_source
from tests.support.pipelines import PipelineProcess

HOUR_MS = 3_600_000


class Source:
    """A database with table `t`, and one that is not captured."""

    def __init__(self, execute: Callable[..., Any], name: str, section: dict[str, Any]) -> None:
        self.execute, self.name, self.section = execute, name, section
        for table in ("t", "other"):
            execute(f"CREATE TABLE {name}.{table} (id INT PRIMARY KEY, v INT)")
            execute(f"INSERT INTO {name}.{table} VALUES (1, 1), (2, 2)")


@pytest.fixture(params=["mysql", pytest.param("postgres", marks=pytest.mark.slow)])
def source(request: pytest.FixtureRequest) -> Source:
    if request.param == "mysql":
        mysql, name = request.getfixturevalue("mysql"), request.getfixturevalue("database")
        return Source(mysql.execute, name, mysql_source(mysql, f"{name}\\.(t|new)"))
    postgres, name = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_database")

    def execute(*statements: str) -> None:
        postgres.execute(*statements, database=name)

    section = {
        "url": f"{postgres.url}/{name}",
        "user": "postgres",
        "password": postgres.password,
        "tables": r"public\.(t|new)",
    }
    return Source(execute, "public", section)


def test_only_what_concerns_the_pipeline_is_news(
    spark: SparkSession, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(spark, tmp_path, source=source.section)
    pipeline = running.pipeline
    assert all_read(pipeline) is None

    def run() -> None:
        assert running.run() is None
        assert all_read(pipeline) is None  # of a newer batch than the note
        note_all_read(pipeline)

    assert running.run() is None
    note_all_read(pipeline)
    assert all_read(pipeline) is not None
    source.execute(f"UPDATE {source.name}.other SET v = v + 1")
    assert all_read(pipeline) is not None

    source.execute(f"UPDATE {source.name}.t SET v = v + 1")
    assert all_read(pipeline) is None
    run()
    assert running.held(f"{source.name}.t") == [(1, 2), (2, 3)]
    source.execute(f"CREATE TABLE {source.name}.new (id INT PRIMARY KEY)")
    assert all_read(pipeline) is None
    run()
    source.execute(f"ALTER TABLE {source.name}.t ADD w INT")
    source.execute(f"INSERT INTO {source.name}.t VALUES (3, 3, 3)")
    assert all_read(pipeline) is None
    run()
    assert all_read(pipeline) is not None

    requests = RequestDirectory(requests_path(pipeline.checkpoint))
    id_ = requests.add([f"{source.name}.t"])
    assert all_read(pipeline) is None
    requests.remove([id_])
    assert all_read(pipeline) is not None

    for other in (
        replace(pipeline, settings=replace(pipeline.settings, max_parked=3)),
        replace(pipeline, sinks=(replace(pipeline.sinks[0], merge_interval=60),)),  # type: ignore[call-arg]
        replace(pipeline, source=replace(pipeline.source, max_bytes_per_trigger=1 << 20)),
    ):
        assert all_read(other) is None
    now = time.time_ns
    monkeypatch.setattr(module.time, "time_ns", lambda: now() + HOUR_MS * 1_000_000)
    assert all_read(pipeline) is None  # Spark's turn
    monkeypatch.undo()
    offsets = Path(pipeline.checkpoint, "commits")
    newest = max(offsets.iterdir(), key=lambda path: int(path.name) if path.name.isdigit() else -1)
    newest.unlink()
    assert all_read(pipeline) is None  # a batch was planned, and is not known to be written


def test_run_with_nothing_to_do_starts_no_spark(mysql: Any, database: str, tmp_path: Path) -> None:
    table = f"{database}.t"
    mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES (1, 1)")
    process = PipelineProcess(tmp_path, mysql, table, pipeline={"trigger": "available-now"})
    assert process.run() == 0, process.output()
    assert "nothing to read" not in process.output()
    assert process.run() == 0, process.output()
    assert "nothing to read: no changes since batch" in process.output()

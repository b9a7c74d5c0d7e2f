"""Tables that cannot go on are parked, all others flow, and resumed tables equal their source again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.cli import EXIT_DONE, EXIT_PARKED
from tailrace.enumerator.offset import StreamOffset
from tailrace.spark.checkpoint import Checkpoint
from tests.support.pipelines import PipelineProcess, delta_rows


def held(spark: SparkSession, run: PipelineProcess, table: str) -> list[tuple[Any, ...]]:
    rows = delta_rows(spark, run.targets / table)
    return sorted(tuple(v for n, v in row.items() if not n.startswith("_")) for row in rows)


def source(mysql: Any, table: str) -> list[tuple[Any, ...]]:
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        return sorted(tuple(row) for row in cursor.fetchall())


def parked(run: PipelineProcess) -> dict[str, Any]:
    last = Checkpoint(str(run.targets / "_tailrace" / "checkpoint")).last()
    assert last is not None
    return dict(StreamOffset.from_json(last.end).parked)


@pytest.mark.parametrize(
    "kill", [("park.requested", "self"), ("offset.planned", "self"), ("sink.committed", "jvm")], ids="-".join
)
def test_table_that_a_target_cannot_follow_is_parked_and_resumed(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path, kill: tuple[str, str]
) -> None:
    failpoint, victim = kill
    good, bad = f"{database}.good", f"{database}.bad"
    mysql.execute(
        f"CREATE TABLE {good} (id INT PRIMARY KEY, v INT)",
        f"CREATE TABLE {bad} (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {good} VALUES (1, 1), (2, 2)",
        f"INSERT INTO {bad} VALUES (1, 1), (2, 2), (3, 3)",
    )
    run = PipelineProcess(tmp_path, mysql, f"{database}.*")
    assert run.run() == EXIT_DONE, run.output()
    mysql.execute(
        f"ALTER TABLE {bad} MODIFY v VARCHAR(20)",
        f"INSERT INTO {bad} VALUES (4, 'four')",
        f"UPDATE {good} SET v = 20 WHERE id = 2",
        f"INSERT INTO {good} VALUES (3, 3)",
    )
    run.run(failpoint=failpoint, victim=victim)
    assert run.run() == EXIT_PARKED, run.output()
    assert f"`{bad}`" in run.output()
    assert "TR-8041" in run.output()
    assert list(parked(run)) == [bad]
    assert parked(run)[bad].reason.code == "TR-7001"
    assert held(spark, run, good) == source(mysql, good)
    assert held(spark, run, bad) == [(1, 1), (2, 2), (3, 3)]

    mysql.execute(
        f"DELETE FROM {bad} WHERE id IN (1, 4)",
        f"ALTER TABLE {bad} MODIFY v INT",
        f"UPDATE {bad} SET v = 30 WHERE id = 3",
        f"DELETE FROM {good} WHERE id = 1",
    )
    assert run.run() == EXIT_PARKED, run.output()  # a repaired table does not resume by itself
    assert held(spark, run, good) == source(mysql, good)
    assert run.command("resume", bad) == 0
    run.run(failpoint=failpoint.replace("park.requested", "batch.planned"), victim="jvm")
    assert run.run() == EXIT_DONE, run.output()
    assert parked(run) == {}
    for table in (good, bad):
        assert held(spark, run, table) == source(mysql, table)
    mysql.execute(f"INSERT INTO {bad} VALUES (9, 9)", f"DELETE FROM {bad} WHERE id = 2")
    assert run.run() == EXIT_DONE, run.output()
    assert held(spark, run, bad) == source(mysql, bad)

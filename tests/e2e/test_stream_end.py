"""`tailrace run` of a pipeline that ends by `ending-position`: by itself, once, wherever it is killed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.pipelines import PipelineProcess, delta_rows


@pytest.mark.parametrize(
    "kills",
    [
        [],
        pytest.param(
            ["sink.committed", "offset.planned", "batch.planned", "snapshot.batch"], marks=pytest.mark.slow
        ),
    ],
    ids=["undisturbed", "killed"],
)
def test_pipeline_ends_at_its_end_and_does_nothing_more(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path, kills: list[str]
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
    for failpoint in kills:
        assert process.run(failpoint=failpoint) != 0
        mysql.execute(f"UPDATE {table} SET v = v + 100 WHERE id > 20", f"DELETE FROM {table} WHERE id = 39")
        mysql.execute(f"INSERT INTO {table} VALUES (39, 0)")
    writing = threading.Event()

    def write() -> None:
        while not writing.wait(0.1):
            mysql.execute(f"UPDATE {table} SET v = v + 1")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert process.run() == 0, process.output()
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

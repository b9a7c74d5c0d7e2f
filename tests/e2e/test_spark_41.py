"""Spark 4.1, which does not tell a source where its stream stands: Spark code, and a pipeline."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bench.peers.toolkit import UnavailableError
from tests.support.other_spark import environment
from tests.support.pipelines import PipelineProcess, delta_rows

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "support" / "spark_41.py"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def spark_41():
    """The Python of an environment with PySpark 4.1 and what Tailrace needs, and the variables for it."""
    try:
        return environment("pyspark-4.1", "pyspark==4.1.*")
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def rows(mysql, database):
    mysql.execute(
        f"CREATE TABLE {database}.t (id int PRIMARY KEY, v int)",
        f"INSERT INTO {database}.t WITH RECURSIVE n AS"
        " (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 700) SELECT i, i FROM n",
    )
    return database


def test_stream_goes_on_after_a_kill_and_refuses_another_checkpoint(spark, mysql, rows, spark_41, tmp_path):
    interpreter, variables = spark_41

    def run(name):
        given = [mysql.port, mysql.user, mysql.password, rows]
        command = [str(interpreter), str(PROGRAM), name, str(tmp_path), *map(str, given)]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        found = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if "RESULT" in line]
        return done.returncode, [json.loads(line) for line in found], done.stderr

    code, results, printed = run("first")
    assert (code, results) == (9, [{"code": "TR-1006", "committed": 0}]), printed
    code, results, printed = run("second")
    assert code == 0, printed
    read, other, replayed, end = results
    assert "code" not in read
    assert other == replayed == {"code": "TR-1234", "committed": read["committed"]}
    assert "code" not in end
    changes = spark.read.parquet(str(tmp_path / "batches")).orderBy("_seq").collect()
    assert sum(change["_op"] == "r" for change in changes) == 700, "each row is read once"
    assert len({change["_seq"] for change in changes if change["_op"] != "r"}) == 410
    state = {}
    for change in changes:
        if change["_op"] == "d":
            del state[change["id"]]
        else:
            state[change["id"]] = change["v"]
    assert state == {row[0]: row[1] for row in mysql.execute(f"SELECT id, v FROM {rows}.t")}


def test_pipeline_reads_everything_up_to_now_into_delta(spark, mysql, rows, spark_41, tmp_path):
    interpreter, variables = spark_41
    run = PipelineProcess(
        tmp_path,
        mysql,
        f"{rows}.t",
        python=interpreter,
        env=variables,
        **{"snapshot-chunk-rows": 100, "max-rows-per-trigger": 150},
    )
    assert run.run(failpoint="sink.committed", timeout_s=900) == -9, run.output()
    assert run.run(timeout_s=900) == 0, run.output()
    mysql.execute(f"UPDATE {rows}.t SET v = v + 1 WHERE id <= 400", f"DELETE FROM {rows}.t WHERE id > 690")
    assert run.run(timeout_s=900) == 0, run.output()
    held = {row["id"]: row["v"] for row in delta_rows(spark, run.targets / f"{rows}.t")}
    assert held == {row[0]: row[1] for row in mysql.execute(f"SELECT id, v FROM {rows}.t")}

"""A pipeline on YARN, with the settings of docs/guides/deployment.md: its tasks run in YARN's containers."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyspark
import pytest
import yaml

import tailrace
from tailrace.cache import cache_dir
from tests.support.pipelines import PipelineProcess, delta_rows
from tests.support.workload import SUBJECTS, Writers, fill
from tests.support.yarn import yarn

pytestmark = pytest.mark.slow
#: What an executor logs of a task.
TASK = "Starting Python task execution"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "deployment.md"


def guide_settings() -> dict[str, str]:
    """What the guide says on YARN: the pipeline's settings of Spark."""
    section = GUIDE.read_text(encoding="utf-8").partition("\n## Spark on YARN\n")[2]
    (block,) = re.findall(r"```yaml\n(pipeline:\n  master: yarn\n.*?)```", section, re.DOTALL)
    settings: dict[str, str] = yaml.safe_load(block)["pipeline"]["spark"]
    return settings


def test_pipeline_runs_on_yarn_with_the_guides_settings(mysql, database, spark, tmp_path):
    subject = SUBJECTS[0]
    table = f"{database}.{subject.name}"
    fill(mysql, table, subject, 2000)
    settings = guide_settings()
    assert settings["spark.yarn.jars"].startswith("local:/")
    settings["spark.yarn.jars"] = f"local:{Path(pyspark.__path__[0], 'jars')}/*"
    with yarn(tmp_path, nodes=2) as conf:
        run = PipelineProcess(
            tmp_path,
            mysql,
            table,
            pipeline={
                "master": "yarn",
                "spark": {
                    **settings,
                    "spark.executor.memory": "512m",
                    "spark.executor.instances": "2",
                    "spark.yarn.stagingDir": str(tmp_path / "staging"),
                    # of this checkout: containers of YARN inherit nothing, and have another home
                    "spark.executorEnv.PYTHONPATH": str(Path(tailrace.__file__).parents[1]),
                    "spark.executorEnv.TAILRACE_CACHE": str(cache_dir()),
                },
            },
            env={"HADOOP_CONF_DIR": str(conf), "PYSPARK_PYTHON": sys.executable},
            **{"snapshot-chunk-rows": 500, "snapshot-parallelism": 2},
        )
        with Writers(mysql, table, subject, count=2, keys=4000, pause_s=0.05):
            assert run.run(timeout_s=400) == 0, run.output()
        assert run.run(timeout_s=400) == 0, run.output()
        # of each run, containers of YARN had tasks in Python
        worked = [p for p in tmp_path.rglob("container_*/stderr") if TASK in p.read_text(errors="replace")]
        assert len({p.parent.parent.name for p in worked}) == 2, worked
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT id, v, pad FROM {table} ORDER BY id")
        held = sorted((r["id"], r["v"], r["pad"]) for r in delta_rows(spark, run.targets / table))
        assert held == list(cursor.fetchall())

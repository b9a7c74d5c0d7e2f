"""The log of a run as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.pipelines import PipelineProcess


def test_log_of_a_run_is_json_with_pipeline_table_batch_and_code(
    mysql: Any, database: str, tmp_path: Path
) -> None:
    mysql.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY)", f"INSERT INTO {database}.t VALUES (1), (2)"
    )
    settings = {"spark": {"spark.log.level": "INFO"}}
    pipeline = PipelineProcess(
        tmp_path,
        mysql,
        rf"{database}\.t",
        sink={"type": "parquet", "path": str(tmp_path / "lake")},
        pipeline=settings,
        **{"heartbeat.interval.ms": 1, "heartbeat.action.query": f"INSERT INTO {database}.absent VALUES (1)"},
    )
    log = tmp_path / "run.log"
    arguments = ["-m", "tailrace", "run", str(pipeline.file), "--log-file", str(log), "--log-format", "json"]
    done = subprocess.run([sys.executable, *arguments], env=pipeline.environment, check=False, timeout=240)
    assert done.returncode == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["pipeline"] for line in lines} == {"test"}
    written = [line for line in lines if line.get("event") == "written"]
    assert [(line["batch"], line["table"], line["rows"]) for line in written] == [(0, f"{database}.t", 2)]
    spark = [line for line in lines if line["logger"].startswith("org.apache.spark")]
    assert spark
    assert {line["level"] for line in spark} <= {"INFO", "WARN", "ERROR"}
    # of the process next to the driver that plans
    heartbeats = [line for line in lines if line["logger"] == "tailrace.enumerator.heartbeat"]
    assert heartbeats
    assert {line["level"] for line in heartbeats} == {"WARNING"}
    (tmp_path / "lake" / f"{database}.t" / "_tailrace.json").unlink()
    (tmp_path / "lake" / f"{database}.t" / "_tailrace.json").mkdir()
    mysql.execute(f"INSERT INTO {database}.t VALUES (3)")
    failed = subprocess.run([sys.executable, *arguments], env=pipeline.environment, check=False, timeout=240)
    assert failed.returncode != 0
    (error,) = [
        line for line in map(json.loads, log.read_text().splitlines()) if line["message"] == "command failed"
    ]
    assert error["code"].startswith("TR-")
    assert "Traceback" in error["error"]

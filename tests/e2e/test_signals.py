"""Signals of a whole pipeline: by its table and the command line, with a kill between; and what it tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.pipelines import PipelineProcess, delta_rows


def told(path: Path) -> list[tuple[str, str, str]]:
    """Id, aggregate type and type of every notification in a file."""
    values = [json.loads(line) for line in path.read_text().splitlines()]
    return [(v["id"], v["aggregate_type"], v["type"]) for v in values]


# recovery/test_signals.py kills streams at each step within a process
@pytest.mark.slow
def test_signalled_snapshot_survives_a_kill_and_is_told_once(
    spark: Any, mysql: Any, database: str, tmp_path: Path
) -> None:
    table, signals = f"{database}.t", f"{database}.debezium_signal"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3)",
        f"CREATE TABLE {database}.u (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {database}.u VALUES (7, 7)",
        f"CREATE TABLE {signals} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
    )
    pipeline = PipelineProcess(tmp_path, mysql, table, **{"signal.data.collection": signals})
    file = tmp_path / "notifications.jsonl"
    settings = yaml.safe_load(pipeline.file.read_text())
    pipeline.file.write_text(yaml.safe_dump({**settings, "notifications": {"file": str(file), "log": True}}))
    assert pipeline.run() == 0, pipeline.output()
    assert {kind for _, aggregate, kind in told(file) if aggregate == "Initial Snapshot"} == {
        "STARTED",
        "TABLE_SCAN_COMPLETED",
        "COMPLETED",
    }

    data = json.dumps({"data-collections": [rf"{database}\\.t"]})
    mysql.execute(
        f"INSERT INTO {signals} VALUES ('ad-hoc', 'execute-snapshot', '{data}')",
        "SET sql_log_bin = 0",
        f"DELETE FROM {table} WHERE id = 2",
    )
    assert pipeline.command("signal", "log", "--id", "l1", "--data", '{"message": "at {}"}') == 0
    assert pipeline.command("resync", f"{database}.u") == 2
    both = json.dumps({"tables": f"{database}[.][tu]"})
    assert pipeline.command("signal", "set-tables", "--id", "s1", "--data", both) == 0
    assert pipeline.command("signal", "make-coffee") == 2
    before = len(told(file))
    assert pipeline.run(failpoint="sink.committed") != 0
    assert pipeline.run() == 0, pipeline.output()
    rows = delta_rows(spark, tmp_path / "tables" / table)
    assert sorted((row["id"], row["v"]) for row in rows) == [(1, 1), (3, 3)]
    new = told(file)[before:]
    assert [kind for id_, _, kind in new if id_ == "ad-hoc"] == [
        "STARTED",
        "TABLE_SCAN_COMPLETED",
        "COMPLETED",
    ]
    assert [(aggregate, kind) for id_, aggregate, kind in new if id_ == "l1"] == [("Signal", "COMPLETED")]
    assert [(aggregate, kind) for id_, aggregate, kind in new if id_ == "s1"] == [("Signal", "COMPLETED")]
    assert [(row["id"], row["v"]) for row in delta_rows(spark, tmp_path / "tables" / f"{database}.u")] == [
        (7, 7)
    ]
    assert pipeline.command("resync", f"{database}.u") == 0
    assert '"id": "ad-hoc"' in (tmp_path / "tables" / "_tailrace" / "tailrace.log").read_text()
    assert 'at {"file":' in pipeline.output()
    assert not (tmp_path / "tables" / signals).exists()

"""A running pipeline shows its state over HTTP."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import otlp, processes
from tests.support.http_receiver import Receiver, http_receiver
from tests.support.json_schema import problems
from tests.support.pipelines import PipelineProcess
from tests.support.prometheus import free_port
from tests.support.wait import wait_until

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/reference/status.schema.json").read_text("utf-8"))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as server:
        yield server


def test_running_pipeline_serves_metrics_becomes_ready_and_sends_spans_and_lineage(
    mysql: Any, database: str, tmp_path: Path, receiver: Receiver
) -> None:
    mysql.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY)", f"INSERT INTO {database}.t VALUES (1), (2)"
    )
    port = free_port()
    pipeline = PipelineProcess(
        tmp_path,
        mysql,
        rf"{database}\.t",
        pipeline={"trigger": "continuous", "metrics": f"127.0.0.1:{port}"},
        sections={"telemetry": {"endpoint": receiver.url}, "lineage": {"url": receiver.url}},
        env={
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "NOTIFY_SOCKET": f"@tailrace-{database}",
        },
    )
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(f"\0tailrace-{database}")
    manager.settimeout(60)
    runner = threading.Thread(target=pipeline.run, kwargs={"timeout_s": 240})
    runner.start()

    def status(path: str) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError:
            return 0, {}

    def samples() -> dict[tuple[str, ...], float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            return {
                (s.name, *(v for k, v in sorted(s.labels.items()) if k != "pipeline")): s.value
                for family in families
                for s in family.samples
            }

    try:
        wait_until(lambda: status("/healthz")[0] == 200, 60, "the process to answer")
        wait_until(lambda: status("/readyz")[0] == 200, 120, "the pipeline to be ready")
        table = f"{database}.t"
        wait_until(
            lambda: samples().get(("tailrace_rows_total", "snapshot", table)) == 2, 60, "the snapshot's rows"
        )
        while manager.recv(4096) != b"READY=1":
            pass
        assert manager.recv(4096).startswith(b"STATUS=")
        # Spark's planners would cost tens of megabytes each, and so would a second daemon
        pid = pipeline.pid
        assert pid is not None
        expected = [
            "pyspark.sql.streaming.python_streaming_source_runner",
            "tailrace",
            "tailrace.spark.daemon",
            "tailrace.spark.fork_server",
        ]
        wait_until(
            lambda: [name.partition(" ")[0] for name in processes.modules(pid)] == expected,
            30,
            lambda: f"not {expected}: {processes.modules(pid)}",
        )
        mysql.execute(f"INSERT INTO {database}.t VALUES (3)")
        ((now_us,),) = mysql.execute("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))")
        wait_until(
            lambda: samples().get(("tailrace_table_complete_timestamp_seconds", table), 0) >= now_us / 1e6,
            60,
            "completeness up to the insert",
        )
        found = samples()
        assert found["tailrace_rows_total", "log", table] == 1
        assert found["tailrace_table_state", "streaming", table] == 1
        assert found["tailrace_log_headroom_seconds",] > 0
        # the same from outside: the run notes itself once a second
        wait_until(lambda: (complete_s(outside(pipeline)) or 0) >= now_us / 1e6, 60, "the run's notes")
        seen = outside(pipeline)
        assert seen["running"] is True
        assert seen["batch"]["committed_at"] is not None
        assert [(t["name"], t["state"]) for t in seen["tables"]] == [(table, "streaming")]
        assert seen["sinks"][0]["visible_batch"] is not None
        assert seen["source"]["log"]["headroom_s"] > 0
        wait_until(
            lambda: [s for s in batches(otlp.spans(receiver)) if s.attributes["tailrace.changes"]],
            60,
            "its trace",
        )
        assert_traced(receiver, table)
        wait_until(
            lambda: (found := otlp.metrics(receiver)) and "tailrace_sink_commit_seconds" in found,
            60,
            "metrics",
        )
        assert_lineage(receiver, table)
    finally:
        pipeline.kill()
        runner.join()
        manager.close()
    assert outside(pipeline)["running"] is False


def batches(spans: list[otlp.SentSpan]) -> list[otlp.SentSpan]:
    return [span for span in spans if span.name == "batch"]


def assert_traced(receiver: Receiver, table: str) -> None:
    """Each batch is a trace with its plan, its sink's steps and its record."""
    found = otlp.spans(receiver)
    assert not any(span.failed for span in found)
    for batch in batches(found):
        below = [span for span in found if span.parent == batch.id]
        assert [span.name for span in sorted(below, key=lambda s: s.start_ns)] == ["plan", "write", "commit"]
        assert all(batch.start_ns <= span.start_ns <= span.end_ns <= batch.end_ns for span in below)
        (write,) = (span for span in below if span.name == "write")
        assert {"read", "commit"} == {span.name for span in found if span.parent == write.id}
        assert write.attributes["tailrace.sink"] == "delta"
    traced = [span for span in batches(found) if span.attributes["tailrace.tables"] == [table]]
    assert sum(span.attributes["tailrace.snapshot_rows"] for span in traced) == 2
    assert sum(span.attributes["tailrace.changes"] for span in traced) == 1
    assert all(span.attributes["tailrace.log_bytes"] > 0 for span in traced[1:])


def assert_lineage(receiver: Receiver, table: str) -> None:
    start = json.loads(receiver.bodies("/api/v1/lineage")[0])
    (source,), (target,) = start["inputs"], start["outputs"]
    assert (start["eventType"], source["name"]) == ("START", table)
    assert [field["name"] for field in source["facets"]["schema"]["fields"]] == ["id"]
    assert Path(target["name"], "_delta_log").is_dir()


def outside(pipeline: PipelineProcess) -> dict[str, Any]:
    """What `tailrace status` says."""
    command = [sys.executable, "-m", "tailrace", "status", str(pipeline.file), "--json"]
    done = subprocess.run(
        command, env=pipeline.environment, capture_output=True, text=True, timeout=60, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    assert not problems(found, SCHEMA)
    return found


def complete_s(seen: dict[str, Any]) -> float | None:
    text = seen["complete_up_to"]
    return None if text is None else datetime.fromisoformat(text).timestamp()

"""The files of `examples/monitoring`, with a real Prometheus that scrapes a pipeline's metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import TransientSourceError
from tailrace.model.table import TableId
from tailrace.pipeline.metrics import Metrics, MetricsServer
from tailrace.sinks.base import Written
from tests.support.json_schema import problems
from tests.support.prometheus import program, prometheus
from tests.support.wait import wait_until

KIT = Path(__file__).parents[2] / "examples" / "monitoring"
DASHBOARD = json.loads((KIT / "grafana.json").read_text("utf-8"))
PAGE = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text("utf-8")

_TEXT = {"type": "string"}
#: What Grafana needs of a dashboard, of those parts that ours has.
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["title", "uid", "schemaVersion", "panels", "templating", "time"],
    "properties": {
        "title": _TEXT,
        "uid": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,40}$"},
        "schemaVersion": {"type": "integer"},
        "time": {"type": "object", "required": ["from", "to"]},
        "templating": {
            "type": "object",
            "required": ["list"],
            "properties": {
                "list": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name", "type", "query"],
                        "properties": {"name": _TEXT, "type": {"enum": ["query", "datasource"]}},
                    },
                }
            },
        },
        "panels": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "type", "title", "gridPos", "targets", "datasource", "fieldConfig"],
                "properties": {
                    "id": {"type": "integer"},
                    "type": {"enum": ["stat", "timeseries"]},
                    "title": _TEXT,
                    "gridPos": {
                        "type": "object",
                        "required": ["x", "y", "w", "h"],
                        "additionalProperties": {"type": "integer"},
                    },
                    "targets": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["refId", "expr", "legendFormat", "datasource"],
                            "properties": {"refId": {"type": "string", "pattern": "^[A-Z]$"}, "expr": _TEXT},
                        },
                    },
                },
            },
        },
    },
}


def expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_dashboard_has_the_parts_that_grafana_needs_and_no_panel_overlaps_another() -> None:
    assert not problems(DASHBOARD, _SCHEMA)
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells


def test_dashboard_and_alerts_name_only_documented_metrics() -> None:
    text = " ".join(expressions()) + (KIT / "alerts.yml").read_text("utf-8")
    named = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\btailrace_\w+", text)}
    documented = set(re.findall(r"^\| `(tailrace_\w+)` ", PAGE, re.M))
    assert len(named) > 12
    assert not named - documented


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
)
def test_promtool_accepts_configuration_and_rules(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [program("promtool"), *arguments], cwd=KIT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def report(clock_ms: int) -> dict[str, Any]:
    log = {"file": "binlog.000001", "pos": 400, "gtids": "", "server": "", "epoch": 0, "ts_ms": clock_ms}
    end = {"v": 1, "mode": "initial", "log": log, "tables": {"shop.new": {"c": [5], "n": 5, "e": 20}}}
    end |= {
        "done": {"shop.orders": 100},
        "schema": [{"table": "shop.orders", "changes": [{"kind": "add.column"}]}],
    }
    room = {"s": 7200, "held": 600, "left": 9000, "rate": 12.5, "limits": {}}
    latest = {**end, "log": {**log, "pos": 1000}, "complete_us": clock_ms * 1000, "room": room}
    took = {"latestOffset": 100, "queryPlanning": 20, "addBatch": 2000, "walCommit": 30, "commitOffsets": 40}
    return {"durationMs": took, "sources": [{"endOffset": end, "latestOffset": latest}]}


def test_prometheus_scrapes_the_metrics_and_evaluates_dashboard_and_alerts(tmp_path: Path) -> None:
    metrics = Metrics("shop", "mysql")
    metrics.on_restart(TransientSourceError("connection lost", code="TR-3001"), 1, 5.0)
    with MetricsServer(("127.0.0.1", 0), metrics) as served:
        for name in ("prometheus.yml", "alerts.yml"):
            shutil.copy(KIT / name, tmp_path)
        config = tmp_path / "prometheus.yml"
        text = config.read_text("utf-8")
        assert "127.0.0.1:9404" in text
        text = text.replace("127.0.0.1:9404", f"127.0.0.1:{served.port}").replace("15s", "1s")
        config.write_text(text, "utf-8")
        with prometheus(config) as server:

            def has_both_batches() -> bool:
                metrics.on_progress(report(int(time.time() * 1000) - 4_000))
                found = server.values('tailrace_batches_total{pipeline="shop"}')
                batch = len(found) and int(found[0][1])
                metrics.on_written(batch, [Written(TableId("shop", "orders"), "orders", 0, 3)])
                return batch > 3

            wait_until(has_both_batches, 60, "the scrapes")
            assert server.values("up") == [({"__name__": "up", **target(server)}, 1.0)]
            (behind,) = server.values("time() - tailrace_complete_timestamp_seconds")
            assert 0 < behind[1] < 60
            for expression in expressions():
                filled = expression.replace("$pipeline", ".*")
                wait_until(lambda sought=filled: server.values(sought), 30, filled)
            quantile = "histogram_quantile(0.95, sum by (le) (rate(tailrace_lag_seconds_bucket[5m])))"
            assert 2 < server.values(quantile)[0][1] <= 10
            (group,) = server.get("/api/v1/rules")["groups"]
            assert [rule["health"] for rule in group["rules"]] == ["ok"] * len(group["rules"])


def target(server: Any) -> dict[str, str]:
    (active,) = server.get("/api/v1/targets")["activeTargets"]
    labels: dict[str, str] = active["labels"]
    return labels

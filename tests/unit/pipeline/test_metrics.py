"""Metrics and health over HTTP."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tailrace import __version__
from tailrace.errors import ConfigError, TransientSourceError
from tailrace.model.table import TableId
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.metrics import Metrics, MetricsServer
from tailrace.pipeline.verify_state import Comparison
from tailrace.sinks.base import Written
from tailrace.sinks.timings import READ, WRITE, Step
from tailrace.sources.postgres.position import PostgresPosition

#: Values of labels, which the page names beside the labels.
VALUES = {"snapshot", "log", "reread", "streaming", "parked", "plan", "write", "commit"}
RUN = BatchRun(
    7,
    0,
    2_000_000_000,
    [
        Step("delta", READ, 0, 400_000_000),
        Step("delta", WRITE, 0, 1_500_000_000),
        Step("kafka", WRITE, 1_500_000_000, 2_000_000_000),
    ],
    [],
    quarantined={("kafka", "shop.orders"): 2},
)
AT_MS = 1_700_000_000_000
LOG = {"file": "binlog.000001", "pos": 400, "gtids": "", "server": "", "epoch": 0, "ts_ms": AT_MS}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("shop", "mysql")


@pytest.fixture
def url(metrics: Metrics) -> Iterator[str]:
    with MetricsServer(("127.0.0.1", 0), metrics) as server:
        yield f"http://127.0.0.1:{server.port}"


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(url: str) -> dict[tuple[str, ...], float]:
    """Values by name and labels other than the pipeline's; every sample has that one."""
    found = {}
    for family in text_string_to_metric_families(get(f"{url}/metrics")[1]):
        for sample in family.samples:
            assert sample.labels["pipeline"] == "shop"
            labels = [f"{k}={v}" for k, v in sorted(sample.labels.items()) if k != "pipeline"]
            found[(sample.name, *labels)] = sample.value
    return found


def report(**more: Any) -> dict[str, Any]:
    end = {
        "v": 1,
        "mode": "initial",
        "log": LOG,
        "tables": {"shop.new": {"c": [5], "n": 5, "e": 20}},
        "done": {"shop.orders": 100, "shop.items": 7},
        "again": {"shop.items": {"id": "a", "c": None, "n": 0, "e": 7, "done": False}},
    }
    room = {
        "s": 7200,
        "held": 600,
        "left": None,
        "rate": 12.5,
        "limits": {"binlog_expire_logs_seconds": "7200"},
    }
    latest = {**end, "log": {**LOG, "pos": 1000}, "complete_us": AT_MS * 1000, "room": room}
    took = {"latestOffset": 100, "queryPlanning": 20, "addBatch": 2000, "walCommit": 30, "commitOffsets": 40}
    return {
        "durationMs": took,
        "pendingRows": 12,
        "sources": [{"endOffset": end, "latestOffset": latest}],
        **more,
    }


def test_metrics_tell_what_the_stream_does(metrics: Metrics, url: str) -> None:
    metrics.on_progress(report())
    metrics.on_written(7, [Written(TableId("shop", "orders"), "orders", 100, 0)])
    metrics.on_written(8, [Written(TableId("shop", "orders"), "orders", 0, 3)])
    metrics.on_batch(RUN)
    metrics.on_batch(replace(RUN, error=TransientSourceError("connection lost", code="TR-3001")))
    found = samples(url)
    assert found["tailrace_batch",] == 8
    assert found["tailrace_batches_total",] == 2
    assert found["tailrace_complete_timestamp_seconds",] == AT_MS / 1000
    assert found["tailrace_lag_bytes",] == 600
    assert found["tailrace_rows_total", "kind=snapshot", "table=shop.orders"] == 100
    assert found["tailrace_rows_total", "kind=log", "table=shop.orders"] == 3
    assert found["tailrace_snapshot_rows", "table=shop.new"] == 5
    assert found["tailrace_snapshot_estimated_rows", "table=shop.new"] == 20
    assert found["tailrace_batch_seconds_sum", "phase=plan"] == pytest.approx(0.12)
    assert found["tailrace_batch_seconds_sum", "phase=write"] == pytest.approx(2)
    assert found["tailrace_batch_seconds_sum", "phase=commit"] == pytest.approx(0.07)
    assert found["tailrace_lag_seconds_count",] == 1
    assert found["tailrace_log_headroom_seconds",] == 7200
    assert found["tailrace_log_held_bytes",] == 600
    assert found["tailrace_snapshot_slowed",] == 0
    assert found["tailrace_log_bytes_per_second",] == 12.5
    assert ("tailrace_log_left_bytes",) not in found
    assert found["tailrace_batch_rows_sum",] == 103
    assert found["tailrace_quarantined_rows_total", "sink=kafka", "table=shop.orders"] == 2
    assert found["tailrace_merge_pending_rows",] == 12
    assert found["tailrace_sink_commit_seconds_sum", "sink=delta"] == pytest.approx(1.5)
    assert found["tailrace_sink_commit_seconds_count", "sink=kafka"] == 1  # not that of the failed attempt
    assert found["tailrace_table_lag_seconds_count", "table=shop.orders"] == 1  # not that of the snapshot


def test_lag_of_a_table_is_measured_from_where_it_was_complete_before_the_batch(
    metrics: Metrics, url: str
) -> None:
    written = [Written(TableId("shop", name), name, 0, 1) for name in ("orders", "new")]
    metrics.on_written(6, written)  # nothing is known yet
    progress = report()
    progress["sources"][0]["latestOffset"]["complete_us"] = int((time.time() - 40) * 1e6)
    metrics.on_progress(progress)
    metrics.on_written(7, written)
    found = samples(url)
    assert found["tailrace_table_lag_seconds_sum", "table=shop.orders"] == pytest.approx(40, abs=20)
    assert found["tailrace_table_lag_seconds_count", "table=shop.orders"] == 1
    assert ("tailrace_table_lag_seconds_count", "table=shop.new") not in found  # its rows are being read


def test_schema_changes_are_counted_with_their_batch(metrics: Metrics, url: str) -> None:
    progress = report()
    changes = [{"kind": "add.column"}, {"kind": "drop.column"}]
    progress["sources"][0]["endOffset"]["schema"] = [{"table": "shop.orders", "changes": changes}]
    metrics.on_progress(progress)
    metrics.on_progress({**progress, "durationMs": {"latestOffset": 1}})  # idle: the same offset once more
    assert samples(url)["tailrace_schema_changes_total", "kind=add.column"] == 1
    assert samples(url)["tailrace_schema_changes_total", "kind=drop.column"] == 1


def test_parked_sinks_are_shown_by_name(metrics: Metrics, url: str) -> None:
    whole, table = {"table": None}, {"table": "shop.orders"}
    metrics.on_progress(report() | {"parkedSinks": {"lake": [], "replica": [whole], "topics": [table]}})
    shown = {
        name: samples(url)["tailrace_sink_parked", f"sink={name}"] for name in ("lake", "replica", "topics")
    }
    assert shown == {"lake": 0, "replica": 1, "topics": 0}
    assert samples(url)["tailrace_sink_parked_tables", "sink=topics"] == 1


def test_result_of_the_last_comparison_is_shown(metrics: Metrics, url: str) -> None:
    known = Comparison(1, at_ms=2_000, source_rows=9, differences=3)
    metrics.on_comparisons({"lake": {"shop.orders": known, "shop.new": Comparison(1)}})
    labels = ("sink=lake", "table=shop.orders")
    names = ("differences", "timestamp_seconds", "rows")
    assert [samples(url)[f"tailrace_verify_{name}", *labels] for name in names] == [3, 2, 9]
    assert ("tailrace_verify_rows", "sink=lake", "table=shop.new") not in samples(url), "never compared"


def test_every_metric_is_documented_with_its_labels() -> None:
    """docs/reference/metrics.md has what /metrics shows, and nothing else."""
    metrics = Metrics("shop", "postgresql")
    lsn = PostgresPosition(0x100, "7", AT_MS).to_json()
    progress = report()
    (source,) = progress["sources"]
    source["endOffset"]["log"], source["latestOffset"]["log"] = lsn, {**lsn, "held_bytes": 5, "left_bytes": 6}
    source["endOffset"]["schema"] = [{"table": "shop.orders", "changes": [{"kind": "add.column"}]}]
    progress["parkedSinks"] = {"lake": []}
    metrics.on_progress(progress)
    metrics.on_written(7, [Written(TableId("shop", "orders"), "orders", 100, 0)])
    metrics.on_written(8, [Written(TableId("shop", "orders"), "orders", 0, 3)])
    metrics.on_batch(RUN)
    metrics.on_restart(TransientSourceError("connection lost", code="TR-3001"), 1, 5.0)
    metrics.on_comparisons({"lake": {"shop.orders": Comparison(1, at_ms=2, source_rows=9, differences=3)}})
    shown = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        shown[name] = (family.type, labels - {"pipeline", "le"})
    page = (Path(__file__).parents[3] / "docs/reference/metrics.md").read_text(encoding="utf-8")
    listed = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)) - VALUES)
        for name, kind, labels in re.findall(r"^\| `(tailrace_\w+)` \| (\w+) \| ([^|]*)\|", page, re.M)
    }
    assert shown == listed


def test_each_table_has_one_state_and_a_time_only_when_it_is_complete(metrics: Metrics, url: str) -> None:
    progress = report()
    progress["sources"][0]["endOffset"]["parked"] = {
        "shop.bad": {"log": {**LOG, "ts_ms": AT_MS - 5_000}, "had": "all"},
        "shop.new_and_bad": {"log": LOG, "had": "part"},
    }
    metrics.on_progress(progress)
    found = samples(url)
    states = {
        labels[1].removeprefix("table="): labels[0].removeprefix("state=")
        for (name, *labels), value in found.items()
        if name == "tailrace_table_state" and value == 1
    }
    assert states == {
        "shop.new": "snapshot",
        "shop.items": "reread",
        "shop.orders": "streaming",
        "shop.bad": "parked",
        "shop.new_and_bad": "parked",
    }
    complete = {
        labels[0]: value
        for (name, *labels), value in found.items()
        if name == "tailrace_table_complete_timestamp_seconds"
    }
    assert complete == {
        "table=shop.orders": AT_MS / 1000,
        "table=shop.bad": AT_MS / 1000 - 5,  # when it was parked
    }


def test_pipeline_is_ready_from_its_first_report_on_except_while_it_waits(metrics: Metrics, url: str) -> None:
    assert get(f"{url}/readyz")[0] == 503
    assert get(f"{url}/healthz")[0] == 200
    metrics.on_progress(report())
    status, text = get(f"{url}/readyz")
    assert (status, json.loads(text)["complete_up_to"]) == (200, "2023-11-14T22:13:20.000+00:00")
    metrics.on_restart(TransientSourceError("connection lost", code="TR-3001"), 1, 5.0)
    assert get(f"{url}/readyz")[0] == 503
    found = samples(url)
    assert found["tailrace_restarts_total",] == 1
    assert found["tailrace_errors_total", "code=TR-3001"] == 1
    metrics.on_progress(report())
    assert get(f"{url}/readyz")[0] == 200


def test_metrics_before_the_first_report_hold_no_made_up_values(url: str) -> None:
    found = samples(url)
    assert found["tailrace_info", f"version={__version__}"] == 1
    assert not [name for name, *_ in found if name in ("tailrace_batch", "tailrace_lag_bytes")]


def test_unknown_path_is_not_found(url: str) -> None:
    status, text = get(f"{url}/nothing")
    assert (status, json.loads(text)["paths"]) == (404, ["/metrics", "/healthz", "/readyz"])


def test_address_in_use_is_refused_by_name(metrics: Metrics, url: str) -> None:
    port = int(url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
        MetricsServer(("127.0.0.1", port), metrics)

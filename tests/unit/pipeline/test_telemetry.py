"""Spans of batches and metrics, sent to a real HTTP server and decoded by OpenTelemetry's own messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.errors import SinkError, TransientSourceError
from tailrace.model.table import TableId
from tailrace.pipeline import telemetry as sending
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.metrics import Metrics
from tailrace.pipeline.telemetry import Telemetry
from tailrace.sinks.base import Written
from tailrace.sinks.timings import COMMIT, READ, WRITE, Step
from tests.support.http_receiver import Receiver, http_receiver
from tests.support.otlp import metrics, spans

#: 2023-11-14T22:13:20Z
AT_NS = 1_700_000_000 * 10**9
MS = 1_000_000
LOG = {"file": "binlog.000001", "pos": 400, "gtids": "", "server": "", "epoch": 0, "ts_ms": 1}
RUN = BatchRun(
    7,
    AT_NS + 200 * MS,
    AT_NS + 900 * MS,
    [
        Step("delta", READ, AT_NS + 210 * MS, AT_NS + 400 * MS),
        Step("delta", COMMIT, AT_NS + 400 * MS, AT_NS + 500 * MS),
        Step("delta", WRITE, AT_NS + 205 * MS, AT_NS + 500 * MS),
        Step("kafka", READ, AT_NS + 510 * MS, AT_NS + 600 * MS),
        Step("kafka", WRITE, AT_NS + 500 * MS, AT_NS + 900 * MS),
    ],
    [Written(TableId("shop", "orders"), "orders", 0, 3), Written(TableId("shop", "items"), "items", 5, 0)],
)
REPORT = {
    "batchId": 7,
    "timestamp": "2023-11-14T22:13:20.000Z",
    "durationMs": {"addBatch": 800, "triggerExecution": 1000},
    "sources": [{"startOffset": {"log": LOG}, "endOffset": {"log": {**LOG, "pos": 1000}}}],
}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with http_receiver() as server:
        yield server


def telemetry(section: str, of: Metrics | None = None) -> Telemetry:
    pipeline = parse_pipeline(
        "source: {url: 'mysql://h', user: u, tables: 'shop.*'}\n"
        "sink: {type: console}\n"
        "pipeline: {name: shop, checkpoint: /tmp/c}\n"
        f"telemetry: {section}\n"
    )
    return Telemetry(pipeline, of or Metrics("shop", "mysql"))


def test_batch_is_a_trace_of_plan_writes_and_commit(receiver: Receiver) -> None:
    with telemetry(f"{{endpoint: '{receiver.url}', metrics: false}}") as sent:
        sent.on_batch(RUN)
        sent.on_progress(REPORT)
    found = spans(receiver)
    (batch,) = [span for span in found if not span.parent]
    below = sorted((s.start_ns, s.name) for s in found if s.parent == batch.id)
    assert {span.trace for span in found} == {batch.trace}
    assert (batch.name, batch.start_ns, batch.end_ns) == ("batch", AT_NS, AT_NS + 1000 * MS)
    assert below == [
        (AT_NS, "plan"),
        (AT_NS + 205 * MS, "write"),
        (AT_NS + 500 * MS, "write"),
        (AT_NS + 900 * MS, "commit"),
    ]
    assert batch.attributes == {
        "tailrace.pipeline": "shop",
        "tailrace.batch": 7,
        "tailrace.tables": ["shop.items", "shop.orders"],
        "tailrace.table_count": 2,
        "tailrace.snapshot_rows": 5,
        "tailrace.changes": 3,
        "tailrace.log_bytes": 600,
    }
    assert batch.resource["service.name"] == "tailrace"
    delta, kafka = (span for span in found if span.name == "write")
    assert [(s.name, s.start_ns) for s in found if s.parent == delta.id] == [
        ("read", AT_NS + 210 * MS),
        ("commit", AT_NS + 400 * MS),
    ]
    assert [s.name for s in found if s.parent == kafka.id] == ["read"]
    assert (delta.attributes["tailrace.sink"], kafka.attributes["tailrace.sink"]) == ("delta", "kafka")
    assert not any(span.failed for span in found)


def test_plan_and_commit_that_took_no_whole_millisecond_are_spans(receiver: Receiver) -> None:
    """Spark reports whole milliseconds: by these, the commit ends before the sinks did."""
    run = replace(RUN, start_ns=AT_NS, end_ns=AT_NS + 1000 * MS + 200_000)
    with telemetry(f"{{endpoint: '{receiver.url}', metrics: false}}") as sent:
        sent.on_batch(run)
        sent.on_progress(REPORT)
    took = {s.name: s.end_ns - s.start_ns for s in spans(receiver)}
    assert (took["plan"], took["commit"], took["batch"]) == (0, 0, 1000 * MS + 200_000)


def test_failed_batch_has_the_code_of_its_error(receiver: Receiver) -> None:
    error = SinkError("target is full", code="TR-7007")
    error.concern(TableId("shop", "orders"))
    with telemetry(f"{{endpoint: '{receiver.url}', metrics: false}}") as sent:
        sent.on_batch(replace(RUN, written=[], error=error))
    (batch,) = [span for span in spans(receiver) if not span.parent]
    assert batch.failed
    assert batch.attributes["error.type"] == "TR-7007"
    assert batch.attributes["tailrace.table"] == "shop.orders"
    _, kafka = (span for span in spans(receiver) if span.name == "write")
    assert kafka.failed


def test_restarts_and_the_last_error_are_spans_of_their_own(receiver: Receiver) -> None:
    lost = TransientSourceError("connection lost", code="TR-3001")
    ended = SinkError("target is full", code="TR-7007")
    with (
        suppress(SinkError),
        telemetry(f"{{endpoint: '{receiver.url}', metrics: false}}") as sent,
    ):
        sent.on_restart(lost, 2, 1.5)
        raise ended
    assert [(s.name, s.failed, s.attributes["error.type"]) for s in spans(receiver)] == [
        ("restart", True, "TR-3001"),
        ("failure", True, "TR-7007"),
    ]
    assert spans(receiver)[0].attributes["tailrace.attempt"] == 2


def test_batch_without_a_report_is_sent_at_the_end(receiver: Receiver) -> None:
    with telemetry(f"{{endpoint: '{receiver.url}', metrics: false}}") as sent:
        sent.on_batch(RUN)
        sent.on_progress({"batchId": 8, "durationMs": {"latestOffset": 1}})
        assert spans(receiver) == []
    (batch,) = [span for span in spans(receiver) if not span.parent]
    assert (batch.start_ns, batch.end_ns) == (RUN.start_ns, RUN.end_ns)


def test_metrics_are_those_of_prometheus(receiver: Receiver) -> None:
    counted = Metrics("shop", "mysql")
    with telemetry(f"{{endpoint: '{receiver.url}/', traces: false}}", counted) as sent:
        counted.on_written(7, list(RUN.written))
        counted.on_batch(RUN)
        sent.on_batch(RUN)
    found = metrics(receiver)
    assert spans(receiver) == []
    (rows,) = [
        point
        for point in found["tailrace_rows_total"].sum.data_points
        if {pair.key: pair.value.string_value for pair in point.attributes}["table"] == "shop.orders"
    ]
    assert (rows.as_double, found["tailrace_rows_total"].sum.is_monotonic) == (3, True)
    assert rows.start_time_unix_nano <= rows.time_unix_nano
    assert found["tailrace_batch"].gauge.data_points[0].as_double == 7
    (point,) = [
        point
        for point in found["tailrace_sink_commit_seconds"].histogram.data_points
        if any(pair.value.string_value == "kafka" for pair in point.attributes)
    ]
    assert (point.count, point.sum) == (1, pytest.approx(0.4))
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert [n for n, end in zip(point.bucket_counts, point.explicit_bounds, strict=False) if n] == [1]
    assert sum(point.bucket_counts) == 1
    assert not point.HasField("min")
    assert found["tailrace_sink_commit_seconds"].unit == "s"


def test_standard_variables_name_receiver_headers_and_service(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-cdc")
    with telemetry("") as sent:
        sent.on_batch(RUN)
    assert spans(receiver)[0].resource["service.name"] == "shop-cdc"
    assert {post.headers["x-tenant"] for post in receiver.posts} == {"a"}
    assert {post.path for post in receiver.posts} == {"/v1/traces", "/v1/metrics"}


def test_headers_are_secrets_where_they_are_references(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLECTOR_TOKEN", "geheim")
    headers = "{authorization: '${env:COLLECTOR_TOKEN}'}"
    with telemetry(f"{{endpoint: '{receiver.url}', headers: {headers}}}") as sent:
        sent.on_batch(RUN)
    assert {post.headers["authorization"] for post in receiver.posts} == {"geheim"}


def test_receiver_that_does_not_answer_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_FLUSH_MS", 300)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "4")
    before = set(threading.enumerate())
    began = time.monotonic()
    sent = telemetry("{endpoint: 'http://127.0.0.1:9'}")
    with sent:
        for number in range(50):
            sent.on_batch(replace(RUN, batch=number))
        assert time.monotonic() - began < 2
    assert time.monotonic() - began < 2
    # their pauses between attempts are random numbers, and Hypothesis fails a test beside which any is drawn
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive()

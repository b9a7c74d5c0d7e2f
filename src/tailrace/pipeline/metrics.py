"""A pipeline's metrics for Prometheus, and its health, over HTTP.

    /metrics   what `StreamView` knows, as of now, and counters and histograms of what has happened
    /healthz   200 while the pipeline runs: whoever gets no answer may restart it
    /readyz    200 from its first report on, except while it waits to start again; else 503

All names, units and labels: docs/reference/metrics.md.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Protocol

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace import __version__
from tailrace.errors import ConfigError, TailraceError
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.progress import StreamView, schema_changes
from tailrace.pipeline.verify_state import Comparison
from tailrace.sinks.base import Written
from tailrace.sinks.timings import WRITE
from tailrace.sources import registry as sources

# Otherwise each counter has a second series with the time when it began.
disable_created_metrics()  # type: ignore[no-untyped-call]

#: Upper ends of the histograms' buckets: seconds, rows, seconds.
_BATCH_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)
_ROW_BUCKETS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_LAG_BUCKETS = (0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
#: The phases of a batch, and Spark's names of the times that they consist of.
_PHASES = {
    "plan": ("latestOffset", "getBatch", "queryPlanning"),
    "write": ("addBatch",),
    "commit": ("walCommit", "commitOffsets", "commitBatch"),
}
#: The states of a table, each a series that is 1 or 0.
_STATES = ("snapshot", "reread", "streaming", "parked")


class Metrics(Collector):
    """Counts a stream's events; a `Watcher`. Several threads may report events and scrape.

    Args:
        pipeline: the pipeline's name, a label of every metric.
        dialect: the source's database, see `sources.registry`.
    """

    def __init__(self, pipeline: str, dialect: str) -> None:
        self._pipeline = pipeline
        self._view = StreamView(sources.position_type(dialect))
        self._lock = threading.Lock()
        self._step = "connecting"
        self._waits = False
        self._reported = False
        self._comparisons: Mapping[str, Mapping[str, Comparison]] = {}
        self.registry = CollectorRegistry()
        labels = ("pipeline",)

        def counter(name: str, text: str, *more: str) -> Counter:
            return Counter(f"tailrace_{name}", text, (*labels, *more), registry=self.registry)

        def histogram(name: str, text: str, buckets: Iterable[float], *more: str) -> Histogram:
            names = (*labels, *more)
            return Histogram(f"tailrace_{name}", text, names, registry=self.registry, buckets=tuple(buckets))

        self._rows = counter("rows", "Rows and changes that the sink has.", "table", "kind")
        self._batches = counter("batches", "Batches that the sink has.")
        self._schema_changes = counter("schema_changes", "Schema changes of the source.", "kind")
        self._restarts = counter("restarts", "Starts after a transient error.")
        self._errors = counter("errors", "Errors that ended the stream for a time.", "code")
        self._quarantined = counter(
            "quarantined_rows", "Rows that a sink has refused and put aside.", "sink", "table"
        )
        self._batch_rows = histogram("batch_rows", "Rows and changes of a batch.", _ROW_BUCKETS)
        self._phases = histogram("batch_seconds", "Duration of a batch's phases.", _BATCH_BUCKETS, "phase")
        self._lag = histogram(
            "lag_seconds", "How far behind the time of day the target was, at each report.", _LAG_BUCKETS
        )
        self._table_lag = histogram(
            "table_lag_seconds",
            "Longest time that a change of a batch may have taken from its commit to the target.",
            _LAG_BUCKETS,
            "table",
        )
        self._sink_commits = histogram(
            "sink_commit_seconds", "Time until a sink has made a batch durable.", _BATCH_BUCKETS, "sink"
        )
        self.registry.register(self)

    # ---- events --------------------------------------------------------------------------------------

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """See `Watcher`."""
        now_s = time.time()
        with self._lock:
            self._view.progress(progress, time.monotonic(), int(now_s * 1000))
            self._waits, self._reported = False, True
            complete_ts_ms = self._view.complete_ts_ms
        if complete_ts_ms is not None:
            self._lag.labels(self._pipeline).observe(max(now_s - complete_ts_ms / 1000, 0.0))
        took = progress.get("durationMs") or {}
        if "addBatch" in took:
            for phase, names in _PHASES.items():
                seconds = sum(took.get(name, 0) for name in names) / 1000
                self._phases.labels(self._pipeline, phase).observe(seconds)
            for kind in schema_changes(progress):
                self._schema_changes.labels(self._pipeline, kind).inc()

    def on_written(self, batch_id: int, written: list[Written]) -> None:
        """See `Watcher`."""
        now_s = time.time()
        with self._lock:
            self._view.written(batch_id, written, time.monotonic())
            # as of the batch before: whatever this one brings was committed later
            complete_ms = {str(part.table): self._view.complete_of(str(part.table)) for part in written}
        self._batches.labels(self._pipeline).inc()
        rows = sum(part.snapshot_rows + part.changes for part in written)
        self._batch_rows.labels(self._pipeline).observe(rows)
        for part in written:
            for kind, rows in (("snapshot", part.snapshot_rows), ("log", part.changes)):
                if rows:
                    self._rows.labels(self._pipeline, str(part.table), kind).inc(rows)
            at_ms = complete_ms[str(part.table)]
            if part.changes and at_ms is not None:
                lag = self._table_lag.labels(self._pipeline, str(part.table))
                lag.observe(max(now_s - at_ms / 1000, 0.0))

    def on_batch(self, run: BatchRun) -> None:
        """See `Watcher`."""
        for step in run.steps if run.error is None else ():
            if step.name == WRITE:
                self._sink_commits.labels(self._pipeline, step.sink).observe(step.seconds)
        for (sink, table), count in run.quarantined.items() if run.error is None else ():
            self._quarantined.labels(self._pipeline, sink, table).inc(count)

    def on_restart(self, error: TailraceError, attempt: int, pause_s: float) -> None:  # noqa: ARG002
        """See `Watcher`."""
        with self._lock:
            self._waits = True
        self._restarts.labels(self._pipeline).inc()
        self._errors.labels(self._pipeline, error.code or "").inc()

    def on_trouble(self, error: TailraceError | None) -> None:
        """See `Watcher`."""

    def on_step(self, step: str) -> None:
        """See `Watcher`."""
        with self._lock:
            self._step = step

    def on_notice(self, text: str) -> None:
        """See `Watcher`."""

    def on_comparisons(self, tables: Mapping[str, Mapping[str, Comparison]]) -> None:
        """What is known of comparisons has changed, by the names of sink and table."""
        with self._lock:
            self._comparisons = tables

    # ---- what is now ---------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """The values of `StreamView`, for prometheus_client."""
        info = self._gauge("info", "Always 1; the version is a label.", "version")
        info.add_metric([self._pipeline, __version__], 1)
        yield info
        with self._lock:
            yield from self._of_stream()
            yield from self._of_tables()
            yield from self._of_sinks()
            yield from self._of_comparisons()

    def describe(self) -> list[Metric]:
        """Nothing: which metrics there are depends on the source."""
        return []

    def _of_stream(self) -> Iterator[Metric]:
        view = self._view
        for name, value, text in (
            ("batch", view.batch, "Newest batch in the sink."),
            ("complete_timestamp_seconds", _seconds(view.complete_ts_ms), "Complete up to this time."),
            ("lag_bytes", view.lag_bytes, "Bytes of the log left to read."),
            ("lag_files", view.lag_files, "Files of the log left to read."),
            ("log_held_bytes", view.held_bytes, "Bytes of the log from the stream's position on."),
            ("log_left_bytes", view.left_bytes, "Bytes until the server removes the log at the position."),
            ("log_headroom_seconds", view.room_s, "Time until the server removes the log at the position."),
            ("log_bytes_per_second", view.log_rate, "Rate by which the server's log grows."),
            ("snapshot_slowed", int(view.is_slowed), "1: rows of tables are read slowly."),
            ("merge_pending_rows", view.pending_rows, "Changes that wait for a merge."),
            ("parked_tables", len(view.parked), "Tables that the stream leaves out."),
        ):
            if value is not None:
                gauge = self._gauge(name, text)
                gauge.add_metric([self._pipeline], value)
                yield gauge

    def _of_tables(self) -> Iterator[Metric]:
        view = self._view
        rows = self._gauge("snapshot_rows", "Rows that the snapshot has read.", "table")
        estimated = self._gauge("snapshot_estimated_rows", "Rows of the table, estimated.", "table")
        state = self._gauge("table_state", "1: the table's state.", "table", "state")
        complete = self._gauge("table_complete_timestamp_seconds", "Complete up to this time.", "table")
        for name, table in view.tables.items():
            labels = [self._pipeline, name]
            rows.add_metric(labels, table.rows)
            if table.estimated:
                estimated.add_metric(labels, table.estimated)
            current = "streaming"
            if name in view.unfinished:
                current = "reread" if table.done else "snapshot"
            for each in _STATES:
                state.add_metric([*labels, each], int(each == current))
            complete_ts_ms = view.complete_of(name)
            if complete_ts_ms is not None:
                complete.add_metric(labels, complete_ts_ms / 1000)
        for name in view.parked:
            for each in _STATES:
                state.add_metric([self._pipeline, name, each], int(each == "parked"))
            if (parked_ms := view.complete_of(name)) is not None:
                complete.add_metric([self._pipeline, name], parked_ms / 1000)
        yield from (rows, estimated, state, complete)

    def _of_sinks(self) -> Iterator[Metric]:
        parked = self._gauge("sink_parked", "1: the sink is parked, as a whole.", "sink")
        tables = self._gauge("sink_parked_tables", "Tables that the sink alone leaves out.", "sink")
        for name, left_out in self._view.sinks.items():
            parked.add_metric([self._pipeline, name], int(None in left_out))
            tables.add_metric([self._pipeline, name], len(left_out) - left_out.count(None))
        yield from (parked, tables)

    def _of_comparisons(self) -> Iterator[Metric]:
        labels = ("table", "sink")
        differences = self._gauge("verify_differences", "Rows that differed from the target.", *labels)
        at = self._gauge("verify_timestamp_seconds", "When the table was compared last.", *labels)
        rows = self._gauge("verify_rows", "Rows of the source that were compared then.", *labels)
        for sink, tables in self._comparisons.items():
            for name, known in tables.items():
                if known.at_ms is not None:
                    of_table = [self._pipeline, name, sink]
                    differences.add_metric(of_table, known.differences or 0)
                    at.add_metric(of_table, known.at_ms / 1000)
                    rows.add_metric(of_table, known.source_rows or 0)
        yield from (differences, at, rows)

    def _gauge(self, name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"tailrace_{name}", text, labels=["pipeline", *labels])

    # ---- health --------------------------------------------------------------------------------------

    def health(self) -> dict[str, Any]:
        """What the pipeline does, and whether it is ready, as JSON values."""
        with self._lock:
            complete_ts_ms = self._view.complete_ts_ms
            return {
                "pipeline": self._pipeline,
                "ready": self._reported and not self._waits,
                "step": self._step,
                "batch": self._view.batch,
                "complete_up_to": complete_ts_ms and _iso(complete_ts_ms),
                "unfinished_tables": sorted(self._view.unfinished),
            }


class Served(Protocol):
    """What a `MetricsServer` serves."""

    @property
    def registry(self) -> Collector:
        """The metrics."""

    def health(self) -> dict[str, Any]:
        """What the pipeline does, and whether it is `ready`, as JSON values."""


class MetricsServer:
    """Serves metrics and health; a context manager.

    Args:
        address: host and port; port 0: any free one.
        metrics: what is served.

    Raises:
        ConfigError: it cannot listen there.
    """

    def __init__(self, address: tuple[str, int], metrics: Served) -> None:
        class Handler(_Handler):
            served = metrics

        try:
            self._server = ThreadingHTTPServer(address, Handler)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served at `{address[0]}:{address[1]}`",
                error.strerror,
                "give `pipeline.metrics` an address of this machine and a free port",
                code="TR-1214",
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def port(self) -> int:
        """The port."""
        return self._server.server_port

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    served: Served
    timeout = 10.0

    def do_GET(self) -> None:
        """Answer a request."""
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(self.served.registry))
            case "/healthz":
                self._json(200, self.served.health())
            case "/readyz":
                health = self.served.health()
                self._json(200 if health["ready"] else 503, health)
            case _:
                self._json(404, {"paths": ["/metrics", "/healthz", "/readyz"]})

    def _json(self, status: int, value: Mapping[str, Any]) -> None:
        self._answer(status, "application/json", json.dumps(value).encode())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Do not log requests: one comes every few seconds."""


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")

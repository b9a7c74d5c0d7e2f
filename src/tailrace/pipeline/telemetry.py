"""Spans of batches, sent by OpenTelemetry's protocol.

    batch              one trace for each attempt at a batch
      plan             Spark chooses its end and plans it
      write            one for each sink, until it has made the batch durable
        read, commit   see `sinks.timings`
      commit           Spark records the batch as done
    restart, failure   errors: the stream starts again after a pause, or has ended

The spans of a batch are made when Spark reports on it, or when it has failed. A receiver that does not answer
costs spans, never the stream: they wait in memory, at most 2,048, and are sent by a thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

from tailrace import __version__
from tailrace.config.model import Pipeline
from tailrace.config.secret import resolve_all
from tailrace.config.telemetry import TelemetrySettings
from tailrace.errors import TailraceError
from tailrace.pipeline.batch_run import BatchRun
from tailrace.pipeline.metrics import Metrics
from tailrace.pipeline.otlp_metrics import MetricsSender
from tailrace.sinks.base import Written
from tailrace.sinks.timings import WRITE, Step
from tailrace.sources import registry
from tailrace.sources.base import Position

#: Most tables that a span names.
_MOST_TABLES = 100
#: Most batches that wait for Spark's report; it may have forgotten a report.
_MOST_WAITING = 10
#: How long an end waits for the receiver, milliseconds.
_FLUSH_MS = 3_000


class Telemetry:
    """Sends spans and metrics; a `Watcher` and a context manager.

    Args:
        pipeline: the pipeline; has a section `telemetry`.
        metrics: what is sent of metrics.

    Raises:
        ConfigError: a header's reference cannot be resolved.
    """

    def __init__(self, pipeline: Pipeline, metrics: Metrics) -> None:
        settings = pipeline.telemetry or TelemetrySettings()
        self._pipeline = pipeline.settings.name
        self._position_type = registry.position_type(pipeline.source.dialect)
        headers = resolve_all(settings.headers, "telemetry.headers") or None
        resource = _resource()
        self._spans = TracerProvider(resource=resource, shutdown_on_exit=False) if settings.traces else None
        if self._spans is not None:
            exporter = OTLPSpanExporter(_signal(settings.endpoint, "traces"), headers=headers)
            self._spans.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = None if self._spans is None else self._spans.get_tracer("tailrace", __version__)
        self._metrics: MetricsSender | None = None
        # the SDK's own providers look at this variable themselves
        if settings.metrics and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true":
            sender = OTLPMetricExporter(_signal(settings.endpoint, "metrics"), headers=headers)
            self._metrics = MetricsSender(metrics.registry, sender, resource)
        self._lock = threading.Lock()
        #: Batches in the sinks, without Spark's report.
        self._waiting: dict[int, BatchRun] = {}

    def __enter__(self) -> Telemetry:
        if self._metrics is not None:
            self._metrics.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for run in self._taken(None):
            self._batch(run, {})
        if isinstance(error, TailraceError):
            self._error("failure", error, {})
        if self._spans is not None:  # it has no limit of its own: a request may take 10 s
            flush = threading.Thread(target=self._spans.shutdown, name="telemetry", daemon=True)
            flush.start()
            flush.join(_FLUSH_MS / 1000)
        if self._metrics is not None:
            self._metrics.close(_FLUSH_MS)

    # ---- events ----

    def on_batch(self, run: BatchRun) -> None:
        """See `Watcher`."""
        with self._lock:
            self._waiting[run.batch] = run
            late = list(self._waiting)[:-_MOST_WAITING]
        for batch in [*late, *([] if run.error is None else [run.batch])]:
            for each in self._taken(batch):
                self._batch(each, {})

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """See `Watcher`."""
        if "addBatch" in (progress.get("durationMs") or {}):
            for run in self._taken(int(progress["batchId"])):
                self._batch(run, progress)

    def on_restart(self, error: TailraceError, attempt: int, pause_s: float) -> None:
        """See `Watcher`."""
        self._error("restart", error, {"tailrace.attempt": attempt, "tailrace.pause_seconds": pause_s})

    def on_written(self, batch_id: int, written: list[Written]) -> None:
        """See `Watcher`."""

    def on_trouble(self, error: TailraceError | None) -> None:
        """See `Watcher`."""

    def on_step(self, step: str) -> None:
        """See `Watcher`."""

    def on_notice(self, text: str) -> None:
        """See `Watcher`."""

    # ---- spans ----

    def _taken(self, batch: int | None) -> list[BatchRun]:
        """The batch, or all, no longer waiting."""
        with self._lock:
            numbers = list(self._waiting) if batch is None else [batch]
            return [self._waiting.pop(number) for number in numbers if number in self._waiting]

    def _batch(self, run: BatchRun, report: Mapping[str, Any]) -> None:
        """The spans of a batch, with Spark's report if there is one."""
        began_ns, ended_ns = run.start_ns, run.end_ns
        if report:
            # in whole milliseconds, so a short commit may seem to end before the sinks did
            took_ms = report["durationMs"].get("triggerExecution", 0)
            began_ns = min(_unix_ns(report["timestamp"]), run.start_ns)
            ended_ns = max(began_ns + took_ms * 1_000_000, run.end_ns)
        span = self._span("batch", None, began_ns, self._of_batch(run, report))
        if span is None:
            return
        if report:
            self._ended("plan", span, began_ns, run.start_ns)
        for step in run.steps:
            if step.name == WRITE:
                self._write(span, step, run)
        if report:
            self._ended("commit", span, run.end_ns, ended_ns)
        if run.error is not None:
            _fail(span, run.error)
        span.end(ended_ns)

    def _write(self, parent: Span, write: Step, run: BatchRun) -> None:
        attributes = {"tailrace.sink": write.sink}
        span = self._span("write", parent, write.start_ns, attributes)
        if span is None:
            return
        for step in run.steps:
            if step.sink == write.sink and step is not write:
                self._ended(step.name, span, step.start_ns, step.end_ns, attributes)
        if run.error is not None and write is run.steps[-1]:
            _fail(span, run.error)
        span.end(write.end_ns)

    def _of_batch(self, run: BatchRun, report: Mapping[str, Any]) -> dict[str, Any]:
        tables = sorted({str(part.table) for part in run.written})
        found = {
            "tailrace.batch": run.batch,
            "tailrace.tables": tables[:_MOST_TABLES],
            "tailrace.table_count": len(tables),
            "tailrace.snapshot_rows": sum(part.snapshot_rows for part in run.written),
            "tailrace.changes": sum(part.changes for part in run.written),
            "tailrace.log_bytes": _log_bytes(report, self._position_type),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _error(self, name: str, error: TailraceError, attributes: Mapping[str, Any]) -> None:
        now_ns = time.time_ns()
        span = self._span(name, None, now_ns, attributes)
        if span is not None:
            _fail(span, error)
            span.end(now_ns)

    def _span(
        self, name: str, parent: Span | None, start_ns: int, attributes: Mapping[str, Any]
    ) -> Span | None:
        if self._tracer is None:
            return None
        context = None if parent is None else set_span_in_context(parent)
        return self._tracer.start_span(
            name, context, attributes={"tailrace.pipeline": self._pipeline, **attributes}, start_time=start_ns
        )

    def _ended(
        self,
        name: str,
        parent: Span,
        start_ns: int,
        end_ns: int,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        span = self._span(name, parent, start_ns, attributes or {})
        if span is not None:
            span.end(end_ns)


def _resource() -> Resource:
    """What spans and metrics are about; the environment may name it otherwise."""
    found = Resource.create({"service.version": __version__})
    if str(found.attributes["service.name"]).startswith("unknown_service"):
        return found.merge(Resource({"service.name": "tailrace"}))
    return found


def _fail(span: Span, error: TailraceError) -> None:
    span.set_status(Status(StatusCode.ERROR, error.message))
    span.set_attribute("error.type", error.code or type(error).__name__)
    if error.table is not None:
        span.set_attribute("tailrace.table", str(error.table))


def _signal(endpoint: str | None, signal: str) -> str | None:
    """The address of a signal; None: the environment's."""
    return None if endpoint is None else f"{endpoint.rstrip('/')}/v1/{signal}"


def _unix_ns(timestamp: str) -> int:
    """Nanoseconds since 1970 UTC of a time in a report of Spark."""
    return int(datetime.fromisoformat(timestamp).timestamp() * 1000) * 1_000_000


def _log_bytes(report: Mapping[str, Any], position_type: type[Position]) -> int | None:
    """Bytes of the log between a batch's two ends; None if they are not known, or in two files."""
    (source, *_) = report.get("sources") or [{}]
    start, end = (source.get(name) for name in ("startOffset", "endOffset"))
    if not (isinstance(start, Mapping) and isinstance(end, Mapping) and start.get("log") and end.get("log")):
        return None
    return position_type.from_json(start["log"]).lag_to(position_type.from_json(end["log"])).size

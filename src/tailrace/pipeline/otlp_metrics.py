"""The metrics of a registry of Prometheus, sent by OpenTelemetry's protocol under the same names.

They are read anew for each message. OpenTelemetry's own instruments would be a second set of the same
metrics, and have no histogram that is read rather than written.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OtlpMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from tailrace import __version__

#: The variable of the time between two messages, milliseconds, and its default.
_INTERVAL = ("OTEL_METRIC_EXPORT_INTERVAL", 60_000.0)
_CUMULATIVE = AggregationTemporality.CUMULATIVE


class MetricsSender:
    """Sends the metrics of a registry every so often, and once at the end.

    Args:
        registry: the metrics.
        exporter: sends them.
        resource: what they are about.
    """

    def __init__(self, registry: CollectorRegistry, exporter: MetricExporter, resource: Resource) -> None:
        self._registry = registry
        self._exporter = exporter
        self._resource = resource
        self._start_ns = time.time_ns()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self, patience_ms: int) -> None:
        """Send a last time, and end; wait at most `patience_ms` for it."""
        self._ended.set()
        self._thread.join(patience_ms / 1000)
        self._exporter.shutdown(patience_ms)

    def _run(self) -> None:
        interval_s = _interval_s()
        while not self._ended.wait(interval_s):
            self._send()
        self._send()

    def _send(self) -> None:
        metrics = list(otlp(self._registry.collect(), self._start_ns, time.time_ns()))
        scope = ScopeMetrics(InstrumentationScope("tailrace", __version__), metrics, "")
        self._exporter.export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))


def otlp(families: Iterable[Metric], start_ns: int, now_ns: int) -> Iterator[OtlpMetric]:
    """Metrics of Prometheus as OpenTelemetry's.

    Args:
        families: gauges, counters and histograms.
        start_ns: since when counters and histograms count.
        now_ns: the time of the values.
    """
    for family in families:
        name, unit = family.name, "s" if family.name.endswith("_seconds") else ""
        if family.type == "histogram":
            points = list(_histograms(family.samples, start_ns, now_ns))
            if points:
                yield OtlpMetric(name, family.documentation, unit, Histogram(points, _CUMULATIVE))
            continue
        is_counter = family.type == "counter"
        numbers = [
            NumberDataPoint(dict(sample.labels), start_ns if is_counter else 0, now_ns, float(sample.value))
            for sample in family.samples
        ]
        if not numbers:
            continue
        if is_counter:
            data = Sum(numbers, _CUMULATIVE, is_monotonic=True)
            yield OtlpMetric(f"{name}_total", family.documentation, unit, data)
        else:
            yield OtlpMetric(name, family.documentation, unit, Gauge(numbers))


def _histograms(samples: Iterable[Sample], start_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """One point for each set of labels; Prometheus' buckets contain those below them."""
    by_labels: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for sample in samples:
        labels = dict(sample.labels)
        key = sample.name.rpartition("_")[2]
        if key == "bucket":
            key = labels.pop("le")
        by_labels.setdefault(tuple(labels.items()), {})[key] = sample.value
    for pairs, found in by_labels.items():
        total, count = found.pop("sum"), int(found.pop("count"))
        ends = sorted(map(float, found))
        below = [int(found[text]) for text in sorted(found, key=float)]
        counts = [n - before for n, before in zip(below, [0, *below], strict=False)]
        unknown: Any = None  # the least and the greatest value; its message may lack them
        yield HistogramDataPoint(
            dict(pairs), start_ns, now_ns, count, total, counts, ends[:-1], unknown, unknown
        )


def _interval_s() -> float:
    name, default_ms = _INTERVAL
    try:
        given_ms = float(os.environ.get(name, ""))
    except ValueError:
        given_ms = default_ms
    return (given_ms if given_ms > 0 else default_ms) / 1000

"""Reads what OpenTelemetry's exporters have sent: their protocol's messages, decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.http_receiver import Receiver

#: A status that says that a span has failed.
ERROR = 2


@dataclass(frozen=True)
class SentSpan:
    """A span.

    Args:
        name: its name.
        id: its id.
        parent: that of its parent; empty: none.
        trace: the trace's.
        start_ns: since 1970 UTC.
        end_ns: likewise.
        failed: whether its status is an error.
        attributes: its own.
        resource: those of what sent it.
    """

    name: str
    id: bytes
    parent: bytes
    trace: bytes
    start_ns: int
    end_ns: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


def spans(received: Receiver) -> list[SentSpan]:
    """All spans, in the order in which they were sent."""
    found: list[SentSpan] = []
    for body in received.bodies("/v1/traces"):
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            sender = _values(resource.resource.attributes)
            found += [_span(span, sender) for scope in resource.scope_spans for span in scope.spans]
    return found


def _span(span: Any, sender: dict[str, Any]) -> SentSpan:
    return SentSpan(
        span.name,
        span.span_id,
        span.parent_span_id,
        span.trace_id,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code == ERROR,
        _values(span.attributes),
        sender,
    )


def metrics(received: Receiver) -> dict[str, Any]:
    """The newest value of each metric, as the protocol's message."""
    found = {}
    for body in received.bodies("/v1/metrics"):
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                found[metric.name] = metric
    return found


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)

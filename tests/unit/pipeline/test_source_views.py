"""What is shown of several sources."""

from __future__ import annotations

from prometheus_client import generate_latest

from tailrace.model.table import TableId
from tailrace.pipeline.metrics import Metrics
from tailrace.pipeline.source_views import MetricsOfSources
from tailrace.sinks.base import Written


def test_metrics_of_each_source_have_its_label_and_one_description() -> None:
    metrics = {"east": Metrics("shop", "mysql"), "west": Metrics("shop", "postgresql")}
    metrics["west"].on_written(0, [Written(TableId("shop", "orders"), "orders", 3, 0)])
    several = MetricsOfSources("shop", metrics)
    text = generate_latest(several.registry).decode()
    assert text.count("# TYPE tailrace_batches_total counter") == 1
    assert 'tailrace_batches_total{pipeline="shop",source="west"} 1.0' in text
    assert 'tailrace_info{pipeline="shop",source="east",version=' in text
    assert several.health()["ready"] is False
    assert several.health()["sources"]["west"]["batch"] == 0

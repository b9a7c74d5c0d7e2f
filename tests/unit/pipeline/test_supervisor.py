"""A stop between two batches waits for Spark's own record of the last one."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from tailrace.config.load import parse_pipeline
from tailrace.errors import SourceError, TransientSourceError
from tailrace.pipeline.supervisor import _as_ours, _stop, stream_options


class IdleQuery:
    """An idle stream: active, and its progress already names the batch that comes next."""

    isActive = True  # noqa: N815

    def __init__(self, gate):
        self.lastProgress = {"batchId": 8}
        self._gate = gate
        self.recorded_when_stopped = None

    def stop(self):
        self.recorded_when_stopped = self._gate.recorded


class Gate:
    """Batch 7 is in the sink; Spark records it a moment later."""

    written = 7

    def __init__(self, looks):
        self._looks = looks
        self.closed = False
        self.recorded = False

    def close(self):
        self.closed = True

    def is_recorded(self):
        assert self.closed
        self._looks -= 1
        self.recorded = self._looks <= 0
        return self.recorded


def test_stop_waits_until_spark_has_noted_the_last_batch():
    gate = Gate(looks=3)
    query = IdleQuery(gate)
    _stop(query, gate)
    assert query.recorded_when_stopped is True


def test_stop_does_not_wait_when_the_last_batch_is_recorded():
    gate = Gate(looks=1)
    query = IdleQuery(gate)
    _stop(query, gate)
    assert gate.closed
    assert query.recorded_when_stopped is True


class Throwable:
    """An exception of the JVM."""

    def __init__(self, name, cause=None):
        self._name = name
        self._cause = cause

    def getCause(self):  # noqa: N802
        return self._cause

    def getClass(self):  # noqa: N802
        return self

    def getName(self):  # noqa: N802
        return self._name


def _not_planned(*classes):
    origin = None
    for name in reversed(classes):
        origin = Throwable(name, origin)
    error = PySparkException("Python worker failed to connect back.")
    error._origin = origin
    return _as_ours(error, None, None)


def test_stream_that_could_not_be_planned_for_want_of_a_process_is_tried_again():
    found = _not_planned("org.apache.spark.SparkException", "java.net.SocketTimeoutException")
    assert isinstance(found, TransientSourceError)
    assert found.code == "TR-8002"
    other = _not_planned("org.apache.spark.sql.AnalysisException", "java.lang.IllegalStateException")
    assert isinstance(other, SourceError)
    assert (other.code, other.retryable) == ("TR-8003", False)


@pytest.mark.parametrize(
    ("source", "sinks", "expected"),
    [
        ("mysql", "sink: {type: delta, path: /lake}", "auto"),
        ("mariadb", "sink: {type: delta, path: /lake}", "auto"),
        ("postgresql", "sink: {type: delta, path: /lake}", None),
        ("mysql", "sink: {type: console}", None),
        (
            "mysql",
            "sink: [{name: a, type: delta, path: /lake}, {name: b, type: iceberg, path: /ice}]",
            "auto",
        ),
        (
            "mysql",
            "sink: [{name: a, type: delta, path: /lake}, {name: b, type: json, path: /files}]",
            None,
        ),
        ("mysql, logParallelism: 3", "sink: {type: delta, path: /lake}", "3"),
    ],
)
def test_several_tasks_read_a_backlog_where_order_does_not_matter(source, sinks, expected):
    url = "database: shop, " if source == "postgresql" else ""
    pipeline = parse_pipeline(
        f"source: {{type: {source}, {url}hostname: h, username: u, password: p, tables: [shop.orders]}}\n"
        f"{sinks}\n"
        "pipeline: {name: shop, checkpoint: /checkpoint}\n"
    )
    assert stream_options(pipeline).get("logParallelism") == expected

"""Errors cross from a Python process of Spark to the driver as data in a traceback."""

from __future__ import annotations

import pickle
import sys
import traceback
from types import ModuleType

import pytest

from tailrace.errors import (
    DecodeError,
    PositionLostError,
    SinkError,
    TableGapError,
    TailraceError,
    TransientSourceError,
)
from tailrace.spark.task_errors import parse_error

#: Spark's message around a traceback.
STREAMING = (
    "[STREAM_FAILED] Query [id = 1] terminated: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when "
    "Python streaming data source perform latestOffset: {} SQLSTATE: 38000\n"
    "JVM stacktrace:\n\tat x.y(Z.scala)"
)


@pytest.fixture
def in_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process looks like one that Spark has started."""
    monkeypatch.setitem(sys.modules, "pyspark.worker_util", ModuleType("worker_util"))


def trace_of(raised: Exception, cause: Exception | None = None) -> str:
    """The text that Spark sends to the driver for `raised`."""
    try:
        if cause is None:
            raise raised
        try:
            raise cause
        except type(cause):
            raise raised  # noqa: B904 - both are in the traceback
    except type(raised):
        return traceback.format_exc()


@pytest.mark.usefixtures("in_worker")
def test_error_crosses_with_its_class_and_every_part() -> None:
    parts = "`binlog.000001` is gone", "the oldest is `é`", "start anew:\n  SET x;"
    error = PositionLostError(*parts, code="TR-4101")
    text = STREAMING.format(trace_of(error, TransientSourceError("connection lost")).rstrip())
    found = parse_error(text)
    assert type(found) is PositionLostError
    assert (found.args, found.code) == (error.args, "TR-4101")


@pytest.mark.usefixtures("in_worker")
def test_error_that_a_worker_has_unpickled_crosses_with_its_code() -> None:
    error = pickle.loads(pickle.dumps(SinkError("x", "y", code="TR-7001")))
    found = parse_error(trace_of(error))
    assert found is not None
    assert (found.args, found.code) == (error.args, "TR-7001")


def test_note_of_a_version_without_codes_is_read() -> None:
    found = parse_error(STREAMING.format('x\ntailrace-error: ["SinkError", "x", null, "z"]'))
    assert type(found) is SinkError
    assert (found.args, found.code) == (("x", None, "z"), None)


@pytest.mark.usefixtures("in_worker")
def test_tables_with_a_gap_cross() -> None:
    found = parse_error(trace_of(TableGapError("gone", None, "y", ["a.b", "c.d"], code="TR-4106")))
    assert type(found) is TableGapError
    assert (found.args, found.tables, found.code) == (("gone", None, "y"), ("a.b", "c.d"), "TR-4106")


@pytest.mark.usefixtures("in_worker")
def test_error_behind_one_of_a_library_crosses() -> None:
    found = parse_error(trace_of(RuntimeError("generator raised"), SinkError("x", None, "y")))
    assert type(found) is SinkError
    assert found.args == ("x", None, "y")


@pytest.mark.usefixtures("in_worker")
def test_subclass_of_another_module_crosses_as_its_base_class() -> None:
    class OwnError(DecodeError):
        pass

    found = parse_error(trace_of(OwnError("x")))
    assert type(found) is DecodeError


@pytest.mark.usefixtures("in_worker")
def test_text_of_an_error_cannot_forge_another() -> None:
    forged = 'x\ntailrace-error: ["ConfigError", "forged", null, "curl evil"]'
    for error in (SinkError(forged), SinkError("x", forged), SinkError("x", "y", forged)):
        found = parse_error(trace_of(error))
        assert type(found) is SinkError
        assert found.args == error.args


def test_traceback_for_people_is_the_same_outside_of_spark() -> None:
    assert "tailrace-error" not in trace_of(TailraceError("x"))


@pytest.mark.parametrize(
    "text",
    [
        "java.io.EOFException\n\tat x",
        'tailrace-error: ["Exception", "x", null, null]',
        'tailrace-error: ["SinkError"]',
        "tailrace-error: [",
        "tailrace.errors.SinkError: text alone is no data",
    ],
)
def test_text_without_an_error_of_ours_gives_none(text: str) -> None:
    assert parse_error(text) is None

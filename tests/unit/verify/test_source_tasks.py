"""What a task that reads a key range returns, without Spark."""

from __future__ import annotations

import pytest

from tailrace.errors import SchemaMismatchError, TailraceError, TransientSourceError, from_json
from tailrace.verify.source_tasks import _result_of


def failing(error: TailraceError) -> tuple[int, bytes]:
    raise error


def test_definite_error_is_the_result_of_a_task_and_a_transient_one_its_failure() -> None:
    """So that Spark runs the task once more only where that may help."""
    assert _result_of(lambda: (7, b"sums")).to_pylist() == [{"rows": 7, "result": b"sums", "error": None}]
    definite = SchemaMismatchError("column `v` cannot be compared", "it is text", "wait", code="TR-8105")
    (found,) = _result_of(lambda: failing(definite)).to_pylist()
    assert (found["rows"], found["result"]) == (None, None)
    error = from_json(found["error"])
    assert type(error) is SchemaMismatchError
    assert error.json_values() == definite.json_values()
    with pytest.raises(TransientSourceError):
        _result_of(lambda: failing(TransientSourceError("the connection is lost")))

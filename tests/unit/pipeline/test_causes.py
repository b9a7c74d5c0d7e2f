"""Causes of errors that nobody foresaw: told without values of rows."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from tailrace.pipeline.causes import cause_of, is_of_rows

#: As Spark 4.2 writes them.
CAST = (
    "Job aborted due to stage failure: Task 0 in stage 7.0 failed 4 times\n"
    "Caused by: org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'geheim' of the"
    ' type "STRING" cannot be cast to "INT" because it is malformed. SQLSTATE: 22018\n'
    "== DataFrame ==\n"
    '"cast" was called from\n'
)
_DELTA = "org.apache.spark.sql.delta.schema.DeltaInvariantViolationException"
CONSTRAINT = (
    f"{_DELTA}: "
    "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint positive (a > 0) violated by row with values:\n"
    " - a : geheim SQLSTATE: 23001\n"
)
MISSING = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot be found. SQLSTATE: 42703; line 1"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (CAST, "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] SQLSTATE: 22018"),
        (CONSTRAINT, f"{_DELTA}: [DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] SQLSTATE: 23001"),
        ("[CAST_OVERFLOW] The value 123456L SQLSTATE: 22003", "[CAST_OVERFLOW] SQLSTATE: 22003"),
        (MISSING, MISSING),
        ("java.io.IOException: No space left on device", "java.io.IOException: No space left on device"),
    ],
)
def test_errors_of_data_are_told_without_their_values(text: str, told: str) -> None:
    assert cause_of(PySparkException(text)) == told


def test_error_of_python_is_told_with_its_class() -> None:
    assert cause_of(KeyError("id")) == "KeyError: 'id'"
    assert is_of_rows(cause_of(KeyError("id")))
    assert not is_of_rows("java.io.IOException: No space left on device")

"""The schema of a target that holds rows, as it follows the source's."""

from __future__ import annotations

import pytest

from tailrace.errors import SinkError
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.replica.target_schema import schema_for
from tests.support.changes import INT, table


def _decimal(precision: int, scale: int) -> ColumnType:
    return ColumnType(Kind.DECIMAL, "decimal", precision=precision, scale=scale)


@pytest.mark.parametrize(
    ("held", "needed", "both"),
    [
        ((10, 2), (8, 4), (12, 4)),
        ((8, 4), (10, 2), (12, 4)),
        ((10, 2), (30, 5), (30, 5)),
        ((30, 5), (10, 2), (30, 5)),
        ((10, 2), (10, 0), (12, 2)),
        ((10, 2), (12, 0), (14, 2)),
        ((38, 0), (10, 0), (38, 0)),
    ],
)
def test_decimal_holds_the_digits_of_both_types(
    held: tuple[int, int], needed: tuple[int, int], both: tuple[int, int]
) -> None:
    schemas = [table(("id", INT), ("d", _decimal(*digits)), key=("id",)) for digits in (held, needed)]
    found = schema_for("t", schemas).columns[1].type
    assert (found.precision, found.scale) == both
    assert schema_for("t", schemas[1:], schema_for("t", schemas)).columns[1].type == found


def test_decimals_that_no_decimal_holds_together_are_refused() -> None:
    schemas = [table(("id", INT), ("d", _decimal(*digits)), key=("id",)) for digits in ((38, 0), (38, 10))]
    with pytest.raises(SinkError, match="column `d` of target"):
        schema_for("t", schemas)

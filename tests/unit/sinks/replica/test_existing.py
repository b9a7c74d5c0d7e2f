"""Which types of an existing table change values without an error."""

from __future__ import annotations

import pytest

from tailrace.model.table import Column
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.replica.existing import ExistingColumn, losing

DECIMAL = ColumnType(Kind.DECIMAL, "decimal", precision=10, scale=2)
BIGINT = ColumnType(Kind.INTEGER, "bigint", bits=64)
MOMENT = ColumnType(Kind.DATETIME, "datetime", fraction=3)
TIME = ColumnType(Kind.TIME, "time", fraction=3)
DOUBLE = ColumnType(Kind.DOUBLE, "double")
VARCHAR = ColumnType(Kind.STRING, "varchar", length=9)
CHAR = ColumnType(Kind.STRING, "char", length=9)
LIST = ColumnType(Kind.LIST, "numeric", element=DECIMAL)


@pytest.mark.parametrize(
    ("type_", "existing", "change"),
    [
        (DECIMAL, "numeric(10,2)", ""),
        (DECIMAL, "numeric", ""),
        (DECIMAL, "decimal(20,4) unsigned", ""),
        (DECIMAL, "numeric(10,1)", "rounds"),
        (DECIMAL, "numeric(10)", "rounds"),
        (DECIMAL, "bigint unsigned", "rounds"),
        (DECIMAL, "double precision", "rounds"),
        (DECIMAL, "text", ""),
        (BIGINT, "bigint", ""),
        (BIGINT, "smallint", ""),  # refused by number
        (BIGINT, "double", "rounds"),
        (BIGINT, "numeric(20)", ""),
        (ColumnType(Kind.INTEGER, "smallint", bits=16), "real", ""),
        (MOMENT, "timestamp(3) without time zone", ""),
        (MOMENT, "timestamp without time zone", ""),
        (MOMENT, "timestamp(2) with time zone", "rounds"),
        (MOMENT, "datetime(2)", "rounds"),
        (MOMENT, "date", "cuts"),
        (MOMENT, "time(6) without time zone", "cuts"),
        (MOMENT, "text", ""),
        (TIME, "interval(3)", ""),
        (TIME, "interval(2)", "rounds"),
        (TIME, "time without time zone", ""),
        (DOUBLE, "real", "rounds"),
        (DOUBLE, "double", ""),
        (DOUBLE, "double(10,2)", "rounds"),
        (DOUBLE, "numeric(10,2)", "rounds"),
        (DOUBLE, "numeric", ""),
        (VARCHAR, "character varying(3)", ""),  # refused by length
        (VARCHAR, "character(9)", "pads"),
        (CHAR, "char(9)", ""),
        (LIST, "numeric(10,1)[]", "rounds"),
        (LIST, "numeric[]", ""),
    ],
)
def test_change_of_values(type_: ColumnType, existing: str, change: str) -> None:
    found = losing([Column("C", type_, nullable=True)], {"c": ExistingColumn(existing)}, 6)
    assert [loss.change for loss in found] == ([change] if change else [])


def test_type_without_a_number_has_the_server_s_own_fraction() -> None:
    column = Column("c", MOMENT, nullable=True)
    assert losing([column], {"c": ExistingColumn("datetime")}, 0)
    assert not losing([column], {"c": ExistingColumn("timestamp without time zone")}, 6)


def test_computed_column_and_one_that_is_not_there() -> None:
    columns = [Column(name, BIGINT, nullable=True) for name in ("a", "b")]
    (loss,) = losing(columns, {"a": ExistingColumn("bigint", computed=True)}, 6)
    assert (loss.column.name, loss.change) == ("a", "computes")

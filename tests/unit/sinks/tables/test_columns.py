"""Stored types, and how a target changes to hold another schema."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.errors import SinkError
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.tables.columns import AddColumn, WidenColumn, fits, follow, merged_schema, stored_schema
from tests.support.changes import BIGINT, INT, TEXT, table

TIME = ColumnType(Kind.TIME, "time", fraction=6)


def test_time_is_stored_as_microseconds() -> None:
    assert stored_schema(table(("at", TIME), key=())).field("at").type == pa.int64()


def test_equal_schema_needs_no_change() -> None:
    held = pa.schema([("id", pa.int32()), ("gone", pa.string())])
    assert follow("t", held, [pa.field("id", pa.int32())]) == []


def test_names_are_compared_without_case_as_spark_does() -> None:
    assert follow("t", pa.schema([("ID", pa.int32())]), [pa.field("id", pa.int32())]) == []


def test_names_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(SinkError, match=r"(?s)differ in case only.*`ID`, `id`"):
        stored_schema(table(("ID", INT), ("name", TEXT), ("id", INT), key=("id",)))


def test_new_and_wider_columns_are_followed() -> None:
    held = pa.schema([("id", pa.int32())])
    needed = [pa.field("id", pa.int64()), pa.field("note", pa.string())]
    assert follow("t", held, needed) == [WidenColumn("id", pa.int64()), AddColumn("note", pa.string())]


def test_older_narrower_schema_fits_a_target_that_was_widened() -> None:
    assert follow("t", pa.schema([("id", pa.int64())]), [pa.field("id", pa.int8())]) == []


def test_other_kind_is_refused() -> None:
    with pytest.raises(SinkError, match="column `id` of target `t` cannot follow"):
        follow("t", pa.schema([("id", pa.int32())]), [pa.field("id", pa.string())])


@pytest.mark.parametrize(
    ("narrow", "wide", "expected"),
    [
        (pa.int16(), pa.int32(), True),
        (pa.int64(), pa.int32(), False),
        (pa.int32(), pa.float64(), True),
        (pa.int64(), pa.float64(), False),
        (pa.int64(), pa.decimal128(20, 0), True),
        (pa.int64(), pa.decimal128(19, 0), False),
        (pa.int8(), pa.decimal128(9, 0), False),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), True),
        (pa.decimal128(10, 2), pa.decimal128(11, 4), False),
        (pa.decimal128(10, 2), pa.decimal128(12, 1), False),
        (pa.date32(), pa.timestamp("us"), True),
        (pa.date32(), pa.timestamp("us", tz="UTC"), False),
        (pa.string(), pa.binary(), False),
    ],
)
def test_type_fits_where_delta_can_widen_it(narrow: pa.DataType, wide: pa.DataType, expected: bool) -> None:
    assert fits(narrow, wide) is expected


def test_merged_schema_holds_every_schema() -> None:
    old = table(("id", INT), ("name", TEXT), key=("id",))
    new = table(("id", BIGINT), ("note", TEXT), key=("id",))
    expected = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())])
    assert merged_schema("t", [old, new]) == expected


def test_decimal_that_loses_digits_and_gains_others_is_held_with_both() -> None:
    held = pa.schema([pa.field("d", pa.decimal128(10, 2))])
    (change,) = follow("t", held, [pa.field("d", pa.decimal128(10, 1))])
    assert (change.name, change.type) == ("d", pa.decimal128(11, 2))
    with pytest.raises(SinkError, match="cannot follow"):
        follow("t", pa.schema([pa.field("d", pa.decimal128(38, 0))]), [pa.field("d", pa.decimal128(38, 10))])

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import SchemaMismatchError, SourceError
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.sources.mysql.catalog import parse_labels
from tailrace.sources.mysql.snapshot.keys import key_values, last_key, order_by, range_condition
from tailrace.sources.mysql.snapshot.literal import arrow_scalar, identifier, json_values, key_literal
from tailrace.sources.mysql.snapshot.select import select_statement
from tailrace.sources.mysql.wire.schema.native import column_type


def column(name: str, native: str, **declared: Any) -> Column:
    return Column(name, column_type(native, **declared), False)


def table(*columns: Column, key: tuple[str, ...] | None = None) -> TableSchema:
    key = tuple(c.name for c in columns) if key is None else key
    return TableSchema(TableId("shop", "orders"), columns, key)


UTC = dt.UTC
FORMS = [
    (column("k", "int"), -5, -5, "-5"),
    (column("k", "bigint", unsigned=True), Decimal(2**64 - 1), 2**64 - 1, "18446744073709551615"),
    (column("k", "year"), 2026, 2026, "2026"),
    (column("k", "decimal", precision=12, scale=3), Decimal("-0.500"), "-0.500", "-0.500"),
    (column("k", "decimal", precision=30, scale=0), Decimal(10**29), "1" + "0" * 29, "1" + "0" * 29),
    (column("k", "decimal", precision=65, scale=2), "7.00", "7.00", "7.00"),
    (column("k", "date"), dt.date(800, 2, 3), "0800-02-03", "DATE'0800-02-03'"),
    (
        column("k", "datetime"),
        dt.datetime(2026, 1, 31, 12, 0, 1),  # noqa: DTZ001
        "2026-01-31 12:00:01",
        "TIMESTAMP'2026-01-31 12:00:01'",
    ),
    (
        column("k", "timestamp", fraction=3),
        dt.datetime(2026, 1, 31, 12, 0, 1, 5000, UTC),
        "2026-01-31 12:00:01.005",
        "TIMESTAMP'2026-01-31 12:00:01.005'",
    ),
    (
        column("k", "time", fraction=6),
        -dt.timedelta(hours=838, minutes=59, seconds=58, microseconds=999_999),
        "-838:59:58.999999",
        "TIME'-838:59:58.999999'",
    ),
    (column("k", "time"), dt.timedelta(seconds=3), "00:00:03", "TIME'00:00:03'"),
    (column("k", "varbinary", length=9), b"\x00'\xff", {"b": "0027ff"}, "_binary x'0027ff'"),
    (
        column("k", "varchar", length=9, charset="utf8mb4", collation="utf8mb4_0900_ai_ci"),
        "é'",
        "é'",
        "_utf8mb4 x'c3a927' COLLATE utf8mb4_0900_ai_ci",
    ),
    (
        column("k", "char", length=9, charset="latin1", collation="latin1_swedish_ci"),
        "é",
        "é",
        "CONVERT(_utf8mb4 x'c3a9' USING latin1) COLLATE latin1_swedish_ci",
    ),
]


@pytest.mark.parametrize(("key", "value", "form", "literal"), FORMS)
def test_key_value_has_one_json_form_and_one_literal(
    key: Column, value: Any, form: Any, literal: str
) -> None:
    array = pa.array([value], key.type.arrow)
    assert json_values(key, array) == [form]
    assert key_literal(key, form) == literal
    assert arrow_scalar(key, form) == array[0]


def test_range_of_one_column_is_plain() -> None:
    schema = table(column("id", "int"))
    assert range_condition(schema, None, None) == "TRUE"
    assert range_condition(schema, (1,), None) == "`id` > 1"
    assert range_condition(schema, (1,), (5,)) == "`id` > 1 AND `id` <= 5"


def test_range_of_several_columns_is_written_out_behind_a_leading_condition() -> None:
    schema = table(column("a", "int"), column("b", "int"), column("c", "int"))
    assert range_condition(schema, (1, 2, 3), None) == (
        "`a` >= 1 AND (`a` > 1 OR (`a` = 1 AND (`b` > 2 OR (`b` = 2 AND `c` > 3))))"
    )
    assert range_condition(schema, None, (1, 2, 3)) == (
        "`a` <= 1 AND (`a` < 1 OR (`a` = 1 AND (`b` < 2 OR (`b` = 2 AND `c` <= 3))))"
    )
    assert range_condition(schema, (1, 2, 3), (4, 5, 6)) == (
        "`a` >= 1 AND (`a` > 1 OR (`a` = 1 AND (`b` > 2 OR (`b` = 2 AND `c` > 3))))"
        " AND `a` <= 4 AND (`a` < 4 OR (`a` = 4 AND (`b` < 5 OR (`b` = 5 AND `c` <= 6))))"
    )


def test_select_quotes_odd_identifiers() -> None:
    schema = TableSchema(TableId("a`b", "c d"), (column("we`ird", "int"),), ("we`ird",))
    assert select_statement(schema, (1,), None, 10) == (
        "SELECT `we``ird` FROM `a``b`.`c d` WHERE `we``ird` > 1 ORDER BY `we``ird` ASC LIMIT 10"
    )
    assert identifier("100%") == "`100%`"


def test_bound_with_too_few_values_is_refused() -> None:
    with pytest.raises(SourceError, match="1 values, its key has 2 columns"):
        range_condition(table(column("a", "int"), column("b", "int")), (1,), None)


def test_table_without_a_key_has_no_order() -> None:
    with pytest.raises(SourceError, match="has no key"):
        order_by(table(column("a", "int"), key=()))


def test_character_key_without_a_collation_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="collation"):
        range_condition(table(column("a", "varchar", length=3)), ("x",), None)


def test_bound_that_is_no_time_never_reaches_the_server() -> None:
    with pytest.raises(SourceError, match="no date or time"):
        range_condition(table(column("a", "date")), ("2026' OR 1=1 -- ",), None)


def test_keys_of_rows_come_in_key_order() -> None:
    schema = table(column("x", "int"), column("v", "int"), column("y", "int"), key=("y", "x"))
    rows = pa.array([{"x": 1, "v": 2, "y": 3}, {"x": 4, "v": None, "y": 6}], schema.arrow)
    assert key_values(rows, schema) == [(3, 1), (6, 4)]
    assert last_key(rows, schema) == (6, 4)


def test_zero_date_as_last_key_is_refused() -> None:
    schema = table(column("d", "date"))
    with pytest.raises(SourceError, match="zero date"):
        last_key(pa.array([{"d": None}], schema.arrow), schema)


def test_labels_are_read_from_a_declaration() -> None:
    assert parse_labels(r"enum('a','it''s','b\\c','x\ny','','q,r','\0')") == (
        "a", "it's", "b\\c", "x\ny", "", "q,r", "\0",
    )  # fmt: skip

"""Declared types in Debezium's words, of the catalog's text and of the log's type."""

from __future__ import annotations

import pytest

from tailrace.model.source_type import SourceType
from tailrace.sources.mysql.wire.schema.declarations import source_type
from tailrace.sources.mysql.wire.schema.native import column_type

INT = column_type("int")


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (None, SourceType("INT")),
        ("int", SourceType("INT")),
        ("int(11)", SourceType("INT", 11)),
        ("bigint", SourceType("INT")),  # of another time
        ("int unsigned", SourceType("INT")),
        ("enum('a','int')", SourceType("INT")),
    ],
)
def test_a_declaration_counts_if_it_may_be_the_log_s(declared: str | None, expected: SourceType) -> None:
    assert source_type(INT, declared) == expected


@pytest.mark.parametrize(
    ("native", "facts", "declared", "expected"),
    [
        ("int", {"unsigned": True}, "int(10) unsigned zerofill", SourceType("INT UNSIGNED ZEROFILL", 10)),
        ("decimal", {"precision": 6, "scale": 3}, "decimal(6,3)", SourceType("DECIMAL", 6, 3)),
        ("decimal", {"precision": 6, "scale": 3}, "decimal(7,3)", SourceType("DECIMAL", 6, 3)),
        ("float", {}, "float(7,3)", SourceType("FLOAT", 7, 3)),
        ("varchar", {"length": 20}, "varchar(20)", SourceType("VARCHAR", 20)),
        ("varchar", {"length": 20}, "varchar(30)", SourceType("VARCHAR", 20)),
        ("varchar", {"length": 20}, "varchar(20) /*M!100301 COMPRESSED*/", SourceType("VARCHAR", 20)),
        ("datetime", {"fraction": 3}, None, SourceType("DATETIME", 3)),
        ("datetime", {}, "datetime", SourceType("DATETIME")),
        ("bit", {"bits": 1}, "bit(1)", SourceType("BIT", 1)),
        ("bit", {"bits": 12}, "bit(12)", SourceType("BIT", 12)),
        ("enum", {"labels": ("a", "b c")}, "enum('a','b c')", SourceType("ENUM", 1)),
        ("set", {"labels": ("x", "y", "z)")}, "set('x','y','z)')", SourceType("SET", 5)),
        ("longtext", {}, "longtext", SourceType("LONGTEXT")),
        ("geometry", {}, "geometry", SourceType("GEOMETRY")),
        ("vector", {"length": 3}, "vector(3)", SourceType("VECTOR", 3)),
    ],
)
def test_types_have_debezium_s_names_lengths_and_scales(
    native: str, facts: dict[str, object], declared: str | None, expected: SourceType
) -> None:
    assert source_type(column_type(native, **facts), declared) == expected  # type: ignore[arg-type]

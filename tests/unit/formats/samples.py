# ruff: noqa: DTZ001 - wall clock times have no zone
"""A table with a column of every type, optional and not, and rows of it."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal

from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind

_POINT = struct.pack("<IBIdd", 4326, 1, 1, 1.5, -2.25)
_LINE = struct.pack("<IBII4d", 0, 1, 2, 2, 0, 0, 1, 1)

#: By name: type, and two values.
_TYPES = {
    "i8": (ColumnType(Kind.INTEGER, "tinyint", bits=8), -128, 127),
    "i16": (ColumnType(Kind.INTEGER, "smallint", bits=16), -300, 0),
    "i32": (ColumnType(Kind.INTEGER, "int", bits=32), -(2**31), 2**31 - 1),
    "u32": (ColumnType(Kind.INTEGER, "int", bits=32, unsigned=True), 0, 2**32 - 1),
    "i64": (ColumnType(Kind.INTEGER, "bigint", bits=64), -(2**63), 2**63 - 1),
    "u64": (ColumnType(Kind.INTEGER, "bigint", bits=64, unsigned=True), Decimal(2**64 - 1), Decimal(7)),
    "f32": (ColumnType(Kind.FLOAT, "float"), 0.1, -1e30),
    "f64": (ColumnType(Kind.DOUBLE, "double"), 0.1, -1e300),
    "small": (
        ColumnType(Kind.DECIMAL, "decimal", precision=10, scale=2),
        Decimal("-0.01"),
        Decimal("128.00"),
    ),
    "dec": (ColumnType(Kind.DECIMAL, "decimal", precision=38, scale=10), Decimal("1E27"), Decimal("-1E-10")),
    "big": (ColumnType(Kind.DECIMAL, "decimal", precision=65, scale=0), "-" + "9" * 65, "0"),
    "text": (ColumnType(Kind.STRING, "text"), 'größe \U0001f600 "quoted"', "x" * 300),
    "bin": (ColumnType(Kind.BYTES, "blob"), b"\x00\xff", b""),
    "bool": (ColumnType(Kind.BOOLEAN, "bit"), True, False),
    "bits": (ColumnType(Kind.BITS, "bit", bits=12), b"\x0f\x01", b"\x00\x80"),
    "day": (ColumnType(Kind.DATE, "date"), dt.date(1969, 12, 31), dt.date(9999, 12, 31)),
    "ms": (
        ColumnType(Kind.DATETIME, "datetime", fraction=3),
        dt.datetime(1900, 1, 1),
        dt.datetime(2026, 11, 21, 7),
    ),
    "us": (
        ColumnType(Kind.DATETIME, "datetime", fraction=6),
        dt.datetime(2026, 1, 1, 0, 0, 0, 1),
        dt.datetime(1000, 1, 1),
    ),
    "at": (
        ColumnType(Kind.INSTANT, "timestamp", fraction=3),
        dt.datetime(2026, 1, 2, 3, 4, 5, 678000, dt.UTC),
        dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
    ),
    "took": (ColumnType(Kind.TIME, "time", fraction=0), dt.timedelta(hours=-838), dt.timedelta(seconds=59)),
    "year": (ColumnType(Kind.YEAR, "year"), 1901, 2155),
    "json": (ColumnType(Kind.JSON, "json"), '{"a": 1}', "null"),
    "geo": (ColumnType(Kind.GEOMETRY, "linestring"), _LINE, b"\x01\x00\x00\x00" + _LINE[4:]),
    "point": (ColumnType(Kind.GEOMETRY, "point"), _POINT, b"\x00\x00\x00\x00" + _POINT[4:]),
    "vec": (ColumnType(Kind.VECTOR, "vector", length=3), [1.0, -0.5, 1e-30], []),
    "enum": (ColumnType(Kind.ENUM, "enum", labels=("a", "b")), "a", "b"),
    "set": (ColumnType(Kind.SET, "set", labels=("a", "b")), "a,b", ""),
}

#: Each type twice: `x` NOT NULL, `x_or_null` not so.
TYPES_TABLE = TableSchema(
    TableId("shop", "types"),
    tuple(
        Column(name + suffix, type_, nullable=bool(suffix))
        for name, (type_, *_) in _TYPES.items()
        for suffix in ("", "_or_null")
    ),
    ("i32", "text", "day"),
)

#: Rows with the first values, with the second, and with nulls where there may be any.
TYPES_ROWS = [
    {name + suffix: values[which] for name, (_, *values) in _TYPES.items() for suffix in ("", "_or_null")}
    for which in (0, 1)
]
TYPES_ROWS.append({name: value for name, value in TYPES_ROWS[0].items() if not name.endswith("_or_null")})

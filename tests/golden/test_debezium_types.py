"""Each MySQL type as Debezium 3.6 prints it: expected text and Connect schema, checked by hand.

Facts from debezium/debezium v3.6.1 (`BinlogValueConverters`, `JdbcValueConverters`, `ZonedTimestamp`) and its
MySQL documentation; decimals are unscaled two's complement bytes worked out beside each case.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.modes import DEFAULT_MODES
from tailrace.formats.connect.schemas import type_schema
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tests.unit.formats.changes import batch, change

UTC = dt.UTC
DECIMAL = "org.apache.kafka.connect.data.Decimal"


#: As MySQL stores it: SRID 0, then WKB.
POINT_1_2 = bytes.fromhex("000000000101000000000000000000f03f0000000000000040")


def integer(native: str, bits: int, unsigned: bool = False) -> ColumnType:
    return ColumnType(Kind.INTEGER, native, bits=bits, unsigned=unsigned)


def decimal(precision: int, scale: int) -> ColumnType:
    return ColumnType(Kind.DECIMAL, "decimal", precision=precision, scale=scale)


def timed(kind: Kind, fraction: int) -> ColumnType:
    return ColumnType(kind, kind.value, fraction=fraction)


def wall(*fields: int) -> dt.datetime:
    """A wall-clock time: it has no zone."""
    return dt.datetime(*fields)  # noqa: DTZ001


def text_of(type_: ColumnType, value: Any, *, nullable: bool = True) -> str:
    """The JSON text that stands for `value` in the image after."""
    table = TableSchema(TableId("d", "t"), (Column("v", type_, nullable),))
    message = DebeziumFormat(Envelopes(Topics("p"))).to_messages(
        batch(table, [change("c", None, {"v": value})]), 0
    )
    text = message.column("value")[0].as_py().decode()
    start = text.index('"after":{"v":') + len('"after":{"v":')
    return text[start : text.index('},"source":')]


VALUES = [
    (integer("tinyint", 8), -128, "-128"),
    (integer("tinyint", 8, True), 255, "255"),
    (integer("smallint", 16), -32768, "-32768"),
    (integer("smallint", 16, True), 65535, "65535"),
    (integer("mediumint", 24), -8388608, "-8388608"),
    (integer("int", 32), -2147483648, "-2147483648"),
    (integer("int", 32, True), 4294967295, "4294967295"),
    (integer("bigint", 64), -9223372036854775808, "-9223372036854775808"),
    (integer("bigint", 64), 9223372036854775807, "9223372036854775807"),
    (integer("bigint", 64), 0, "0"),
    (integer("bigint", 64, True), Decimal(9223372036854775807), "9223372036854775807"),
    # bigint.unsigned.handling.mode=long wraps
    (integer("bigint", 64, True), Decimal(18446744073709551615), "-1"),
    (integer("bigint", 64, True), Decimal(9223372036854775808), "-9223372036854775808"),
    # Java: plain from 1e-3 up to 1e7, always a digit behind the point
    (ColumnType(Kind.DOUBLE, "double"), 1.0, "1.0"),
    (ColumnType(Kind.DOUBLE, "double"), -0.0, "-0.0"),
    (ColumnType(Kind.DOUBLE, "double"), 0.001, "0.001"),
    (ColumnType(Kind.DOUBLE, "double"), 0.0009, "9.0E-4"),
    (ColumnType(Kind.DOUBLE, "double"), 9999999.0, "9999999.0"),
    (ColumnType(Kind.DOUBLE, "double"), 1e7, "1.0E7"),
    (ColumnType(Kind.DOUBLE, "double"), 1e10, "1.0E10"),
    (ColumnType(Kind.DOUBLE, "double"), 123456.789, "123456.789"),
    (ColumnType(Kind.DOUBLE, "double"), 0.1 + 0.2, "0.30000000000000004"),
    (ColumnType(Kind.DOUBLE, "double"), 2e23, "2.0E23"),
    (ColumnType(Kind.DOUBLE, "double"), 1.7976931348623157e308, "1.7976931348623157E308"),
    (ColumnType(Kind.DOUBLE, "double"), 2.2250738585072014e-308, "2.2250738585072014E-308"),
    (ColumnType(Kind.DOUBLE, "double"), 5e-324, "4.9E-324"),
    # as Jackson writes them: JSON has no such numbers
    (ColumnType(Kind.DOUBLE, "double"), math.nan, '"NaN"'),
    (ColumnType(Kind.DOUBLE, "double"), math.inf, '"Infinity"'),
    (ColumnType(Kind.DOUBLE, "double"), -math.inf, '"-Infinity"'),
    (ColumnType(Kind.FLOAT, "float"), math.nan, '"NaN"'),
    (ColumnType(Kind.FLOAT, "float"), math.inf, '"Infinity"'),
    (ColumnType(Kind.FLOAT, "float"), -math.inf, '"-Infinity"'),
    (ColumnType(Kind.FLOAT, "float"), 0.1, "0.1"),
    (ColumnType(Kind.FLOAT, "float"), 3.5, "3.5"),
    (ColumnType(Kind.FLOAT, "float"), -16777216.0, "-1.6777216E7"),
    (ColumnType(Kind.FLOAT, "float"), 3.4028234663852886e38, "3.4028235E38"),
    (ColumnType(Kind.FLOAT, "float"), 1.401298464324817e-45, "1.4E-45"),
    (decimal(5, 2), Decimal("0.00"), '"AA=="'),  # 00
    (decimal(5, 2), Decimal("1.00"), '"ZA=="'),  # 64
    (decimal(5, 2), Decimal("1.27"), '"fw=="'),  # 7f
    (decimal(5, 2), Decimal("1.28"), '"AIA="'),  # 00 80: the sign needs a byte of its own
    (decimal(5, 2), Decimal("-1.28"), '"gA=="'),  # 80
    (decimal(5, 2), Decimal("-1.29"), '"/38="'),  # ff 7f
    (decimal(5, 2), Decimal("-0.01"), '"/w=="'),  # ff
    (decimal(20, 0), Decimal("9223372036854775808"), '"AIAAAAAAAAAA"'),  # 00 80 00*7
    (decimal(20, 0), Decimal("-9223372036854775809"), '"/3//////////"'),  # ff 7f ff*7
    # 07 85 ee 10 d5 da 46 d9 00 f4 36 a0 00 00 00 00
    (decimal(38, 0), Decimal(10**37), '"B4XuENXaRtkA9DagAAAAAA=="'),
    # beyond 38 digits the column is text: 10**39 = 02 f0 50 fe 93 89 43 ac c4 5f 65 56 80 00 00 00 00
    (decimal(65, 0), "1" + "0" * 39, '"AvBQ/pOJQ6zEX2VWgAAAAAA="'),
    (decimal(65, 2), "-1.28", '"gA=="'),
    (decimal(65, 30), "0." + "0" * 30, '"AA=="'),
    (ColumnType(Kind.STRING, "varchar"), 'a"b\\c/', r'"a\"b\\c/"'),
    (ColumnType(Kind.STRING, "varchar"), "\b\t\n\f\r\x00\x1f\x7f", r'"\b\t\n\f\r\u0000\u001F' + '\x7f"'),
    (ColumnType(Kind.STRING, "varchar"), "Grüße 漢字", '"Grüße 漢字"'),
    # Jackson's byte generator escapes what lies beyond U+FFFF
    (ColumnType(Kind.STRING, "varchar"), "x😀y", r'"x\uD83D\uDE00y"'),
    (ColumnType(Kind.STRING, "varchar"), "", '""'),
    (ColumnType(Kind.BYTES, "varbinary"), b"", '""'),
    (ColumnType(Kind.BYTES, "varbinary"), b"f", '"Zg=="'),
    (ColumnType(Kind.BYTES, "varbinary"), b"fo", '"Zm8="'),
    (ColumnType(Kind.BYTES, "varbinary"), b"foo", '"Zm9v"'),
    (ColumnType(Kind.BYTES, "varbinary"), b"foobar", '"Zm9vYmFy"'),
    (ColumnType(Kind.BYTES, "blob"), b"\xfb\xff\xfe", '"+//+"'),
    (ColumnType(Kind.BOOLEAN, "bit"), True, "true"),
    (ColumnType(Kind.BOOLEAN, "bit"), False, "false"),
    (ColumnType(Kind.BITS, "bit", bits=16), b"\x01\x02", '"AgE="'),  # little-endian: 02 01
    (ColumnType(Kind.DATE, "date"), dt.date(2026, 1, 2), "20455"),
    (ColumnType(Kind.DATE, "date"), dt.date(1969, 12, 31), "-1"),
    (timed(Kind.DATETIME, 0), wall(2018, 6, 20, 13, 37, 3), "1529501823000"),
    (timed(Kind.DATETIME, 3), wall(2018, 6, 20, 13, 37, 3, 120000), "1529501823120"),
    (timed(Kind.DATETIME, 3), wall(1969, 12, 31, 23, 59, 59, 999000), "-1"),
    (timed(Kind.DATETIME, 6), wall(2018, 6, 20, 13, 37, 3, 123456), "1529501823123456"),
    (timed(Kind.INSTANT, 0), dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), '"2026-01-02T03:04:05Z"'),
    (timed(Kind.INSTANT, 1), dt.datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00.0Z"'),
    (timed(Kind.INSTANT, 3), dt.datetime(2024, 2, 29, 0, 0, 1, 20000, UTC), '"2024-02-29T00:00:01.020Z"'),
    (
        timed(Kind.INSTANT, 6),
        dt.datetime(2038, 1, 19, 3, 14, 7, 999999, UTC),
        '"2038-01-19T03:14:07.999999Z"',
    ),
    (timed(Kind.TIME, 0), dt.timedelta(hours=23, minutes=59, seconds=59), "86399000000"),
    (timed(Kind.TIME, 6), -dt.timedelta(hours=838, microseconds=1), "-3016800000001"),
    (ColumnType(Kind.YEAR, "year"), 2155, "2155"),
    (ColumnType(Kind.JSON, "json"), '{"a":[1,"x"]}', r'"{\"a\":[1,\"x\"]}"'),
    # geometries and vectors: printed by Debezium 3.6.1's own classes and Connect's converter
    (
        ColumnType(Kind.GEOMETRY, "geometry"),
        POINT_1_2,
        '{"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAABA","srid":null}',
    ),
    (
        ColumnType(Kind.GEOMETRY, "point"),
        b"\xe6\x10" + POINT_1_2[2:],
        '{"x":1.0,"y":2.0,"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAABA","srid":4326}',
    ),
    (ColumnType(Kind.VECTOR, "vector", length=3), [1.0, 2.5, 1e10], "[1.0,2.5,1.0E10]"),
    (ColumnType(Kind.VECTOR, "vector", length=3), [], "[]"),
    (replace(timed(Kind.DATE, 0), zero_dates="text"), "0000-00-00", '"0000-00-00"'),
    (ColumnType(Kind.ENUM, "enum", labels=("a", "b")), "b", '"b"'),
    (ColumnType(Kind.SET, "set", labels=("a", "b")), "a,b", '"a,b"'),
]


@pytest.mark.parametrize(("type_", "value", "expected"), VALUES, ids=lambda v: getattr(v, "native", None))
def test_value_is_printed_as_debezium_prints_it(type_, value, expected):
    assert text_of(type_, value) == expected


@pytest.mark.parametrize("type_", [v[0] for v in VALUES], ids=lambda t: t.native)
def test_null_is_null_in_a_nullable_column(type_):
    assert text_of(type_, None) == "null"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(Kind.DATE, "0"), (Kind.DATETIME, "0"), (Kind.INSTANT, '"1970-01-01T00:00:00Z"')],
)
def test_zero_date_in_a_not_null_column_is_the_epoch(kind, expected):
    assert text_of(timed(kind, 0), None, nullable=False) == expected


SCHEMAS = [
    (integer("tinyint", 8), {"type": "int16"}),
    (integer("tinyint", 8, True), {"type": "int16"}),
    (integer("smallint", 16), {"type": "int16"}),
    (integer("smallint", 16, True), {"type": "int32"}),
    (integer("mediumint", 24), {"type": "int32"}),
    (integer("mediumint", 24, True), {"type": "int32"}),
    (integer("int", 32), {"type": "int32"}),
    (integer("int", 32, True), {"type": "int64"}),
    (integer("bigint", 64), {"type": "int64"}),
    (integer("bigint", 64, True), {"type": "int64"}),
    (ColumnType(Kind.FLOAT, "float"), {"type": "float"}),
    (ColumnType(Kind.DOUBLE, "double"), {"type": "double"}),
    (
        decimal(10, 2),
        {
            "type": "bytes",
            "name": DECIMAL,
            "version": 1,
            "parameters": {"scale": "2", "connect.decimal.precision": "10"},
        },
    ),
    (ColumnType(Kind.STRING, "varchar"), {"type": "string"}),
    (replace(timed(Kind.DATE, 0), zero_dates="text"), {"type": "string"}),
    (ColumnType(Kind.BYTES, "blob"), {"type": "bytes"}),
    (ColumnType(Kind.BOOLEAN, "bit"), {"type": "boolean"}),
    (
        ColumnType(Kind.BITS, "bit", bits=12),
        {"type": "bytes", "name": "io.debezium.data.Bits", "version": 1, "parameters": {"length": "12"}},
    ),
    (ColumnType(Kind.DATE, "date"), {"type": "int32", "name": "io.debezium.time.Date", "version": 1}),
    (timed(Kind.DATETIME, 3), {"type": "int64", "name": "io.debezium.time.Timestamp", "version": 1}),
    (timed(Kind.DATETIME, 4), {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1}),
    (timed(Kind.INSTANT, 0), {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1}),
    (timed(Kind.TIME, 0), {"type": "int64", "name": "io.debezium.time.MicroTime", "version": 1}),
    (ColumnType(Kind.YEAR, "year"), {"type": "int32", "name": "io.debezium.time.Year", "version": 1}),
    (ColumnType(Kind.JSON, "json"), {"type": "string", "name": "io.debezium.data.Json", "version": 1}),
    (
        ColumnType(Kind.ENUM, "enum", labels=("a", "b")),
        {"type": "string", "name": "io.debezium.data.Enum", "version": 1, "parameters": {"allowed": "a,b"}},
    ),
    (
        ColumnType(Kind.SET, "set", labels=("a", "b")),
        {
            "type": "string",
            "name": "io.debezium.data.EnumSet",
            "version": 1,
            "parameters": {"allowed": "a,b"},
        },
    ),
]


@pytest.mark.parametrize(("type_", "expected"), SCHEMAS, ids=lambda v: getattr(v, "native", None))
def test_schema_is_the_one_debezium_registers(type_, expected):
    attributes = {"type": expected["type"], "optional": True, **expected}
    # the order of the attributes counts: it is part of the bytes
    assert json.dumps(type_schema(type_, DEFAULT_MODES, optional=True)) == json.dumps(attributes)


def test_schemas_of_geometries_and_vectors_are_those_debezium_registers():
    wkb, srid = (
        {"type": "bytes", "optional": False, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    )
    geometry = {
        "type": "struct",
        "fields": [wkb, srid],
        "optional": True,
        "name": "io.debezium.data.geometry.Geometry",
        "version": 1,
        "doc": "Geometry",
    }
    point = {
        "type": "struct",
        "fields": [
            {"type": "double", "optional": False, "field": "x"},
            {"type": "double", "optional": False, "field": "y"},
            {**wkb, "optional": True},
            srid,
        ],
        "optional": False,
        "name": "io.debezium.data.geometry.Point",
        "version": 1,
        "doc": "Geometry (POINT)",
    }
    vector = {
        "type": "array",
        "items": {"type": "float", "optional": False},
        "optional": False,
        "name": "io.debezium.data.FloatVector",
        "version": 1,
    }
    kinds = {"polygon": Kind.GEOMETRY, "point": Kind.GEOMETRY, "vector": Kind.VECTOR}
    # the order of the attributes counts: it is part of the bytes
    for (native, kind), expected in zip(kinds.items(), (geometry, point, vector), strict=True):
        assert json.dumps(type_schema(ColumnType(kind, native), DEFAULT_MODES, optional=False)) == json.dumps(
            expected
        )

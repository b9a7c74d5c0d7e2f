"""A value written to MySQL comes back from the binary protocol as the one Arrow value of its type."""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.config.options import parse_options
from tailrace.model.change import OP_CREATE
from tailrace.model.table import TableSchema
from tailrace.sources.mysql.binlog.dump import read_log
from tailrace.sources.mysql.catalog import tables
from tailrace.sources.mysql.connection import connect, server_facts
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.snapshot.literal import table_name
from tailrace.sources.mysql.snapshot.select import select_pages
from tailrace.sources.mysql.wire.decoder import EventDecoder
from tailrace_dev.servers import MySqlServer

US = dt.timedelta(microseconds=1)
MIDNIGHT = dt.datetime(1, 1, 1)  # noqa: DTZ001  # DATETIMEs have no zone


@dataclass(frozen=True)
class Case:
    """A column: its declaration, its values as Python sees them in Arrow."""

    declared: str
    values: st.SearchStrategy[Any]


def integers(bits: int) -> tuple[Case, Case]:
    name = {8: "TINYINT", 16: "SMALLINT", 24: "MEDIUMINT", 32: "INT", 64: "BIGINT"}[bits]
    return (
        Case(name, st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)),
        Case(f"{name} UNSIGNED", st.integers(0, 2**bits - 1)),
    )


def decimals(precision: int, scale: int) -> Case:
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    return Case(f"DECIMAL({precision},{scale})", unscaled.map(lambda u: exact(u, scale)))


def exact(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def moments(first: dt.datetime, last: dt.datetime, digits: int) -> st.SearchStrategy[dt.datetime]:
    """Moments with `digits` digits of a fraction of a second."""
    unit = 10 ** (6 - digits)
    return st.datetimes(first, last).map(lambda t: t.replace(microsecond=t.microsecond // unit * unit))


def times(digits: int) -> st.SearchStrategy[dt.timedelta]:
    unit = 10 ** (6 - digits)
    most = ((838 * 60 + 59) * 60 + 59) * 10**digits
    return st.integers(-most, most).map(lambda n: n * unit * US)


DATES = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))
DATETIMES = (MIDNIGHT, dt.datetime(9999, 12, 31, 23, 59, 59, 499_999))  # noqa: DTZ001
INSTANTS = (dt.datetime(1970, 1, 1, 0, 0, 1), dt.datetime(2038, 1, 19, 3, 14, 6))  # noqa: DTZ001
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
BMP = st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF), max_size=40)
#: MySQL's latin1: Windows' code page, of which five bytes are controls.
_CP1252 = [c for b in range(256) if (c := bytes([b]).decode("cp1252", "ignore"))]
LATIN1 = st.text(st.sampled_from(_CP1252), max_size=40)
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32, allow_subnormal=False)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)

CASES = {
    **{f"int{bits}{i}": case for bits in (8, 16, 24, 32, 64) for i, case in enumerate(integers(bits))},
    "flt": Case("FLOAT", FLOATS),
    "dbl": Case("DOUBLE", DOUBLES),
    "dec5": decimals(5, 5),
    "dec9": decimals(9, 0),
    "dec18": decimals(18, 9),
    "dec19": decimals(19, 1),
    "dec38": decimals(38, 30),
    "dec65": Case("DECIMAL(65,30)", decimals(65, 30).values.map(lambda d: format(d, "f"))),
    "char4": Case("CHAR(40)", TEXT.map(lambda s: s.rstrip(" "))),
    "text4": Case("TEXT", TEXT),
    "vc3": Case("VARCHAR(40) CHARACTER SET utf8mb3", BMP),
    "vc1": Case("VARCHAR(40) CHARACTER SET latin1", LATIN1),
    "bin": Case("BINARY(5)", st.binary(max_size=5).map(lambda b: b.ljust(5, b"\0"))),
    "vbin": Case("VARBINARY(300)", st.binary(max_size=300)),
    "lob": Case("LONGBLOB", st.binary(max_size=70) | st.binary(max_size=3).map(lambda b: b * 25_000)),
    "bit1": Case("BIT(1)", st.booleans()),
    "bit9": Case("BIT(9)", st.integers(0, 511).map(lambda n: n.to_bytes(2, "big"))),
    "bit64": Case("BIT(64)", st.binary(min_size=8, max_size=8)),
    "day": Case("DATE", DATES),
    "dt0": Case("DATETIME", moments(*DATETIMES, 0)),
    "dt6": Case("DATETIME(6)", moments(*DATETIMES, 6)),
    "ts0": Case("TIMESTAMP NULL", moments(*INSTANTS, 0).map(lambda t: t.replace(tzinfo=dt.UTC))),
    "ts3": Case("TIMESTAMP(3) NULL", moments(*INSTANTS, 3).map(lambda t: t.replace(tzinfo=dt.UTC))),
    "tm0": Case("TIME", times(0)),
    "tm4": Case("TIME(4)", times(4)),
    "yr": Case("YEAR", st.just(0) | st.integers(1901, 2155)),
    "enm": Case("ENUM('a', 'it''s', 'ü', '')", st.sampled_from(["a", "it's", "ü", ""])),
    "sts": Case("SET('a', 'b c', 'ü')", st.sampled_from(["", "a", "b c", "a,b c", "a,b c,ü", "ü"])),
    "js": Case("JSON", st.lists(st.none() | st.integers(-(2**53), 2**53) | TEXT, max_size=3)),
}  # fmt: skip
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | case.values for name, case in CASES.items()}),
    min_size=1,
    max_size=4,
)


def written(value: Any, declared: str) -> str:
    """An SQL literal."""
    if value is None:
        return "NULL"
    if declared == "JSON":
        return f"CONVERT(_utf8mb4 x'{json.dumps(value).encode().hex()}' USING utf8mb4)"
    if isinstance(value, bool):
        return f"b'{value:d}'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str) and "DECIMAL" not in declared:
        return f"_utf8mb4 x'{value.encode().hex()}'"
    if isinstance(value, float):
        return repr(value) if "e" in repr(value) else repr(value) + "e0"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.timedelta):
        total, us = divmod(abs(value) // US, 10**6)
        sign = "-" if value < dt.timedelta(0) else ""
        return f"'{sign}{total // 3600}:{total // 60 % 60}:{total % 60}.{us:06d}'"
    if isinstance(value, dt.datetime):
        return f"'{value.replace(tzinfo=None).isoformat(' ')}'"
    return f"'{value}'" if isinstance(value, dt.date) else str(value)


def expected(value: Any, declared: str) -> Any:
    if declared == "FLOAT" and value is not None:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    return value


@pytest.fixture(scope="module")
def target(mysql: MySqlServer) -> Iterator[tuple[pymysql.Connection, TableSchema]]:
    """A connection, and a table with a column of each case."""
    columns = ", ".join(f"{name} {case.declared}" for name, case in CASES.items())
    mysql.execute(
        "DROP DATABASE IF EXISTS select_values",
        "CREATE DATABASE select_values",
        f"CREATE TABLE select_values.t (id INT PRIMARY KEY, {columns})",
    )
    options = parse_options(
        {"url": mysql.url, "user": mysql.user, "password": mysql.password, "tables": "select_values[.]t"}
    )
    connection = connect(options, purpose="a test")
    yield connection, tables(connection, options.captures)[0].schema
    connection.close()
    mysql.execute("DROP DATABASE select_values")


def insert(cursor: Any, schema: TableSchema, rows: list[dict[str, Any]]) -> None:
    """Leave exactly `rows` in the table."""
    values = ", ".join(
        f"({i}, {', '.join(written(row[n], c.declared) for n, c in CASES.items())})"
        for i, row in enumerate(rows)
    )
    cursor.execute(f"DELETE FROM {table_name(schema.id)}")
    cursor.execute(f"INSERT INTO {table_name(schema.id)} VALUES {values}")


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=ROWS)
def test_value_written_comes_back_equal(
    target: tuple[pymysql.Connection, TableSchema], rows: list[dict[str, Any]]
) -> None:
    connection, schema = target
    with connection.cursor() as cursor:
        insert(cursor, schema, rows)
    (page,) = select_pages(connection, schema, None, None, 100)
    page.rows.validate(full=True)
    assert page.rows.type == schema.arrow
    for name, case in CASES.items():
        found = page.rows.field(name).to_pylist()
        if case.declared == "JSON":
            found = [None if v is None else json.loads(v) for v in found]
        assert found == [expected(row[name], case.declared) for row in rows], name


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=ROWS)
def test_log_gives_the_shape_and_the_arrays_that_the_select_gives(
    mysql: MySqlServer, target: tuple[pymysql.Connection, TableSchema], rows: list[dict[str, Any]]
) -> None:
    connection, schema = target
    options = parse_options(
        {"url": mysql.url, "user": mysql.user, "password": mysql.password, "tables": "select_values[.]t"}
    )
    facts = server_facts(connection)

    def log_end(cursor: Any) -> MySqlPosition:
        cursor.execute(facts.log_status_sql)
        return MySqlPosition(*cursor.fetchone()[:2], server=facts.server_uuid)

    with connection.cursor() as cursor:
        start = log_end(cursor)
        insert(cursor, schema, rows)
        end = log_end(cursor)
    decoder = EventDecoder(captures=lambda table: table == schema.id)
    batches = [b for block in read_log(options, start, end) for b in decoder.feed(block)]
    (page,) = select_pages(connection, schema, None, None, 100)
    created = [b for b in batches if b.after is not None]
    assert all(b.table == schema for b in created)
    logged = pa.concat_arrays([b.after.filter(pc.equal(b.op, OP_CREATE)) for b in created])
    assert logged.equals(page.rows)


def test_zero_and_partial_dates_come_back_as_null(
    target: tuple[pymysql.Connection, TableSchema],
) -> None:
    connection, schema = target
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {table_name(schema.id)}")
        cursor.execute(
            f"INSERT INTO {table_name(schema.id)} (id, day, dt0, dt6, ts0, ts3) VALUES "
            "(1, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00', '0000-00-00', '0000-00-00'), "
            "(2, '2026-00-05', '2026-05-00 01:02:03', '2026-00-00 00:00:00.5', NULL, NULL)"
        )
    (page,) = select_pages(connection, schema, None, None, 100)
    for name in ("day", "dt0", "dt6", "ts0", "ts3"):
        assert page.rows.field(name).to_pylist() == [None, None]

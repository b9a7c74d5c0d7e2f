"""Debezium's handling modes: expected text and Connect schema, by hand and by Debezium 3.6.1 itself.

`python -m bench.peers.compare --debezium MODE=VALUE --tailrace MODE=VALUE` does the latter.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from tailrace.errors import SinkError
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.schemas import type_schema
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tests.golden.test_debezium_types import decimal, integer, timed, wall
from tests.unit.formats.changes import batch, change

BINARY = ColumnType(Kind.BYTES, "varbinary", length=40)
KAFKA = "org.apache.kafka.connect.data"


def text_of(type_: ColumnType, value: Any, modes: Modes, *, nullable: bool = True) -> str:
    """The JSON text of `value`, between a NULL before it and one behind."""
    table = TableSchema(TableId("d", "t"), (Column("v", type_, nullable),))
    changes = [change("c", None, {"v": v}) for v in (None, value, None)]
    form = DebeziumFormat(Envelopes(Topics("p"), modes=modes))
    text = form.to_messages(batch(table, changes), 0).column("value")[1].as_py().decode()
    start = text.index('"after":{"v":') + len('"after":{"v":')
    return text[start : text.index('},"source":')]


@pytest.mark.parametrize(
    ("type_", "modes", "value", "text", "schema"),
    [
        (decimal(5, 2), Modes(decimal="double"), Decimal("-123.45"), "-123.45", ("double", None)),
        (decimal(38, 10), Modes(decimal="double"), Decimal("1E-10"), "1.0E-10", ("double", None)),
        (decimal(65, 30), Modes(decimal="double"), "12.5" + "0" * 29, "12.5", ("double", None)),
        (decimal(5, 2), Modes(decimal="string"), Decimal("-0.05"), '"-0.05"', ("string", None)),
        (decimal(38, 10), Modes(decimal="string"), Decimal("1E-10"), '"0.0000000001"', ("string", None)),
        (decimal(9, 0), Modes(decimal="string"), Decimal(-42), '"-42"', ("string", None)),
        (
            integer("bigint", 64, unsigned=True),
            Modes(bigint_unsigned="precise"),
            Decimal(2**64 - 1),
            '"AP//////////"',
            ("bytes", f"{KAFKA}.Decimal"),
        ),
        (BINARY, Modes(binary="base64"), b"\xfb\xff\x00", '"+/8A"', ("string", None)),
        (BINARY, Modes(binary="base64-url-safe"), b"\xfb\xff\x00\x01", '"-_8AAQ=="', ("string", None)),
        (BINARY, Modes(binary="hex"), b"\x00\xfb\x0f", '"00fb0f"', ("string", None)),
        (timed(Kind.DATE, 0), Modes(time="connect"), dt.date(1970, 1, 3), "2", ("int32", f"{KAFKA}.Date")),
        (
            timed(Kind.TIME, 6),
            Modes(time="connect"),
            dt.timedelta(seconds=1, microseconds=2999),
            "1002",
            ("int32", f"{KAFKA}.Time"),
        ),
        (
            timed(Kind.DATETIME, 6),
            Modes(time="connect"),
            wall(1970, 1, 1, 0, 0, 1, 2999),
            "1002",
            ("int64", f"{KAFKA}.Timestamp"),
        ),
        (
            timed(Kind.DATETIME, 0),
            Modes(time="microseconds"),
            wall(1970, 1, 1, 0, 0, 1),
            "1000000",
            ("int64", "io.debezium.time.MicroTimestamp"),
        ),
        (
            timed(Kind.DATETIME, 3),
            Modes(time="nanoseconds"),
            wall(1970, 1, 1, 0, 0, 1),
            "1000000000",
            ("int64", "io.debezium.time.NanoTimestamp"),
        ),
        (
            timed(Kind.TIME, 0),
            Modes(time="nanoseconds"),
            dt.timedelta(hours=-1),
            "-3600000000000",
            ("int64", "io.debezium.time.NanoTime"),
        ),
        (
            timed(Kind.DATE, 0),
            Modes(time="isostring"),
            dt.date(2024, 2, 29),
            '"2024-02-29Z"',
            ("string", "io.debezium.time.IsoDate"),
        ),
        (
            timed(Kind.TIME, 6),
            Modes(time="isostring"),
            dt.timedelta(hours=10, microseconds=120),
            '"10:00:00.00012Z"',
            ("string", "io.debezium.time.IsoTime"),
        ),
        (
            timed(Kind.DATETIME, 6),
            Modes(time="isostring"),
            wall(2024, 1, 1, 10, 0, 0),
            '"2024-01-01T10:00:00Z"',
            ("string", "io.debezium.time.IsoTimestamp"),
        ),
    ],
)
def test_mode_gives_values_debeziums_text_and_schema(type_, modes, value, text, schema):
    assert text_of(type_, value, modes) == text
    made = type_schema(type_, modes, optional=True)
    assert (made["type"], made.get("name")) == schema


@pytest.mark.parametrize(
    ("type_", "mode", "value"),
    [
        (timed(Kind.TIME, 0), "connect", dt.timedelta(hours=25)),
        (timed(Kind.TIME, 0), "isostring", dt.timedelta(hours=-1)),
        (timed(Kind.DATETIME, 0), "nanoseconds", wall(9999, 1, 1)),
    ],
)
def test_value_that_a_mode_cannot_hold_is_an_error(type_, mode, value):
    with pytest.raises(SinkError, match="adaptive_time_microseconds"):
        text_of(type_, value, Modes(time=mode))


@pytest.mark.parametrize(
    ("kind", "mode", "text"),
    [
        (Kind.DATE, "isostring", '"1970-01-01Z"'),
        (Kind.DATETIME, "isostring", '"1970-01-01T00:00:00Z"'),
        (Kind.DATETIME, "connect", "0"),
    ],
)
def test_zero_date_of_a_not_null_column_is_the_epoch_in_every_mode(kind, mode, text):
    assert text_of(timed(kind, 0), None, Modes(time=mode), nullable=False) == text


@pytest.mark.parametrize(
    ("type_", "value", "modes", "expected"),
    [
        (timed(Kind.DATE, 0), dt.date(18, 4, 1), Modes(adjust_years=True), dt.date(2018, 4, 1)),
        (timed(Kind.DATE, 0), dt.date(69, 12, 31), Modes(adjust_years=True), dt.date(2069, 12, 31)),
        (timed(Kind.DATE, 0), dt.date(70, 1, 1), Modes(adjust_years=True), dt.date(1970, 1, 1)),
        (timed(Kind.DATE, 0), dt.date(96, 2, 29), Modes(adjust_years=True), dt.date(1996, 2, 29)),
        (timed(Kind.DATE, 0), dt.date(99, 12, 31), Modes(adjust_years=True), dt.date(1999, 12, 31)),
        (timed(Kind.DATE, 0), dt.date(100, 1, 1), Modes(adjust_years=True), dt.date(100, 1, 1)),
        (timed(Kind.DATE, 0), dt.date(2024, 2, 29), Modes(adjust_years=True), dt.date(2024, 2, 29)),
        (timed(Kind.DATE, 0), dt.date(18, 4, 1), Modes(), dt.date(18, 4, 1)),
    ],
)
def test_years_below_100_move_as_debezium_moves_them(type_, value, modes, expected):
    assert text_of(type_, value, modes) == str((expected - dt.date(1970, 1, 1)).days)


def test_moments_of_years_below_100_move_in_every_mode_of_time():
    value, moved = wall(18, 4, 1, 12, 0, 0, 500000), wall(2018, 4, 1, 12, 0, 0, 500000)
    us = (moved - wall(1970, 1, 1)) // dt.timedelta(microseconds=1)
    expected = {
        "adaptive_time_microseconds": str(us),
        "nanoseconds": str(us * 1000),
        "connect": str(us // 1000),
        "isostring": '"2018-04-01T12:00:00.5Z"',
    }
    for mode, text in expected.items():
        assert text_of(timed(Kind.DATETIME, 6), value, Modes(time=mode, adjust_years=True)) == text

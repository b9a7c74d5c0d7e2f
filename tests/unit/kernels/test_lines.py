"""Lines of LOAD DATA and COPY against plain Python: every value reads back as the one that was written."""

from __future__ import annotations

import json
import math
import re
import struct
from datetime import date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.kernels import lines
from tailrace.sinks.replica.encode import ColumnEncoding, encode
from tailrace.sinks.replica.list_columns import as_bytes, as_json

_LETTERS = {b"t": b"\t", b"n": b"\n", b"r": b"\r", b"\\": b"\\"}


def written(array: pa.Array, encoding: ColumnEncoding, *, style: int = lines.LINES) -> bytes:
    batch = pa.RecordBatch.from_arrays([array], ["v"])
    return b"".join(bytes(piece) for piece in encode(batch, [encoding], style=style))


def values(array: pa.Array, encoding: ColumnEncoding) -> list[bytes | None]:
    """What a server reads."""
    listed = written(array, encoding).split(b"\n")
    assert listed.pop() == b""
    return [None if line == rb"\N" else unescaped(line) for line in listed]


def unescaped(text: bytes) -> bytes:
    return re.sub(rb"\\(.)", lambda found: _LETTERS[found[1]], text, flags=re.DOTALL)


def with_nulls(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | strategy, max_size=20)


@given(with_nulls(st.binary(max_size=40) | st.text("\t\n\r\\N'ü🐟 ", max_size=40).map(str.encode)))
def test_bytes_read_back_as_they_were(given_: list[bytes | None]) -> None:
    assert values(pa.array(given_, pa.binary()), ColumnEncoding(lines.TEXT)) == given_


@given(with_nulls(st.binary(max_size=20)), st.integers(0, 5))
def test_bytes_in_hexadecimal_read_back_as_they_were(given_: list[bytes | None], start: int) -> None:
    array = pa.array(given_, pa.binary()).slice(min(start, len(given_)))
    found = values(array, ColumnEncoding(lines.BYTES))
    assert [None if v is None else bytes.fromhex(v.decode()[2:]) for v in found] == array.to_pylist()


@given(
    st.integers(0, 38).flatmap(
        lambda s: st.tuples(st.just(s), with_nulls(st.integers(-(10**38) + 1, 10**38 - 1)))
    )
)
def test_decimals_have_all_their_digits(given_: tuple[int, list[int | None]]) -> None:
    scale, numbers = given_
    with localcontext() as context:
        context.prec = 60
        wanted = [None if n is None else Decimal(n).scaleb(-scale) for n in numbers]
        found = values(pa.array(wanted, pa.decimal128(38, scale)), ColumnEncoding(lines.DECIMAL, scale))
        assert [None if v is None else Decimal(v.decode()) for v in found] == wanted
    assert all(v is None or len(v.partition(b".")[2]) == scale for v in found)


@given(with_nulls(st.floats()))
def test_doubles_read_back_as_they_were(given_: list[float | None]) -> None:
    found = values(pa.array(given_, pa.float64()), ColumnEncoding(lines.DOUBLE))
    for text, wanted in zip(found, given_, strict=True):
        if wanted is None or text is None:
            assert text is wanted is None
        elif math.isnan(wanted):
            assert text == b"NaN"
        else:
            assert struct.pack("d", float(text)) == struct.pack("d", wanted)


@given(with_nulls(st.floats(width=32, allow_nan=False)))
def test_floats_read_back_as_they_were(given_: list[float | None]) -> None:
    array = pa.array(given_, pa.float32())
    found = values(array, ColumnEncoding(lines.FLOAT))
    assert (
        pa.array([None if v is None else float(v) for v in found], pa.float64())
        .cast(pa.float32())
        .equals(array)
    )


@given(with_nulls(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_integers_of_every_width_are_written_whole(given_: list[int | None]) -> None:
    for bits, type_ in ((8, pa.int8()), (16, pa.int16()), (32, pa.int32()), (64, pa.int64())):
        kind = {8: lines.INT8, 16: lines.INT16, 32: lines.INT32, 64: lines.INT64}[bits]
        fitting = [None if n is None else n >> (64 - bits) for n in given_]
        found = values(pa.array(fitting, type_), ColumnEncoding(kind))
        assert [None if v is None else int(v) for v in found] == fitting


@given(with_nulls(st.datetimes()))
def test_moments_and_dates_are_written_as_iso(given_: list[datetime | None]) -> None:
    for kind in (lines.MOMENT, lines.MYSQL_MOMENT):
        found = values(pa.array(given_, pa.timestamp("us")), ColumnEncoding(kind, 6))
        assert found == [v and v.isoformat(" ", "microseconds").encode() for v in given_]
    days = [v and v.date() for v in given_]
    assert values(pa.array(days, pa.date32()), ColumnEncoding(lines.DATE)) == [
        v and v.isoformat().encode() for v in days
    ]


@given(with_nulls(st.integers(-3_020_399_999_999, 3_020_399_999_999)))
def test_times_read_back_as_they_were(given_: list[int | None]) -> None:
    found = values(pa.array(given_, pa.int64()), ColumnEncoding(lines.TIME, 6))
    for text, wanted in zip(found, given_, strict=True):
        if wanted is None or text is None:
            assert text is wanted is None
            continue
        hours, minutes, seconds = text.decode().lstrip("-").split(":")
        span = timedelta(
            hours=int(hours), minutes=int(minutes), seconds=int(seconds[:2]), microseconds=int(seconds[3:])
        )
        assert (-span if text[:1] == b"-" else span) == timedelta(microseconds=wanted)


@pytest.mark.parametrize(
    ("day", "postgres", "mysql"),
    [
        (-719162, b"0001-01-01", b"0001-01-01"),
        (-719163, b"0001-12-31 BC", b"0000-12-31"),
        ((1 << 31) - 1, b"infinity", None),
        (-(1 << 31), b"-infinity", None),
        ((date(9999, 12, 31) - date(1970, 1, 1)).days + 1, b"10000-01-01", b"10000-01-01"),
    ],
)
def test_dates_beyond_the_calendar_are_each_databases_own(
    day: int, postgres: bytes, mysql: bytes | None
) -> None:
    array = pa.array([day], pa.int32()).cast(pa.date32())
    assert values(array, ColumnEncoding(lines.DATE)) == [postgres]
    if mysql is not None:
        assert values(array, ColumnEncoding(lines.MYSQL_DATE)) == [mysql]


def test_rows_larger_than_a_piece_are_written_whole() -> None:
    long = b"\\" * 3_000_000
    assert values(pa.array([b"a", long, None, b"z"], pa.binary()), ColumnEncoding(lines.TEXT)) == [
        b"a",
        long,
        None,
        b"z",
    ]


def test_tuples_quote_what_would_end_a_literal() -> None:
    rows = pa.array([b"a'\\\0\n", None, b""], pa.binary())
    text = written(rows, ColumnEncoding(lines.TEXT), style=lines.TUPLES)
    assert text == b"(_binary'a\\'\\\\\\0\n'),(NULL),(_binary'')"
    assert written(pa.array(["{}"]), ColumnEncoding(lines.TEXT, 1), style=lines.TUPLES) == b"(_utf8mb4'{}')"


@given(with_nulls(st.lists(st.none() | st.text(max_size=8), max_size=4)), st.integers(0, 3))
def test_lists_of_text_are_json_arrays(given_: list[list[str | None] | None], start: int) -> None:
    array = pa.array(given_, pa.list_(pa.string())).slice(min(start, len(given_)))
    found = as_json(array).to_pylist()
    assert [None if v is None else json.loads(v) for v in found] == array.to_pylist()


def test_lists_of_other_kinds_are_json_arrays() -> None:
    for values_, type_, wanted in (
        ([1, None, -2], pa.int64(), [1, None, -2]),
        ([True, None], pa.bool_(), [True, None]),
        ([0.5, math.inf, None], pa.float64(), [0.5, "inf", None]),
        ([b"\x00\xff", None], pa.binary(), ["00ff", None]),
        ([date(2024, 2, 29)], pa.date32(), ["2024-02-29"]),
    ):
        (found,) = as_json(pa.array([values_], pa.list_(type_))).to_pylist()
        assert json.loads(found) == wanted


def test_vectors_are_their_bytes_wherever_they_begin() -> None:
    array = pa.array([[9.0], [1.5, -2.0], None, []], pa.list_(pa.float32())).slice(1)
    assert as_bytes(array).to_pylist() == [struct.pack("<ff", 1.5, -2.0), None, b""]

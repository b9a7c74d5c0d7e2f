"""Values of SQL_REDO and of SELECTs in Arrow: the same from both, and nothing that the type cannot hold."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import DecodeError
from tailrace.model.table import Column
from tailrace.model.types import Kind
from tailrace.sources.oracle.wire.redo import Literal
from tailrace.sources.oracle.wire.types import column_type
from tailrace.sources.oracle.wire.values import (
    array_of,
    bind_value,
    key_value,
    sortable,
    sortable_rows,
    text_of,
)


def column(
    data_type: str, precision: int | None = None, scale: int | None = None, length: int = 100
) -> Column:
    type_ = column_type(data_type, length, precision, scale)
    assert type_ is not None
    return Column("C", type_)


@pytest.mark.parametrize(
    ("of", "text", "value"),
    [
        (column("NUMBER", 9, 0), "7", 7),
        (column("NUMBER", 18, 0), "-999999999999999999", -999999999999999999),
        (column("NUMBER", 10, 2), "12.5", Decimal("12.50")),
        (column("NUMBER", 10, 2), ".5", Decimal("0.50")),
        (column("NUMBER", 5, -2), "12300", Decimal(12300)),
        (column("NUMBER", 2, 5), "0.00012", Decimal("0.00012")),
        (column("NUMBER", None, 0), "9" * 38, Decimal("9" * 38)),
        (column("NUMBER"), ".10", "0.1"),
        (column("NUMBER"), "1E+3", "1000"),
        (column("NUMBER"), "-0", "0"),
        (column("FLOAT", 126), "1.50", "1.5"),
        (column("BINARY_FLOAT"), "1.5E+000", 1.5),
        (column("BINARY_DOUBLE"), "Nan", None),
        (column("BINARY_DOUBLE"), "-Inf", float("-inf")),
        (column("CHAR"), "a  ", "a  "),
        (column("RAW"), "00fF", b"\x00\xff"),
        (column("DATE"), " 2026-02-28 23:59:58", datetime(2026, 2, 28, 23, 59, 58)),  # noqa: DTZ001
        (
            column("TIMESTAMP(3)", None, 3),
            "2026-02-28 01:02:03.123000000",
            datetime(2026, 2, 28, 1, 2, 3, 123000),  # noqa: DTZ001
        ),
        (column("TIMESTAMP(9)", None, 9), " 2026-02-28 01:02:03.123456789", "2026-02-28 01:02:03.123456789"),
        (column("TIMESTAMP(9)", None, 9), "2026-02-28 01:02:03.", "2026-02-28 01:02:03.000000000"),
        (
            column("TIMESTAMP(6) WITH LOCAL TIME ZONE", None, 6),
            "2026-02-28 01:02:03.5",
            datetime(2026, 2, 28, 1, 2, 3, 500000, UTC),
        ),
        (
            column("TIMESTAMP(6) WITH TIME ZONE", None, 6),
            "2026-02-28 01:02:03.5 -05:30",
            "2026-02-28 01:02:03.500000000 -05:30",
        ),
    ],
)
def test_a_text_becomes_the_value_of_its_type(of: Column, text: str, value: Any) -> None:
    (found,) = array_of([text], of).to_pylist()
    assert found == value or (value is None and math.isnan(found))


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (column("NUMBER", 9, 0), "1.5"),
        (column("NUMBER", 9, 0), "99999999999"),
        (column("NUMBER", 10, 2), "1.234"),
        (column("NUMBER", 10, 2), "123456789.5"),
        (column("NUMBER"), "NaN"),
        (column("RAW"), "0g"),
        (column("DATE"), "-0044-03-15 00:00:00"),
        (column("DATE"), "2026-02-30 00:00:00"),
        (column("DATE"), "28-FEB-26"),
        (column("TIMESTAMP(6)", None, 6), "2026-02-28 01:02:03.123456789"),
        (column("TIMESTAMP(6)", None, 6), "2026-02-28 01:02:03.1 +02:00"),
        (column("TIMESTAMP(6) WITH TIME ZONE", None, 6), "2026-02-28 01:02:03.5"),
        (column("TIMESTAMP(6) WITH TIME ZONE", None, 6), "2026-02-28 01:02:03.5 Europe/Rome"),
    ],
)
def test_a_value_that_the_type_cannot_hold_is_an_error_that_does_not_show_it(of: Column, text: str) -> None:
    with pytest.raises(DecodeError) as raised:
        array_of([None, text], of)
    assert raised.value.code == "TR-4621"
    assert text not in str(raised.value)


@pytest.mark.parametrize(
    ("of", "literal"),
    [
        (column("VARCHAR2"), Literal("AB", "HEXTORAW")),
        (column("VARCHAR2"), Literal("", "EMPTY_CLOB")),
        (column("VARCHAR2"), Literal("", "UNSUPPORTED")),
        (column("DATE"), Literal("1", is_number=True)),
        (column("RAW"), Literal("2026-01-31", "TO_DATE")),
    ],
)
def test_a_value_in_a_form_of_another_type_is_an_error(of: Column, literal: Literal) -> None:
    with pytest.raises(DecodeError):
        text_of(literal, of)


def test_an_empty_text_is_null() -> None:
    assert text_of(Literal(""), column("VARCHAR2")) is None
    assert text_of(Literal("", "HEXTORAW"), column("RAW")) is None


@pytest.mark.parametrize(
    "data_type",
    [
        "CLOB",
        "BLOB",
        "LONG",
        "XMLTYPE",
        "JSON",
        "ROWID",
        "INTERVAL DAY(2) TO SECOND(6)",
        "MDSYS.SDO_GEOMETRY",
    ],
)
def test_types_that_are_not_captured(data_type: str) -> None:
    assert column_type(data_type, None, None, None) is None


@pytest.mark.parametrize(
    ("precision", "scale", "kind"),
    [
        (9, 0, Kind.INTEGER),
        (19, 0, Kind.DECIMAL),
        (None, 0, Kind.DECIMAL),
        (38, 10, Kind.DECIMAL),
        (38, -2, Kind.STRING),
        (10, 127, Kind.STRING),
        (None, None, Kind.STRING),
    ],
)
def test_the_kinds_of_numbers(precision: int | None, scale: int | None, kind: Kind) -> None:
    assert column("NUMBER", precision, scale).type.kind is kind


KEYS = {
    "number": (
        column("NUMBER"),
        st.decimals(allow_nan=False, allow_infinity=False, places=5).map(lambda d: format(d, "f")),
    ),
    "varchar2": (
        column("VARCHAR2"),
        st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=5),
    ),
    "raw": (column("RAW"), st.binary(min_size=1, max_size=5).map(lambda b: b.hex().upper())),
    "date": (column("DATE"), st.datetimes(datetime(1000, 1, 1)).map(lambda d: f"{d:%Y-%m-%d %H:%M:%S}")),  # noqa: DTZ001
}


@pytest.mark.parametrize("name", KEYS)
@given(data=st.data())
def test_keys_sort_alike_as_json_and_in_arrow(name: str, data: st.DataObject) -> None:
    of, texts = KEYS[name]
    found = data.draw(st.lists(texts, min_size=1, max_size=6))
    rows = pa.StructArray.from_arrays([array_of(found, of)], names=["C"])
    as_json = [sortable((key_value(text, of),), [of]) for text in found]
    assert as_json == sortable_rows(rows, [of])
    if name == "number":
        assert sorted(range(len(found)), key=as_json.__getitem__) == sorted(
            range(len(found)), key=lambda i: Decimal(found[i])
        )


def test_what_keys_are_bound_as() -> None:
    assert bind_value(7, column("NUMBER", 9, 0)) == Decimal(7)
    assert bind_value("0.1", column("NUMBER")) == Decimal("0.1")
    assert bind_value({"b": "00ff"}, column("RAW")) == "00ff"
    assert bind_value("2026-01-31 00:00:00", column("DATE")) == " 2026-01-31 00:00:00"
    assert bind_value("x", column("VARCHAR2")) == "x"

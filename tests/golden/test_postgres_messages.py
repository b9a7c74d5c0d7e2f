"""Debezium's messages of the recorded PostgreSQL stream."""

from __future__ import annotations

import base64
import io
import json
import math
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

import fastavro
import pyarrow as pa
import pytest

from tailrace.errors import SinkError
from tailrace.formats.assemble import key_value_format
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.postgres import placeholder
from tailrace.formats.connect.schemas import is_optional
from tailrace.formats.connect.source_block import sequences
from tailrace.formats.connect.topics import Topics
from tailrace.formats.connect.value_modes import converted
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.kernels.floats import texts
from tailrace.model.change import ChangeBatch
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tests.golden.postgres.recorded import SCHEMAS, decoder, stream
from tests.unit.formats.changes import batch, change

_FORMAT = DebeziumFormat(
    Envelopes(Topics("pre"), "postgresql", "1.0", Modes(decimal="string"), database="shop")
)
_FORMAT_PRECISE = DebeziumFormat(Envelopes(Topics("pre"), "postgresql", "1.0", database="shop"))
_NUMERIC = ColumnType(Kind.STRING, "numeric")


def _change(op: str, before: Any, after: Any) -> Any:
    return change(op, before, after, txn="765", file="", thread=None)


def _change(op: str, before: Any, after: Any) -> Any:
    return change(op, before, after, txn="765", file="")


def _messages(table: str) -> list[tuple[Any, Any, Any]]:
    out = []
    known = decoder(schema_of=lambda id_: SCHEMAS.get(id_.table))
    for found in known.feed(stream("binary")):
        if found.table.id.table == table:
            made = _FORMAT.to_messages(found, 1000)
            for row in made.to_pylist():
                value = None if row["value"] is None else json.loads(row["value"])
                out.append((json.loads(row["key"] or "null"), value, row["headers"]))
    return out


def test_every_type_is_written_as_debezium_writes_it() -> None:
    key, value, headers = _messages("t")[0]
    assert (key, headers) == ({"id": 1}, None)
    assert value["after"] == {
        "id": 1,
        "b": True,
        "i2": -2,
        "i8": 2**63 - 1,
        "o": 2**32 - 1,
        "f4": 1.1,
        "f8": -0.1,
        "n": "NAN",
        "d": "12345.678",
        "m": "-1234.50",
        "c": "ab  ",
        "v": "vär",
        "x": 'te\tx"t',
        "y": "AP8=",
        "da": 19782,
        "ti": 86400000000,
        "tz": "06:30:00.5Z",
        "ts": 1704070923456,
        "tsz": "2023-12-31T22:00:00.000001Z",
        "iv": 36572706700000,
        "u": "11111111-2222-3333-4444-555555555555",
        "j": '{"a": 1}',
        "jb": '{"a": [1, 2]}',
        "a": [1, None, 3],
        "ta": ["a", "b,c", None, 'q"\\', ""],
        "net": "10.1.2.3/8",
        "ci": "2001:db8::/32",
        "ma": "08:00:2b:01:02:03",
        "bt": "BQ==",
        "vb": "Fg==",
        "md": "happy",
        "ct": "1.25",
        "ve": [1.0, -2.5, 3e10],
        "bb": True,
    }
    assert value["source"] == {
        "version": "1.0",
        "connector": "postgresql",
        "name": "pre",
        "ts_ms": 1795244536319,
        "snapshot": "false",
        "db": "shop",
        "sequence": '["25558784","25557912"]',
        "ts_us": 1795244536319423,
        "ts_ns": 1795244536319423000,
        "schema": "public",
        "table": "t",
        "txId": 765,
        "lsn": 25557912,
        "xmin": None,
        "origin": None,
        "origin_lsn": None,
    }


def test_moments_beyond_the_calendar_are_debeziums() -> None:
    (_, odd, _), (_, before_christ, _) = _messages("t")[1:3]
    shown = {name: odd["after"][name] for name in ("ts", "tsz", "da", "n", "tz")}
    assert shown == {
        "ts": 9223372036825200,
        "tsz": "-infinity",
        "da": -(2**31),
        "n": "-0.00000000000000000012345",
        "tz": "15:59:59Z",
    }
    assert before_christ["after"]["tsz"] == "0000-12-31T23:59:59.000000Z"


def test_an_unchanged_toast_value_is_debeziums_placeholder_and_never_null() -> None:
    updates = [(key, value) for key, value, _ in _messages("toast") if value and value["op"] == "u"]
    after = [value["after"]["big"] for _, value in updates if value["after"]["id"] in (1, 3, 30)]
    assert after[:3] == ["__debezium_unavailable_value"] * 3
    assert after[3].startswith("zzz")
    moved = next(value for key, value in updates if key == {"id": 30})
    assert moved["before"] == {"id": 3, "n": None, "big": None}


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (ColumnType(Kind.STRING, "text"), '"__debezium_unavailable_value"'),
        (ColumnType(Kind.JSON, "jsonb"), '"__debezium_unavailable_value"'),
        (ColumnType(Kind.BYTES, "bytea"), '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="'),
        (
            ColumnType(Kind.LIST, "_text", element=ColumnType(Kind.STRING, "text")),
            '["__debezium_unavailable_value"]',
        ),
        (
            ColumnType(Kind.LIST, "_int4", element=ColumnType(Kind.INTEGER, "int4", bits=32)),
            json.dumps(list(b"__debezium_unavailable_value"), separators=(",", ":")),
        ),
        (
            ColumnType(Kind.LIST, "_uuid", element=ColumnType(Kind.STRING, "uuid")),
            '["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]',
        ),
        (
            ColumnType(Kind.STRING, "hstore"),
            r'"{\"__debezium_unavailable_value\":\"__debezium_unavailable_value\"}"',
        ),
        (ColumnType(Kind.LIST, "_float8", element=ColumnType(Kind.DOUBLE, "float8")), None),
        (_NUMERIC, None),
    ],
)
def test_the_placeholder_is_of_the_columns_type(type_: ColumnType, expected: str | None) -> None:
    assert placeholder(type_, Modes()) == expected


@pytest.mark.parametrize(
    ("native", "values", "expected"),
    [
        ("numeric", ["0", "-1.50", "12345678901234567890"], None),
        ("hstore", ['"a"=>"1", "b \\"c"=>NULL', ""], ['{"a":"1","b \\"c":null}', "{}"]),
        ("interval", ["PT-0.5S", "P-1DT1H", "PT0S", "infinity"], [-500000, -82800000000, 0, 2**63 - 1]),
        ("bit", ["10110", "000000001", "0000"], [b"\x16", b"\x01", b""]),
        ("timetz", ["00:30:00+01", "23:00:00.25-02:00:01"], ["23:30:00Z", "01:00:01.25Z"]),
    ],
)
def test_texts_take_debeziums_forms(native: str, values: list[str], expected: list[Any] | None) -> None:
    found = converted(pa.array([*values, None]), ColumnType(Kind.STRING, native), Modes())
    assert found is not None
    listed = found[0].to_pylist()
    if expected is None:
        expected = [
            '{"scale":0,"value":"AA=="}',
            '{"scale":1,"value":"8Q=="}',
            '{"scale":0,"value":"AKtUqYzrHwrS"}',
        ]
    assert listed == [*expected, None]


def test_a_numeric_that_is_no_number_has_no_precise_form() -> None:
    with pytest.raises(SinkError, match=r"set decimal-handling-mode: string or double"):
        converted(pa.array(["NaN"]), _NUMERIC, Modes())


def test_an_error_names_table_and_column() -> None:
    shape = TableSchema(TableId("public", "sums"), (Column("total", _NUMERIC),))
    with pytest.raises(SinkError, match=r"column `total` of table `public.sums`"):
        _FORMAT_PRECISE.to_messages(batch(shape, [_change("c", None, {"total": "NaN"})]), 0)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("string", ["NAN", "POSITIVE_INFINITY", "NEGATIVE_INFINITY", "1.10"]),
        ("double", ['"NaN"', '"Infinity"', '"-Infinity"', "1.1"]),
    ],
)
def test_a_numeric_that_is_no_number_is_debeziums(mode: str, expected: list[str]) -> None:
    form = converted(pa.array(["NaN", "Infinity", "-Infinity", "1.10"]), _NUMERIC, Modes(decimal=mode))
    assert form is not None
    found = texts(form[0]) if mode == "double" else form[0]
    assert found.to_pylist() == expected


def test_a_column_may_have_null_for_what_has_no_form() -> None:
    form = converted(pa.array(["NaN", "1"]), replace(_NUMERIC, unfit="null"), Modes())
    assert form is not None
    assert form[0].to_pylist() == [None, '{"scale":0,"value":"AQ=="}']
    column = Column("n", replace(_NUMERIC, unfit="null"), nullable=False)
    assert is_optional(column)


@pytest.mark.parametrize("digits", [4301, 131072])
def test_a_numeric_of_any_number_of_digits_has_a_form(digits: int) -> None:
    form = converted(pa.array(["9" * digits]), _NUMERIC, Modes())
    assert form is not None
    value = base64.b64decode(json.loads(form[0][0].as_py())["value"])
    assert int.from_bytes(value, "big", signed=True) == 10**digits - 1


def _list_of(element: ColumnType) -> ColumnType:
    return ColumnType(Kind.LIST, f"_{element.native}", element=element)


@pytest.mark.parametrize(
    ("element", "values", "modes", "expected"),
    [
        (ColumnType(Kind.FLOAT, "float4"), [0.1, None, math.nan], Modes(), '[0.1,null,"NaN"]'),
        (ColumnType(Kind.DOUBLE, "float8"), [1e22, -math.inf], Modes(), '[1.0E22,"-Infinity"]'),
        (
            ColumnType(Kind.DECIMAL, "numeric", precision=38, scale=2),
            [Decimal("123456789012345678901234567890123456.78"), Decimal("-1.28")],
            Modes(),
            '["CUmw9vACMxPESZBQ3jjzTg==","gA=="]',
        ),
        (
            ColumnType(Kind.DECIMAL, "numeric", precision=38, scale=2),
            [Decimal("123456789012345678901234567890123456.78")],
            Modes(decimal="string"),
            '["123456789012345678901234567890123456.78"]',
        ),
        (ColumnType(Kind.BYTES, "bytea"), [b"\x00\xff", None], Modes(binary="hex"), '["00ff",null]'),
        (ColumnType(Kind.BYTES, "bytea"), [b"\xfb\xff"], Modes(binary="base64-url-safe"), '["-_8="]'),
        (
            ColumnType(Kind.DATETIME, "timestamp", fraction=3),
            [-1000, 2**63 - 1],
            Modes(),
            "[-1,9223372036825200]",
        ),
        (
            ColumnType(Kind.DATETIME, "timestamp", fraction=6),
            [500_000],
            Modes(time="isostring"),
            '["1970-01-01T00:00:00.5Z"]',
        ),
        (ColumnType(Kind.TIME, "time", fraction=6), [1_500_000], Modes(time="connect"), "[1500]"),
        (ColumnType(Kind.BOOLEAN, "bool"), [True, None], Modes(), "[true,null]"),
        (
            ColumnType(Kind.STRING, "point"),
            ["(1,-2)"],
            Modes(),
            '[{"x":1.0,"y":-2.0,"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAADA","srid":null}]',
        ),
        (_NUMERIC, ["1.10", None], Modes(), '[{"scale":1,"value":"Cw=="},null]'),
    ],
)
def test_an_arrays_elements_have_the_form_of_a_column(
    element: ColumnType, values: list[Any], modes: Modes, expected: str
) -> None:
    arrow = element.arrow
    flat = pa.array(values, pa.int64() if pa.types.is_temporal(arrow) else arrow).cast(arrow)
    empty = pa.array([], arrow)
    array = pa.ListArray.from_arrays([0, 0, len(values), len(values)], pa.concat_arrays([empty, flat]))
    array = pa.concat_arrays([array, pa.nulls(1, array.type)]).slice(1)
    form = converted(array, _list_of(element), modes)
    assert form is not None
    assert form[0].to_pylist() == [expected, "[]", None]


@pytest.mark.parametrize(
    ("fraction", "mode", "expected"),
    [
        (3, "adaptive_time_microseconds", [9223372036825200, -9223372036832400, 1, None]),
        (6, "adaptive_time_microseconds", [9223372036825200000, -9223372036832400000, 1500, None]),
        (3, "microseconds", [9223372036825200000, -9223372036832400000, 1500, None]),
        (6, "connect", [9223372036825200, -9223372036832400, 1, None]),
        (6, "nanoseconds", [2**63 - 1, -(2**63), 1_500_000, None]),
        (
            6,
            "isostring",
            ["+294247-01-10T04:00:25.2Z", "-290308-12-21T19:59:27.6Z", "1970-01-01T00:00:00.0015Z", None],
        ),
    ],
)
def test_infinite_timestamps_are_debeziums_in_every_mode(
    fraction: int, mode: str, expected: list[Any]
) -> None:
    array = pa.array([2**63 - 1, -(2**63), 1500, None], pa.int64()).cast(pa.timestamp("us"))
    form = converted(array, ColumnType(Kind.DATETIME, "timestamp", fraction=fraction), Modes(time=mode))
    assert form is not None
    assert form[0].to_pylist() == expected


def test_days_beyond_the_calendar_have_a_text() -> None:
    array = pa.array([2**31 - 1, -(2**31), -735160, 3672222, None], pa.int32()).cast(pa.date32())
    form = converted(array, ColumnType(Kind.DATE, "date"), Modes(time="isostring"))
    assert form is not None
    assert form[0].to_pylist() == ["infinity", "-infinity", "-0043-03-15Z", "+12024-03-15Z", None]


_REQUIRED = TableSchema(
    TableId("public", "required"),
    (
        Column("id", ColumnType(Kind.INTEGER, "int4", bits=32), nullable=False),
        Column("t", ColumnType(Kind.STRING, "text"), nullable=False),
        Column("d", ColumnType(Kind.DOUBLE, "float8"), nullable=False),
        Column("p", ColumnType(Kind.DECIMAL, "numeric", precision=5, scale=2), nullable=False),
        Column("y", ColumnType(Kind.BYTES, "bytea"), nullable=False),
        Column("b", ColumnType(Kind.BOOLEAN, "bool"), nullable=False),
        Column("at", ColumnType(Kind.INSTANT, "timestamptz", fraction=6), nullable=False),
        Column("dot", ColumnType(Kind.STRING, "point"), nullable=False),
        Column("maybe", ColumnType(Kind.INTEGER, "int4", bits=32)),
    ),
    ("id",),
)
_LACKING = tuple(c.name for c in _REQUIRED.columns[1:])


def _deleted() -> ChangeBatch:
    """A delete of which the log has the key only, as with the default replica identity."""
    row = {"id": 7, **dict.fromkeys(_LACKING)}
    return replace(batch(_REQUIRED, [_change("d", row, None)]), absent_before=_LACKING)


def test_not_null_columns_that_an_old_row_lacks_are_debeziums() -> None:
    value = json.loads(_FORMAT_PRECISE.to_messages(_deleted(), 0)["value"][0].as_py())
    point = {"x": 0.0, "y": 0.0, "wkb": "AQEAAAAAAAAAAAAAAAAAAAAAAAAA", "srid": None}
    assert value["before"] == {
        "id": 7,
        "t": "",
        "d": 0.0,
        "p": "AA==",
        "y": "",
        "b": False,
        "at": "1970-01-01T00:00:00Z",
        "dot": point,
        "maybe": None,
    }


@pytest.mark.parametrize("encoding", ["avro", "protobuf"])
def test_records_of_a_delete_need_its_key_only(encoding: Literal["avro", "protobuf"]) -> None:
    made = key_value_format(Envelopes(Topics("pre"), "postgresql"), encoding, encoding)
    deleted = _deleted()
    schemas = made.schemas(deleted.table)
    ids = {schema.reference: number for number, schema in enumerate(schemas, 1)}
    value = made.messages(deleted, 1000, ids)["value"][0].as_py()
    if encoding == "avro":
        found = fastavro.schemaless_reader(io.BytesIO(value[5:]), json.loads(schemas[1].text))
        before = found["before"]
        assert before == {
            "id": 7,
            "t": "",
            "d": 0.0,
            "p": Decimal("0.00"),
            "y": b"",
            "b": False,
            "at": "1970-01-01T00:00:00Z",
            "dot": {"x": 0.0, "y": 0.0, "wkb": b"\x01\x01" + bytes(19), "srid": None},
            "maybe": None,
        }
    else:
        assert b"1970-01-01T00:00:00Z" in value


@pytest.mark.parametrize("encoding", ["avro", "protobuf"])
def test_an_unknown_value_is_a_placeholder_in_records_too(encoding: Literal["avro", "protobuf"]) -> None:
    made = key_value_format(Envelopes(Topics("pre"), "postgresql"), encoding, encoding)
    shape = TableSchema(_REQUIRED.id, (_REQUIRED.columns[0], _REQUIRED.columns[1]), ("id",))
    known = replace(batch(shape, [_change("u", None, {"id": 7, "t": None})]), absent_after=("t",))
    ids = {schema.reference: number for number, schema in enumerate(made.schemas(shape), 1)}
    assert b"__debezium_unavailable_value" in made.messages(known, 1000, ids)["value"][0].as_py()


def test_a_value_that_records_cannot_omit_is_refused_with_postgres_remedy() -> None:
    made = key_value_format(Envelopes(Topics("pre"), "postgresql"), "avro", "avro")
    shape = TableSchema(_REQUIRED.id, (_REQUIRED.columns[0], _REQUIRED.columns[2]), ("id",))
    known = replace(batch(shape, [_change("u", None, {"id": 7, "d": None})]), absent_after=("d",))
    ids = {schema.reference: number for number, schema in enumerate(made.schemas(shape), 1)}
    with pytest.raises(SinkError, match=r'ALTER TABLE "public"."required" REPLICA IDENTITY FULL'):
        made.messages(known, 1000, ids)


@pytest.mark.parametrize("encoding", ["avro", "protobuf"])
def test_long_decimals_are_written_in_records(encoding: Literal["avro", "protobuf"]) -> None:
    type_ = ColumnType(Kind.STRING, "numeric", precision=500, scale=2)
    shape = TableSchema(_REQUIRED.id, (Column("n", type_),))
    made = key_value_format(Envelopes(Topics("pre"), "postgresql"), encoding, encoding)
    schemas = made.schemas(shape)
    ids = {schema.reference: number for number, schema in enumerate(schemas, 1)}
    text = "9" * 498 + ".25"
    created = batch(shape, [_change("c", None, {"n": text})])
    value = made.messages(created, 0, ids)["value"][0].as_py()
    unscaled = int(text.replace(".", ""))
    digits = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big")
    at = value.index(digits)
    if encoding == "protobuf":  # the message: a length, field 1 with a length, precision 500, scale 2
        closing = b"\x10\xf4\x03\x18\x02"
        inner = b"\x0a" + _varint(len(digits)) + digits + closing
        assert _varint(len(inner)) + inner in value
    else:
        assert value[at - 2 : at] == _varint(2 * len(digits))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize("encoding", ["avro", "protobuf"])
def test_records_say_where_a_change_comes_from(encoding: Literal["avro", "protobuf"]) -> None:
    envelopes = Envelopes(Topics("pre"), "postgresql", version="1.0", database="the shop")
    made = key_value_format(envelopes, encoding, encoding)
    batch = next(b for b in decoder().feed(stream("binary")) if b.table.id.table == "toast")
    ids = {schema.reference: number for number, schema in enumerate(made.schemas(batch.table), 1)}
    value = made.messages(batch, 1000, ids)["value"][0].as_py()
    assert b"postgresql" in value
    assert sequences(batch)[0].as_py().encode() in value
    assert b"the shop" in value

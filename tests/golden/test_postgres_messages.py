"""Debezium's messages of the recorded PostgreSQL stream."""

from __future__ import annotations

import json
from typing import Any, Literal

import pyarrow as pa
import pytest

from tailrace.errors import SinkError
from tailrace.formats.assemble import key_value_format
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.postgres import placeholder
from tailrace.formats.connect.source_block import sequences
from tailrace.formats.connect.topics import Topics
from tailrace.formats.connect.value_modes import converted
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.model.types import ColumnType, Kind
from tests.golden.postgres.recorded import SCHEMAS, decoder, stream

_FORMAT = DebeziumFormat(
    Envelopes(Topics("pre"), "postgresql", "1.0", Modes(decimal="string"), database="shop")
)
_NUMERIC = ColumnType(Kind.STRING, "numeric")


def _messages(table: str) -> list[tuple[Any, Any, Any]]:
    out = []
    known = decoder(schema_of=lambda id_: SCHEMAS.get(id_.table))
    for batch in known.feed(stream("binary")):
        if batch.table.id.table == table:
            made = _FORMAT.to_messages(batch, 1000)
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
        "n": "NaN",
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
        "ts": 9223372036825200000,
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
        (ColumnType(Kind.LIST, "_int4", element=ColumnType(Kind.INTEGER, "int4", bits=32)), None),
        (_NUMERIC, None),
    ],
)
def test_the_placeholder_is_of_the_columns_type(type_: ColumnType, expected: str | None) -> None:
    assert placeholder(type_) == expected


@pytest.mark.parametrize(
    ("native", "values", "expected"),
    [
        ("numeric", ["0", "-1.50", "12345678901234567890"], None),
        ("hstore", ['"a"=>"1", "b \\"c"=>NULL', ""], ['{"a":"1","b \\"c":null}', "{}"]),
        ("interval", ["PT-0.5S", "P-1DT1H", "PT0S", "infinity"], [-500000, -82800000000, 0, 2**63 - 1]),
        ("bit", ["10110", "000000001"], [b"\x16", b"\x01\x00"]),
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
            '{"scale":2,"value":"/2o="}',
            '{"scale":0,"value":"AKtUqYzrHwrS"}',
        ]
    assert listed == [*expected, None]


def test_a_numeric_that_is_no_number_has_no_precise_form() -> None:
    with pytest.raises(SinkError, match=r"set decimal-handling-mode: string or double"):
        converted(pa.array(["NaN"]), _NUMERIC, Modes())


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

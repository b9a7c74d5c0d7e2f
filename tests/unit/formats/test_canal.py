import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.formats.assemble import JsonEncoding, KeyValueFormat
from tailrace.formats.canal import CanalEncoding
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.plaintext import as_text
from tailrace.formats.connect.sql_types import declared_type, jdbc_code
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tests.unit.formats.changes import ORDERS, batch, change
from tests.unit.formats.samples import TYPES_ROWS, TYPES_TABLE

KEYS = DebeziumFormat(Envelopes(Topics("app")))
CANAL = CanalEncoding(KEYS)
A, B = {"id": 1, "name": "a"}, {"id": 2, "name": None}
PRODUCTS = TableSchema(
    TableId("inventory", "products"),
    (
        Column("id", ColumnType(Kind.INTEGER, "int", bits=32), nullable=False),
        Column("name", ColumnType(Kind.STRING, "varchar", length=255)),
        Column("weight", ColumnType(Kind.FLOAT, "float")),
    ),
    ("id",),
)


def values(changes, now_ms=1_800_000_000_000):
    made = CANAL.values(changes, now_ms, {})
    made.validate(full=True)
    return [json.loads(v) for v in made.to_pylist()]


def test_update_is_the_message_of_canals_documentation():
    before = {"id": 111, "name": "scooter", "weight": 5.15}
    changes = batch(
        PRODUCTS, [change("u", before, {**before, "weight": 5.18}, ts_us=1_589_373_560_000_000, pos=9)]
    )
    [text] = CANAL.values(changes, 1_589_373_560_798, {}).to_pylist()
    assert json.loads(text) == {
        "data": [{"id": "111", "name": "scooter", "weight": "5.18"}],
        "database": "inventory",
        "es": 1589373560000,
        "gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23",
        "id": 9,
        "isDdl": False,
        "mysqlType": {"id": "int", "name": "varchar(255)", "weight": "float"},
        "old": [{"weight": "5.15"}],
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": 4, "name": 12, "weight": 7},
        "table": "products",
        "ts": 1589373560798,
        "type": "UPDATE",
    }
    assert list(json.loads(text)) == sorted(json.loads(text))


def test_rows_of_inserts_snapshots_and_deletes_have_no_old_values():
    made = values(batch(ORDERS, [change("c", None, A), change("d", B)]))
    assert [(m["type"], m["data"], m["old"]) for m in made] == [
        ("INSERT", [{"id": "1", "name": "a"}], None),
        ("DELETE", [{"id": "2", "name": None}], None),
    ]
    assert [m["type"] for m in values(batch(ORDERS, [change("r", None, A)]))] == ["INSERT"]


def test_old_holds_what_changed_and_nothing_else():
    changes = [
        change("u", A, {**A, "name": None}),
        change("u", {**A, "name": None}, A),
        change("u", A, A),
        change("u", {**A, "name": 'say "hi"'}, A),
    ]
    assert [m["old"] for m in values(batch(ORDERS, changes))] == [
        [{"name": "a"}],
        [{"name": None}],
        [{}],
        [{"name": 'say "hi"'}],
    ]


def test_values_of_every_type_are_texts():
    first, second, third = TYPES_ROWS
    made = values(batch(TYPES_TABLE, [change("c", None, row) for row in (first, second, third)]))
    [one], [two], [three] = (m["data"] for m in made)
    assert {k: v for k, v in one.items() if not k.endswith("_or_null")} == {
        "i8": "-128",
        "i16": "-300",
        "i32": "-2147483648",
        "u32": "0",
        "i64": "-9223372036854775808",
        "u64": "18446744073709551615",
        "f32": "0.1",
        "f64": "0.1",
        "small": "-0.01",
        "dec": "1000000000000000000000000000.0000000000",
        "big": "-" + "9" * 65,
        "text": first["text"],
        "bin": "\x00ÿ",
        "bool": "1",
        "bits": "3841",
        "day": "1969-12-31",
        "ms": "1900-01-01 00:00:00.000",
        "us": "2026-01-01 00:00:00.000001",
        "at": "2026-01-02 03:04:05.678",
        "took": "-838:00:00",
        "year": "1901",
        "json": '{"a": 1}',
        "geo": first["geo"].decode("latin-1"),
        "point": first["point"].decode("latin-1"),
        "vec": "[1,-0.5,1e-30]",
        "enum": "a",
        "set": "a,b",
    }
    assert (two["took"], two["vec"], two["bits"], two["bool"]) == ("00:00:59", "[]", "128", "0")
    assert all(three[k] is None for k in three if k.endswith("_or_null"))
    assert one["geo_or_null"] == one["geo"]


@given(st.lists(st.none() | st.binary(max_size=20), max_size=8), st.integers(0, 3))
@settings(max_examples=60)
def test_bytes_are_the_characters_of_their_numbers(items, skipped):
    table = TableSchema(TableId("d", "t"), (Column("v", ColumnType(Kind.BYTES, "blob")),))
    changes = batch(table, [change("c", None, {"v": v}) for v in items]).slice(min(skipped, len(items)))
    expected = [v if v is None else v.decode("latin-1") for v in items[skipped:]]
    assert [m["data"][0]["v"] for m in values(changes)] == expected


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (ColumnType(Kind.INTEGER, "bigint", bits=64, unsigned=True), "bigint unsigned"),
        (ColumnType(Kind.DECIMAL, "decimal", precision=10, scale=2), "decimal(10,2)"),
        (ColumnType(Kind.STRING, "varchar", length=20), "varchar(20)"),
        (ColumnType(Kind.STRING, "text", length=65535), "text"),
        (ColumnType(Kind.DATETIME, "datetime", fraction=6), "datetime(6)"),
        (ColumnType(Kind.DATETIME, "datetime", fraction=0), "datetime"),
        (ColumnType(Kind.BITS, "bit", bits=12), "bit(12)"),
        (ColumnType(Kind.ENUM, "enum", labels=("it's", "b")), "enum('it''s','b')"),
    ],
)
def test_types_are_named_as_declared(type_, text):
    assert declared_type(type_) == text


def test_columns_that_the_log_left_out_are_left_out():
    update = [change("u", {"id": 1, "name": "a"}, {"id": None, "name": "b"})]
    [message] = values(replace(batch(ORDERS, update), absent_after=("id",)))
    assert (message["data"], message["old"]) == ([{"id": "1", "name": "b"}], [{"name": "a"}])
    changes = [
        change("u", {"id": 1, "name": None}, {"id": 1, "name": "b"}),
        change("d", {"id": 1, "name": None}),
    ]
    updated, deleted = values(replace(batch(ORDERS, changes), absent_before=("name",)))
    assert (updated["data"], updated["old"]) == ([{"id": "1", "name": "b"}], [{}])
    assert deleted["data"] == [{"id": "1"}]


def test_deletes_have_no_tombstones_and_keys_are_json():
    form = KeyValueFormat(Topics("app"), JsonEncoding(KEYS), CANAL)
    changes = batch(ORDERS, [change("c", None, A), change("d", A)])
    made = form.messages(changes, 5).to_pylist()
    assert [m["key"] for m in made] == [b'{"id":1}', b'{"id":1}']
    assert all(m["value"] for m in made)
    assert CANAL.keys(changes, {}).equals(JsonEncoding(KEYS).keys(changes, {}))


def test_table_without_a_key_has_no_names_of_one():
    [message] = values(batch(replace(ORDERS, key=()), [change("c", None, A)]))
    assert message["pkNames"] is None


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_a_code_of_jdbc(kind):
    assert isinstance(jdbc_code(ColumnType(kind, "x")), int)


def test_lists_are_texts_in_brackets():
    array = pa.array([[1, None], [], None, [2]], pa.list_(pa.int32())).slice(1)
    made = as_text(array, ColumnType(Kind.LIST, "_int4"))
    assert made.to_pylist() == ["[]", None, "[2]"]
    assert as_text(pa.array([[1, None]]), ColumnType(Kind.LIST, "_int4")).to_pylist() == ["[1,null]"]

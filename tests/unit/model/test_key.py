"""Whether the key that a cursor is a value of still exists."""

from __future__ import annotations

import json

import pytest

from tailrace.model.key import key_changed, key_from_json, key_of, key_to_json
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind

INT = ColumnType(Kind.INTEGER, "int", bits=32)
TEXT = ColumnType(Kind.STRING, "varchar", length=20, collation="utf8mb4_bin")
PRICE = ColumnType(Kind.DECIMAL, "decimal", precision=10, scale=2)
MOMENT = ColumnType(Kind.DATETIME, "datetime", fraction=3)


def schema(*columns, key=("k",)):
    return TableSchema(TableId("shop", "t"), tuple(Column(n, t) for n, t in columns), key)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (INT, ColumnType(Kind.INTEGER, "bigint", bits=64)),
        (
            ColumnType(Kind.INTEGER, "int", bits=32, unsigned=True),
            ColumnType(Kind.INTEGER, "bigint", bits=64),
        ),
        (TEXT, ColumnType(Kind.STRING, "varchar", length=40, collation="utf8mb4_bin")),
        (TEXT, ColumnType(Kind.STRING, "text", collation="utf8mb4_bin")),
        (TEXT, ColumnType(Kind.STRING, "varchar", length=20)),  # of the log, which names no collation
        (PRICE, ColumnType(Kind.DECIMAL, "decimal", precision=12, scale=3)),
        (MOMENT, ColumnType(Kind.DATETIME, "datetime", fraction=6)),
    ],
)
def test_wider_type_keeps_the_key_and_a_narrower_one_does_not(old, new):
    assert key_changed(key_of(schema(("k", old))), schema(("k", new))) is None
    if new.collation or new.kind is not Kind.STRING:
        assert key_changed(key_of(schema(("k", new))), schema(("k", old))) is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (INT, TEXT),
        (INT, ColumnType(Kind.INTEGER, "int", bits=32, unsigned=True)),
        (TEXT, ColumnType(Kind.STRING, "varchar", length=20, collation="utf8mb4_general_ci")),
        (TEXT, ColumnType(Kind.STRING, "uuid")),
        (PRICE, ColumnType(Kind.DECIMAL, "decimal", precision=40, scale=2)),  # text in Arrow
        (ColumnType(Kind.BYTES, "binary", length=4), ColumnType(Kind.BYTES, "varbinary", length=8)),
    ],
)
def test_type_or_collation_with_another_order_ends_the_key(old, new):
    error = key_changed(key_of(schema(("k", old))), schema(("k", new)))
    assert error is not None
    assert error.table == "shop.t"
    assert f"(k {old.native}" in error.detail
    assert f"now (k {new.native}" in error.detail


def test_further_keys_do_not_end_the_key_and_its_index_does():
    columns = ("k", INT), ("id", INT)
    old, new = schema(*columns), schema(*columns, key=("id",))
    assert key_changed(key_of(old), new, [("id",), ("k",)]) is None
    assert "now (id int)" in key_changed(key_of(old), new, [("id",)]).detail
    assert "now has no key" in key_changed(key_of(old), schema(*columns, key=()), []).detail


def test_key_survives_its_stored_form():
    key = key_of(schema(("k", TEXT), ("p", PRICE), key=("k", "p")))
    again = key_from_json(json.loads(json.dumps(key_to_json(key))))
    assert [(c.name, c.type, c.type.collation) for c in again] == [
        (c.name, c.type, c.type.collation) for c in key
    ]

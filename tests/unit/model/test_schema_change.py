"""Schema changes travel in offsets."""

from __future__ import annotations

import json

import pytest

from tailrace.enumerator.offset import StreamOffset
from tailrace.model.schema_change import (
    KINDS,
    ColumnAdded,
    ColumnAltered,
    ColumnDropped,
    ColumnRenamed,
    KeyAltered,
    RowsRewritten,
    SchemaEvent,
    TableCreated,
    TableDropped,
    TableRenamed,
    TableTruncated,
    of_table,
    schema_events,
)
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind

INT = ColumnType(Kind.INTEGER, "int", bits=32)
TEXT = ColumnType(Kind.STRING, "varchar", length=20, collation="utf8mb4_bin")
CHANGES = (
    ColumnAdded(Column("a", INT), "5"),
    ColumnDropped("b"),
    ColumnRenamed("c", "d"),
    ColumnAltered(Column("e", INT), Column("e", TEXT, nullable=False)),
    KeyAltered(("a",), ("a", "b")),
    TableCreated(),
    TableDropped(),
    TableRenamed("shop.other"),
    TableTruncated(),
    RowsRewritten("partition exchanged"),
)
AFTER = TableSchema(TableId("shop", "t"), (Column("a", INT),), ("a",))
EVENTS = (
    SchemaEvent("shop.t", CHANGES, "ALTER TABLE t ...", "0001", 1_700_000_000_000, AFTER),
    SchemaEvent("shop.u", (TableCreated(),)),
)


def test_an_offset_holds_schema_changes() -> None:
    offset = StreamOffset(mode="initial", log={"file": "b.1"}, schema=EVENTS)
    text = json.dumps(offset.to_json())
    assert StreamOffset.from_json(json.loads(text)) == offset
    assert tuple(schema_events(json.loads(text))) == EVENTS


def test_an_offset_without_schema_changes_does_not_mention_them() -> None:
    assert "schema" not in StreamOffset(mode="initial", log={"file": "b.1"}).to_json()
    assert schema_events(None) == schema_events({"v": 1}) == []


def test_every_kind_is_covered() -> None:
    assert {change.kind for change in CHANGES} == KINDS.keys()


def test_changes_of_one_table() -> None:
    assert of_table(EVENTS, "shop.u") == [TableCreated()]
    assert of_table(EVENTS, "shop.v") == []


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(KeyError):
        SchemaEvent.from_json({"table": "shop.t", "changes": [{"kind": "unheard.of"}]})

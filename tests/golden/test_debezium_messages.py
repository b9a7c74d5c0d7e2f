"""Whole messages against files written by hand from Debezium 3.6's documentation and sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tests.unit.formats.changes import batch, change

#: The table of Debezium's tutorial.
CUSTOMERS = TableSchema(
    TableId("inventory", "customers"),
    (
        Column("id", ColumnType(Kind.INTEGER, "int", bits=32), nullable=False),
        *(
            Column(name, ColumnType(Kind.STRING, "varchar", length=255), nullable=False)
            for name in ("first_name", "last_name", "email")
        ),
    ),
    ("id",),
)
BEFORE = {"id": 1004, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
AFTER = {**BEFORE, "first_name": "Anne Marie"}
ORIGIN = {
    "ts_us": 1465581029100000,
    "txn": None,
    "file": "mysql-bin.000003",
    "pos": 484,
    "server_id": 223344,
    "thread": 7,
}
NOW_MS = 1465581029523


@pytest.mark.parametrize("schemas", [False, True], ids=["payload", "schema"])
@pytest.mark.parametrize(
    ("name", "op", "before", "after"),
    [("create", "c", None, BEFORE), ("update", "u", BEFORE, AFTER), ("delete", "d", AFTER, None)],
)
def test_message_equals_the_recorded_one(name, op, before, after, schemas):
    form = DebeziumFormat(Envelopes(Topics("mysql-server-1"), version="3.6.1.Final"), schemas)
    messages = form.to_messages(batch(CUSTOMERS, [change(op, before, after, **ORIGIN)]), NOW_MS)
    expected = json.loads((Path(__file__).parent / "debezium" / f"{name}.json").read_text())
    for part in ("key", "value"):
        wanted = expected[part] if schemas else expected[part]["payload"]
        # byte for byte, in the order of the file
        text = json.dumps(wanted, separators=(",", ":"))
        assert messages.column(part)[0].as_py().decode() == text
    assert messages.column("topic")[0].as_py() == "mysql-server-1.inventory.customers"

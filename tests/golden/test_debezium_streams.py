"""The streams beside the data, against messages written by hand from Debezium 3.6's documentation."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pytest

from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.side_topics import SchemaChangeEvent, SideStreams
from tailrace.formats.debezium.transactions import Transaction, counts, merged
from tailrace.model.cell import decode_cell, encode_cell
from tailrace.model.table import TableId, TableSchema
from tests.golden.test_debezium_messages import CUSTOMERS
from tests.support.proto import as_dict, message_class
from tests.unit.formats.changes import ID, NAME, ORDERS, ORIGIN_ROW, batch, change
from tests.unit.formats.samples import TYPES_TABLE

ENVELOPES = Envelopes(Topics("mysql-server-1"), version="3.6.1.Final")
ORIGIN = {
    "ts_us": 1465581029100000,
    "txn": None,
    "file": "mysql-bin.000003",
    "pos": 219,
    "row": 0,
    "server_id": 223344,
    "thread": 7,
}
TXN = Transaction("0e4d5dcd-a33b-11ea-80f1-02010a22a99e:10", 1486500577125, (("s1.a", 1), ("s2.a", 2)))
CHANGE = SchemaChangeEvent(CUSTOMERS, "CREATE", ORIGIN, ddl="CREATE TABLE customers (...)")


def made(stream, of, ids=None):
    """A stream's messages of the sample."""
    ids = ids or {}
    match stream:
        case "transaction":
            return of.transactions([TXN], ids)
        case "heartbeat":
            return of.heartbeat(1_700_000_000_000, ids)
        case _:
            return of.schema_changes([CHANGE], 1465581029523, ids)


STREAMS = ["transaction", "heartbeat", "schema_change"]


@pytest.mark.parametrize("schemas", [False, True], ids=["payload", "schema"])
@pytest.mark.parametrize("stream", STREAMS)
def test_messages_equal_the_recorded_ones(stream, schemas):
    expected = json.loads((Path(__file__).parent / "debezium" / f"{stream}.json").read_text())
    messages = made(stream, SideStreams(ENVELOPES, json_schemas=schemas)).to_pylist()
    assert {m["topic"] for m in messages} == {expected["topic"]}
    assert len(messages) == len(expected["messages"])
    for message, wanted in zip(messages, expected["messages"], strict=True):
        for part in ("key", "value"):
            value = json.loads(message[part])
            if schemas:
                assert value["schema"]["name"] == expected[part]
                assert [f["field"] for f in value["schema"]["fields"]] == list(wanted[part])
                value = value["payload"]
            # the order of fields counts too
            assert json.dumps(value) == json.dumps(wanted[part])


@pytest.mark.parametrize("encoding", ["avro", "protobuf"])
@pytest.mark.parametrize("stream", STREAMS)
def test_registered_encodings_say_the_same(stream, encoding):
    of = SideStreams(ENVELOPES, encoding)
    schemas = of.schemas(stream)
    topic = of.topic(stream)
    assert [s.subject for s in schemas] == [f"{topic}-key", f"{topic}-value"]
    ids = {s.reference: 3 + i for i, s in enumerate(schemas)}
    plain = made(stream, SideStreams(ENVELOPES)).to_pylist()
    for message, expected in zip(made(stream, of, ids).to_pylist(), plain, strict=True):
        for i, part in enumerate(("key", "value")):
            data, wanted = message[part], json.loads(expected[part])
            assert data[:5] == bytes([0, 0, 0, 0, 3 + i])
            if encoding == "avro":
                parsed = fastavro.parse_schema(json.loads(schemas[i].text))
                assert fastavro.schemaless_reader(io.BytesIO(data[5:]), parsed) == wanted
            else:
                assert data[5:6] == b"\0"
                read = as_dict(message_class(schemas[i].text).FromString(data[6:]))
                assert read == _without_null_lists(wanted, read)


def _without_null_lists(value, read):
    """Protobuf has no list that is null."""
    if isinstance(read, dict):
        return {k: _without_null_lists(value[k], read[k]) for k in read}
    if isinstance(read, list):
        return [_without_null_lists(v, r) for v, r in zip(value or [], read, strict=True)]
    return value


def test_schema_changes_of_every_type_can_be_written():
    change_ = SchemaChangeEvent(TYPES_TABLE, "ALTER", ORIGIN, snapshot=True)
    [message] = SideStreams(ENVELOPES).schema_changes([change_], 5).to_pylist()
    value = json.loads(message["value"])
    assert (value["source"]["snapshot"], value["ddl"]) == ("true", None)
    columns = {c["name"]: c for c in value["tableChanges"][0]["table"]["columns"]}
    assert columns["enum"]["enumValues"] == ["'a'", "'b'"]
    assert (columns["dec"]["length"], columns["dec"]["scale"]) == (38, 10)
    assert columns["u32"]["typeName"] == "INT UNSIGNED"
    assert (columns["bits"]["length"], columns["us"]["length"]) == (12, 6)


def test_transactions_are_counted_across_cells_and_tables():
    other = TableSchema(TableId("shop", "items"), (ID, NAME), ("id",))
    row = {"id": 1, "name": "a"}

    def changed(seq, txn, ts_us=5_000_000):
        return change("c", None, row, seq=seq, txn=txn, ts_us=ts_us)

    parts = [
        counts(batch(other, [changed("03", "t:1"), changed("09", "t:2", 7_000_000)])),
        counts(batch(ORDERS, [changed("01", "t:1"), changed("02", "t:1")])),
        counts(batch(ORDERS, [changed("04", "t:1"), changed("05", None)])),
        counts(batch(ORDERS, [change("r", None, row, seq="10", txn="t:3")])),
        counts(decode_cell(encode_cell(batch(ORDERS, [changed("08", "t:2", 7_000_000)])))),
    ]
    assert merged(parts) == [
        Transaction("t:1", 5_000, (("shop.items", 1), ("shop.orders", 3))),
        Transaction("t:2", 7_000, (("shop.items", 1), ("shop.orders", 1))),
    ]
    assert merged([]) == []


def test_counts_of_a_batch_are_one_row_per_transaction():
    [row] = counts(batch(ORDERS, [change("c", None, {"id": 1, "name": None})] * 3)).to_pylist()
    assert row == {
        "id": ORIGIN_ROW["txn"],
        "seq": ORIGIN_ROW["seq"],
        "ts_us": ORIGIN_ROW["ts_us"],
        "collection": "shop.orders",
        "events": 3,
    }

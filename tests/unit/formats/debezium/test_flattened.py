import io
import json
from dataclasses import replace

import fastavro
import pytest

from tailrace.config.flat_fields import added_fields
from tailrace.errors import ConfigError, SinkError
from tailrace.formats.assemble import key_value_format
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.flattened import Flat, FlatAvroEncoding, FlatEncoding
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.model.change import OP_DELETE
from tailrace.model.messages import MESSAGES
from tests.unit.formats.changes import ORDERS, batch, change, placed
from tests.unit.formats.samples import TYPES_ROWS, TYPES_TABLE

A, B = {"id": 1, "name": "a"}, {"id": 2, "name": None}
CHANGES = [
    change("c", None, A),
    change("u", A, {**A, "name": "b"}),
    change("d", {**A, "name": "b"}),
    change("c", None, B),
]
NOW = 1_800_000_000_000


def messages(changes, flat=None, connector="mysql", prefix="__", add=()):
    flat = flat or Flat(added_fields(add, prefix))
    envelopes = Envelopes(Topics("app"), connector)
    made = key_value_format(envelopes, "json", "flat-json", flat=flat).messages(changes, NOW)
    made.validate(full=True)
    return [(m["key"], m["value"] and json.loads(m["value"])) for m in made.to_pylist()]


def test_value_is_the_row_and_a_delete_is_its_tombstone():
    assert messages(batch(ORDERS, CHANGES)) == [
        (b'{"id":1}', A),
        (b'{"id":1}', {"id": 1, "name": "b"}),
        (b'{"id":1}', None),
        (b'{"id":2}', B),
    ]


@pytest.mark.parametrize("has_tombstones", [False, True])
def test_rewritten_delete_is_the_row_that_was_deleted(has_tombstones):
    flat = Flat(added_fields(["op"], "__"), has_rows_of_deletes=True, has_tombstones=has_tombstones)
    made = messages(batch(ORDERS, CHANGES), flat)
    tombstone = [(b'{"id":1}', None)] if has_tombstones else []
    assert made == [
        (b'{"id":1}', {**A, "__deleted": "false", "__op": "c"}),
        (b'{"id":1}', {"id": 1, "name": "b", "__deleted": "false", "__op": "u"}),
        (b'{"id":1}', {"id": 1, "name": "b", "__deleted": "true", "__op": "d"}),
        *tombstone,
        (b'{"id":2}', {**B, "__deleted": "false", "__op": "c"}),
    ]


@pytest.mark.parametrize("ops", ["d", "c", "r"])
def test_batches_of_one_operation_have_their_rows(ops):
    changes = batch(ORDERS, [change(ops, *((A, None) if ops == "d" else (None, A)))])
    flat = Flat(has_rows_of_deletes=True)
    assert messages(changes, flat) == [(b'{"id":1}', {**A, "__deleted": str(ops == "d").lower()})]


def test_columns_of_every_type_are_those_of_the_envelope():
    changes = [change("c", None, row) for row in TYPES_ROWS] + [change("d", row) for row in TYPES_ROWS]
    changes = batch(TYPES_TABLE, changes)
    envelopes = DebeziumFormat(Envelopes(Topics("app"))).values(changes, NOW)
    flat = FlatEncoding(DebeziumFormat(Envelopes(Topics("app"))), Flat(has_rows_of_deletes=True))
    for envelope, row in zip(envelopes.to_pylist(), flat.values(changes, NOW, {}).to_pylist(), strict=True):
        whole, found = json.loads(envelope), json.loads(row)
        found.pop("__deleted")
        assert found == (whole["before"] or whole["after"])


@pytest.mark.parametrize("connector", ["mysql", "postgresql"])
def test_added_fields_are_those_of_the_envelope(connector):
    common = ["version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "ts_us", "ts_ns"]
    own = {"mysql": ["table", "server_id", "gtid", "file", "pos", "row", "thread", "query"]}
    fields = [
        *common,
        *own.get(connector, ["schema", "table", "txId", "lsn", "xmin", "origin", "origin_lsn"]),
    ]
    origin = {} if connector == "mysql" else {"txn": "730", "file": ""}
    changes = batch(ORDERS, [change(op, before, after, **origin) for op, before, after, _ in CHANGES])
    form = DebeziumFormat(Envelopes(Topics("app"), connector))
    add = ["op", "ts_ms", *(f"source.{f}" for f in fields)]
    flat = FlatEncoding(form, Flat(added_fields(add, "__"), has_rows_of_deletes=True))
    envelopes = [json.loads(v) for v in form.values(changes, NOW).to_pylist()]
    rows = [json.loads(v) for v in flat.values(changes, NOW, {}).to_pylist()]
    assert set(fields) == set(envelopes[0]["source"])
    for whole, row in zip(envelopes, rows, strict=True):
        assert (row["__op"], row["__ts_ms"]) == (whole["op"], whole["ts_ms"])
        assert {f: row[f"__source_{f}"] for f in fields} == whole["source"]


def test_added_fields_have_the_names_that_are_given():
    add = ["table", "source.ts_ms", "pos:at", "total_order", "transaction.id:txn", "data_collection_order"]
    changes = placed(batch(ORDERS, CHANGES[:2]), [(7, 3), None])
    [first, second] = [row for _, row in messages(changes, add=add, prefix="_x_")]
    assert {name: value for name, value in first.items() if name not in A} == {
        "_x_table": "orders",
        "_x_source_ts_ms": 1_700_000_000_123,
        "_x_at": 200,
        "_x_total_order": 7,
        "_x_txn": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23",
        "_x_data_collection_order": 3,
    }
    assert (second["_x_total_order"], second["_x_data_collection_order"]) == (None, None)


def test_unchanged_column_that_postgresql_omits_is_the_placeholder():
    changes = batch(ORDERS, [change("u", A, {"id": 1, "name": None}, txn="7", file="")])
    changes = replace(changes, absent_after=("name",))
    assert messages(changes, connector="postgresql") == [
        (b'{"id":1}', {"id": 1, "name": "__debezium_unavailable_value"})
    ]


def test_key_update_keeps_its_headers():
    pair = [change("d", A, seq="0" * 31 + "4"), change("c", None, B, seq="0" * 31 + "5")]
    made = key_value_format(Envelopes(Topics("app")), "json", "flat-json").messages(batch(ORDERS, pair), NOW)
    assert [h["key"] for m in made.to_pylist() for h in m["headers"]] == [
        "__debezium.newkey",
        "__debezium.oldkey",
    ]
    assert [m["value"] for m in made.to_pylist()] == [None, b'{"id":2,"name":null}']


def test_logical_messages_keep_their_envelope():
    sent = {"lsn": 5, "transactional": True, "prefix": "a", "content": b"x"}
    changes = batch(MESSAGES, [change("c", None, sent, txn="7", file="")])
    envelopes = Envelopes(Topics("app"), "postgresql")
    flat = key_value_format(envelopes, "json", "flat-json", flat=Flat(added_fields(["op"], "__")))
    assert flat.schemas(MESSAGES) == ()
    assert flat.messages(changes, NOW).equals(DebeziumFormat(envelopes).to_messages(changes, NOW))
    avro_keys = key_value_format(envelopes, "avro", "flat-json")
    with pytest.raises(SinkError, match="logical messages can only be written in JSON"):
        avro_keys.schemas(MESSAGES)


def test_slices_are_written_as_the_whole():
    changes = batch(ORDERS, CHANGES)
    assert messages(changes.slice(2)) == messages(changes)[2:]
    assert changes.slice(2).op[0].as_py() == OP_DELETE


def test_column_with_the_name_of_an_added_field_is_an_error():
    with pytest.raises(SinkError, match=r"column `name` of table `shop\.orders`") as found:
        messages(batch(ORDERS, CHANGES), add=["source.name:name"], prefix="")
    assert found.value.code == "TR-7005"


def test_field_of_another_database_is_refused():
    with pytest.raises(ConfigError, match="names a field that no message has"):
        messages(batch(ORDERS, CHANGES), add=["lsn"])


@pytest.mark.parametrize("has_rows_of_deletes", [False, True])
def test_avro_has_the_rows_of_json(has_rows_of_deletes):
    fields = added_fields(["op", "source.pos", "before.name:old", "after.geo"], "__")
    flat = Flat(fields, has_rows_of_deletes=has_rows_of_deletes)
    envelopes = Envelopes(Topics("app"))
    of = FlatAvroEncoding(envelopes, flat)
    schema = of.value_schema(ORDERS)
    assert schema.subject == "app.shop.orders-value"
    made = of.values(batch(ORDERS, CHANGES), NOW, {schema.reference: 7}).to_pylist()
    reader = fastavro.parse_schema(json.loads(schema.text))
    rows = [None if m is None else fastavro.schemaless_reader(io.BytesIO(m[5:]), reader) for m in made]
    assert rows == [value for _, value in messages(batch(ORDERS, CHANGES), flat)]
    assert {m[:5] for m in made if m is not None} == {b"\0\0\0\0\7"}


def test_headers_are_those_of_the_change_and_of_its_tombstone():
    fields = added_fields(["op", "before.name", "after.nothing"], "_")
    flat = Flat(headers=fields, has_rows_of_deletes=True, has_tombstones=True)
    made = key_value_format(Envelopes(Topics("app")), "json", "flat-json", flat=flat, headers={"a": "b"})
    found = made.messages(batch(ORDERS, CHANGES), NOW).to_pylist()
    headers = [[(h["key"], h["value"]) for h in m["headers"]] for m in found]
    assert headers == [
        [("_op", b'"c"'), ("_before_name", b"null"), ("a", b"b")],
        [("_op", b'"u"'), ("_before_name", b'"a"'), ("a", b"b")],
        [("_op", b'"d"'), ("_before_name", b'"b"'), ("a", b"b")],
        [("_op", b'"d"'), ("a", b"b")],
        [("_op", b'"c"'), ("_before_name", b"null"), ("a", b"b")],
    ]


def test_list_cannot_be_an_added_field():
    with pytest.raises(SinkError, match=r"column `vec` of table .* cannot be added") as found:
        messages(batch(TYPES_TABLE, [change("c", None, TYPES_ROWS[0])]), add=["after.vec"])
    assert found.value.code == "TR-7614"

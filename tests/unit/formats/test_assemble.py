import json

import pytest

from tailrace.config.model import RouteRule
from tailrace.formats.assemble import JsonEncoding, KeyValueFormat, key_value_format
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.model.table import TableId, TableSchema
from tailrace.sinks.route import Router
from tests.unit.formats.changes import ID, NAME, ORDERS, batch, change

A, B = {"id": 1, "name": "a"}, {"id": 2, "name": None}
CHANGES = [
    change("c", None, A),
    change("u", A, {**A, "name": "b"}),
    change("d", A, seq="0" * 31 + "4"),
    change("c", None, B, seq="0" * 31 + "5"),
    change("d", B),
]
FORM = DebeziumFormat(Envelopes(Topics("app")))


def json_format(tombstones=True, topics=None):
    encoding = JsonEncoding(FORM)
    return KeyValueFormat(topics or Topics("app"), encoding, encoding, tombstones)


@pytest.mark.parametrize("table", [ORDERS, TableSchema(ORDERS.id, (ID, NAME))], ids=["key", "no key"])
def test_assembled_messages_are_those_of_the_debezium_shape(table):
    changes = batch(table, CHANGES)
    assert json_format().messages(changes, 5).equals(FORM.to_messages(changes, 5))


def test_snapshot_rows_are_assembled_alike():
    changes = batch(ORDERS, [change("r", None, A), change("r", None, B)])
    assert json_format().messages(changes, 5).equals(FORM.to_messages(changes, 5))


def test_tombstones_can_be_left_out():
    made = json_format(tombstones=False).messages(batch(ORDERS, CHANGES), 5).to_pylist()
    assert [json.loads(m["value"])["op"] for m in made] == ["c", "u", "d", "c", "d"]
    assert [[h["key"] for h in m["headers"] or ()] for m in made] == [
        [],
        [],
        ["__debezium.newkey"],
        ["__debezium.oldkey"],
        [],
    ]


def test_json_needs_no_schemas_registered():
    assert json_format().schemas(ORDERS) == ()


def test_topics_are_named_as_debezium_names_them():
    topics = Topics("app")
    assert topics.topic(TableId("my shop", "größe")) == "app.my_shop.gr__e"
    assert (topics.transaction, topics.schema_change) == ("app.transaction", "app")
    assert topics.heartbeat == "__debezium-heartbeat.app"


def test_tables_with_one_target_share_topic_and_schemas():
    shards = [TableSchema(TableId("shop", f"orders_{i}"), (ID, NAME), ("id",)) for i in range(2)]
    topics = Topics("app", Router([RouteRule(r"shop\.orders_\d", "all.orders")]))
    assert topics.topic(ORDERS.id) == "app.shop.orders"
    for encoding in ("avro", "protobuf"):
        first, second = (key_value_format(Envelopes(topics), encoding, encoding).schemas(s) for s in shards)
        assert first == second
        assert [s.subject for s in first] == ["app.all.orders-key", "app.all.orders-value"]
        assert "shop" not in "".join(s.text for s in first)
    form = DebeziumFormat(Envelopes(topics), schemas=True)
    [made] = form.to_messages(batch(shards[0], [change("c", None, A)]), 5).to_pylist()
    assert made["topic"] == "app.all.orders"
    assert json.loads(made["key"])["schema"]["name"] == "app.all.orders.Key"
    value = json.loads(made["value"])
    assert value["schema"]["name"] == "app.all.orders.Envelope"
    assert value["payload"]["source"]["table"] == "orders_0"


def test_options_name_the_format():
    envelopes = Envelopes(Topics("app"))
    changes = batch(ORDERS, CHANGES)
    plain = key_value_format(envelopes, "json", "debezium-json").messages(changes, 5)
    assert plain.equals(DebeziumFormat(envelopes).to_messages(changes, 5))
    canal = key_value_format(envelopes, "json", "canal-json")
    made = canal.messages(changes, 5).to_pylist()
    assert [json.loads(m["value"])["type"] for m in made] == [
        "INSERT",
        "UPDATE",
        "DELETE",
        "INSERT",
        "DELETE",
    ]
    mixed = key_value_format(envelopes, "json", "avro", tombstones=False)
    assert [s.subject for s in mixed.schemas(ORDERS)] == ["app.shop.orders-value"]
    ids = {mixed.schemas(ORDERS)[0].reference: 5}
    made = mixed.messages(changes, 5, ids).to_pylist()
    assert len(made) == len(CHANGES)
    assert (made[0]["key"], made[0]["value"][:5]) == (b'{"id":1}', b"\0\0\0\0\5")
    both = key_value_format(envelopes, "protobuf", "protobuf").schemas(ORDERS)
    assert [(s.subject, s.type) for s in both] == [
        ("app.shop.orders-key", "PROTOBUF"),
        ("app.shop.orders-value", "PROTOBUF"),
    ]

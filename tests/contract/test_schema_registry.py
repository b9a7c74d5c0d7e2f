"""Messages through a real registry: what a consumer with nothing but the registry can read."""

from __future__ import annotations

import io
import json
import urllib.request

import fastavro
import pytest

from tailrace.errors import SinkError
from tailrace.formats.assemble import KeyValueFormat
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.encodings.avro import AvroEncoding
from tailrace.formats.encodings.protobuf import ProtobufEncoding
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.kafka.schema_registry import RegistryAccess, SchemaRegistry
from tests.support.proto import as_dict, message_class
from tests.unit.formats.changes import ID, NAME, batch, change
from tests.unit.formats.samples import TYPES_TABLE


def ask(registry, path, method="GET", **body):
    data = json.dumps(body).encode() if body else None
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(registry.url + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def table(name, *columns):
    return TableSchema(TableId("shop", name), (ID, NAME, *columns), ("id",))


def avro(prefix):
    of = AvroEncoding(Envelopes(Topics(prefix)))
    return KeyValueFormat(Topics(prefix), of, of)


def protobuf(prefix):
    of = ProtobufEncoding(Envelopes(Topics(prefix)))
    return KeyValueFormat(Topics(prefix), of, of)


def read_avro(schema, message):
    assert schema.get("schemaType", "AVRO") == "AVRO"
    return fastavro.schemaless_reader(
        io.BytesIO(message), fastavro.parse_schema(json.loads(schema["schema"]))
    )


def read_protobuf(schema, message):
    assert schema["schemaType"] == "PROTOBUF"
    assert message[:1] == b"\0"
    return as_dict(message_class(schema["schema"]).FromString(message[1:]))


@pytest.mark.parametrize(("make", "read"), [(avro, read_avro), (protobuf, read_protobuf)])
def test_consumer_reads_messages_with_the_schemas_of_the_registry(registry, make, read):
    form, orders = make(f"read-{make.__name__}"), table("orders")
    ids = SchemaRegistry(RegistryAccess(registry.url)).ids(form.schemas(orders))
    made = form.messages(batch(orders, [change("c", None, {"id": 1, "name": "a"})]), 5, ids).to_pylist()
    key, value = (
        read(ask(registry, f"/schemas/ids/{int.from_bytes(data[1:5], 'big')}"), data[5:])
        for data in (made[0]["key"], made[0]["value"])
    )
    assert key == {"id": 1}
    assert (value["after"], value["op"]) == ({"id": 1, "name": "a"}, "c")


@pytest.mark.parametrize("make", [avro, protobuf])
def test_schemas_of_every_type_are_taken(registry, make):
    form = make(f"types-{make.__name__}")
    ids = SchemaRegistry(RegistryAccess(registry.url)).ids(form.schemas(TYPES_TABLE))
    assert len(ids) == 2


def test_ids_are_the_same_for_a_replayed_batch(registry):
    schemas = avro("replay").schemas(table("orders"))
    first, second = (SchemaRegistry(RegistryAccess(registry.url)).ids(schemas) for _ in range(2))
    assert first == second


def test_column_that_is_added_is_a_compatible_change(registry):
    form = avro("added")
    ask(registry, "/config", "PUT", compatibility="BACKWARD")
    try:
        schemas = SchemaRegistry(RegistryAccess(registry.url))
        ids = schemas.ids(form.schemas(table("orders")))
        more = schemas.ids(form.schemas(table("orders", Column("note", ColumnType(Kind.STRING, "text")))))
    finally:
        ask(registry, "/config", "PUT", compatibility="NONE")
    assert set(ids) & set(more) == {s.reference for s in form.schemas(table("orders"))[:1]}


def test_incompatible_change_is_refused_until_it_is_allowed(registry):
    form, subject = avro("strict"), "strict.shop.orders-value"
    schemas = SchemaRegistry(RegistryAccess(registry.url))
    schemas.ids(form.schemas(table("orders")))
    ask(registry, f"/config/{subject}", "PUT", compatibility="BACKWARD")
    required = Column("price", ColumnType(Kind.INTEGER, "int", bits=32), nullable=False)
    changed = form.schemas(table("orders", required))
    with pytest.raises(SinkError, match=f"refuses the new schema of subject `{subject}`") as error:
        schemas.ids(changed)
    assert "`before.price` added (int)" in error.value.detail
    ask(registry, f"/config/{subject}", "PUT", compatibility="NONE")
    assert len(schemas.ids(changed)) == 2

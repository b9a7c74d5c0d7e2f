import pytest

from tailrace.errors import SinkError
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.encodings.protobuf import ProtobufEncoding, encode, proto_text
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tests.support.proto import as_dict, message_class
from tests.unit.formats.changes import ID, NAME, ORDERS, batch, change
from tests.unit.formats.decoded import assert_says_the_same, registered
from tests.unit.formats.samples import TYPES_ROWS, TYPES_TABLE

A, B = {"id": 1, "name": "a"}, {"id": 2, "name": None}
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def encoding(modes=None):
    return ProtobufEncoding(Envelopes(Topics("app"), modes=modes or Modes()))


def read(schema, message, id_):
    """A message as Google's library reads it by the registered schema."""
    assert message[:6] == b"\0" + id_.to_bytes(4, "big") + b"\0"
    return as_dict(message_class(schema.text).FromString(message[6:]))


def as_protobuf(schema, value):
    """What can be said in Protobuf of a Connect value: no null lists, decimals as messages."""
    if schema["type"] == "array":
        return [] if value is None else [as_protobuf(schema["items"], v) for v in value]
    if value is None:
        return None
    if schema["type"] == "struct":
        return {f["field"]: as_protobuf(f, value[f["field"]]) for f in schema["fields"]}
    if schema.get("name") == DECIMAL:
        parameters = schema["parameters"]
        precision, scale = (int(parameters[p]) for p in ("connect.decimal.precision", "scale"))
        return {"value": value, "precision": precision, "scale": scale}
    return value


def check(changes, modes=None):
    assert_says_the_same(encoding(modes), changes, read, as_protobuf)


def test_not_null_columns_of_every_type_hold_their_values():
    first, second, third = TYPES_ROWS
    changes = [change("r", None, first), change("u", first, second), change("d", third)]
    check(batch(TYPES_TABLE, changes))


def test_table_without_a_key_has_null_keys():
    table = TableSchema(ORDERS.id, (ID, NAME))
    assert encoding().key_schema(table) is None
    assert encoding().keys(batch(table, [change("c", None, A)]), {}).to_pylist() == [None]


def test_missing_value_of_a_not_null_column_is_refused():
    changes = batch(ORDERS, [change("c", None, {"id": None, "name": "a"})])
    of = encoding()
    with pytest.raises(SinkError, match=r"column `id` of table `shop.orders` is NOT NULL"):
        of.values(changes, 0, registered(of, ORDERS))


def test_schema_is_proto3_with_messages_where_they_are_needed_first():
    text = encoding().value_schema(ORDERS).text
    assert text.startswith('syntax = "proto3";\npackage app.shop.orders;\n\nmessage Envelope {\n')
    assert "  optional Value before = 1;\n  optional Value after = 2;\n  Source source = 3;\n" in text
    assert "  message Value {\n    int64 id = 1;\n    optional string name = 2;\n  }\n" in text
    assert "import" not in text


def test_decimals_are_confluents_and_small_integers_keep_their_connect_type():
    text = encoding().value_schema(TYPES_TABLE).text
    assert 'import "confluent/type/decimal.proto";' in text
    assert '{ key: "precision", value: "10" }, { key: "scale", value: "2" }' in text
    descriptor = message_class(text).DESCRIPTOR.nested_types_by_name["Value"]
    options = descriptor.fields_by_name["i8"].GetOptions().SerializeToString()
    assert options.endswith(b"\n\x0cconnect.type\x12\x05int16")


def test_message_is_not_called_like_a_field_beside_it():
    columns = (
        ID,
        Column("Point", ColumnType(Kind.GEOMETRY, "point")),
        Column("p", ColumnType(Kind.GEOMETRY, "point")),
    )
    table = TableSchema(TableId("2shop", "places"), columns, ("id",))
    text = encoding().value_schema(table).text
    assert "optional PointMessage Point = 2;" in text
    assert "optional PointMessage p = 3;" in text
    assert "package app._2shop.places;" in text
    message_class(text)


def test_dates_of_connect_are_refused():
    table = TableSchema(TableId("shop", "days"), (Column("day", ColumnType(Kind.DATE, "date")),))
    with pytest.raises(SinkError, match="cannot be encoded in Protobuf") as error:
        encoding(Modes(time="connect")).value_schema(table)
    assert "adaptive_time_microseconds" in error.value.hint


def test_single_messages_are_encoded_as_protobuf_reads_them():
    item = {
        "type": "struct",
        "name": "x.Item",
        "optional": True,
        "fields": [{"type": "string", "optional": False, "field": "n"}],
    }
    schema = {
        "type": "struct",
        "name": "x.Y",
        "optional": False,
        "fields": [
            {"type": "array", "items": item, "optional": True, "field": "a"},
            {"type": "boolean", "optional": False, "field": "b"},
            {"type": "double", "optional": True, "field": "c"},
            {"type": "int64", "optional": False, "field": "d"},
        ],
    }
    read_by = message_class(proto_text(schema))
    for value in (
        {"a": [{"n": "x"}, {"n": ""}], "b": True, "c": 1.5, "d": -(2**63)},
        {"a": [], "b": False, "c": None, "d": 300},
    ):
        message = encode(schema, value)
        assert message[:1] == b"\0"
        assert as_dict(read_by.FromString(message[1:])) == value

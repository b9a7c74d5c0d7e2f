import copy
import io
import json

import fastavro
import pytest

from tailrace.errors import SinkError
from tailrace.formats.assemble import KeyValueFormat
from tailrace.formats.connect import schemas
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.modes import Modes
from tailrace.formats.connect.names import adjusted
from tailrace.formats.connect.topics import Topics
from tailrace.formats.encodings import records
from tailrace.formats.encodings.avro import AvroEncoding, avro_schema, encode
from tailrace.model.cell import decode_cell, encode_cell
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tests.unit.formats.changes import ID, NAME, ORDERS, batch, change
from tests.unit.formats.decoded import assert_says_the_same, registered

TOPICS = Topics("app")
A, B = {"id": 1, "name": "a"}, {"id": 2, "name": None}


def encoding(modes=None, **settings):
    return AvroEncoding(Envelopes(TOPICS, modes=modes or Modes(), **settings))


def read(schema, message, id_):
    """A message's value, read by fastavro; logical types as they are on the wire."""
    assert message[:5] == b"\0" + id_.to_bytes(4, "big")
    stream = io.BytesIO(message[5:])
    plain = fastavro.parse_schema(_without_logical_types(json.loads(schema.text)))
    value = fastavro.schemaless_reader(stream, plain)
    assert stream.read() == b""
    return value


def _without_logical_types(schema):
    if isinstance(schema, dict):
        return {k: _without_logical_types(v) for k, v in schema.items() if k != "logicalType"}
    return [_without_logical_types(s) for s in schema] if isinstance(schema, list) else schema


def check(changes, modes=None):
    assert_says_the_same(encoding(modes), changes, read)


def test_table_without_a_key_has_null_keys():
    check(batch(TableSchema(ORDERS.id, (ID, NAME)), [change("c", None, A), change("d", B)]))


def test_zero_dates_of_not_null_columns_are_the_epoch():
    columns = (
        ID,
        Column("d", ColumnType(Kind.DATE, "date"), nullable=False),
        Column("t", ColumnType(Kind.INSTANT, "timestamp", fraction=0), nullable=False),
    )
    table = TableSchema(TableId("shop", "dates"), columns, ("id",))
    check(batch(table, [change("c", None, {"id": 1, "d": None, "t": None})]))


def test_missing_value_of_a_not_null_column_is_refused():
    changes = batch(ORDERS, [change("c", None, A), change("c", None, {"id": None, "name": "a"})])
    of = encoding()
    with pytest.raises(SinkError, match=r"column `id` of table `shop.orders` is NOT NULL") as error:
        of.values(changes, 0, registered(of, ORDERS))
    assert "binlog_row_image" in error.value.hint


def test_output_grows_as_needed(monkeypatch):
    class SmallOutput(records.Output):
        def __init__(self, expected):
            super().__init__(0)
            self._capacity = 40

    changes = batch(ORDERS, [change("u", {**A, "name": "x" * n}, B) for n in range(200)])
    of = encoding()
    expected = of.values(changes, 0, registered(of, ORDERS))
    monkeypatch.setattr(records, "Output", SmallOutput)
    assert of.values(changes, 0, registered(of, ORDERS)).equals(expected)


def test_cells_are_written_like_the_batch_they_hold():
    changes = batch(ORDERS, [change("c", None, A), change("u", A, B), change("d", B)])
    of = encoding()
    ids = registered(of, ORDERS)
    again = decode_cell(encode_cell(changes.slice(1)))
    assert of.values(again, 5, ids).equals(of.values(changes, 5, ids).slice(1))
    assert of.keys(again, ids).equals(of.keys(changes, ids).slice(1))


def test_schema_is_what_the_avro_converter_makes_of_the_connect_schema():
    schema = json.loads(encoding().value_schema(ORDERS).text)
    assert (schema["name"], schema["namespace"]) == ("Envelope", "app.shop.orders")
    assert schema["connect.name"] == "app.shop.orders.Envelope"
    assert schema["connect.version"] == 2
    before, after, source, *_ = schema["fields"]
    value = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"], "default": None},
        ],
        "connect.name": "app.shop.orders.Value",
    }
    assert before == {"name": "before", "type": ["null", value], "default": None}
    assert after == {"name": "after", "type": ["null", "Value"], "default": None}
    assert source["type"]["namespace"] == "io.debezium.connector.mysql"
    [snapshot] = [f for f in source["type"]["fields"] if f["name"] == "snapshot"]
    enum, null = snapshot["type"]
    assert (null, snapshot["default"], enum["connect.default"]) == ("null", "false", "false")
    assert enum["connect.parameters"]["allowed"].startswith("true,first,")


def test_decimals_are_avros_and_small_integers_keep_their_connect_type():
    columns = (
        Column("amount", ColumnType(Kind.DECIMAL, "decimal", precision=10, scale=2)),
        Column("tiny", ColumnType(Kind.INTEGER, "tinyint", bits=8), nullable=False),
    )
    table = TableSchema(TableId("shop", "sums"), columns)
    of = schemas.envelope_schema(table, "app.shop.sums", "mysql", Modes())
    amount, tiny = avro_schema(of)["fields"][0]["type"][1]["fields"]
    assert amount["type"][1] == {
        "type": "bytes",
        "scale": 2,
        "precision": 10,
        "connect.version": 1,
        "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "logicalType": "decimal",
    }
    assert tiny["type"] == {"type": "int", "connect.type": "int16"}


@pytest.mark.parametrize(
    ("strategy", "names"),
    [
        ("TopicNameStrategy", ("app.shop.orders-key", "app.shop.orders-value")),
        ("RecordNameStrategy", ("app.shop.orders.Key", "app.shop.orders.Envelope")),
        (
            "TopicRecordNameStrategy",
            ("app.shop.orders-app.shop.orders.Key", "app.shop.orders-app.shop.orders.Envelope"),
        ),
    ],
)
def test_subjects_are_named_by_confluents_strategies(strategy, names):
    of = encoding(subjects=strategy)
    form = KeyValueFormat(TOPICS, of, of)
    assert tuple(s.subject for s in form.schemas(ORDERS)) == names


def test_schema_that_was_not_registered_is_named():
    with pytest.raises(SinkError, match=r"subject `app.shop.orders-value` was not registered"):
        encoding().values(batch(ORDERS, [change("c", None, A)]), 0, {})


def test_illegal_names_become_legal_as_in_debezium():
    columns = (
        Column("größe (m)", ColumnType(Kind.INTEGER, "int", bits=32)),
        Column("2nd", ColumnType(Kind.INTEGER, "int", bits=32)),
    )
    table = TableSchema(TableId("my-shop", "t"), columns, ("2nd",))
    schema = json.loads(encoding().value_schema(table).text)
    assert schema["namespace"] == "app.my_shop.t"
    assert [f["name"] for f in schema["fields"][0]["type"][1]["fields"]] == ["gr__e__m_", "_2nd"]
    row = {"größe (m)": 1, "2nd": 2}
    of = encoding()
    made = of.values(batch(table, [change("c", None, row)]), 0, registered(of, table))
    assert read(of.value_schema(table), made[0].as_py(), 8)["after"] == {"gr__e__m_": 1, "_2nd": 2}


def test_columns_whose_names_become_one_are_refused():
    columns = tuple(Column(n, ColumnType(Kind.INTEGER, "int", bits=32)) for n in ("a b", "a_b"))
    table = TableSchema(TableId("shop", "t"), columns)
    with pytest.raises(SinkError, match=r"columns `a b` and `a_b` would both be called `a_b`"):
        encoding().value_schema(table)


def test_adjusting_leaves_the_schema_it_is_given():
    schema = schemas.envelope_schema(ORDERS, "my-app.shop.orders", "mysql", Modes())
    before = copy.deepcopy(schema)
    assert adjusted(schema)["name"] == "my_app.shop.orders.Envelope"
    assert schema == before


def test_single_values_are_encoded_as_avro_reads_them():
    schema = {
        "type": "struct",
        "name": "x.Y",
        "optional": False,
        "fields": [
            {"type": "array", "items": {"type": "string", "optional": False}, "optional": True, "field": "a"},
            {"type": "boolean", "optional": False, "field": "b"},
            {"type": "double", "optional": True, "field": "c"},
            {"type": "int64", "optional": False, "field": "d"},
        ],
    }
    for value in (
        {"a": ["x", "yy"], "b": True, "c": 1.5, "d": -(2**63)},
        {"a": [], "b": False, "c": None, "d": 2**63 - 1},
    ):
        parsed = fastavro.parse_schema(avro_schema(schema))
        assert fastavro.schemaless_reader(io.BytesIO(encode(schema, value)), parsed) == value

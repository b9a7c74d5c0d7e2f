import base64
import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.headers import context_of
from tailrace.formats.debezium.messages import DebeziumFormat, debezium_schema
from tailrace.model.cell import decode_cell, encode_cell
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tests.unit.formats.changes import ID, NAME, ORDERS, batch, change, placed

A, B = {"id": 1, "name": "a"}, {"id": 2, "name": None}
PLAIN, WITH_SCHEMA = (DebeziumFormat(Envelopes(Topics("app")), schemas) for schemas in (False, True))


def messages(changes, form=PLAIN, table=ORDERS):
    made = form.to_messages(batch(table, changes), 1_800_000_000_000)
    assert made.schema == debezium_schema()
    made.validate(full=True)
    return made.to_pylist()


def test_value_holds_the_change_and_where_it_comes_from():
    [message] = messages([change("u", A, B, row=3)])
    assert message["topic"] == "app.shop.orders"
    assert message["key"] == b'{"id":2}'
    assert message["partition"] is None
    assert message["headers"] is None
    value = json.loads(message["value"])
    assert list(value) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert (value["before"], value["after"], value["op"]) == (A, B, "u")
    assert value["source"]["ts_ns"] == 1_700_000_000_123_456_000
    assert value["source"]["row"] == 3
    assert value["ts_us"] == 1_800_000_000_000_000


def test_delete_is_followed_by_a_tombstone_with_the_same_key():
    made = messages([change("c", None, A), change("d", A), change("c", None, B)])
    assert [m["key"] for m in made] == [b'{"id":1}', b'{"id":1}', b'{"id":1}', b'{"id":2}']
    assert [m["value"] is None for m in made] == [False, False, True, False]
    assert json.loads(made[1]["value"])["before"] == A
    assert json.loads(made[1]["value"])["after"] is None
    assert [m["headers"] for m in made] == [None] * 4


@pytest.mark.parametrize("form", [PLAIN, WITH_SCHEMA], ids=["payload", "schema"])
def test_halves_of_a_key_update_name_the_other_key(form):
    changes = [
        change("d", A, seq="0" * 31 + "2"),
        change("d", A, seq="0" * 31 + "4"),
        change("c", None, B, seq="0" * 31 + "5"),
        change("c", None, A, seq="0" * 31 + "6"),
    ]
    made = messages(changes, form)
    old, new = made[2]["key"], made[4]["key"]
    assert old != new
    newkey, oldkey = (
        [{"key": "__debezium.newkey", "value": new}],
        [{"key": "__debezium.oldkey", "value": old}],
    )
    assert [m["headers"] for m in made] == [None, None, newkey, newkey, oldkey, None]


def headers(changes, form, **absent):
    made = form.to_messages(replace(batch(ORDERS, changes), **absent), 0).to_pylist()
    return [[(h["key"], json.loads(h["value"])) for h in m["headers"] or ()] for m in made]


def test_headers_name_the_columns_that_the_log_left_out():
    before, after = ("__tailrace.absent.before", ["name"]), ("__tailrace.absent.after", ["id", "name"])
    changes = [change("c", None, A), change("u", A, B), change("d", A)]
    absent = {"absent_before": ("name",), "absent_after": ("id", "name")}
    assert headers(changes, PLAIN, **absent) == [[after], [before, after], [before], [before]]
    assert headers(changes, PLAIN, absent_before=("name",)) == [[], [before], [before], [before]]
    [[(name, value)], *_] = headers(changes, WITH_SCHEMA, **absent)
    assert name == "__tailrace.absent.after"
    items = {"type": "string", "optional": False}
    assert value == {
        "schema": {"type": "array", "items": items, "optional": False},
        "payload": ["id", "name"],
    }


def test_context_headers_come_between_the_other_key_and_absent_columns():
    form = DebeziumFormat(Envelopes(Topics("app"), "mariadb"), context=context_of("app", "mariadb", "9"))
    context = [
        ("__debezium.context.connectorLogicalName", "app"),
        ("__debezium.context.taskId", "0"),
        ("__debezium.context.connectorName", "mariadb"),
        ("__debezium.context.runId", "9"),
    ]
    changes = [
        change("d", A, seq="0" * 31 + "4"),
        change("c", None, B, seq="0" * 31 + "5"),
        change("r", None, A, seq="0" * 31 + "6"),
    ]
    new = ("__debezium.newkey", {"id": 2})
    old = ("__debezium.oldkey", {"id": 1})
    absent = ("__tailrace.absent.after", ["name"])
    assert headers(changes, form, absent_after=("name",)) == [
        [new, *context],
        [new, *context],
        [old, *context, absent],
        context,
    ]


def test_half_of_a_key_update_without_the_other_has_no_header():
    made = messages([change("d", B, seq="0" * 31 + "2"), change("c", None, A, seq="0" * 31 + "5")])
    assert [m["headers"] for m in made] == [None] * 3


def test_delete_and_create_in_one_place_without_odd_seq_are_no_key_update():
    made = messages([change("d", B, seq="0" * 30 + "10"), change("c", None, A, seq="0" * 30 + "12")])
    assert [m["headers"] for m in made] == [None] * 3


def test_table_without_key_has_null_keys():
    made = messages([change("c", None, A), change("d", A)], table=TableSchema(ORDERS.id, ORDERS.columns))
    assert [m["key"] for m in made] == [None, None, None]


def test_key_has_the_keys_columns_in_key_order():
    table = TableSchema(ORDERS.id, (ID, NAME), ("name", "id"))
    assert messages([change("u", A, A)], table=table)[0]["key"] == b'{"name":"a","id":1}'


def test_schemas_name_the_topic_and_the_types():
    value = json.loads(messages([change("u", A, B)], WITH_SCHEMA)[0]["value"])
    assert list(value) == ["schema", "payload"]
    assert value["schema"]["name"] == "app.shop.orders.Envelope"
    fields = {f["field"]: f for f in value["schema"]["fields"]}
    assert list(fields) == list(value["payload"])
    assert [f["field"] for f in fields["source"]["fields"]] == list(value["payload"]["source"])
    assert fields["before"]["fields"] == [
        {"type": "int64", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "name"},
    ]


def test_rows_read_by_a_select_are_marked_as_snapshot():
    made = messages([change("r", None, A), change("c", None, A)])
    assert [json.loads(m["value"])["source"]["snapshot"] for m in made] == ["true", "false"]


def test_unknown_origins_are_null_only_where_debezium_allows_it():
    [message] = messages([change("r", None, A, ts_us=0, txn=None, thread=None, server_id=None)])
    source = json.loads(message["value"])["source"]
    assert (source["gtid"], source["thread"], source["server_id"], source["ts_ms"]) == (None, None, 0, 0)


def test_topic_has_only_the_characters_that_kafka_allows():
    form = DebeziumFormat(Envelopes(Topics("app")))
    assert form.topic(TableId("my db", "grüße$-.x")) == "app.my_db.gr__e_-.x"
    assert len(form.topic(TableId("d" * 200, "t" * 200))) == 249


def test_output_grows_until_every_message_fits():
    wild = "\x01" * 3000  # every byte becomes six
    rows = [{"id": i, "name": wild} for i in range(40)]
    table = TableSchema(ORDERS.id, (ID, NAME), ("id", "name"))
    made = messages([c for r in rows for c in (change("u", r, r), change("d", r))], table=table)
    assert len(made) == 120
    for i, row in enumerate(rows):
        updated, deleted, tombstone = made[3 * i : 3 * i + 3]
        assert json.loads(updated["key"]) == json.loads(tombstone["key"]) == row
        assert json.loads(updated["value"])["after"] == json.loads(deleted["value"])["before"] == row


def test_slices_and_cells_make_the_same_messages():
    changes = batch(
        ORDERS,
        [change("c", None, A), change("d", A), change("u", A, B), change("r", None, B), change("d", B)],
    )
    made = PLAIN.to_messages(changes, 0)
    assert PLAIN.to_messages(changes.slice(1, 3), 0).equals(made.slice(1, 4))
    assert PLAIN.to_messages(decode_cell(encode_cell(changes.slice(2))), 0).equals(made.slice(3))


def test_empty_batch_makes_no_messages():
    assert messages([]) == []


def test_format_survives_pickling_since_spark_carries_it_to_tasks():
    import pickle

    assert pickle.loads(pickle.dumps(WITH_SCHEMA)) == WITH_SCHEMA


INSTANTS = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2038, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001
WALL = st.datetimes(dt.datetime(1000, 1, 1), dt.datetime(9999, 12, 31))  # noqa: DTZ001
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)

#: Name, type, values, and what a reader makes of the JSON value. Every kind of the model is here.
TYPES = {
    "i8": (ColumnType(Kind.INTEGER, "tinyint", bits=8), st.integers(-128, 127), None),
    "i16": (ColumnType(Kind.INTEGER, "smallint", bits=16), st.integers(-(2**15), 2**15 - 1), None),
    "i32": (ColumnType(Kind.INTEGER, "int", bits=32), st.integers(-(2**31), 2**31 - 1), None),
    "i64": (ColumnType(Kind.INTEGER, "bigint", bits=64), st.integers(-(2**63), 2**63 - 1), None),
    "u64": (
        ColumnType(Kind.INTEGER, "bigint", bits=64, unsigned=True),
        st.integers(0, 2**64 - 1).map(Decimal),
        lambda v: Decimal(v % 2**64),
    ),
    "f32": (
        ColumnType(Kind.FLOAT, "float"),
        st.floats(width=32, allow_nan=False, allow_infinity=False),
        "f32",
    ),
    "f64": (ColumnType(Kind.DOUBLE, "double"), st.floats(allow_nan=False, allow_infinity=False), None),
    "dec": (
        ColumnType(Kind.DECIMAL, "decimal", precision=38, scale=10),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda i: Decimal(f"{i}E-10")),
        lambda v: Decimal(f"{int.from_bytes(base64.b64decode(v), 'big', signed=True)}E-10"),
    ),
    "big": (
        ColumnType(Kind.DECIMAL, "decimal", precision=65, scale=0),
        st.integers(-(10**65) + 1, 10**65 - 1).map(str),
        lambda v: str(int.from_bytes(base64.b64decode(v), "big", signed=True)),
    ),
    "text": (ColumnType(Kind.STRING, "text"), TEXT, None),
    "bin": (ColumnType(Kind.BYTES, "blob"), st.binary(max_size=40), base64.b64decode),
    "bool": (ColumnType(Kind.BOOLEAN, "bit"), st.booleans(), None),
    "bits": (
        ColumnType(Kind.BITS, "bit", bits=64),
        st.binary(min_size=8, max_size=8),
        lambda v: base64.b64decode(v)[::-1],
    ),
    "day": (
        ColumnType(Kind.DATE, "date"),
        st.dates(dt.date(1000, 1, 1)),
        lambda v: dt.date(1970, 1, 1) + dt.timedelta(days=v),
    ),
    "wall": (
        ColumnType(Kind.DATETIME, "datetime", fraction=6),
        WALL,
        lambda v: dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=v),  # noqa: DTZ001
    ),
    "at": (ColumnType(Kind.INSTANT, "timestamp", fraction=6), INSTANTS, dt.datetime.fromisoformat),
    "took": (
        ColumnType(Kind.TIME, "time", fraction=6),
        st.timedeltas(dt.timedelta(hours=-838), dt.timedelta(hours=838)),
        lambda v: dt.timedelta(microseconds=v),
    ),
    "year": (ColumnType(Kind.YEAR, "year"), st.integers(1901, 2155), None),
    "json": (ColumnType(Kind.JSON, "json"), TEXT.map(json.dumps), None),
    "geo": (
        ColumnType(Kind.GEOMETRY, "polygon"),
        st.binary(min_size=4, max_size=60),
        lambda v: (v["srid"] or 0).to_bytes(4, "little", signed=True) + base64.b64decode(v["wkb"]),
    ),
    "vec": (
        ColumnType(Kind.VECTOR, "vector", length=9),
        st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=9),
        lambda v: pa.array(v, pa.float64()).cast(pa.float32(), safe=False).to_pylist(),
    ),
    "enum": (ColumnType(Kind.ENUM, "enum", labels=("a", "b")), st.sampled_from("ab"), None),
    "set": (ColumnType(Kind.SET, "set", labels=("a", "b")), st.sampled_from(["", "a", "b", "a,b"]), None),
}
EVERYTHING = TableSchema(
    TableId("shop", "everything"),
    tuple(Column(n, t) for n, (t, _, _) in TYPES.items()),
    ("i32", "text"),
)
IMAGES = st.fixed_dictionaries({n: st.none() | values for n, (_, values, _) in TYPES.items()})


def test_the_property_covers_every_kind():
    assert {t.kind for t, _, _ in TYPES.values()} == set(Kind) - {Kind.LIST}  # which is PostgreSQL's


def decoded(image):
    if image is None:
        return None
    out = {}
    for name, value in image.items():
        read = TYPES[name][2]
        if value is None or read is None:
            out[name] = value
        elif read == "f32":
            out[name] = pa.scalar(value, pa.float64()).cast(pa.float32(), safe=False).as_py()
        else:
            out[name] = read(value)
    return out


@given(
    st.lists(st.tuples(st.sampled_from("rcud"), IMAGES, IMAGES), max_size=6),
    st.booleans(),
    st.integers(0, 2),
)
@settings(deadline=None, max_examples=60)
def test_every_message_parses_and_holds_the_values_of_the_batch(rows, schemas, skipped):
    changes = [change(op, b if op in "ud" else None, None if op == "d" else a) for op, b, a in rows]
    skipped = min(skipped, len(changes))
    form = DebeziumFormat(Envelopes(Topics("app")), schemas)
    made = form.to_messages(batch(EVERYTHING, changes).slice(skipped), 0).to_pylist()
    at = 0
    for op, before, after, _ in changes[skipped:]:
        key, value = json.loads(made[at]["key"]), json.loads(made[at]["value"])
        if schemas:
            key, value = key["payload"], value["payload"]
        assert value["op"] == op
        assert decoded(value["before"]) == before
        assert decoded(value["after"]) == after
        shown = before if op == "d" else after
        assert decoded(key) == {name: shown[name] for name in EVERYTHING.key}
        at += 1
        if op == "d":
            assert made[at]["value"] is None
            assert made[at]["key"] == made[at - 1]["key"]
            at += 1
    assert at == len(made)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
@settings(deadline=None, max_examples=100)
def test_doubles_are_the_shortest_text_that_reads_back(values):
    table = TableSchema(TableId("d", "t"), (Column("v", TYPES["f64"][0]),), ("v",))
    keys = [m["key"] for m in messages([change("c", None, {"v": v}) for v in values], table=table)]
    for value, key in zip(values, keys, strict=True):
        text = key[len('{"v":') : -1].decode()
        assert float(text) == value
        significant = lambda t: len(t.lower().partition("e")[0].strip("-").replace(".", "").strip("0"))  # noqa: E731
        # Java shows two digits of the smallest numbers
        assert significant(text) <= max(2, significant(repr(value)))


def test_place_in_a_transaction_is_told_where_it_is_known():
    changes = placed(batch(ORDERS, [change("c", None, A), change("u", A, A, txn=None)]), [(3, 2), None])
    for copy in (changes, decode_cell(encode_cell(changes)), changes.take(pa.array([0, 1]))):
        told = [json.loads(m["value"]) for m in PLAIN.to_messages(copy, 5).to_pylist()]
        id_ = "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"
        assert told[0]["transaction"] == {"id": id_, "total_order": 3, "data_collection_order": 2}
        assert told[1]["transaction"] is None
        assert list(told[0]) == list(told[1])

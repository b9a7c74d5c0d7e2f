"""Events of an outbox, against what Debezium's EventRouter documents."""

import json
from datetime import UTC, datetime

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.config.outbox import (
    ConnectConverter,
    InvalidOperation,
    MissingColumn,
    NullFields,
    OutboxSettings,
)
from tailrace.errors import ConfigError, SinkError
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.headers import context_of
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.debezium.outbox import Outbox, event_schema
from tailrace.model.types import ColumnType, Kind
from tests.support.changes import BIGINT, TEXT, changes, table

JSON = ColumnType(Kind.JSON, "json")
BYTES = ColumnType(Kind.BYTES, "varbinary", length=100)
STAMP = ColumnType(Kind.DATETIME, "datetime", fraction=6)
TABLE = table(
    ("id", TEXT),
    ("aggregatetype", TEXT),
    ("aggregateid", TEXT),
    ("type", TEXT),
    ("payload", TEXT),
    ("version", BIGINT),
    ("created", STAMP),
    key=("id",),
    name="shop.outbox",
)


def row(id_="e1", payload='{"a": 1}', **more):
    return {
        "id": id_,
        "aggregatetype": "order",
        "aggregateid": "7",
        "type": "OrderCreated",
        "payload": payload,
        "version": 3,
        "created": datetime(2026, 1, 2, 3, 4, 5, 678_900, UTC),
        **more,
    }


def outbox(context=None, **given):
    return Outbox(
        DebeziumFormat(Envelopes(Topics("p")), context=context), OutboxSettings(("shop.*",), **given)
    )


def events(rows, schema=TABLE, **given):
    made = outbox(**given).messages(changes(schema, [("c", None, r) for r in rows]))
    made.validate(full=True)
    assert made.schema == event_schema()
    return made.to_pylist()


def value(payload, **given):
    (event,) = events([row(payload=payload)], **given)
    return event["value"]


def test_event_has_topic_key_value_and_id_of_its_columns():
    (event,) = events([row()])
    assert event == {
        "topic": "outbox.event.order",
        "key": b"7",
        "value": b'{"a": 1}',
        "headers": [{"key": "id", "value": b"e1"}],
        "partition": None,
        "timestamp": None,
    }


def test_columns_have_the_names_that_are_set():
    other = table(("n", BIGINT), ("kind", TEXT), ("ref", BIGINT), ("body", BYTES), key=("n",), name="shop.o")
    rows = [
        {"n": 5, "kind": "a.b", "ref": -12, "body": b"\0\xff"},
        {"n": 6, "kind": "c", "ref": None, "body": b""},
    ]
    made = events(
        rows,
        other,
        table_field_event_id="n",
        table_field_event_key="ref",
        table_field_event_payload="body",
        route_by_field="kind",
        route_topic_regex=r"(?<x>[a-z])(\..*)?",
        route_topic_replacement="t-${x}$2",
    )
    assert [(e["topic"], e["key"], e["value"], e["headers"][0]["value"]) for e in made] == [
        ("t-a.b", b"-12", b"\0\xff", b"5"),
        ("t-c", None, b"", b"6"),
    ]


def test_value_that_the_regex_does_not_match_is_the_topic():
    (event,) = events([row(aggregatetype="other")], route_topic_regex="(?<routedByValue>order.*)")
    assert event["topic"] == "other"


def test_further_columns_are_headers_or_fields_beside_the_payload():
    placed = ("type:header:eventType", "version:envelope", "type:envelope:kind", "version:header")
    (event,) = events([row()], table_fields_additional_placement=placed)
    assert event["headers"] == [
        {"key": "id", "value": b"e1"},
        {"key": "eventType", "value": b"OrderCreated"},
        {"key": "version", "value": b"3"},
    ]
    assert event["value"] == b'{"payload":"{\\"a\\": 1}","version":3,"kind":"OrderCreated"}'


def test_header_of_null_has_no_value():
    (event,) = events([row(type=None)], table_fields_additional_placement=("type:header",))
    assert event["headers"][1] == {"key": "type", "value": None}


def test_context_headers_stand_before_those_of_the_event():
    (event,) = events([row()], context=context_of("p", "mysql", "run"))
    names = [h["key"] for h in event["headers"]]
    assert names[0] == "__debezium.context.connectorLogicalName"
    assert names[-1] == "id"


@pytest.mark.parametrize(
    ("payload", "written"),
    [
        ('{"a": [1, null]}', b'{"a": [1, null]}'),
        ("[1]", b"[1]"),
        ("text", b'"text"'),
        ('{"a": ', b'"{\\"a\\": "'),
        ("[NaN]", b'"[NaN]"'),
        ("[" * 100_000, b'"' + b"[" * 100_000 + b'"'),
        (" {}", b'" {}"'),
        ("", b'""'),
        (None, None),
    ],
)
def test_json_in_text_is_expanded(payload, written):
    assert value(payload, table_expand_json_payload=True) == written


def test_json_of_a_json_column_is_expanded_beside_further_columns():
    columns = [(c.name, JSON if c.name == "payload" else c.type) for c in TABLE.columns]
    typed = table(*columns, key=("id",), name="shop.outbox")
    rows = [row(payload='{"a": 1}'), row(payload='"x"'), row(payload=None)]
    made = events(
        rows, typed, table_expand_json_payload=True, table_fields_additional_placement=("version:envelope",)
    )
    assert [json.loads(e["value"])["payload"] for e in made] == [{"a": 1}, '"x"', None]


def test_json_converters_quote_text():
    (event,) = events([row()], key_converter=ConnectConverter.JSON, value_converter=ConnectConverter.JSON)
    assert (event["key"], event["value"]) == (b'"7"', b'"{\\"a\\": 1}"')


@pytest.mark.parametrize("more", [{}, {"table_fields_additional_placement": ("version:envelope",)}])
def test_empty_payload_is_a_tombstone_if_that_is_set(more):
    rows = [row(payload=p) for p in (None, "", " \t\n\0", "x")]
    made = events(rows, route_tombstone_on_empty_payload=True, **more)
    assert [e["value"] is None for e in made] == [True, True, True, False]
    made = events(rows, **more)
    assert [e["value"] is None for e in made] == [not more, False, False, False]


def test_timestamp_is_that_of_a_column():
    rows = [row(), row(created=None)]
    expected = int(datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC).timestamp() * 1000)
    assert [e["timestamp"] for e in events(rows, table_field_event_timestamp="created")] == [expected, None]
    with pytest.raises(SinkError, match="is no timestamp") as refused:
        events(rows, table_field_event_timestamp="version")
    assert refused.value.code == "TR-7606"


@pytest.mark.parametrize("named", [None, "", "a b", "ü", "x" * 250])
def test_row_that_names_no_topic_is_an_error_of_its_own(named):
    box = outbox(route_topic_replacement="${routedByValue}")
    batch = changes(TABLE, [("c", None, row()), ("c", None, row(aggregatetype=named))])
    with pytest.raises(SinkError) as refused:
        box.messages(batch)
    assert refused.value.code == "TR-7607"
    assert box.topics(batch) == {"order"}


@pytest.mark.parametrize("named", ["__consumer_offsets", ".", ".."])
def test_topics_that_others_need_are_refused(named):
    box = outbox(route_topic_replacement="${routedByValue}")
    with pytest.raises(SinkError) as refused:
        box.messages(changes(TABLE, [("c", None, row(aggregatetype=named))]))
    assert refused.value.code == "TR-7607"


def test_inserted_and_selected_rows_are_events_and_no_others():
    batch = changes(
        TABLE,
        [("r", None, row()), ("c", None, row()), ("u", row(), row(aggregatetype="x")), ("d", row(), None)],
    )
    box = outbox()
    assert box.is_event(batch).tolist() == [True, True, False, False]
    assert box.is_invalid(batch).tolist() == [False, False, True, False]
    assert box.topics(batch) == {"outbox.event.order"}


def test_table_without_the_columns_is_an_error():
    with pytest.raises(SinkError, match="has no column `aggregateid`") as refused:
        outbox().check(table(("id", TEXT), ("payload", TEXT), key=("id",), name="shop.t"))
    assert refused.value.code == "TR-7606"


@pytest.mark.parametrize(
    "given",
    [
        {"tables": ()},
        {"tables": ("(",)},
        {"route_topic_regex": "("},
        {"route_topic_replacement": "${other}"},
        {"route_topic_replacement": "$2"},
        {"table_fields_additional_placement": ("type",)},
        {"table_fields_additional_placement": ("type:partition:p",)},
        {"table_fields_additional_placement": ("type:partition", "id:partition")},
        {"table_json_payload_null_behavior": NullFields.IGNORE},
        {"table_fields_additional_placement": ("type:header:id",)},
        {"table_fields_additional_placement": ("type:envelope:payload",)},
        {"table_expand_json_payload": True, "value_converter": ConnectConverter.STRING},
    ],
)
def test_settings_that_cannot_be_are_refused(given):
    with pytest.raises(ConfigError, match=r"`sink\.outbox"):
        OutboxSettings(**{"tables": ("shop.outbox",), **given})


def test_section_is_read_from_a_pipeline_file():
    text = """
source: {type: mysql, hostname: h, username: u, tables: 'shop.*'}
sink:
  type: kafka
  bootstrap-servers: b:9092
  topic-prefix: p
  outbox: {tables: 'shop[.]outbox', table-op-invalid-behavior: fatal, value-converter: json}
pipeline: {checkpoint: /c}
"""
    (sink,) = parse_pipeline(text).sinks
    assert sink.outbox == OutboxSettings(
        ("shop[.]outbox",),
        table_op_invalid_behavior=InvalidOperation.FATAL,
        value_converter=ConnectConverter.JSON,
    )
    with pytest.raises(ConfigError, match=r"at `sink\.outbox\.tables`"):
        parse_pipeline(text.replace("'shop[.]outbox'", "[]"))


def test_partition_is_that_of_a_column():
    place = {"table_fields_additional_placement": ("version:partition",)}
    made = events([row(), row(version=None)], **place)
    assert [event["partition"] for event in made] == [3, None]
    with pytest.raises(SinkError, match=r"column `version` of outbox .* names no partition") as refused:
        events([row(version=2**31)], **place)
    assert refused.value.code == "TR-7615"


def test_column_that_a_table_does_not_have_is_an_error_or_left_out():
    place = {
        "table_fields_additional_placement": ("nothing:header", "type:header", "no:envelope", "x:partition")
    }
    with pytest.raises(SinkError, match="has no column `nothing`"):
        events([row()], **place)
    (event,) = events([row()], **place, table_field_additional_missing=MissingColumn.IGNORE)
    assert [header["key"] for header in event["headers"]] == ["id", "type"]


@pytest.mark.parametrize(
    ("payload", "written"),
    [
        ('{"a": null, "b": {"c": null, "d": [], "e": 1.50}}', b'{"b":{"e":1.50}}'),
        ('[null, {"a": null}, 12345678901234567890123]', b"[null,{},12345678901234567890123]"),
        ('{"a": "\u00e4\\n", "b": true}', '{"a":"\u00e4\\n","b":true}'.encode()),
        ("no json", b'"no json"'),
    ],
)
def test_fields_that_are_null_are_left_out_if_that_is_set(payload, written):
    given = {"table_expand_json_payload": True, "table_json_payload_null_behavior": NullFields.IGNORE}
    assert value(payload, **given) == written

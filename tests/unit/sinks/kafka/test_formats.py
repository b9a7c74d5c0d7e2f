"""Headers that each message of a change has."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.config.kafka import KafkaSettings, ValueEncoding
from tailrace.config.load import parse_pipeline
from tailrace.config.outbox import OutboxSettings
from tailrace.errors import ConfigError
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tests.support.changes import INT, TEXT, changes, table

pytest.importorskip("confluent_kafka")

from tailrace.sinks.kafka.formats import division_of, message_format
from tests.unit.sinks.kafka.test_writer import key_update, row

ENVELOPES = Envelopes(Topics("p"))
CONSTANTS = [{"key": "origin", "value": b"shop"}, {"key": "x", "value": "\u00e9".encode()}]


def settings(**given: Any) -> KafkaSettings:
    return KafkaSettings("b:1", "p", headers={"origin": "shop", "x": "\u00e9"}, **given)


@pytest.mark.parametrize(
    "given", [{}, {"value_format": ValueEncoding.FLAT_JSON}, {"value_format": ValueEncoding.CANAL_JSON}]
)
def test_constant_headers_stand_behind_those_of_the_change(given: Any) -> None:
    made = message_format(settings(**given), ENVELOPES)
    for batch in (key_update(1, 2, 0), changes(key_update(1, 2, 0).table, [("c", None, row(5))])):
        messages = made.messages(batch, 0).to_pylist()
        assert messages
        for message in messages:
            assert message["headers"][-2:] == CONSTANTS
    first, *_ = made.messages(key_update(1, 2, 0), 0).to_pylist()
    assert [h["key"] for h in first["headers"]] == ["__debezium.newkey", "origin", "x"]


def test_events_of_an_outbox_have_them_too() -> None:
    columns = [(name, TEXT) for name in ("aggregatetype", "aggregateid", "payload")]
    schema = table(("id", INT), *columns, key=("id",))
    event = {"id": 1, "aggregatetype": "a", "aggregateid": "b", "payload": "c"}
    outbox = division_of(settings(outbox=OutboxSettings((".*",))), ENVELOPES).outbox
    assert outbox is not None
    (message,) = outbox.messages(changes(schema, [("c", None, event)])).to_pylist()
    assert message["headers"] == [{"key": "id", "value": b"1"}, *CONSTANTS]


@pytest.mark.parametrize(
    "headers",
    [{"__debezium.newkey": "x"}, {"__tailrace.a": "x"}, {"": "x"}, {"a\0b": "x"}, {"a": "${env:X}"}],
)
def test_names_and_values_that_cannot_be_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"at `sink\.headers`"):
        KafkaSettings("b:1", "p", headers=headers)


def test_section_is_read_from_a_pipeline_file() -> None:
    text = """
source: {type: mysql, hostname: h, username: u, tables: 'shop.*'}
sink: {type: kafka, bootstrap-servers: 'b:9092', topic-prefix: p, headers: {origin: shop, version: 2}}
pipeline: {checkpoint: /c}
"""
    (sink,) = parse_pipeline(text).sinks
    assert isinstance(sink, KafkaSettings)
    assert sink.headers == {"origin": "shop", "version": "2"}

"""Replaced topics and keys against Debezium's own ByLogicalTableRouter, given our messages."""

from __future__ import annotations

import json

import pytest

from tailrace.config.kafka import KafkaSettings
from tailrace.formats.assemble import key_value_format
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.encodings.avro import AvroEncoding
from tailrace.sinks.kafka.names import topics_of
from tailrace.sinks.route import Router
from tests.contract.test_avro_converter import convert, without_docs
from tests.support.plugins import as_messages, by_debezium, of_batch
from tests.unit.formats.changes import batch, change
from tests.unit.formats.samples import TYPES_ROWS, TYPES_TABLE

pytestmark = pytest.mark.slow

_SETTINGS = [
    {"topic.regex": r"(?<db>app\.[^.]+)\.(.).*", "topic.replacement": "all-${db}.$2"},
    {"topic.regex": "(.*)types", "topic.replacement": "$1", "key.enforce.uniqueness": "false"},
    {
        "topic.regex": ".*",
        "topic.replacement": "all",
        "key.field.name": "of",
        "key.field.regex": r"app\.(.*)",
        "key.field.replacement": "<$1>",
    },
    {"topic.regex": "app", "topic.replacement": "all"},
]


def changes():
    first, second, third = TYPES_ROWS
    return batch(TYPES_TABLE, [change("r", None, first), change("u", first, second), change("d", third)])


def envelopes(settings):
    given = {name.replace(".", "_"): value for name, value in settings.items()}
    if "key_enforce_uniqueness" in given:
        given["key_enforce_uniqueness"] = False
    topics = topics_of(KafkaSettings("b:1", "app", **given), Router(()), messages=False)
    return Envelopes(topics, version="1")


@pytest.mark.parametrize("schemas", [False, True], ids=["plain", "schemas"])
@pytest.mark.parametrize("settings", _SETTINGS, ids=["groups", "keys", "field", "unmatched"])
def test_messages_are_those_of_the_router(settings, schemas):
    given = of_batch(DebeziumFormat(Envelopes(Topics("app"), version="1"), schemas=True), changes(), 5)
    theirs = by_debezium(
        given,
        {
            "transform.type": "io.debezium.transforms.ByLogicalTableRouter",
            **{f"transform.{name}": value for name, value in settings.items()},
            "json.schemas.enable": str(schemas).lower(),
        },
    )
    of = envelopes(settings)
    assert of_batch(DebeziumFormat(of, schemas), changes(), 5) == theirs
    form = key_value_format(of, "json", "debezium-json", schemas=schemas)
    assert as_messages(form.messages(changes(), 5)) == theirs


def test_keys_in_avro_are_what_the_other_converter_makes_of_those_in_json():
    of = envelopes(_SETTINGS[2])
    lines = [m[1] for m in of_batch(DebeziumFormat(of, schemas=True), changes(), 5)[:3]]
    encoding = AvroEncoding(of)
    schema = encoding.key_schema(TYPES_TABLE)
    ours = encoding.keys(changes(), {schema.reference: 1}).to_pylist()
    for (text, data), message in zip(convert(lines), ours, strict=True):
        assert without_docs(json.loads(text)) == json.loads(schema.text)
        assert message[5:].hex() == data

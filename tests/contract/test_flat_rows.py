"""Flat rows against Debezium's own transform, given our messages with the envelope."""

from __future__ import annotations

import json
from unittest.mock import ANY

import pytest

from tailrace.config.flat_fields import added_fields
from tailrace.formats.assemble import key_value_format
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.flattened import Flat, FlatAvroEncoding
from tailrace.formats.debezium.messages import DebeziumFormat
from tests.contract.test_avro_converter import convert, without_docs
from tests.support.plugins import as_messages, by_debezium, of_batch
from tests.unit.formats.changes import batch, change, placed
from tests.unit.formats.samples import TYPES_ROWS, TYPES_TABLE

pytestmark = pytest.mark.slow

_NOW = 1_800_000_000_123
_FIELDS = (
    "op,ts_ms,ts_us,ts_ns,table,pos:at,source.ts_ms,source.snapshot,source.gtid,source.thread,query,db,"
    "transaction.id,total_order,data_collection_order,before.text_or_null,before.day,after.dec,before.ms"
)
_MODES = ["drop", "tombstone", "delete-to-tombstone", "rewrite", "rewrite-with-tombstone"]


def changes():
    first, second, third = TYPES_ROWS
    rows = [
        change("r", None, first, txn=None, thread=None),
        change("c", None, second),
        change("u", first, second),
        change("d", third),
    ]
    return placed(batch(TYPES_TABLE, rows), [None, (1, 1), (2, 2), (3, 3)])


def envelopes(connector="mysql"):
    return Envelopes(Topics("app"), connector, version="1")


def flat_of(mode):
    return Flat(
        added_fields(_FIELDS.split(","), "__"),
        added_fields(_FIELDS.split(","), "_h_"),
        has_rows_of_deletes=mode.startswith("rewrite"),
        has_tombstones=mode == "rewrite-with-tombstone",
    )


@pytest.mark.parametrize("schemas", [False, True], ids=["plain", "schemas"])
@pytest.mark.parametrize("mode", _MODES)
def test_messages_are_those_of_the_transform(mode, schemas):
    given = of_batch(DebeziumFormat(envelopes(), schemas=True), changes(), _NOW)
    theirs = by_debezium(
        given,
        {
            "transform.type": "io.debezium.transforms.ExtractNewRecordState",
            "transform.delete.tombstone.handling.mode": mode,
            "transform.add.fields": _FIELDS,
            "transform.add.headers": _FIELDS,
            "transform.add.headers.prefix": "_h_",
            "json.schemas.enable": str(schemas).lower(),
        },
    )
    form = key_value_format(envelopes(), "json", "flat-json", schemas=schemas, flat=flat_of(mode))
    ours = as_messages(form.messages(changes(), _NOW))
    if mode == "drop":  # the sink leaves deletes out
        ours = ours[:-1]
    if mode == "tombstone":  # the transform leaves a schema, so that Connect's JSON converter writes a text
        assert json.loads(theirs[-1][2]) == ({"schema": ANY, "payload": None} if schemas else None)
        theirs[-1] = (*theirs[-1][:2], "", theirs[-1][3])
    assert ours == theirs


@pytest.mark.parametrize("mode", ["tombstone", "rewrite"])
def test_avro_is_what_the_other_converter_makes_of_the_rows(mode):
    flat = flat_of(mode)
    lines = [
        m[2]
        for m in as_messages(
            key_value_format(envelopes(), "json", "flat-json", schemas=True, flat=flat).messages(
                changes(), _NOW
            )
        )
    ]
    of = FlatAvroEncoding(envelopes(), flat)
    schema = of.value_schema(TYPES_TABLE)
    ours = of.values(changes(), _NOW, {schema.reference: 1}).to_pylist()
    assert [m is None for m in ours] == [not line for line in lines]
    for (text, data), message in zip(
        convert([line for line in lines if line]), [m for m in ours if m is not None], strict=True
    ):
        assert without_docs(json.loads(text)) == json.loads(schema.text)
        assert message[5:].hex() == data

"""CloudEvents against Debezium's own converter, given our messages with the envelope."""

from __future__ import annotations

import pytest

from tailrace.formats.assemble import key_value_format
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.messages import DebeziumFormat
from tests.support.plugins import as_messages, by_debezium, of_batch
from tests.unit.formats.changes import batch, change, placed
from tests.unit.formats.samples import TYPES_ROWS, TYPES_TABLE

pytestmark = pytest.mark.slow

_NOW = 1_800_000_000_123


def changes(connector):
    first, second, third = TYPES_ROWS
    snapshot, log = {"txn": None, "thread": None}, {}
    if connector == "postgresql":
        snapshot, log = {**snapshot, "file": ""}, {"txn": "731", "file": ""}
    rows = [
        change("r", None, first, **snapshot),
        change("c", None, second, **log),
        change("u", first, second, **{**log, "ts_us": 999}),
        change("d", third, **log),
    ]
    return placed(batch(TYPES_TABLE, rows), [None, (1, 1), (2, 2), (3, 3)])


@pytest.mark.parametrize("has_extensions", [True, False], ids=["extensions", "bare"])
@pytest.mark.parametrize("schemas", [False, True], ids=["plain", "schemas"])
@pytest.mark.parametrize("connector", ["mysql", "postgresql"])
def test_values_are_those_of_the_converter(connector, schemas, has_extensions):
    envelopes = Envelopes(Topics('a"pp'), connector, version="1", database="db")
    given = of_batch(DebeziumFormat(envelopes, schemas=True), changes(connector), _NOW)
    theirs = by_debezium(
        given,
        {
            "converter.type": "io.debezium.converters.CloudEventsConverter",
            "converter.json.schemas.enable": str(schemas).lower(),
            "converter.extension.attributes.enable": str(has_extensions).lower(),
            "json.schemas.enable": str(schemas).lower(),
        },
        connector,
    )
    form = key_value_format(envelopes, "json", "cloudevents", schemas=schemas, extensions=has_extensions)
    assert as_messages(form.messages(changes(connector), _NOW)) == theirs

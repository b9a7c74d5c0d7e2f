"""Events of an outbox against Debezium's own EventRouter, given our messages with the envelope."""

from __future__ import annotations

import pytest

from tailrace.config.outbox import ConnectConverter, NullFields, OutboxSettings
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.debezium.outbox import Outbox
from tests.support.changes import changes
from tests.support.plugins import as_messages, by_debezium, of_batch
from tests.unit.formats.debezium.test_outbox import TABLE, row

pytestmark = pytest.mark.slow

_PLACES = ("type:header:eventType", "version:envelope:v")
_PAYLOADS = [
    '{"a": 1, "b": null, "c": {"d": [1, 2], "e": "x", "f": []}, "g": true, "h": 1.5}',
    "not json",
    "",
    None,
]


@pytest.mark.parametrize("expands", [False, True], ids=["text", "expanded"])
@pytest.mark.parametrize("tombstones", [False, True], ids=["", "tombstones"])
@pytest.mark.parametrize("places", [(), _PLACES[:1], _PLACES], ids=["bare", "headers", "envelopes"])
def test_events_are_those_of_the_router(places, tombstones, expands):
    payloads = _PAYLOADS[:1] if expands and not tombstones else _PAYLOADS
    batch = changes(TABLE, [("c", None, row(f"e{n}", payload)) for n, payload in enumerate(payloads)])
    envelopes = Envelopes(Topics("p"), version="1")
    settings = {
        "transform.type": "io.debezium.transforms.outbox.EventRouter",
        "transform.table.fields.additional.placement": ",".join(places),
        "transform.route.tombstone.on.empty.payload": str(tombstones).lower(),
        "transform.table.expand.json.payload": str(expands).lower(),
        "transform.route.topic.regex": "(?<kind>.)(.*)",
        "transform.route.topic.replacement": "out.${kind}-$2",
        "json.schemas.enable": "false",
    }
    if not places:
        del settings["transform.table.fields.additional.placement"]
    theirs = by_debezium(of_batch(DebeziumFormat(envelopes, schemas=True), batch, 5), settings)
    ours = Outbox(
        DebeziumFormat(envelopes),
        OutboxSettings(
            ("shop.*",),
            table_fields_additional_placement=places,
            route_tombstone_on_empty_payload=tombstones,
            table_expand_json_payload=expands,
            table_json_payload_null_behavior=NullFields.IGNORE if expands else NullFields.OPTIONAL_BYTES,
            route_topic_regex="(?<kind>.)(.*)",
            route_topic_replacement="out.${kind}-$2",
            key_converter=ConnectConverter.JSON,
            value_converter=ConnectConverter.JSON,
        ),
    )
    made = as_messages(ours.messages(batch))
    # headers are text here, as by Connect's usual header converter; its JSON converter writes NULL as a text
    shown = [(*m[:3], tuple((name, f'"{text}"') for name, text in m[3])) for m in made]
    assert shown == [(*t[:2], "" if t[2] == "null" else t[2], t[3]) for t in theirs]

"""What each message is made of, and what tells it from others."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tailrace.config.message_sinks import RocketMqSettings
from tailrace.config.sink_settings import MessageValue
from tailrace.model.change import ChangeBatch
from tailrace.sinks.messages.formats import json_format
from tailrace.sinks.messages.outgoing import MessageMaker, identities
from tailrace.sinks.route import Router
from tests.support.changes import INT, TEXT, changes, table

KEYED = table(("id", INT), ("name", TEXT), key=("id",))
KEYLESS = table(("id", INT), ("name", TEXT), key=())


def messages(value: MessageValue = MessageValue.DEBEZIUM_JSON) -> MessageMaker:
    settings = RocketMqSettings(name_servers="h:1", topic_prefix="p", value_format=value)
    return MessageMaker(json_format(settings, Router([]), "mysql", ""), 0)


def at_one_position(batch: ChangeBatch) -> ChangeBatch:
    at = batch.origin.schema.get_field_index("seq")
    seqs = pa.repeat(batch.origin.column("seq")[0], len(batch))
    return replace(batch, origin=batch.origin.set_column(at, batch.origin.schema.field(at), seqs))


@pytest.mark.parametrize("value", MessageValue)
def test_each_change_is_one_message_without_a_tombstone(value: MessageValue) -> None:
    row = {"id": 1, "name": "a"}
    made = messages(value).of(changes(KEYED, [("c", None, row), ("d", row, None), ("c", None, row)]))
    assert made.column("op").to_pylist() == ["c", "d", "c"]
    assert made.column("key").to_pylist() == [b'{"id":1}'] * 3
    assert made.column("value").null_count == 0
    assert len(set(made.column("seq").to_pylist())) == 3


def test_messages_of_rows_read_at_one_position_are_told_apart_by_their_key() -> None:
    rows = [("r", None, {"id": i, "name": "same"}) for i in range(3)]
    found = identities(messages().of(at_one_position(changes(KEYED, rows))), "shop.t").to_pylist()
    assert len(set(found)) == 3


def test_equal_rows_without_a_key_are_told_apart_whatever_their_order_and_cells() -> None:
    rows = [("r", None, {"id": i % 2, "name": "same"}) for i in range(6)]
    batch = at_one_position(changes(KEYLESS, rows))

    def of(*parts: ChangeBatch) -> list[str]:
        writer = messages()
        return sorted(i for part in parts for i in identities(writer.of(part), "t").to_pylist())

    whole = of(batch)
    assert len(set(whole)) == 6
    assert of(batch.slice(4), batch.slice(0, 4)) == whole
    assert of(batch.take(pa.array([5, 3, 1, 0, 2, 4]))) == whole

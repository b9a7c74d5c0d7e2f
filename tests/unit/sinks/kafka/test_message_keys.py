"""Message keys of other columns, and what decides partitions and writers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.config.kafka import KafkaSettings
from tailrace.config.table_columns import TableColumns
from tailrace.errors import ConfigError, SinkError
from tailrace.formats.assemble import key_value_format
from tailrace.formats.connect.envelopes import Envelopes
from tailrace.formats.connect.topics import Topics
from tailrace.model.change import ChangeBatch
from tailrace.model.messages import MESSAGES
from tests.support.changes import INT, TEXT, changes, table

pytest.importorskip("confluent_kafka")

from tailrace.sinks.kafka.division import Division
from tailrace.sinks.kafka.message_keys import keyed
from tests.support.engine import changes_of

TABLE = table(("id", INT), ("owner", INT), ("name", TEXT), key=("id",))
ENVELOPES = Envelopes(Topics("p"))


def row(id_: int, owner: int | None, name: str = "a") -> dict[str, Any]:
    return {"id": id_, "owner": owner, "name": name}


def columns(text: str, setting: str = "message-key-columns") -> TableColumns:
    found = TableColumns.parse(text, setting)
    assert found is not None
    return found


def halves(old: dict[str, Any], new: dict[str, Any], first: int = 0) -> ChangeBatch:
    """An update of the table's key as readers give it."""
    batch = changes(TABLE, [("d", old, None), ("c", None, new)], first=first)
    seq = batch.origin.column("seq")[0].as_py()
    seqs = pa.array([seq, seq[:-1] + format(int(seq[-1], 16) + 1, "x")])
    return replace(batch, origin=batch.origin.set_column(0, "seq", seqs))


def test_update_of_the_message_key_is_a_delete_and_a_create_that_name_each_other() -> None:
    batch = changes(
        TABLE,
        [
            ("c", None, row(1, 7)),
            ("u", row(1, 7), row(1, 7, "b")),
            ("u", row(1, 7), row(1, 8)),
            ("u", row(1, 8), row(1, None)),
            ("u", row(1, None), row(1, None, "c")),
            ("d", row(1, None), None),
        ],
    )
    made = keyed(batch, ("owner",))
    assert [(op, before, after) for op, before, after, _ in changes_of([made])] == [
        ("c", None, row(1, 7)),
        ("u", row(1, 7), row(1, 7, "b")),
        ("d", row(1, 7), None),
        ("c", None, row(1, 8)),
        ("d", row(1, 8), None),
        ("c", None, row(1, None)),
        ("u", row(1, None), row(1, None, "c")),
        ("d", row(1, None), None),
    ]
    seqs = [seq for *_, seq in changes_of([made])]
    assert seqs == sorted(set(seqs))
    messages = key_value_format(ENVELOPES, "json", "debezium-json").messages(made, 0).to_pylist()
    assert [(m["key"], m["headers"]) for m in messages][2:6] == [
        (b'{"owner":7}', [{"key": "__debezium.newkey", "value": b'{"owner":8}'}]),
        (b'{"owner":7}', [{"key": "__debezium.newkey", "value": b'{"owner":8}'}]),
        (b'{"owner":8}', [{"key": "__debezium.oldkey", "value": b'{"owner":7}'}]),
        (b'{"owner":8}', [{"key": "__debezium.newkey", "value": b'{"owner":null}'}]),
    ]


def test_update_of_the_tables_key_alone_is_an_update_again() -> None:
    same = halves(row(1, 7), row(2, 7, "b"))
    ((op, before, after, seq),) = changes_of([keyed(same, ("owner",))])
    assert (op, before, after) == ("u", row(1, 7), row(2, 7, "b"))
    assert seq == same.origin.column("seq")[0].as_py()
    both = keyed(halves(row(1, 7), row(2, 8)), ("owner",))
    assert [op for op, *_ in changes_of([both])] == ["d", "c"]


def test_keyed_changes_stay_as_they_are_when_keyed_again() -> None:
    batch = changes(TABLE, [("u", row(1, 7), row(1, 8)), ("u", row(1, 8), row(1, 8, "b"))])
    once = keyed(batch, ("owner",))
    assert keyed(once, ("owner",)) is once
    assert keyed(batch, ("id",)) is batch


@pytest.mark.parametrize("key_format", ["avro", "protobuf"])
def test_null_in_a_message_key_has_a_form_in_every_encoding(key_format: Any) -> None:
    made = key_value_format(ENVELOPES, key_format, "debezium-json")
    batch = keyed(changes(TABLE, [("c", None, row(1, None)), ("c", None, row(1, 5))]), ("owner",))
    ids = {schema.reference: 1 for schema in made.schemas(batch.table)}
    first, second = made.messages(batch, 0, ids).column("key").to_pylist()
    assert first != second


def test_log_without_the_message_key_is_an_error() -> None:
    update = changes(TABLE, [("u", row(1, None), row(1, 8))])
    for lacking in (
        replace(update, absent_before=("owner", "name")),
        replace(update, absent_after=("owner",)),
        replace(update, before=None),
    ):
        with pytest.raises(SinkError, match="does not hold the message key") as refused:
            keyed(lacking, ("owner",))
        assert refused.value.code == "TR-4405"
    create = changes(TABLE, [("c", None, row(1, 8))])
    assert len(keyed(replace(create, absent_before=("owner",)), ("owner",))) == 1


def test_update_without_a_row_before_keeps_columns_of_the_tables_key() -> None:
    wide = replace(TABLE, key=("id", "owner"))
    update = replace(changes(wide, [("u", row(1, 7), row(1, 7, "b"))]), before=None)
    assert [op for op, *_ in changes_of([keyed(update, ("owner",))])] == ["u"]


def test_columns_of_all_matching_patterns_are_the_key_in_the_tables_order() -> None:
    given = columns("shop[.]t:name; .*:id ;other.*:owner", "message-key-columns")
    assert Division(message_keys=given).schema(TABLE).key == ("id", "name")
    assert Division(message_keys=columns("shop[.]x:nothing")).schema(TABLE).key == ("id",)
    assert Division(message_keys=columns(".*:nothing")).schema(MESSAGES) == MESSAGES
    with pytest.raises(SinkError, match="has no column `nothing`") as refused:
        Division(message_keys=columns(".*:nothing")).schema(TABLE)
    assert refused.value.code == "TR-7610"


@pytest.mark.parametrize("text", ["t", "t:", ":c", "t:a,", "(:c"])
@pytest.mark.parametrize("setting", ["message_key_columns", "partition_by", "topic_by"])
def test_text_that_names_no_columns_is_refused(setting: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"`sink.{setting.replace('_', '-')}`"):
        KafkaSettings("b:1", "p", **{setting: text})


def test_random_updates_are_the_same_rows_by_either_key() -> None:
    random = np.random.default_rng(7)
    state: dict[int, dict[str, Any]] = {}
    made: list[ChangeBatch] = []
    for n in range(200):
        id_ = int(random.integers(6))
        new = row(id_, int(random.integers(3)), f"n{n}")
        old = state.get(id_)
        if old is None:
            made.append(changes(TABLE, [("c", None, new)], first=4 * n))
        elif random.random() < 0.3 and (to := int(random.integers(6, 9))) not in state:
            new["id"] = to
            made.append(halves(old, new, first=4 * n))
            del state[id_]
        else:
            made.append(changes(TABLE, [("u", old, new)], first=4 * n))
        state[new["id"]] = new
        if random.random() < 0.2 and len(state) > 6:
            gone = state.pop(next(iter(state)))
            made.append(changes(TABLE, [("d", gone, None)], first=4 * n + 2))
    # consumers that keep the rows of each message key see the table
    rows: dict[bytes, dict[int, Any]] = {}
    format_ = key_value_format(ENVELOPES, "json", "debezium-json")
    for batch in made:
        for message in format_.messages(keyed(batch, ("owner",)), 0).to_pylist():
            if message["value"] is None:
                continue
            value = json.loads(message["value"])
            of_key = rows.setdefault(message["key"], {})
            if value["before"] is not None:
                assert of_key.pop(value["before"]["id"]) == value["before"]
            if value["after"] is not None:
                of_key[value["after"]["id"]] = value["after"]
    found = {id_: value for of_key in rows.values() for id_, value in of_key.items()}
    assert found == state
    for key, of_key in rows.items():
        assert {value["owner"] for value in of_key.values()} <= {json.loads(key)["owner"]}

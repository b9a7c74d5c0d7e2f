"""What decides partitions, topics and writers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.config.kafka import KafkaSettings
from tailrace.config.outbox import OutboxSettings
from tailrace.errors import ConfigError, SinkError
from tailrace.formats.debezium.messages import DebeziumFormat
from tailrace.formats.debezium.outbox import Outbox
from tailrace.model.messages import MESSAGES
from tests.support.changes import DECIMAL, TEXT, changes, table

pytest.importorskip("confluent_kafka")

from tailrace.sinks.kafka.division import Division
from tests.unit.sinks.kafka.test_message_keys import ENVELOPES, TABLE, columns, row

FORMAT = DebeziumFormat(ENVELOPES)


def test_partition_is_that_of_a_message_with_these_columns_as_its_key() -> None:
    wide = replace(TABLE, key=("id", "owner"))
    division = Division(
        partition_by=columns("shop[.]t:owner", "partition-by"), format=DebeziumFormat(ENVELOPES)
    )
    batch = changes(wide, [("c", None, row(1, 7)), ("d", row(2, 8), None), ("u", row(3, 9), row(3, 9, "b"))])
    keys = division.partition_keys(batch)
    assert keys is not None
    assert keys.to_pylist() == [b'{"owner":7}', b'{"owner":8}', b'{"owner":9}']
    assert division.columns(wide) == ("owner",)
    assert division.partition_keys(replace(batch, table=replace(wide, id=MESSAGES.id))) is None
    with pytest.raises(SinkError, match="is not in the message key") as refused:
        division.columns(TABLE)
    assert refused.value.code == "TR-7610"


def test_stamp_stands_for_the_settings_that_divide() -> None:
    stamps = [
        Division().stamp,
        Division(message_keys=columns("a:b")).stamp,
        Division(message_keys=columns("a:c")).stamp,
        Division(partition_by=columns("a:b", "partition-by")).stamp,
    ]
    assert stamps[0] == ""
    assert len(set(stamps)) == 4


def by_topic(text: str) -> Division:
    return Division(topic_by=columns(text, "topic-by"), format=FORMAT)


def test_topic_has_the_value_of_a_column_of_the_row_before_a_delete_and_after_other_changes() -> None:
    wide = replace(TABLE, key=("id", "name"))
    batch = changes(wide, [("c", None, row(1, 7, "x")), ("d", row(2, 8, "y"), None)])
    division = by_topic("shop[.]t:name")
    topics = division.topic_column(batch)
    assert topics is not None
    assert topics.to_pylist() == ["p.shop.t.x", "p.shop.t.y"]
    assert division.topics(batch) == {"p.shop.t.x", "p.shop.t.y"}
    numbers = by_topic("shop[.]t:id").topic_column(batch)
    assert numbers is not None
    assert numbers.to_pylist() == ["p.shop.t.1", "p.shop.t.2"]
    assert by_topic("shop[.]u:name").topic_column(batch) is None
    whole = replace(division, topic_is_value=True)
    assert whole.topics(batch) == {"x", "y"}


@pytest.mark.parametrize("name", [None, "", "a b", "\u00fc", "x" * 249])
def test_row_that_names_no_topic_is_an_error_of_its_own(name: str | None) -> None:
    wide = replace(TABLE, key=("id", "name"))
    batch = changes(wide, [("c", None, row(1, 7, "x")), ("c", None, {**row(2, 7), "name": name})])
    division = by_topic(".*:name")
    assert division.topics(batch) == {"p.shop.t.x"}
    with pytest.raises(SinkError, match="names no topic") as refused:
        division.topic_column(batch)
    assert refused.value.code == "TR-7607"


def test_columns_that_cannot_name_topics_are_refused() -> None:
    priced = table(("id", TEXT), ("price", DECIMAL), key=("id", "price"))
    batch = changes(priced, [("c", None, {"id": "a", "price": None})])
    for setting in (".*:price", ".*:id,price", ".*:nothing"):
        with pytest.raises(SinkError) as refused:
            by_topic(setting).topic_column(batch)
        assert refused.value.code == "TR-7610"
    with pytest.raises(SinkError, match="is not in the message key") as refused:
        by_topic(".*:name").topic_column(changes(TABLE, [("c", None, row(1, 7))]))
    assert refused.value.code == "TR-7610"


def test_tables_with_topics_by_their_rows_are_known_by_name() -> None:
    division = Division(
        Outbox(FORMAT, OutboxSettings(("shop[.]o",))),
        topic_by=columns(".*[.]t:name", "topic-by"),
        format=FORMAT,
    )
    named = [division.names_topics(replace(TABLE.id, table=name)) for name in ("o", "t", "u")]
    assert named == [True, True, False]
    assert not by_topic(".*:name").names_topics(MESSAGES.id)


def test_truncates_cannot_be_written_to_topics_by_rows() -> None:
    with pytest.raises(ConfigError, match=r"`sink\.skipped-operations` must have `t`"):
        KafkaSettings("b:1", "p", topic_by="t:c", skipped_operations=("none",))

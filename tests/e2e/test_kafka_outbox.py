"""Outboxes in the Kafka sink with a real broker, fed with batches made by hand."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tailrace.config.kafka import KafkaSettings
from tailrace.config.outbox import InvalidOperation, OutboxSettings
from tailrace.config.sink_settings import RefusedRow
from tailrace.errors import SinkError, StateError
from tailrace.kernels.murmur import partitions_of
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.base import CellBatch, StreamId
from tailrace.sinks.kafka import batch as kafka_batch
from tailrace.sinks.kafka.job import run_writers
from tailrace.sinks.kafka.sink import KafkaSink
from tailrace.sinks.route import Router
from tailrace_dev.servers import KafkaServer
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, changes, table
from tests.support.topics import Message, messages

CREATED = ColumnType(Kind.DATETIME, "datetime", fraction=6)
OUTBOX = table(
    ("id", INT),
    ("aggregatetype", TEXT),
    ("aggregateid", TEXT),
    ("payload", TEXT),
    ("created", CREATED),
    key=("id",),
    name="shop.outbox",
)
ORDERS = table(("id", INT), ("name", TEXT), key=("id",), name="shop.orders")
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)


@pytest.fixture
def prefix() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
def open_sink(kafka: KafkaServer, prefix: str) -> Iterator[Callable[..., KafkaSink]]:
    opened: list[KafkaSink] = []

    def open_(outbox: dict[str, Any] | None = None, **given: Any) -> KafkaSink:
        settings = {"topic_partitions": 3, "parallelism": 3, **given}
        box = OutboxSettings(
            ("shop[.]outbox",),
            **{"route_topic_replacement": f"{prefix}-${{routedByValue}}", **(outbox or {})},
        )
        made = KafkaSettings(kafka.bootstrap, prefix, outbox=box, **settings)
        opened.append(KafkaSink(made, Router(()), "mysql"))
        return opened[-1]

    yield open_
    for sink in opened:
        sink.close()


def event(i: int, kind: str = "order", key: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "id": i,
        "aggregatetype": kind,
        "aggregateid": str(key),
        "payload": f'{{"n":{i}}}',
        "created": MOMENT,
        **more,
    }


def inserts(*rows: dict[str, Any], first: int = 0) -> tuple[str, Any]:
    return "log", changes(OUTBOX, [("c", None, row) for row in rows], first=first)


def batch_of(spark: SparkSession, prefix: str, number: int, *cells: tuple[str, Any]) -> CellBatch:
    return cell_batch(spark, number, cells, StreamId(prefix, "stream"))


def by_key(found: list[Message]) -> dict[bytes | None, list[bytes | None]]:
    keys = {m.key for m in found}
    return {key: [m.value for m in found if m.key == key] for key in keys}


def test_events_are_in_the_topics_they_name_in_the_order_of_each_key(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sink = open_sink({"table_field_event_timestamp": "created"})
    rows = [event(i, ("order", "user")[i % 2], key=i % 14) for i in range(140)]
    cells = [inserts(*rows[at : at + 35], first=at) for at in (70, 0, 105, 35)]
    old = event(900)
    others = [("u", old, event(900, payload="changed")), ("d", old, None)]
    table_ = ("log", changes(ORDERS, [("c", None, {"id": 1, "name": "a"})], first=500))
    with caplog.at_level(logging.WARNING):
        sink.write(batch_of(spark, prefix, 0, *cells, ("log", changes(OUTBOX, others, first=300)), table_))
    assert [r.message for r in caplog.records if "updates of outbox" in r.message] == [
        "batch 0: 1 updates of outbox shop.outbox ignored"
    ]
    for kind in (0, 1):
        found = messages(kafka, f"{prefix}-{('order', 'user')[kind]}")
        expected = {
            str(key).encode(): [f'{{"n":{i}}}'.encode() for i in range(140) if i % 14 == key]
            for key in range(kind, 14, 2)
        }
        assert by_key(found) == expected
        assert {(m.key, m.headers[0][0]) for m in found} == {(key, "id") for key in expected}
        assert {m.timestamp_ms for m in found} == {int(MOMENT.timestamp() * 1000)}
        assert all(m.partition == partition(m.key) for m in found)
    assert len(messages(kafka, f"{prefix}.shop.orders")) == 1
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics().topics
    assert f"{prefix}.shop.outbox" not in topics


def partition(key: bytes | None) -> int:
    return int(partitions_of(pa.array([key], pa.binary()), 3)[0])


def test_batch_is_read_once_until_a_row_names_a_new_topic(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    sink = open_sink()
    read_once = []
    for number, kinds in enumerate((("order",), ("order", "order"), ("order", "new"), ("order",), ("new",))):
        rows = [event(10 * number + i, kind) for i, kind in enumerate(kinds)]
        batch = batch_of(spark, prefix, number, inserts(*rows, first=100 * number))
        sink.write(batch)
        read_once.append(not batch.once.is_cached)
    assert read_once == [False, True, False, True, True]
    assert [m.value for m in messages(kafka, f"{prefix}-new")] == [b'{"n":21}', b'{"n":40}']
    assert len(messages(kafka, f"{prefix}-order")) == 5


@pytest.mark.parametrize("written", [[0], [1, 2]])
def test_batch_that_was_written_in_part_is_completed_with_each_event_once(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any, written: list[int]
) -> None:
    rows = [event(i, ("order", "user")[i % 2], key=i % 10) for i in range(60)]
    batch = batch_of(spark, prefix, 0, inserts(*rows[:30]), inserts(*rows[30:], first=30))
    interrupt(open_sink(), batch, written)
    # another sink, with other settings for new topics and one writer for new batches
    open_sink(parallelism=1).write(batch)
    found = messages(kafka, f"{prefix}-order", f"{prefix}-user")
    assert by_key(found) == {
        str(key).encode(): [f'{{"n":{i}}}'.encode() for i in range(60) if i % 10 == key] for key in range(10)
    }


def interrupt(sink: KafkaSink, batch: CellBatch, written: list[int]) -> None:
    """Let some writers of a batch write it, and the process end."""

    def some(cells: Any, share: Any, missing: Any) -> Any:
        run_writers(cells, share, written)
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kafka_batch, "run_writers", some)
        with pytest.raises(InterruptedError):
            sink.write(batch)


def test_batch_that_was_begun_with_another_division_is_refused_until_it_is_written(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    rows = [event(i, key=i % 5) for i in range(20)]
    batch = batch_of(spark, prefix, 0, inserts(*rows))
    interrupt(open_sink(), batch, [0])
    other = {"table_field_event_key": "aggregatetype"}
    with pytest.raises(StateError) as refused:
        open_sink(other).write(batch)
    assert refused.value.code == "TR-6110"
    open_sink().write(batch)
    assert len(messages(kafka, f"{prefix}-order")) == 20
    open_sink(other).write(batch_of(spark, prefix, 1, inserts(event(99), first=99)))
    found = messages(kafka, f"{prefix}-order")
    assert [m.value for m in found if m.key == b"order"] == [b'{"n":99}']


def test_row_without_a_topic_is_an_error_or_put_aside(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    rows = [event(0), event(1, kind="no topic"), event(2)]
    with pytest.raises(SinkError) as refused:
        open_sink().write(batch_of(spark, prefix, 0, inserts(*rows)))
    assert (refused.value.code, refused.value.table) == ("TR-7607", "shop.outbox")
    batch = batch_of(spark, prefix, 0, inserts(*rows))
    open_sink(on_refused_row=RefusedRow.QUARANTINE).write(batch)
    assert [m.value for m in messages(kafka, f"{prefix}-order")] == [b'{"n":0}', b'{"n":2}']
    (aside,) = messages(kafka, f"{prefix}.__quarantine")
    assert dict(aside.headers)["__tailrace.refused.code"] == b"TR-7607"
    assert [(table, n) for (_, table), n in batch.quarantined.items()] == [("shop.outbox", 1)]


def test_update_is_fatal_if_that_is_set(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    sink = open_sink({"table_op_invalid_behavior": InvalidOperation.FATAL})
    rows = [("c", None, event(1)), ("u", event(1), event(1, payload="x"))]
    with pytest.raises(SinkError) as refused:
        sink.write(batch_of(spark, prefix, 0, ("log", changes(OUTBOX, rows))))
    assert (refused.value.code, refused.value.table) == ("TR-7608", "shop.outbox")
    assert messages(kafka, f"{prefix}-order") == []


def test_topic_of_a_table_takes_no_events(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    sink = open_sink({"route_topic_replacement": f"{prefix}.shop.${{routedByValue}}"})
    sink.claim([ORDERS.id])
    with pytest.raises(SinkError) as refused:
        sink.write(batch_of(spark, prefix, 0, inserts(event(1, kind="orders"))))
    assert refused.value.code == "TR-7609"


def test_table_that_is_no_outbox_is_named(spark: SparkSession, prefix: str, open_sink: Any) -> None:
    schema = table(("id", INT), ("payload", TEXT), key=("id",), name="shop.outbox")
    batch = batch_of(spark, prefix, 0, ("log", changes(schema, [("c", None, {"id": 1, "payload": "x"})])))
    with pytest.raises(SinkError) as refused:
        open_sink().write(batch)
    assert (refused.value.code, refused.value.table) == ("TR-7606", "shop.outbox")


def test_column_names_the_partition(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    places = {"table_fields_additional_placement": ("id:partition",)}
    sink = open_sink(places)
    sink.write(batch_of(spark, prefix, 0, inserts(*(event(i, key=7) for i in range(3)))))
    found = messages(kafka, f"{prefix}-order")
    assert sorted((m.partition, m.value) for m in found) == [(i, f'{{"n":{i}}}'.encode()) for i in range(3)]
    with pytest.raises(SinkError, match="names a partition that its topic does not have") as refused:
        sink.write(batch_of(spark, prefix, 1, inserts(event(3), first=9)))
    assert (refused.value.code, refused.value.table) == ("TR-7615", "shop.outbox")

"""The Kafka sink with a real broker, fed with batches made by hand."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tailrace.config.kafka import DeleteHandling, KafkaDelivery, KafkaSettings, ValueEncoding
from tailrace.config.model import RouteRule
from tailrace.config.sink_settings import RefusedRow
from tailrace.errors import SinkError, TransientSinkError
from tailrace.model.change import ORIGIN
from tailrace.model.schema_change import (
    RowsRewritten,
    SchemaEvent,
    TableDropped,
    TableRenamed,
    TableTruncated,
)
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.base import CellBatch, StreamId
from tailrace.sinks.kafka import cluster
from tailrace.sinks.kafka.failure import FENCED
from tailrace.sinks.kafka.job import run_writers
from tailrace.sinks.kafka.librdkafka import KafkaError, Producer
from tailrace.sinks.kafka.markers import Record, read_markers, record_messages
from tailrace.sinks.kafka.sink import KafkaSink
from tailrace.sinks.kafka.standing import KafkaQuarantine
from tailrace.sinks.route import Router
from tailrace_dev.servers import KafkaServer, RegistryServer
from tests.support.cells import cell_batch
from tests.support.changes import BIGINT, INT, TEXT, changes, table
from tests.support.topics import Message, messages
from tests.support.wait import wait_until
from tests.unit.sinks.kafka.test_writer import key_update

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
OTHER = table(("id", INT), ("name", TEXT), key=("id",), name="shop.u")


def row(i: int, name: str | None = None) -> dict[str, Any]:
    return {"id": i, "name": name or f"n{i}"}


@pytest.fixture
def prefix() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
def open_sink(kafka: KafkaServer, prefix: str) -> Iterator[Callable[..., KafkaSink]]:
    opened: list[KafkaSink] = []

    def open_(*routes: RouteRule, **given: Any) -> KafkaSink:
        settings = {"topic_partitions": 2, "parallelism": 2, **given}
        opened.append(KafkaSink(KafkaSettings(kafka.bootstrap, prefix, **settings), Router(routes), "mysql"))
        return opened[-1]

    yield open_
    for sink in opened:
        sink.close()


def batch_of(spark: SparkSession, prefix: str, number: int, *cells: tuple[str, Any]) -> CellBatch:
    return cell_batch(spark, number, cells, StreamId(prefix, "stream"))


def snapshot(*ids: int, schema: Any = SCHEMA) -> tuple[str, Any]:
    return "snapshot", changes(schema, [("r", None, row(i)) for i in ids])


def values(found: list[Message]) -> list[Any]:
    return [None if m.value is None else json.loads(m.value) for m in found]


def test_key_update_is_a_delete_a_tombstone_and_a_create_that_name_each_other(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    cells = [("log", key_update(i, i + 100, first=i)) for i in range(4)]
    open_sink().write(batch_of(spark, prefix, 0, *cells))
    found = messages(kafka, f"{prefix}.shop.t")
    for i in range(4):
        old, new = (f'{{"id":{n}}}'.encode() for n in (i, i + 100))
        of_old = [m for m in found if m.key == old]
        assert [m.headers for m in of_old] == [(("__debezium.newkey", new),)] * 2
        assert [v and v["op"] for v in values(of_old)] == ["d", None]
        (of_new,) = [m for m in found if m.key == new]
        assert of_new.headers == (("__debezium.oldkey", old),)


def test_batch_begun_by_other_writers_is_completed_by_as_many(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    batch = batch_of(spark, prefix, 0, snapshot(*range(20)), snapshot(*range(20), schema=OTHER))
    first = open_sink(parallelism=3)
    stream = first._open(batch)
    run_writers(
        batch.frame.select("min_seq", "cell"), first._shares.share(batch.id, stream, 3, [SCHEMA, OTHER]), [1]
    )
    open_sink(parallelism=2).write(batch)
    for name in ("t", "u"):
        found = messages(kafka, f"{prefix}.shop.{name}")
        assert sorted(v["after"]["id"] for v in values(found)) == list(range(20))


def test_batch_like_those_before_it_is_read_once_and_another_is_not_begun_in_vain(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    sink = open_sink()
    wider = table(("id", INT), ("name", TEXT), ("more", INT), key=("id",))
    new_schema = changes(wider, [("c", None, row(9) | {"more": 1})], first=90)
    log = [changes(SCHEMA, [("c", None, row(i)) for i in range(n, n + 9)], first=n) for n in (10, 30, 50, 70)]
    batches = [
        [snapshot(1, 2), ("log", log[0])],
        [snapshot(3), ("log", log[1]), ("log", key_update(12, 13, first=45))],
        [("log", log[2]), ("log", new_schema), snapshot(4, schema=OTHER)],
        [("log", log[3])],
    ]
    read_once, written = [], []
    for number, cells in enumerate(batches):
        batch = batch_of(spark, prefix, number, *cells)
        written.append([(str(w.table), w.snapshot_rows, w.changes) for w in sink.write(batch)])
        read_once.append(not batch.once.is_cached)
    assert read_once == [False, True, False, False]
    assert written[1] == [("shop.t", 0, 11), ("shop.t", 1, 0)]
    assert written[3] == [("shop.t", 0, 9)]
    found = messages(kafka, f"{prefix}.shop.t")
    assert len(found) == 3 + 4 * 9 + 3 + 1
    assert {m.key for m in found} == {
        f'{{"id":{i}}}'.encode()
        for i in (1, 2, 3, 9, 12, 13, *(n + i for n in (10, 30, 50, 70) for i in range(9)))
    }
    assert len(messages(kafka, f"{prefix}.shop.u")) == 1


def in_one_task(batch: CellBatch) -> CellBatch:
    return replace(batch, once=batch.once.coalesce(1))


def test_batch_that_one_task_reads_has_one_writer_and_is_read_once(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    wider = table(("id", INT), ("name", TEXT), ("more", INT), key=("id",))
    logs = [
        ("log", changes(SCHEMA, [("u", row(i, str(n - 1)), row(i, str(n))) for i in range(9)], first=10 * n))
        for n in range(8)
    ]
    new_schema = ("log", changes(wider, [("c", None, row(9) | {"more": 1})], first=90))
    batches = [logs[:2], logs[2:4], logs[5:3:-1], [logs[6], new_schema], [logs[7]]]
    sink, read_once = open_sink(parallelism=None), []
    for number, cells in enumerate(batches):
        batch = in_one_task(batch_of(spark, prefix, number, *cells))
        sink.write(batch)
        read_once.append(not batch.once.is_cached)
    # the third is not in order, the fourth has a new schema: what was sent of them is not seen
    assert read_once == [False, True, False, False, False]
    open_sink(parallelism=None).write(batch)
    assert sink._stream is not None
    assert read_markers(sink._client, sink._stream.topic).last["0"].writers == 1
    found = values(messages(kafka, f"{prefix}.shop.t"))
    names = {i: [v["after"]["name"] for v in found if v["after"]["id"] == i] for i in range(9)}
    assert names == {i: [str(n) for n in range(8)] for i in range(9)}
    assert len(found) == 9 * 8 + 1


def test_writers_of_an_earlier_run_write_no_more_once_another_begins(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    batch = in_one_task(batch_of(spark, prefix, 0, ("log", changes(SCHEMA, [("c", None, row(1))]))))
    stream = open_sink(parallelism=None)._open(batch)
    late = [stream._producer(str(writer)) for writer in range(stream._writers)]
    assert len(late) > 1
    for writer, producer in enumerate(late):
        marker = Record(str(writer), stream.marker(0, len(late)))
        producer.begin()
        producer.produce(stream.topic, record_messages([marker]), 30)
    open_sink(parallelism=None).write(batch)  # by one writer
    for producer in late:
        with pytest.raises(KafkaError):
            producer.commit(30)
        producer.close()
    assert len(messages(kafka, f"{prefix}.shop.t")) == 1


def test_messages_that_a_newer_producer_has_kept_out_are_said_to_be_its_doing(
    spark: SparkSession, prefix: str, open_sink: Any
) -> None:
    """Not to be lost: librdkafka drops what waits once it finds that it has been fenced."""
    batch = batch_of(spark, prefix, 0, ("log", changes(SCHEMA, [("c", None, row(1))])))
    stream = open_sink(parallelism=1)._open(batch)
    messages = record_messages([Record("0", stream.marker(0, 1))])

    def produce(producer: Producer) -> None:
        while True:
            producer.produce(stream.topic, messages, 30)

    for call in (produce, lambda producer: producer.deliver(30), lambda producer: producer.commit(30)):
        producer = stream._producer("0")
        producer.begin()
        stream._producer("0").close()
        producer.produce(stream.topic, messages, 30)
        with pytest.raises(KafkaError) as refused:
            call(producer)
        assert refused.value.name in FENCED
        producer.close()


def test_topic_that_was_deleted_is_not_made_again_for_what_is_expected_only(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_FRESH_S", 0)
    sink = open_sink()
    both = [("log", changes(schema, [("c", None, row(1))])) for schema in (SCHEMA, OTHER)]
    sink.write(batch_of(spark, prefix, 0, *both))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([f"{prefix}.shop.u"])[f"{prefix}.shop.u"].result(30)
    wait_until(lambda: f"{prefix}.shop.u" not in admin.list_topics(timeout=10).topics, 30)
    batch = batch_of(spark, prefix, 1, ("log", changes(SCHEMA, [("c", None, row(2))], first=10)))
    sink.write(batch)
    assert not batch.once.is_cached
    assert len(messages(kafka, f"{prefix}.shop.t")) == 2
    assert f"{prefix}.shop.u" not in admin.list_topics(timeout=10).topics
    sink.write(batch_of(spark, prefix, 2, ("log", changes(OTHER, [("c", None, row(2))], first=20))))
    assert len(messages(kafka, f"{prefix}.shop.u")) == 1


def test_topic_that_was_deleted_just_now_costs_one_attempt_at_most(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_THERE_S", 600.0)  # it is deleted after it was looked for
    sink = open_sink()
    sink.write(batch_of(spark, prefix, 0, ("log", changes(SCHEMA, [("c", None, row(1))]))))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([f"{prefix}.shop.t"])[f"{prefix}.shop.t"].result(30)
    batch = batch_of(spark, prefix, 1, ("log", changes(SCHEMA, [("c", None, row(2))], first=10)))
    began = time.monotonic()
    try:
        sink.write(batch)
    except TransientSinkError:
        sink.write(batch)
    assert time.monotonic() - began < 30, "no message waits for its topic until it times out"
    assert [m.key for m in messages(kafka, f"{prefix}.shop.t")] == [b'{"id":2}']


def test_tombstones_can_be_left_out(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    gone = ("log", changes(SCHEMA, [("d", row(1), None)]))
    open_sink(tombstones=False).write(batch_of(spark, prefix, 0, gone))
    assert [v["op"] for v in values(messages(kafka, f"{prefix}.shop.t"))] == ["d"]


LARGE = {"topic_config": {"max.message.bytes": "2000"}}


def test_message_too_large_is_a_clear_error_and_nothing_of_its_share_is_seen(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    large = ("log", changes(SCHEMA, [("c", None, row(1)), ("c", None, row(2, "x" * 3000))]))
    with pytest.raises(SinkError, match=r"a message of table `shop\.t` is larger than topic") as error:
        open_sink(parallelism=1, **LARGE).write(batch_of(spark, prefix, 0, large))
    assert not error.value.retryable
    assert messages(kafka, f"{prefix}.shop.t") == []


@pytest.mark.parametrize("delivery", list(KafkaDelivery))
def test_message_too_large_is_put_aside_with_the_reason_while_the_rest_flows(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any, delivery: KafkaDelivery
) -> None:
    large = ("log", changes(SCHEMA, [("c", None, row(1)), ("c", None, row(2, "x" * 3000))]))
    sink = open_sink(on_refused_row=RefusedRow.QUARANTINE, delivery=delivery, **LARGE)
    sink.write(batch_of(spark, prefix, 0, large, snapshot(1, schema=OTHER)))
    (refused,) = messages(kafka, f"{prefix}.__quarantine")
    assert dict(refused.headers)["__tailrace.refused.topic"] == f"{prefix}.shop.t".encode()
    assert b"max.message.bytes (2000)" in (dict(refused.headers)["__tailrace.refused.reason"] or b"")
    assert refused.key == b'{"id":2}'
    for name in ("t", "u"):
        assert [m.key for m in messages(kafka, f"{prefix}.shop.{name}")] == [b'{"id":1}']


def test_change_that_the_format_has_no_form_for_is_put_aside_once_and_can_be_listed(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    """Connect's TIME is a time of a day; MySQL's reaches from -838 to 838 hours."""
    timed = table(("id", INT), ("at", ColumnType(Kind.TIME, "time", fraction=0)), key=("id",))
    day_s = 86_400
    rows = [("c", None, {"id": n, "at": timedelta(seconds=day_s * (n in (3, 6)) + n)}) for n in range(8)]
    rows += [("d", rows[6][2], None), ("u", rows[1][2], {"id": 1, "at": timedelta(seconds=5)})]
    batch = batch_of(spark, prefix, 0, ("log", changes(timed, rows)), snapshot(1, schema=OTHER))
    settings = {"time_precision_mode": "connect", "parallelism": 2}
    with pytest.raises(SinkError, match="has no form in messages") as refused:
        open_sink(**settings).write(batch)
    assert refused.value.code == "TR-7604"
    for _ in range(2):  # the second time, the batch comes again to another process
        sink = open_sink(on_refused_row=RefusedRow.QUARANTINE, **settings)
        sink.write(batch)
    found = messages(kafka, f"{prefix}.shop.t")
    assert sorted(json.loads(m.key)["id"] for m in found) == [0, 1, 1, 2, 4, 5, 7]
    quarantine = KafkaQuarantine(sink._settings, "stream")
    listed = [(r.table, r.target, r.batch, r.op, r.position, r.key, r.code) for r in quarantine.rows()]
    target = f"{prefix}.shop.t"
    assert sorted(listed, key=str) == [
        ("shop.t", target, 0, "c", "binlog.000001:300", {"id": 3}, "TR-7604"),
        ("shop.t", target, 0, "c", "binlog.000001:600", {"id": 6}, "TR-7604"),
        ("shop.t", target, 0, "d", "binlog.000001:800", {"id": 6}, "TR-7604"),
    ]
    assert {(r.row or {})["at"] for r in quarantine.rows()} == {"1 day, 0:00:03", "1 day, 0:00:06"}
    assert all("adaptive_time_microseconds" in str(r.remedy) for r in quarantine.rows())


def test_more_refused_changes_than_the_quarantine_may_hold_are_an_error_of_their_table(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    def large(number: int, *found: int) -> Any:
        created = [("c", None, row(id_, "x" * 3000 if id_ < 100 else "small")) for id_ in found]
        return batch_of(spark, prefix, number, ("log", changes(SCHEMA, created, first=10 * number)))

    settings = {"on_refused_row": RefusedRow.QUARANTINE, "max_quarantined": 2, "parallelism": 1, **LARGE}
    sink = open_sink(**settings)
    sink.write(large(0, 1, 100))
    sink.write(large(1, 2))
    for _ in range(2):  # also for a process that has to read how many there are
        with pytest.raises(SinkError, match="more refused rows than `max-quarantined`") as full:
            sink.write(large(2, 3, 101))
        assert (full.value.code, full.value.table) == ("TR-7040", "shop.t")
        sink = open_sink(**settings)
    quarantine = KafkaQuarantine(sink._settings, "stream")
    assert [(r.key, r.code, r.batch) for r in quarantine.rows()] == [
        ({"id": 1}, "TR-7407", 0),
        ({"id": 2}, "TR-7407", 1),
    ]
    other = replace(quarantine, stream="another")
    assert (other.rows(), other.clear("shop.t"), quarantine.clear("shop.t")) == ([], 0, 2)
    sink.write(large(2, 3, 101))
    assert [r.key for r in quarantine.rows()] == [{"id": 3}]
    assert len(messages(kafka, f"{prefix}.shop.t")) == 2


def test_schema_changes_are_announced_once_over_restarts(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    wider = table(("id", BIGINT), ("name", TEXT), key=("id",))
    later = ("log", changes(wider, [("c", None, row(9))], first=50))
    batches = [batch_of(spark, prefix, 0, snapshot(1)), batch_of(spark, prefix, 1, later)]
    for batch in (batches[0], batches[0], batches[1], batches[1]):
        open_sink(include_schema_changes=True).write(batch)
    found = values(messages(kafka, prefix))
    assert [v["tableChanges"][0]["type"] for v in found] == ["CREATE", "ALTER"]
    assert found[1]["source"]["pos"] == 5000


def test_statements_are_announced_once_with_their_text_with_rows_or_without(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    wider = table(("id", BIGINT), ("name", TEXT), key=("id",))
    altered = SchemaEvent("shop.t", (), "ALTER TABLE t MODIFY id BIGINT", "0" * 32, 7000, wider)
    swap, gone = "RENAME TABLE t TO x, u TO t", "DROP TABLE t"
    statements = [
        (altered,),
        (SchemaEvent("shop.t", (TableTruncated(),), "TRUNCATE t", "1" * 32, after=wider),),
        (
            SchemaEvent("shop.u", (TableRenamed("shop.t"),), swap, "2" * 32),
            SchemaEvent("shop.t", (RowsRewritten("swapped"),), swap, "2" * 32, after=SCHEMA),
        ),
        (SchemaEvent("shop.t", (TableDropped(),), gone, "3" * 32),),
    ]
    batches = [batch_of(spark, prefix, 0, snapshot(1))]
    for number, events in enumerate(statements, 1):
        cells = [("log", changes(wider, [("c", None, row(9))], first=50))] if number == 1 else []
        end = {"schema": [event.to_json() for event in events]}
        batches.append(replace(batch_of(spark, prefix, number, *cells), end=end))
    for batch in batches:
        for _ in range(2):
            open_sink(include_schema_changes=True).write(batch)
    _, *found = values(messages(kafka, prefix))
    assert [v["ddl"] for v in found] == [altered.ddl, "TRUNCATE t", swap, gone]
    assert [[(c["type"], c["id"], c["table"] is None) for c in v["tableChanges"]] for v in found] == [
        [("ALTER", '"shop"."t"', False)],
        [],
        [("ALTER", '"shop"."u","shop"."t"', True), ("ALTER", '"shop"."t"', False)],
        [("DROP", '"shop"."t"', True)],
    ]
    assert found[0]["source"]["ts_ms"] == 7000


@pytest.mark.parametrize("encoding", [ValueEncoding.DEBEZIUM_JSON, ValueEncoding.CANAL_JSON])
def test_context_headers_name_the_source_and_the_run(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any, encoding: ValueEncoding
) -> None:
    sink = open_sink(extended_headers_enabled=True, value_format=encoding)
    sink.write(batch_of(spark, prefix, 0, snapshot(1)))
    (message,) = messages(kafka, f"{prefix}.shop.t")
    said = {name.removeprefix("__debezium.context."): json.loads(v or b"") for name, v in message.headers}
    assert uuid.UUID(said.pop("runId"))
    assert said == {"connectorLogicalName": prefix, "taskId": "0", "connectorName": "mysql"}


def test_transactions_are_told_with_their_counts(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    sink = open_sink(provide_transaction_metadata=True)
    log = changes(SCHEMA, [("c", None, row(1)), ("c", None, row(2))])
    batch = batch_of(spark, prefix, 0, ("log", log), ("log", changes(OTHER, [("c", None, row(1))], first=1)))
    sink.write(batch)
    sink.write(batch)
    found = values(messages(kafka, f"{prefix}.transaction"))
    assert [(v["status"], v["id"]) for v in found] == [
        ("BEGIN", "server:0"),
        ("END", "server:0"),
        ("BEGIN", "server:1"),
        ("END", "server:1"),
    ]
    assert [c["data_collection"] for c in found[3]["data_collections"]] == ["shop.t", "shop.u"]


def logged_as(txn: str | None, seqs: list[int], schema: Any = SCHEMA) -> tuple[str, Any]:
    """Creates of one transaction that stand at `seqs` of the log."""
    made = changes(schema, [("c", None, row(i)) for i in seqs])
    columns = {f.name: c for f, c in zip(ORIGIN, made.origin.columns, strict=True)}
    columns |= {"seq": pa.array([f"{i:032x}" for i in seqs]), "txn": pa.array([txn] * len(seqs))}
    origin = pa.RecordBatch.from_pylist(pa.RecordBatch.from_pydict(columns).to_pylist(), ORIGIN)
    return "log", replace(made, origin=origin)


def test_envelopes_tell_the_place_in_a_transaction_over_tables_and_cells(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    cells = [
        logged_as("a", [2, 6]),
        logged_as("a", [12]),
        logged_as("a", [4, 8, 10], OTHER),
        logged_as("b", [14], OTHER),
        logged_as(None, [16]),
        snapshot(1, schema=OTHER),
    ]
    sink = open_sink(provide_transaction_metadata=True)
    sink.write(batch_of(spark, prefix, 0, *cells))
    found = [v for name in ("t", "u") for v in values(messages(kafka, f"{prefix}.shop.{name}"))]
    told = {v["after"]["id"]: v["transaction"] and tuple(v["transaction"].values()) for v in found}
    assert told == {
        2: ("a", 1, 1),
        4: ("a", 2, 1),
        6: ("a", 3, 2),
        8: ("a", 4, 2),
        10: ("a", 5, 3),
        12: ("a", 6, 3),
        14: ("b", 1, 1),
        16: None,
        1: None,
    }


def test_heartbeats_come_while_nothing_else_does(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    sink = open_sink(heartbeat_interval_ms=50)
    sink.write(batch_of(spark, prefix, 0, snapshot(1)))
    topic = f"__debezium-heartbeat.{prefix}"
    wait_until(lambda: len(messages(kafka, topic)) >= 3, 60, "three heartbeats")
    found = messages(kafka, topic)
    assert found[0].key == json.dumps({"serverName": prefix}, separators=(",", ":")).encode()
    assert list(values(found)[0]) == ["ts_ms"]


def test_canal_json_has_no_tombstones(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    gone = ("log", changes(SCHEMA, [("c", None, row(1)), ("d", row(1), None)]))
    open_sink(value_format=ValueEncoding.CANAL_JSON).write(batch_of(spark, prefix, 0, gone))
    assert [v["type"] for v in values(messages(kafka, f"{prefix}.shop.t"))] == ["INSERT", "DELETE"]


#: Operations of the messages of an insert and a delete; None: no value.
FLAT = {
    DeleteHandling.TOMBSTONE: ["c", None],
    DeleteHandling.REWRITE: ["c", "d"],
    DeleteHandling.REWRITE_WITH_TOMBSTONE: ["c", "d", None],
}


@pytest.mark.parametrize("deletes", FLAT)
def test_flat_json_has_rows_and_what_a_delete_becomes(
    spark: SparkSession,
    kafka: KafkaServer,
    prefix: str,
    open_sink: Any,
    deletes: DeleteHandling,
) -> None:
    gone = ("log", changes(SCHEMA, [("c", None, row(1)), ("d", row(1), None)]))
    settings = {"value_format": ValueEncoding.FLAT_JSON, "delete_tombstone_handling_mode": deletes}
    sink = open_sink(add_fields=("op", "source.table"), **settings)
    for _ in range(2):  # the batch comes again: it is in the topic once
        sink.write(batch_of(spark, prefix, 0, gone))
    found = messages(kafka, f"{prefix}.shop.t")
    assert len({m.key for m in found}) == 1
    rows = [m.value and json.loads(m.value) for m in found]
    assert [r and r["__op"] for r in rows] == FLAT[deletes]
    assert all(r["__source_table"] == "t" and r["id"] == 1 for r in rows if r)


@pytest.mark.parametrize("encoding", [ValueEncoding.AVRO, ValueEncoding.PROTOBUF])
def test_messages_name_the_schemas_that_were_registered(
    spark: SparkSession,
    kafka: KafkaServer,
    registry: RegistryServer,
    open_sink: Any,
    encoding: ValueEncoding,
) -> None:
    route = RouteRule(r"shop\..", "all")
    settings = {"value_format": encoding, "schema_registry_url": registry.url, "include_schema_changes": True}
    sink = open_sink(route, **settings)
    prefix = sink._settings.topic_prefix
    sink.write(batch_of(spark, prefix, 0, snapshot(1)))
    (message,) = messages(kafka, f"{prefix}.all")
    (told,) = messages(kafka, prefix)
    schemas = sink._format.schemas(SCHEMA)
    assert [s.subject for s in schemas] == [f"{prefix}.all-key", f"{prefix}.all-value"]
    ids = sink._registry.ids((*schemas, *sink._side_topics._streams.schemas("schema_change")))
    found = [int.from_bytes(part[1:5]) for m in (message, told) for part in (m.key or b"", m.value or b"")]
    assert found == list(ids.values())


def test_brokers_that_do_not_answer_are_an_error_that_may_pass(
    spark: SparkSession, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_TIMEOUT_S", 1.0)
    sink = KafkaSink(KafkaSettings("127.0.0.1:1", prefix), Router([]), "mysql")
    with pytest.raises(TransientSinkError, match="Connection refused"):
        sink.write(batch_of(spark, prefix, 0, snapshot(1)))


def test_host_name_that_is_unknown_is_an_error_for_good(spark: SparkSession, prefix: str) -> None:
    sink = KafkaSink(KafkaSettings("no-such-host.invalid:9092", prefix), Router([]), "mysql")
    with pytest.raises(SinkError, match="none of the Kafka brokers' host names resolves") as error:
        sink.write(batch_of(spark, prefix, 0, snapshot(1)))
    assert not error.value.retryable


@pytest.mark.parametrize(
    "properties",
    [
        {"no.such.setting": "1"},
        {"security.protocol": "TLS"},
        {"security.protocol": "SSL", "ssl.ca.location": "/no/such.pem"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"},
    ],
)
def test_setting_that_librdkafka_cannot_use_is_named(properties: dict[str, str]) -> None:
    settings = KafkaSettings("127.0.0.1:1", "p", properties=properties)
    with pytest.raises(SinkError, match=rf"no\.such\.setting|{'|'.join(properties)}") as error:
        KafkaSink(settings, Router([]), "mysql")
    assert not error.value.retryable

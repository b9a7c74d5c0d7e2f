"""Message keys and partitions by other columns, in the Kafka sink with a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.kafka import KafkaSettings
from tailrace.errors import ConfigError, SinkError
from tailrace.kernels.murmur import partitions_of
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableId
from tailrace.sinks.base import CellBatch, StreamId
from tailrace.sinks.kafka import batch as kafka_batch
from tailrace.sinks.kafka.job import run_writers
from tailrace.sinks.kafka.sink import KafkaSink
from tailrace.sinks.route import Router
from tailrace_dev.servers import KafkaServer
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, changes, table
from tests.support.topics import Message, messages

ITEMS = table(("id", INT), ("owner", INT), ("name", TEXT), key=("id",), name="shop.items")
PAIRS = table(("id", INT), ("owner", INT), ("name", TEXT), key=("id", "owner"), name="shop.pairs")


@pytest.fixture
def prefix() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
def open_sink(kafka: KafkaServer, prefix: str) -> Iterator[Callable[..., KafkaSink]]:
    opened: list[KafkaSink] = []

    def open_(**given: Any) -> KafkaSink:
        settings = {"topic_partitions": 3, "parallelism": 3, **given}
        opened.append(KafkaSink(KafkaSettings(kafka.bootstrap, prefix, **settings), Router(()), "mysql"))
        return opened[-1]

    yield open_
    for sink in opened:
        sink.close()


def row(id_: int, owner: int, name: str = "a") -> dict[str, Any]:
    return {"id": id_, "owner": owner, "name": name}


def batch_of(spark: SparkSession, prefix: str, number: int, *batches: ChangeBatch) -> CellBatch:
    return cell_batch(spark, number, [(b.kind, b) for b in batches], StreamId(prefix, "stream"))


def partition(key: str, partitions: int = 3) -> int:
    return int(partitions_of(pa.array([key.encode()], pa.binary()), partitions)[0])


def rounds(count: int) -> tuple[list[ChangeBatch], dict[int, dict[str, Any]]]:
    """Cells in which each of 12 rows goes from owner to owner, and the rows after them."""
    state = {i: row(i, i % 4) for i in range(12)}
    cells = [changes(ITEMS, [("r", None, r) for r in state.values()])]
    for n in range(1, count):
        made = []
        for i, old in state.items():
            new = row(i, (old["owner"] + (i + n) % 2) % 4, f"n{n}")
            made.append(("u", old, new))
            state[i] = new
        cells.append(changes(ITEMS, made, first=100 * n))
    return cells, state


def rows_by_key(found: list[Message]) -> dict[int, dict[int, Any]]:
    """What a consumer has that keeps the rows of each message key apart; fails if their order is wrong."""
    rows: dict[int, dict[int, Any]] = {}
    for message in found:
        assert message.key is not None
        assert message.partition == partition(message.key.decode())
        if message.value is None:
            continue
        value = json.loads(message.value)
        of_key = rows.setdefault(json.loads(message.key)["owner"], {})
        if value["before"] is not None:
            assert of_key.pop(value["before"]["id"]) == value["before"]
        if value["after"] is not None:
            of_key[value["after"]["id"]] = value["after"]
    return {owner: of_key for owner, of_key in rows.items() if of_key}


def by_owner(state: dict[int, dict[str, Any]]) -> dict[int, dict[int, Any]]:
    owners = {r["owner"] for r in state.values()}
    return {owner: {i: r for i, r in state.items() if r["owner"] == owner} for owner in owners}


def test_each_message_key_has_its_rows_in_order_over_cells_batches_and_restarts(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    cells, state = rounds(9)
    keys = {"message_key_columns": "shop[.]items:owner"}
    sink = open_sink(**keys)
    sink.write(batch_of(spark, prefix, 0, *cells[:3]))
    second = batch_of(spark, prefix, 1, *reversed(cells[3:6]))
    sink.write(second)
    third = batch_of(spark, prefix, 2, *cells[6:])
    with pytest.MonkeyPatch.context() as patched:

        def some(cells: Any, share: Any, missing: Any) -> Any:
            run_writers(cells, share, [1])
            raise InterruptedError

        patched.setattr(kafka_batch, "run_writers", some)
        with pytest.raises(InterruptedError):
            open_sink(**keys).write(third)
    open_sink(**keys, parallelism=1).write(third)
    found = messages(kafka, f"{prefix}.shop.items")
    assert rows_by_key(found) == by_owner(state)
    updates = [m for m in found if m.value is not None and json.loads(m.value)["op"] == "d"]
    assert len(updates) == sum((i + n) % 2 for i in range(12) for n in range(1, 9))
    assert {m.headers[0][0] for m in updates} == {"__debezium.newkey"}


def test_batch_is_read_once_with_message_keys(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    cells, state = rounds(4)
    sink = open_sink(message_key_columns=".*:owner")
    read_once = []
    for number, cell in enumerate(cells):
        batch = batch_of(spark, prefix, number, cell)
        sink.write(batch)
        read_once.append(not batch.once.is_cached)
    assert read_once == [False, True, True, True]
    assert rows_by_key(messages(kafka, f"{prefix}.shop.items")) == by_owner(state)


def test_transactions_count_the_messages_of_message_keys(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    made = changes(ITEMS, [("u", row(1, 1), row(1, 2)), ("u", row(2, 1), row(2, 1, "b"))])
    one = pa.array(["txn"] * 2).dictionary_encode()
    made = ChangeBatch(made.table, made.op, made.before, made.after, made.origin.set_column(2, "txn", one))
    sink = open_sink(message_key_columns=".*:owner", provide_transaction_metadata=True)
    sink.write(batch_of(spark, prefix, 0, made))
    _, end = (json.loads(m.value or b"") for m in messages(kafka, f"{prefix}.transaction"))
    assert end["event_count"] == 3
    found = [json.loads(m.value) for m in messages(kafka, f"{prefix}.shop.items") if m.value is not None]
    assert sorted((v["transaction"]["total_order"], v["op"]) for v in found) == [(1, "d"), (2, "c"), (3, "u")]


def test_rows_of_one_value_are_in_one_partition_in_the_order_of_the_log(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    sink = open_sink(partition_by="shop[.]pairs:owner")
    rows = [row(i, i % 7) for i in range(140)]
    cells = [
        changes(PAIRS, [("c", None, r) for r in rows[at : at + 35]], first=at) for at in (105, 0, 70, 35)
    ]
    gone = changes(PAIRS, [("d", r, None) for r in rows[:20]], first=500)
    sink.write(batch_of(spark, prefix, 0, *cells, gone))
    found = messages(kafka, f"{prefix}.shop.pairs")
    for owner in range(7):
        of_owner = [m for m in found if json.loads(m.key or b"")["owner"] == owner]
        assert {m.partition for m in of_owner} == {partition(f'{{"owner":{owner}}}')}
        expected = [("c", r["id"]) for r in rows if r["owner"] == owner]
        expected += [("d", r["id"]) for r in rows[:20] if r["owner"] == owner]
        told = [json.loads(m.value) for m in of_owner if m.value is not None]
        assert [(v["op"], (v["after"] or v["before"])["id"]) for v in told] == expected
    assert sum(m.value is None for m in found) == 20


def test_partition_by_a_column_outside_the_key_is_refused(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    batch = batch_of(spark, prefix, 0, changes(ITEMS, [("c", None, row(1, 1))]))
    with pytest.raises(SinkError) as refused:
        open_sink(partition_by=".*:owner").write(batch)
    assert (refused.value.code, refused.value.table) == ("TR-7610", "shop.items")
    keys = {"message_key_columns": ".*:owner,id", "partition_by": ".*:owner"}
    open_sink(**keys, headers={"origin": "shop"}).write(batch)
    (message,) = messages(kafka, f"{prefix}.shop.items")
    assert message.headers == (("origin", b"shop"),)
    assert (message.key, message.partition) == (b'{"id":1,"owner":1}', partition('{"owner":1}'))


def test_topics_have_the_rows_with_their_value_each_change_once(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    cells, state = rounds(9)
    given = {"message_key_columns": ".*:owner,id", "topic_by": "shop[.]items:owner"}
    sink = open_sink(**given)
    read_once = []
    for number, cell in enumerate(cells[:6]):
        batch = batch_of(spark, prefix, number, cell)
        sink.write(batch)
        read_once.append(not batch.once.is_cached)
    assert read_once == [False, True, True, True, True, True]
    last = batch_of(spark, prefix, 6, *cells[6:])
    with pytest.MonkeyPatch.context() as patched:

        def some(cells: Any, share: Any, missing: Any) -> Any:
            run_writers(cells, share, [0])
            raise InterruptedError

        patched.setattr(kafka_batch, "run_writers", some)
        with pytest.raises(InterruptedError):
            open_sink(**given).write(last)
    sink = open_sink(**given)
    sink.write(last)
    found = [messages(kafka, f"{prefix}.shop.items.{owner}") for owner in range(4)]
    assert [rows_by_key(of_owner).get(owner) for owner, of_owner in enumerate(found)] == [
        by_owner(state).get(owner) for owner in range(4)
    ]
    assert {owner for of_owner in found for owner in rows_by_key(of_owner)} == by_owner(state).keys()
    moves = sum((i + n) % 2 for i in range(12) for n in range(1, 9))
    stays = 12 * 8 - moves
    assert sum(map(len, found)) == 12 + 3 * moves + stays
    assert messages(kafka, f"{prefix}.shop.items") == []
    # a new value is a new topic
    sink.write(batch_of(spark, prefix, 7, changes(ITEMS, [("c", None, row(77, 9))], first=9000)))
    assert len(messages(kafka, f"{prefix}.shop.items.9")) == 1


def test_tables_share_a_topic_and_are_told_apart_by_their_keys(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    others = replace(ITEMS, id=TableId("shop", "items_2"))
    sink = open_sink(topic_regex=rf"{prefix}\.shop\.items.*", topic_replacement=f"{prefix}.all")
    made = [changes(ITEMS, [("c", None, row(1, 2))]), changes(others, [("c", None, row(1, 3))], first=1)]
    pairs = changes(PAIRS, [("c", None, row(1, 2))], first=2)
    sink.write(batch_of(spark, prefix, 0, *made, pairs))
    found = messages(kafka, f"{prefix}.all")
    fields = {f"{prefix}.shop.items": 2, f"{prefix}.shop.items_2": 3}
    assert {
        json.loads(m.key)["__dbz__physicalTableIdentifier"]: json.loads(m.value)["after"]["owner"]
        for m in found
    } == fields
    assert (len(found), len(messages(kafka, f"{prefix}.shop.pairs"))) == (2, 1)
    assert messages(kafka, f"{prefix}.shop.items") == []
    wrong = open_sink(topic_regex=".*", topic_replacement="a b")
    with pytest.raises(ConfigError, match="a name that Kafka does not allow") as refused:
        wrong.claim([ITEMS.id])
    assert refused.value.code == "TR-1070"

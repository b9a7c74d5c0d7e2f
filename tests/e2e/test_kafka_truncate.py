"""TRUNCATE in Kafka's topics as Debezium writes it, and operations that are left out."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.kafka import KafkaSettings, ValueEncoding
from tailrace.config.load import parse_pipeline
from tailrace.model.change import ChangeBatch
from tailrace.model.schema_change import SchemaEvent, TableTruncated
from tailrace.model.table import TableSchema
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.base import CellBatch, StreamId
from tailrace.sinks.kafka.job import run_writers
from tailrace.sinks.kafka.sink import KafkaSink
from tailrace.sinks.registry import make_sinks
from tailrace.sinks.route import Router
from tailrace.sources.postgres.position import seq_of_truncate
from tailrace_dev.servers import KafkaServer, RegistryServer
from tests.e2e.test_kafka_sink import OTHER, SCHEMA, row, values
from tests.e2e.test_mariadb import _Quiet
from tests.support.cells import cell_batch
from tests.support.changes import changes
from tests.support.topics import messages
from tests.unit.sinks.kafka.test_writer import key_update


@pytest.fixture
def prefix() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
def open_sink(kafka: KafkaServer, prefix: str) -> Iterator[Callable[..., KafkaSink]]:
    opened: list[KafkaSink] = []

    def open_(connector: str = "postgresql", **given: Any) -> KafkaSink:
        settings = KafkaSettings(
            kafka.bootstrap, prefix, **{"topic_partitions": 1, "parallelism": 2, **given}
        )
        opened.append(KafkaSink(settings, Router(()), connector, "db"))
        return opened[-1]

    yield open_
    for sink in opened:
        sink.close()


def truncated(table: str = "shop.t", commit: int = 0, lsn: int = 0) -> SchemaEvent:
    """A TRUNCATE of PostgreSQL in the transaction of `changes`, whose numbers are hundreds as LSNs."""
    origin = {"ts_us": 1_700_000_000_000_000, "txn": "77", "pos": lsn}
    shown = SCHEMA if table == "shop.t" else OTHER
    return SchemaEvent(
        table, (TableTruncated(),), seq=seq_of_truncate(commit, lsn), origin=origin, shown=shown
    )


def logged(schema: TableSchema, rows: list[Any], first: int = 0) -> ChangeBatch:
    """Changes of one transaction of PostgreSQL."""
    found = changes(schema, rows, first=first)
    numbers = pa.array([0] * len(found), pa.int32())
    txn = pa.DictionaryArray.from_arrays(numbers, pa.array(["77"]))
    at = found.origin.schema.get_field_index("txn")
    return replace(found, origin=found.origin.set_column(at, found.origin.schema.field(at), txn))


def in_one(batch: ChangeBatch, connector: str) -> ChangeBatch:
    """`batch` with transactions as the connector has them."""
    if connector != "postgresql":
        return batch
    return replace(
        batch,
        origin=logged(batch.table, [("d", None, None)] * len(batch)).origin.set_column(
            0, "seq", batch.origin.column("seq")
        ),
    )


def batch_of(
    spark: SparkSession, prefix: str, number: int, events: list[SchemaEvent], *cells: tuple[str, Any]
) -> CellBatch:
    made = cell_batch(spark, number, cells, StreamId(prefix, "stream"))
    return replace(made, end={"schema": [event.to_json() for event in events]})


def ops(found: list[Any]) -> list[Any]:
    return [v and (v["op"], (v["after"] or v["before"] or {}).get("id")) for v in found]


def test_truncate_stands_between_the_changes_before_and_after_it_and_comes_once(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    log = logged(SCHEMA, [("c", None, row(i)) for i in range(20)])
    of_other = logged(OTHER, [("c", None, row(i)) for i in range(4)])
    events = [truncated(lsn=750), truncated("shop.u", lsn=750), truncated(lsn=1650)]
    first = batch_of(spark, prefix, 0, events, ("log", log), ("log", of_other))
    alone = batch_of(spark, prefix, 1, [truncated(commit=7, lsn=9000)])
    for batch in (first, first, alone, alone):
        open_sink(skipped_operations=("none",)).write(batch)
    found = messages(kafka, f"{prefix}.shop.t")
    told = [("c", i) for i in range(20)]
    assert ops(values(found)) == [*told[:8], ("t", None), *told[8:17], ("t", None), *told[17:], ("t", None)]
    assert [m.key for m in found if json.loads(m.value)["op"] == "t"] == [None] * 3
    of_table = json.loads(found[8].value)
    assert list(of_table) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert (of_table["before"], of_table["after"], of_table["transaction"]) == (None, None, None)
    source = of_table["source"]
    assert {name: source[name] for name in ("db", "schema", "table", "txId", "lsn", "snapshot")} == {
        "db": "db",
        "schema": "shop",
        "table": "t",
        "txId": 77,
        "lsn": 750,
        "snapshot": "false",
    }
    assert (source["ts_ms"], source["sequence"]) == (1_700_000_000_000, '["0","750"]')
    others = ops(values(messages(kafka, f"{prefix}.shop.u")))
    assert others == [*(("c", i) for i in range(4)), ("t", None)]


def test_truncate_is_left_out_unless_it_is_asked_for(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    log = ("log", logged(SCHEMA, [("c", None, row(1))]))
    open_sink().write(batch_of(spark, prefix, 0, [truncated(lsn=1)], log))
    assert ops(values(messages(kafka, f"{prefix}.shop.t"))) == [("c", 1)]


def test_batch_that_comes_again_with_other_settings_loses_nothing(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logged(SCHEMA, [("c", None, row(i)) for i in range(20)])
    batch = batch_of(spark, prefix, 0, [truncated(lsn=750)], ("log", log))

    def some(cells: Any, share: Any, missing: Any) -> Any:
        run_writers(cells, share, missing[:1])
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr("tailrace.sinks.kafka.batch.run_writers", some)
        with pytest.raises(InterruptedError):
            open_sink(parallelism=3).write(batch)
    open_sink(skipped_operations=("none",), parallelism=3).write(batch)
    found = ops(values(messages(kafka, f"{prefix}.shop.t")))
    assert [change for change in found if change[0] == "c"] == [("c", i) for i in range(20)]


@pytest.mark.parametrize("encoding", [ValueEncoding.AVRO, ValueEncoding.PROTOBUF])
def test_truncate_has_the_registered_schema_of_its_table(
    *,
    spark: SparkSession,
    kafka: KafkaServer,
    registry: RegistryServer,
    prefix: str,
    open_sink: Any,
    encoding: ValueEncoding,
) -> None:
    log = ("log", logged(SCHEMA, [("c", None, row(1))]))
    sink = open_sink(skipped_operations=("none",), value_format=encoding, schema_registry_url=registry.url)
    sink.write(batch_of(spark, prefix, 0, [truncated(lsn=50)], log))
    created, gone = messages(kafka, f"{prefix}.shop.t")
    assert created.key is not None
    assert gone.key is None
    assert gone.value is not None
    assert created.value is not None
    assert gone.value[:5] == created.value[:5], "the schema's id"
    assert len(gone.value) < len(created.value)


def test_truncate_counts_in_its_transaction_as_every_change(
    spark: SparkSession, kafka: KafkaServer, prefix: str, open_sink: Any
) -> None:
    log = logged(SCHEMA, [("c", None, row(i)) for i in range(3)])
    batch = batch_of(spark, prefix, 0, [truncated(lsn=150)], ("log", log))
    open_sink(skipped_operations=("c",), provide_transaction_metadata=True).write(batch)
    (gone,) = values(messages(kafka, f"{prefix}.shop.t"))
    assert gone["op"] == "t"
    assert gone["transaction"] == {"id": "77", "total_order": 1, "data_collection_order": 1}
    begin, end = values(messages(kafka, f"{prefix}.transaction"))
    assert (begin["status"], end["event_count"]) == ("BEGIN", 1)


@pytest.mark.parametrize(
    ("skipped", "connector", "left"),
    [
        ("d", "mysql", ["c", "u", "c"]),
        ("u", "mysql", ["c", "d", None]),
        ("u", "postgresql", ["c", "d", None, "c", "d", None]),
        ("c", "mysql", ["u", "d", None, "d", None]),
    ],
)
def test_operations_are_left_out_as_by_debezium(
    *,
    spark: SparkSession,
    kafka: KafkaServer,
    prefix: str,
    open_sink: Any,
    skipped: str,
    connector: str,
    left: list[Any],
) -> None:
    log = changes(SCHEMA, [("c", None, row(1)), ("u", row(1), row(1, "x"))])
    update = key_update(1, 2, first=10)
    gone = changes(SCHEMA, [("d", row(2), None)], first=20)
    sink = open_sink(connector, skipped_operations=(skipped, "t"), parallelism=1)
    cells = [("log", in_one(part, connector)) for part in (log, update, gone)]
    sink.write(batch_of(spark, prefix, 0, [], *cells))
    found = [v and v["op"] for v in values(messages(kafka, f"{prefix}.shop.t"))]
    order = {"u": 0, "c": 1, "d": 2, None: 3}
    assert sorted(found, key=order.__getitem__) == sorted(left, key=order.__getitem__)


def _run(spark: SparkSession, kafka: KafkaServer, prefix: str, source: str, checkpoint: Path) -> None:
    pipeline = parse_pipeline(
        f"source: {{{source}}}\n"
        f"sink: {{type: kafka, bootstrap-servers: '{kafka.bootstrap}', topic-prefix: {prefix},"
        " topic-partitions: 1, skipped-operations: none}\n"
        f"pipeline: {{name: {prefix}, trigger: available-now, checkpoint: '{checkpoint}'}}\n"
    )
    with closing(make_sinks(pipeline)) as sink:
        Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()


def _told(kafka: KafkaServer, topic: str) -> list[Any]:
    """The messages without the rows of a table that is read again."""
    found = values(messages(kafka, topic))
    return [v for v in found if v["source"]["snapshot"] != "incremental"]


@pytest.mark.parametrize("product", ["mysql", pytest.param("mariadb", marks=pytest.mark.slow)])
def test_truncate_of_mysql_and_mariadb_comes_in_the_order_of_the_log(
    *,
    request: pytest.FixtureRequest,
    spark: SparkSession,
    kafka: KafkaServer,
    prefix: str,
    tmp_path: Path,
    product: str,
) -> None:
    server = request.getfixturevalue(product)
    database = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")
    table = f"{database}.t"
    server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
    source = (
        f"url: '{product}://{server.host}:{server.port}', user: {server.user}, password: {server.password},"
        f" tables: '{table}'"
    )
    _run(spark, kafka, prefix, source, tmp_path)
    server.execute(
        f"INSERT INTO {table} VALUES (2)",
        f"TRUNCATE TABLE {table}",
        f"INSERT INTO {table} VALUES (3)",
        f"ALTER TABLE {table} ADD COLUMN v INT",
        f"TRUNCATE {table}",
        f"INSERT INTO {table} VALUES (4, 4)",
    )
    _run(spark, kafka, prefix, source, tmp_path)
    found = _told(kafka, f"{prefix}.{table}")
    expected = [("r", 1), ("c", 2), ("t", None), ("c", 3), ("t", None), ("c", 4)]
    assert ops(found) == expected
    before, gone, after = (v["source"] for v in found[1:4])
    assert (gone["db"], gone["table"], gone["row"], gone["thread"]) == (database, "t", 0, None)
    assert (before["file"], gone["server_id"]) == (gone["file"], before["server_id"])
    assert before["pos"] < gone["pos"] < after["pos"]
    assert before["ts_ms"] - 1000 <= gone["ts_ms"] <= after["ts_ms"] + 1000
    if product == "mysql":
        numbers = [int(v["gtid"].rpartition(":")[2]) for v in (before, gone, after)]
        assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    else:
        assert gone["gtid"].rpartition("-")[0] == before["gtid"].rpartition("-")[0]
        assert int(gone["gtid"].rpartition("-")[2]) == int(before["gtid"].rpartition("-")[2]) + 1


def test_truncate_of_postgresql_comes_in_the_midst_of_its_transaction(
    *,
    postgres: Any,
    postgres_database: str,
    spark: SparkSession,
    kafka: KafkaServer,
    prefix: str,
    tmp_path: Path,
) -> None:
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE u (id int PRIMARY KEY REFERENCES t)",
        "INSERT INTO t VALUES (1)",
        database=postgres_database,
    )
    source = (
        f"url: '{postgres.url}/{postgres_database}', user: postgres, password: {postgres.password},"
        f" tables: 'public.*', slot-name: slot_{postgres_database}"
    )
    _run(spark, kafka, prefix, source, tmp_path)
    postgres.execute(
        "BEGIN; INSERT INTO t VALUES (2); INSERT INTO u VALUES (2); TRUNCATE t CASCADE;"
        " INSERT INTO t VALUES (3); SAVEPOINT s; TRUNCATE t CASCADE; ROLLBACK TO s;"
        " INSERT INTO t VALUES (4); COMMIT",
        "INSERT INTO t VALUES (5)",
        "TRUNCATE u",
        database=postgres_database,
    )
    _run(spark, kafka, prefix, source, tmp_path)
    found = _told(kafka, f"{prefix}.public.t")
    assert ops(found) == [("r", 1), ("c", 2), ("t", None), ("c", 3), ("c", 4), ("c", 5)]
    before, gone, after = (v["source"] for v in found[1:4])
    assert before["txId"] == gone["txId"] == after["txId"]
    assert before["lsn"] < gone["lsn"] < after["lsn"]
    assert before["ts_us"] == gone["ts_us"]
    assert ops(_told(kafka, f"{prefix}.public.u")) == [("c", 2), ("t", None), ("t", None)]

"""Owners that lose their lease in the middle of what they do: nothing of theirs is committed any more."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tailrace.config.kafka import KafkaSettings
from tailrace.config.message_sinks import RedisSettings
from tailrace.config.sinks import (
    DeltaSettings,
    DuckDbSettings,
    IcebergSettings,
    ParquetSettings,
    ReplicaTransaction,
    WriteMode,
)
from tailrace.errors import LeaseLostError, TransientSinkError
from tailrace.sinks import files
from tailrace.sinks.base import CellBatch, StreamId
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.delta.table import DeltaTable, TableDefinition, of_lease
from tailrace.sinks.delta.transaction import CommitMark, delta_conflict
from tailrace.sinks.duckdb.client import connected
from tailrace.sinks.duckdb.sink import DuckSink
from tailrace.sinks.files import FileSink
from tailrace.sinks.iceberg import sink as iceberg
from tailrace.sinks.iceberg.sink import IcebergSink
from tailrace.sinks.kafka.librdkafka import KafkaError
from tailrace.sinks.kafka.sink import KafkaSink
from tailrace.sinks.kafka.transactions import open_transaction
from tailrace.sinks.messages.sink import MessageSink, message_sink
from tailrace.sinks.redis.client import RedisAccess
from tailrace.sinks.redis.scripts import APPEND, keys
from tailrace.sinks.redis.sink import RedisStreams
from tailrace.sinks.replica.ledger import Entry, Ledger
from tailrace.sinks.replica.sink import ReplicaSink, open_dialect
from tailrace.sinks.route import Router
from tailrace.spark.sql import OwnSessions
from tests.support.cells import STREAM, cell_batch
from tests.support.changes import BIGINT, TEXT, changes, table
from tests.support.sinks.duckdb import rows_of as duckdb_rows
from tests.support.sinks.iceberg import open_table, table_rows
from tests.support.sinks.redis import entries
from tests.support.sinks.replica import replica_target
from tests.support.topics import messages

SCHEMA = table(("id", BIGINT), ("name", TEXT), key=("id",))
EVERYTHING = Router([])
FORMER, PRESENT = (replace(STREAM, lease=lease) for lease in (1, 2))


def batch(spark: SparkSession, number: int, stream: Any) -> CellBatch:
    row = {"id": 1, "name": f"of {number}"}
    if number == 0:
        return cell_batch(spark, 0, [("snapshot", changes(SCHEMA, [("r", None, row)]))], stream)
    before = {"id": 1, "name": f"of {number - 1}"}
    return cell_batch(spark, number, [("log", changes(SCHEMA, [("u", before, row)], first=number))], stream)


def test_delta_refuses_what_began_before_a_newer_lease_and_what_begins_after(
    spark: SparkSession, tmp_path: Path
) -> None:
    held = DeltaTable(OwnSessions(spark), str(tmp_path / "t"))
    held.create(TableDefinition(pa.schema([("id", pa.int64())]), of_lease(FORMER)))
    mark = CommitMark("app", 1, STREAM.query, "{}", FORMER.lease)
    begun, state = held.begin(), held.state()
    assert state is not None
    assert held.claim(state, PRESENT).lease == 2
    with pytest.raises(Py4JJavaError) as refused:
        begun.commit([], mark)
    assert "MetadataChanged" in (delta_conflict(refused.value) or "")
    with pytest.raises(LeaseLostError):
        held.begin().commit([], mark)
    with pytest.raises(LeaseLostError):
        held.append_rows(pa.RecordBatch.from_pylist([{"id": 1}]), mark)
    with pytest.raises(LeaseLostError), held.marked(mark):
        pass
    after = held.state()
    assert after is not None
    with pytest.raises(LeaseLostError):
        held.claim(after, FORMER)
    assert "app" not in after.transactions
    assert held.read().count() == 0


def test_delta_sink_without_its_lease_merges_nothing_when_it_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = DeltaSettings(str(tmp_path), WriteMode.UPSERT, merge_interval=3600)
    former, present = DeltaSink(settings, EVERYTHING), DeltaSink(settings, EVERYTHING)
    for number in (0, 1, 2):  # batch 2 waits to be merged
        former.write(batch(spark, number, FORMER))
    present.write(batch(spark, 3, PRESENT))
    version = DeltaTable(OwnSessions(spark), str(tmp_path / "shop.t")).state()
    with pytest.raises(LeaseLostError):
        former.close()
    with pytest.raises(LeaseLostError):
        DeltaSink(settings, EVERYTHING, lease=1).close()  # a run that had no batch
    assert DeltaTable(OwnSessions(spark), str(tmp_path / "shop.t")).state() == version
    present.close()
    assert [row.name for row in spark.read.format("delta").load(str(tmp_path / "shop.t")).collect()] == [
        "of 3"
    ]


def test_iceberg_appends_no_batch_that_another_owner_has_just_appended(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = IcebergSettings(str(tmp_path), WriteMode.CHANGELOG)
    commit = iceberg._Target._commit

    def after_the_other(self: Any, *given: Any) -> None:
        monkeypatch.undo()
        with closing(IcebergSink(settings, EVERYTHING)) as present:
            present.write(batch(spark, 1, PRESENT))
        commit(self, *given)

    with closing(IcebergSink(settings, EVERYTHING)) as former:
        former.write(batch(spark, 0, FORMER))
        monkeypatch.setattr(iceberg._Target, "_commit", after_the_other)
        with pytest.raises(TransientSinkError, match="was not committed"):
            former.write(batch(spark, 1, FORMER))
        with pytest.raises(LeaseLostError):
            former.write(batch(spark, 1, FORMER))
    assert [row["name"] for row in table_rows(tmp_path, "shop.t").sort_by("_seq").to_pylist()] == [
        "of 0",
        "of 1",
    ]
    with open_table(tmp_path, "shop.t") as held:
        leases = [snapshot.summary["tailrace.lease"] for snapshot in held.snapshots() if snapshot.summary]
    assert leases == ["1", "2"]


@pytest.mark.parametrize("product", ["mysql", "postgres"])
def test_replica_of_an_older_version_gets_leases_and_refuses_a_late_end(
    spark: SparkSession, request: pytest.FixtureRequest, product: str
) -> None:
    target = replica_target(request, product, ReplicaTransaction.PARTS)
    with closing(ReplicaSink(target.settings, EVERYTHING)) as sink:
        sink.write(batch(spark, 0, STREAM))
    target.execute(f"ALTER TABLE {target.notes}._tailrace DROP COLUMN lease")
    with closing(ReplicaSink(target.settings, EVERYTHING)) as sink:
        sink.write(batch(spark, 1, FORMER))
    dialect = open_dialect(target.settings, "mysql")
    ledger, layout, units = Ledger(dialect), {"shop.t": "layout"}, {"shop.t": ["b0"]}
    with closing(dialect.connect()) as session:

        def entry() -> Entry:
            return ledger.entries(session, ["shop.t"])["shop.t"]

        assert (entry().lease, entry().done) == (1, 1)
        ledger.begin(session, 2, "former", layout, units, lease=1)
        ledger.begin(session, 2, "present", layout, units, lease=2)
        ledger.finish(session, 2, ["shop.t"], None, "present")
        ledger.begin(session, 3, "present again", layout, units, lease=2)
        with pytest.raises(TransientSinkError, match="another run"):
            ledger.finish(session, 2, ["shop.t"], None, "former")
        ledger.set_epoch(session, ["shop.t"], "former again", lease=1)
        ledger.lock_epoch(session, "shop.t", "present again")
        with pytest.raises(LeaseLostError):
            ledger.begin(session, 3, "former again", layout, units, lease=1)
        session.run("ROLLBACK")
        assert (entry().begun, entry().done, entry().lease) == (3, 2, 2)
    assert noted(target.rows("_tailrace")) == {"shop.t": 2}


def test_duckdb_of_an_older_version_gets_leases_and_refuses_an_older_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = DuckDbSettings(database=str(tmp_path / "shop.duckdb"))

    def write(number: int, stream: StreamId) -> None:
        with closing(DuckSink(settings, EVERYTHING)) as sink:
            sink.write(batch(spark, number, stream))

    write(0, STREAM)
    with connected(settings) as connection:
        connection.execute("ALTER TABLE db._tailrace.targets DROP COLUMN lease")
    write(1, FORMER)
    write(1, PRESENT)  # has nothing to write
    write(2, PRESENT)
    for number in (2, 3):
        with pytest.raises(LeaseLostError):
            write(number, FORMER)
    write(3, STREAM)
    with pytest.raises(LeaseLostError):
        write(4, FORMER)
    assert [row["name"] for row in duckdb_rows(settings, "shop.t")] == ["of 3"]


def test_redis_takes_nothing_more_of_a_task_whose_owner_has_lost_the_lease(
    spark: SparkSession, redis: Any
) -> None:
    settings = RedisSettings(url=redis.url, topic_prefix=f"t{uuid.uuid4().hex[:8]}", parallelism=1)
    name = f"{settings.topic_prefix}.shop.t"

    def of(stream: StreamId, number: int) -> MessageSink:
        sink = message_sink(settings, EVERYTHING, RedisStreams(settings, EVERYTHING), "mysql")
        sink.write(batch(spark, number, stream))
        return sink

    with closing(of(FORMER, 0)) as former:
        begun = RedisStreams(settings, EVERYTHING)
        begun.begin(batch(spark, 1, FORMER), 1, is_first=True)
        late = begun.channels({name}, ())
        of(PRESENT, 1).close()
        with pytest.raises(LeaseLostError) as refused, RedisAccess.of(settings).client() as client:
            client.register_script(APPEND)(keys=list(keys(name)), args=[STREAM.query, 1, late.lease, 0])
        assert name in str(refused.value)
        with pytest.raises(LeaseLostError):
            former.write(batch(spark, 1, FORMER))
        with RedisAccess.of(settings).client() as client:
            client.delete(name)
        with pytest.raises(LeaseLostError):
            of(FORMER, 2)  # nor does it make the stream anew
    of(PRESENT, 2).close()
    with RedisAccess.of(settings).client() as client:
        assert client.hget(keys(name)[1], "lease") == b"2"
    assert [json.loads(entry["value"])["after"]["name"] for entry in entries(settings, name)] == ["of 2"]


def test_kafka_ends_the_transaction_of_a_task_whose_owner_has_lost_the_lease(
    spark: SparkSession, kafka: Any
) -> None:
    prefix = f"t{uuid.uuid4().hex[:8]}"
    settings = KafkaSettings(kafka.bootstrap, prefix, parallelism=1, tombstones=False)

    def of(number: int, lease: int) -> CellBatch:
        return batch(spark, number, replace(STREAM, pipeline=prefix, lease=lease))

    with (
        closing(KafkaSink(settings, EVERYTHING, "mysql")) as former,
        closing(KafkaSink(settings, EVERYTHING, "mysql")) as present,
    ):
        former.write(of(0, 1))
        share = former._shares.share(1, former._open(of(1, 1)), 1, [SCHEMA])
        task = open_transaction(share, 0)
        row = {"id": 1, "name": "of 1"}
        task.write(changes(SCHEMA, [("u", {"id": 1, "name": "of 0"}, row)], first=1))
        task._kept.producer.deliver(30)  # its messages are there, and its transaction is open
        present.write(of(1, 2))
        with pytest.raises(KafkaError):
            task.finish()
        task.drop()
        present.write(of(2, 2))
        # a first attempt may find that the other has ended the producer that its process has kept
        for sink, late in ((former, of(1, 1)), (present, of(3, 2))):  # the former finds batch 1 written
            with suppress(TransientSinkError):
                sink.write(late)
            sink.write(late)
    found = [json.loads(m.value) for m in messages(kafka, f"{prefix}.shop.t") if m.value]
    assert [change["after"]["name"] for change in found] == ["of 0", "of 1", "of 2", "of 3"]


def test_files_of_a_batch_stay_whole_when_a_former_owner_writes_it_late_or_dies(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ParquetSettings(str(tmp_path))
    made = files._rows

    def failing(*_: Any) -> Any:
        return spark.sql("SELECT id, raise_error('killed') FROM range(1)")

    def names() -> list[str]:
        return [row["name"] for row in spark.read.parquet(str(tmp_path / "shop.t")).sort("_seq").collect()]

    with (
        closing(FileSink(settings, EVERYTHING)) as former,
        closing(FileSink(settings, EVERYTHING)) as present,
    ):

        def takes_over(number: int, then: Any) -> Any:
            """The former owner hangs just before it writes, and goes on when the other one has written."""

            def rows(*given: Any) -> Any:
                monkeypatch.setattr(files, "_rows", made)
                present.write(batch(spark, number, replace(STREAM, lease=former_lease + 1)))
                return then(*given)

            return rows

        former_lease = 1
        former.write(batch(spark, 0, FORMER))
        monkeypatch.setattr(files, "_rows", takes_over(1, made))
        former.write(batch(spark, 1, FORMER))
        assert names() == ["of 0", "of 1"]
        former_lease = 2
        monkeypatch.setattr(files, "_rows", takes_over(2, failing))
        with pytest.raises(Exception, match="killed"):
            former.write(batch(spark, 2, PRESENT))
        assert names() == ["of 0", "of 1", "of 2"]
        with pytest.raises(LeaseLostError):
            former.write(batch(spark, 3, PRESENT))
    assert sorted(path.name for path in (tmp_path / "shop.t").glob("_*")) == [
        "_tailrace.json",
        "_tailrace.lease-3",
    ]
    assert not list((tmp_path / "_tailrace").rglob("*.parquet"))


def noted(rows: list[Mapping[str, Any]]) -> dict[str, int]:
    return {row["target"]: row["lease"] for row in rows}

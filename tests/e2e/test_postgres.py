"""PostgreSQL to the end: a pipeline while writers write, verified; typed rows; a quiet database."""

from __future__ import annotations

import threading
import time

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.registry import make_sinks
from tailrace.verify.run import verify
from tests.e2e.test_mariadb import _Quiet
from tests.support.engine import Engine
from tests.support.postgres import SUBJECTS, Writers, fill, options_for

NUMBERS = SUBJECTS[0]


def test_pipeline_holds_what_the_source_holds_when_the_writers_have_stopped(
    postgres, postgres_database, spark, tmp_path
):
    fill(postgres, postgres_database, NUMBERS, 600)
    pipeline = parse_pipeline(
        f"source: {{url: '{postgres.url}/{postgres_database}', user: postgres, tables: 'public.*',"
        f" password: {postgres.password},"
        f" snapshot-chunk-rows: 300, slot-name: slot_{postgres_database}}}\n"
        f"sink: {{type: delta, path: '{tmp_path / 'tables'}', mode: upsert}}\n"
        f"pipeline: {{trigger: available-now}}\n"
    )

    def run():
        sink = make_sinks(pipeline)
        try:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()
        finally:
            sink.close()

    with Writers(postgres, postgres_database, NUMBERS, count=2, keys=1200, pause_s=0.02):
        run()
    run()
    report = verify(pipeline, spark)
    assert report.equal, report


def test_replica_is_compared_while_it_rests(postgres, postgres_database, spark, tmp_path):
    columns = (
        "id int PRIMARY KEY, amount numeric(10, 2), any_ numeric, at timestamptz, day date, on_ boolean,"
        " tags text[], doc jsonb, u uuid, raw bytea, span interval, mood mood, f real"
    )
    values = (
        "1.50, 1.230, '2026-01-31 12:00:00+01', '2026-01-31', true, '{a,NULL}', '{\"x\": 1}',"
        " '3e11fa47-71ca-11e1-9e33-c80aa9429562', '\\x00ff', '1 day 2 s', 'glad', 0.1"
    )
    rows = ", ".join(f"({i}, {values})" for i in range(1, 30))
    replica = f"{postgres_database}_replica"
    postgres.execute(f"CREATE DATABASE {replica}")
    postgres.execute(
        "CREATE TYPE mood AS ENUM ('glad', 'sad')",
        f"CREATE TABLE t ({columns})",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        f"INSERT INTO t VALUES {rows}",
        "INSERT INTO t VALUES (99)",
        database=postgres_database,
    )
    pipeline = parse_pipeline(
        f"source: {{url: '{postgres.url}/{postgres_database}', user: postgres, tables: 'public.t',"
        f" password: {postgres.password},"
        f" snapshot-chunk-rows: 10, slot-name: slot_{postgres_database}}}\n"
        f"sink: {{type: postgresql, url: '{postgres.url}/{replica}', user: postgres,"
        f" password: {postgres.password}}}\n"
        f"pipeline: {{trigger: available-now, checkpoint: '{tmp_path / 'checkpoint'}'}}\n"
    )
    sink = make_sinks(pipeline)
    try:
        Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()
    finally:
        sink.close()
    postgres.execute("DELETE FROM t WHERE id < 5", database=postgres_database)
    (target,) = verify(pipeline, spark).targets
    assert (target.target, target.source_rows, target.target_rows) == ("public.t", 30, 30)
    assert target.equal, target
    postgres.execute("UPDATE t SET day = NULL WHERE id = 7", database=replica)
    (target,) = verify(pipeline, spark).targets
    assert [(d.key, d.columns) for d in target.differences.shown] == [((7,), ("day",))]
    postgres.execute(f"DROP DATABASE {replica} WITH (FORCE)")


def test_replica_renames_and_drops_columns_and_no_row_is_read_again(
    postgres, postgres_database, spark, tmp_path
):
    replica = f"{postgres_database}_replica"
    postgres.execute(f"CREATE DATABASE {replica}")
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b text)",
        "INSERT INTO t SELECT n, n, 'x' FROM generate_series(1, 30) n",
        database=postgres_database,
    )
    pipeline = parse_pipeline(
        f"source: {{url: '{postgres.url}/{postgres_database}', user: postgres, tables: 'public.t',"
        f" password: {postgres.password}, slot-name: slot_{postgres_database}}}\n"
        f"sink: {{type: postgresql, url: '{postgres.url}/{replica}', user: postgres,"
        f" password: {postgres.password}}}\n"
        f"pipeline: {{trigger: available-now, checkpoint: '{tmp_path / 'checkpoint'}'}}\n"
    )
    update = "UPDATE t SET id = id WHERE id < 4"
    for statements in (
        [],
        [update],
        ["UPDATE t SET a = 7 WHERE id = 2", "ALTER TABLE t RENAME a TO z", "UPDATE t SET z = 8 WHERE id = 3"],
        [update, "ALTER TABLE t DROP b", "ALTER TABLE t ALTER z SET NOT NULL"],
    ):
        postgres.execute(*statements, database=postgres_database)
        sink = make_sinks(pipeline)
        try:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()
        finally:
            sink.close()
    rows = postgres.execute("SELECT * FROM t ORDER BY id", database=postgres_database)
    assert postgres.execute("SELECT * FROM t ORDER BY id", database=replica) == rows
    columns = (
        "SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    assert [tuple(row) for row in postgres.execute(columns, database=replica)] == [("id",), ("z",)]
    offsets = [path.read_text() for path in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")]
    assert any("rename.column" in text for text in offsets)
    assert not any('"again"' in text for text in offsets)
    postgres.execute(f"DROP DATABASE {replica} WITH (FORCE)")


def test_stream_of_typed_rows(postgres, postgres_database, spark, tmp_path):
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, amount numeric(10, 2), at timestamptz, tags text[], doc jsonb)",
        "INSERT INTO t VALUES (1, 12.50, '2026-01-31 12:00:00+01', '{a,b}', '{\"x\": 1}')",
        database=postgres_database,
    )
    options = {
        "url": f"postgresql://{postgres.host}:{postgres.port}/{postgres_database}",
        "user": "postgres",
        "password": postgres.password,
        "tables": "public.t",
        "slotName": f"slot_{postgres_database}",
    }
    query = (
        spark.readStream.format("tailrace")
        .options(**options)
        .load()
        .writeStream.format("memory")
        .queryName("typed")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    (row,) = spark.table("typed").collect()
    assert (row["_op"], str(row["amount"]), row["tags"], row["doc"]) == ("r", "12.50", ["a", "b"], '{"x": 1}')
    assert row["at"].timestamp() == 1_769_857_200


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_quiet_database_beside_a_busy_one_holds_little_of_the_log(postgres, postgres_database):
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)", database=postgres_database)
    postgres.execute("DROP TABLE IF EXISTS busy", "CREATE TABLE busy (pad text)")
    options = options_for(postgres, postgres_database, "public.t")
    held, stopping, written = [], threading.Event(), [0]

    def write():
        while not stopping.wait(0.1):
            written[0] += 2_000_000
            postgres.execute("INSERT INTO busy SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
            postgres.execute("TRUNCATE busy")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with Engine(options) as engine:
            end = time.monotonic() + 600
            while time.monotonic() < end:
                batch = engine.next()
                if batch is not None:
                    engine.read(*batch)
                held.append(
                    postgres.execute(
                        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::int8, "
                        "pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8 "
                        f"FROM pg_replication_slots WHERE slot_name = '{options.slot}'"
                    )[0]
                )
                time.sleep(0.2)
    finally:
        stopping.set()
        writer.join()
    assert max(max(pair) for pair in held) <= 64 << 20, [max(column) for column in zip(*held, strict=True)]
    assert written[0] > 1 << 30

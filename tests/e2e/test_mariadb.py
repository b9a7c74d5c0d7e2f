"""MariaDB to the end: a pipeline while writers write, a stream of typed rows, and what `check` says."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tailrace.cli import cli
from tailrace.config.load import parse_pipeline
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.registry import make_sinks
from tailrace.verify.run import verify
from tailrace_dev.servers import MariaDbServer
from tests.support.workload import SUBJECTS, Writers, fill


class _Quiet:
    def on_progress(self, progress: Any) -> None: ...

    def on_written(self, batch_id: int, written: Any) -> None: ...

    def on_restart(self, error: Any, attempt: int, pause_s: float) -> None: ...

    def on_batch(self, run: Any) -> None: ...

    def on_trouble(self, error: Any) -> None: ...

    def on_step(self, step: str) -> None: ...

    def on_notice(self, text: str) -> None: ...


@pytest.fixture
def user(mariadb: MariaDbServer, mariadb_database: str) -> Iterator[str]:
    """A user with the privileges the README names, and no others."""
    name = f"u_{mariadb_database[2:]}"
    mariadb.execute(
        f"CREATE USER '{name}'@'%' IDENTIFIED BY 'secret'",
        f"GRANT SELECT ON {mariadb_database}.* TO '{name}'@'%'",
        f"GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO '{name}'@'%'",
    )
    yield name
    mariadb.execute(f"DROP USER '{name}'@'%'")


def test_pipeline_holds_what_the_source_holds_when_the_writers_have_stopped(
    mariadb: MariaDbServer, mariadb_database: str, user: str, spark: SparkSession, tmp_path: Path
) -> None:
    subject = SUBJECTS[0]
    fill(mariadb, f"{mariadb_database}.busy", subject, 600)
    mariadb.execute(
        f"CREATE TABLE {mariadb_database}.own (id UUID PRIMARY KEY, a INET6, b TEXT COMPRESSED, c INET4)"
    )
    pipeline = parse_pipeline(
        f"source: {{url: '{mariadb.url}', user: {user}, password: secret, tables: '{mariadb_database}.*',"
        f" snapshot-chunk-rows: 300}}\n"
        f"sink: {{type: delta, path: '{tmp_path / 'tables'}', mode: upsert}}\n"
        f"pipeline: {{trigger: available-now}}\n"
    )

    def run() -> None:
        sink = make_sinks(pipeline)
        try:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()
        finally:
            sink.close()

    def insert(count: int) -> None:
        rows = ", ".join(
            f"('{uuid.uuid4()}', '2001:db8::{i:x}', REPEAT('x', {i}), '10.0.0.{i}')" for i in range(count)
        )
        mariadb.execute(f"INSERT INTO {mariadb_database}.own VALUES {rows}")

    insert(100)
    with Writers(mariadb, f"{mariadb_database}.busy", subject, count=2, keys=1200, pause_s=0.01):
        run()
        insert(50)
    mariadb.execute(
        f"UPDATE {mariadb_database}.own SET b = CONCAT(b, 'y') WHERE c < CAST('10.0.0.20' AS INET4)"
    )
    run()
    report = verify(pipeline, spark)
    assert report.equal
    assert {t.tables[0].rpartition(".")[2]: t.source_rows for t in report.targets}["own"] == 150


def test_typed_rows_from_a_gtid_on_carry_the_gtids_of_their_transactions(
    mariadb: MariaDbServer, mariadb_database: str, user: str, spark: SparkSession, tmp_path: Path
) -> None:
    id_ = str(uuid.UUID(int=1))
    mariadb.execute(
        f"CREATE TABLE {mariadb_database}.t (id UUID PRIMARY KEY, v INT)",
        f"INSERT INTO {mariadb_database}.t VALUES ('{id_}', 1)",
    )
    ((before,),) = mariadb.execute("SELECT @@global.gtid_binlog_pos")
    mariadb.execute(f"UPDATE {mariadb_database}.t SET v = 2")
    ((after,),) = mariadb.execute("SELECT @@global.gtid_binlog_pos")
    stream = (
        spark.readStream.format("tailrace")
        .options(
            url=mariadb.url,
            user=user,
            password="secret",
            tables=f"{mariadb_database}.t",
            startingPosition=f"gtid:{before}",
        )
        .load()
    )
    (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
        .awaitTermination()
    )
    (row,) = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert (row["_op"], row["id"], row["v"]) == ("u", id_, 2)
    assert row["_txn"] in after.split(",")


def test_check_names_the_privileges_by_mariadbs_names(
    mariadb: MariaDbServer, mariadb_database: str, user: str, tmp_path: Path
) -> None:
    mariadb.execute(f"CREATE TABLE {mariadb_database}.t (id INT PRIMARY KEY)")
    file = tmp_path / "pipeline.yaml"
    source = {
        "type": "mariadb",
        "hostname": mariadb.host,
        "port": mariadb.port,
        "username": user,
        "password": "secret",
        "tables": f"{mariadb_database}.t",
    }
    file.write_text(yaml.safe_dump({"source": source, "sink": {"type": "delta", "path": str(tmp_path)}}))
    fine = CliRunner().invoke(cli, ["check", str(file)])
    assert fine.exit_code == 0, fine.output
    assert f"MariaDB {mariadb.version}" in fine.output
    grant = f"GRANT PROCESS ON *.* TO '{user}'@'%';"
    assert grant in fine.output
    mariadb.execute(grant)
    assert grant not in CliRunner().invoke(cli, ["check", str(file)]).output
    mariadb.execute(f"REVOKE REPLICATION SLAVE, BINLOG MONITOR ON *.* FROM '{user}'@'%'")
    denied = CliRunner().invoke(cli, ["check", str(file)])
    assert denied.exit_code == 3
    for privilege in ("BINLOG MONITOR", "REPLICATION SLAVE"):
        assert f"GRANT {privilege} ON *.* TO '{user}'@'%';" in denied.output

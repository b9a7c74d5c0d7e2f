"""Replicas of tables whose rows change without entries in the log: the stream reads them again, in place."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.registry import make_sinks
from tailrace.spark.requests import RequestDirectory, requests_path
from tailrace.verify.run import verify
from tailrace_dev.servers import MySqlServer
from tests.support.wait import wait_until

#: How long the replica may take to equal its source, seconds.
PATIENCE_S = 120


class _Quiet:
    def on_progress(self, progress: Any) -> None: ...

    def on_written(self, batch_id: int, written: Any) -> None: ...

    def on_restart(self, error: Any, attempt: int, pause_s: float) -> None: ...

    def on_step(self, step: str) -> None: ...

    def on_notice(self, text: str) -> None: ...


class Replica:
    """A table `t` with the rows 1 to 300, a table `other`, and a pipeline into one of the test's servers."""

    def __init__(self, source: MySqlServer, target: Any, settings: tuple[str, str, str], path: Path) -> None:
        self.source, self.target = source, target
        self.database, kind, transaction = settings
        self.is_comparable = kind == "mysql"  # `verify` compares databases of one kind
        self.schema = f"{self.database}_replica"
        rows = ", ".join(f"({i}, {i * 10}, 'row {i}')" for i in range(1, 301))
        source.execute(
            f"USE {self.database}",
            "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
            f"INSERT INTO t VALUES {rows}",
            "CREATE TABLE other (id INT PRIMARY KEY)",
            "INSERT INTO other VALUES (1), (2)",
        )
        scheme = "postgresql" if kind == "postgres" else "mysql"
        place = "postgres" if kind == "postgres" else self.schema
        schema = f", schema: {self.schema}" if kind == "postgres" else ""
        self.pipeline: Pipeline = parse_pipeline(
            f"source: {{url: '{source.url}', user: {source.user}, password: {source.password},"
            f" tables: '{self.database}[.].*', snapshot-chunk-rows: 40}}\n"
            f"sink: {{type: {scheme}, url: '{scheme}://{target.host}:{target.port}/{place}',"
            f" user: {target.user}, password: {target.password}, transaction: {transaction}{schema}}}\n"
            f"route: [{{source-table: '{self.database}[.](.*)', sink-table: $1}}]\n"
            f"pipeline: {{trigger: interval, interval-ms: 100, checkpoint: '{path / 'checkpoint'}'}}\n"
        )

    def run(self, spark: SparkSession, stop: threading.Event) -> None:
        sink = make_sinks(self.pipeline)
        try:
            Supervisor(lambda: read_cells(spark, self.pipeline), self.pipeline, sink, _Quiet(), stop).run()
        finally:
            sink.close()

    def change(self, *statements: str, logged: bool = True) -> None:
        with self.source.connect(database=self.database) as connection, connection.cursor() as cursor:
            if not logged:
                cursor.execute("SET SESSION sql_log_bin = 0")
            for statement in statements:
                cursor.execute(statement)

    def equals(self) -> bool:
        """Whether the rows of `t` are in the replica."""
        listed = ", ".join(
            column[0] for column in self.source.execute(f"SHOW COLUMNS FROM {self.database}.t")
        )
        held = self._listed("columns", "column_name", "table_name = 't'")
        if not set(listed.split(", ")) <= set(held):
            return False
        sql = f"SELECT {listed} FROM {{}}.t ORDER BY id"
        return self._rows(sql.format(self.schema)) == list(self.source.execute(sql.format(self.database)))

    def tables_of_keys(self) -> list[str]:
        return self._listed("tables", "table_name", "table_name LIKE '%tailrace_k%'")

    def _listed(self, view: str, column: str, condition: str) -> list[str]:
        where = f"table_schema = '{self.schema}' AND {condition}"
        return [
            str(row[0]) for row in self._rows(f"SELECT {column} FROM information_schema.{view} WHERE {where}")
        ]

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(self.target.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]


@pytest.fixture
def replica(
    request: pytest.FixtureRequest, mysql: MySqlServer, database: str, tmp_path: Path
) -> Iterator[Replica]:
    kind, transaction = request.param
    server = request.getfixturevalue(kind)
    found = Replica(mysql, server, (database, kind, transaction), tmp_path)
    yield found
    word = "SCHEMA" if kind == "postgres" else "DATABASE"
    server.execute(f"DROP {word} IF EXISTS {found.schema}{' CASCADE' if kind == 'postgres' else ''}")


@pytest.mark.parametrize(
    "replica",
    [("mysql", "parts"), pytest.param(("postgres", "whole-batch"), marks=pytest.mark.slow)],
    indirect=True,
    ids="-".join,
)
def test_replica_equals_tables_whose_rows_change_without_a_log(spark: SparkSession, replica: Replica) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            replica.run(spark, stop)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    def has_all() -> bool:
        assert not failures, failures
        return replica.equals()

    stop = threading.Event()
    running = threading.Thread(target=run)
    running.start()
    try:
        wait_until(has_all, PATIENCE_S)
        replica.change("ALTER TABLE t ADD COLUMN c INT DEFAULT 5", "UPDATE t SET a = 1 WHERE id % 7 = 0")
        wait_until(has_all, PATIENCE_S)
        replica.change("DELETE FROM t WHERE id % 10 = 0", "UPDATE t SET b = 'x' WHERE id = 1", logged=False)
        assert not replica.equals()
        RequestDirectory(requests_path(replica.pipeline.checkpoint)).add([f"{replica.database}.t"])
        replica.change("DELETE FROM t WHERE id = 2", "INSERT INTO t (id, a) VALUES (1000, 1), (10, 2)")
        wait_until(has_all, PATIENCE_S)
        replica.change("UPDATE t SET a = 3 WHERE id < 9", "TRUNCATE TABLE t", "INSERT INTO t (id) VALUES (5)")
        wait_until(has_all, PATIENCE_S)
        wait_until(lambda: replica.tables_of_keys() == [], PATIENCE_S)
    finally:
        stop.set()
        running.join()
    assert not failures
    if replica.is_comparable:
        report = verify(replica.pipeline, spark)
        assert [(t.target, t.source_rows, t.target_rows, t.equal) for t in report.targets] == [
            ("other", 2, 2, True),
            ("t", 1, 1, True),
        ]

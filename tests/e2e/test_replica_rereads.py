"""Replicas of tables whose rows change without entries in the log: the stream reads them again, in place."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline, RouteRule
from tailrace.config.sink_settings import RefusedRow
from tailrace.config.sinks import ExistingTables, ReplicaTransaction
from tailrace.errors import SinkError, StateError
from tailrace.failpoints import VARIABLE, InjectedError
from tailrace.model.change import OP_REREAD, ChangeBatch
from tailrace.model.schema_change import ColumnRenamed, SchemaEvent
from tailrace.model.table import TableSchema
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.base import CellBatch
from tailrace.sinks.registry import make_sinks
from tailrace.sinks.replica.sink import ReplicaSink
from tailrace.sinks.route import Router
from tailrace.spark.requests import RequestDirectory, requests_path
from tailrace.verify.run import verify
from tailrace_dev.servers import MySqlServer
from tests.support.cells import cell_batch
from tests.support.changes import BIGINT, INT, TEXT, changes, table
from tests.support.sinks.replica import Target, replica_target
from tests.support.wait import wait_until

#: How long the replica may take to equal its source, seconds.
PATIENCE_S = 120
PARTS, WHOLE = ReplicaTransaction
CASES = [
    ("mysql", PARTS),
    ("postgres", WHOLE),
    pytest.param(("mariadb", PARTS), marks=pytest.mark.slow),
    pytest.param(("mysql", WHOLE), marks=pytest.mark.slow),
    pytest.param(("postgres", PARTS), marks=pytest.mark.slow),
]


class _Quiet:
    def on_progress(self, progress: Any) -> None: ...

    def on_written(self, batch_id: int, written: Any) -> None: ...

    def on_restart(self, error: Any, attempt: int, pause_s: float) -> None: ...

    def on_batch(self, run: Any) -> None: ...

    def on_trouble(self, error: Any) -> None: ...

    def on_step(self, step: str) -> None: ...

    def on_notice(self, text: str) -> None: ...


class Replica:
    """A table `t` with the rows 1 to 300, a table `other`, and a pipeline into one of the test's servers."""

    def __init__(
        self, source: MySqlServer, target: Any, settings: tuple[str, str, str], path: Path, options: str = ""
    ) -> None:
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
            f" tables: '{self.database}[.].*', snapshot-chunk-rows: 40{options}}}\n"
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


#: Changes of the key of `t`.
REKEYED = [
    "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, c)",
    "ALTER TABLE t ADD COLUMN n INT NOT NULL AUTO_INCREMENT UNIQUE, DROP PRIMARY KEY, ADD PRIMARY KEY (n)",
    "ALTER TABLE t RENAME COLUMN n TO m",
    "ALTER TABLE t DROP PRIMARY KEY, DROP COLUMN m, ADD PRIMARY KEY (id)",
]


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
        for statement in REKEYED:
            replica.change(statement, "UPDATE t SET b = CONCAT(b, 'k') WHERE id % 3 = 0")
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


@pytest.mark.parametrize("kind", ["mysql", pytest.param("postgres", marks=pytest.mark.slow)])
def test_rows_of_a_dropped_table_leave_the_replica(
    spark: SparkSession, request: pytest.FixtureRequest, mysql: MySqlServer, tmp_path: Path, kind: str
) -> None:
    """With `on-drop-table: apply`; the table that takes its name later is read as a whole."""
    database, server = request.getfixturevalue("database"), request.getfixturevalue(kind)
    replica = Replica(mysql, server, (database, kind, "parts"), tmp_path, ", on-drop-table: apply")
    stop = threading.Event()
    running = threading.Thread(target=lambda: replica.run(spark, stop))
    running.start()
    try:
        wait_until(replica.equals, PATIENCE_S)
        replica.change("DROP TABLE t")
        wait_until(lambda: replica._rows(f"SELECT * FROM {replica.schema}.t") == [], PATIENCE_S)
        replica.change("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1), (7, 7)")
        wait_until(replica.equals, PATIENCE_S)
    finally:
        stop.set()
        running.join()
        word = "SCHEMA" if kind == "postgres" else "DATABASE"
        server.execute(f"DROP {word} {replica.schema}{' CASCADE' if kind == 'postgres' else ''}")


# ---- batches made by hand ----


SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))


def rows(schema: TableSchema, *ids: int, first: int = 0, name: str = "x") -> ChangeBatch:
    return changes(schema, [("r", None, {"id": i, "name": name}) for i in ids], first=first)


def again(batch: ChangeBatch) -> tuple[str, ChangeBatch]:
    return "reread", replace(batch, op=pa.repeat(pa.scalar(OP_REREAD, pa.int8()), len(batch)))


def reading(batch: CellBatch, id_: str, *, done: bool) -> CellBatch:
    """`batch` as one in which `shop.t` is read again."""
    end = {"v": 2, "log": {}, "done": {"shop.t": 3}, "tables": {}}
    return replace(batch, end={**end, "again": {"shop.t": {"id": id_, "done": done}}})


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Target:
    return replica_target(request, *getattr(request, "param", ("mysql", PARTS)))


def write(target: Target, *batches: CellBatch, router: Router | None = None, **settings: Any) -> None:
    with closing(ReplicaSink(replace(target.settings, **settings), router or Router([]))) as sink:
        for batch in batches:
            sink.write(batch)


def ids(target: Target, name: str = "shop.t") -> list[int]:
    return sorted(r["id"] for r in target.rows(name))


def tables_of_keys(target: Target) -> list[str]:
    schema = f"table_schema = '{target.notes}'"
    sql = (
        f"SELECT table_name FROM information_schema.tables WHERE {schema} AND table_name LIKE '%tailrace_k%'"
    )
    with closing(target._connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(sql)
        return [str(row[0]) for row in cursor.fetchall()]


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_key_may_become_wider_while_its_table_is_read_again(spark: SparkSession, target: Target) -> None:
    wide = table(("id", BIGINT), ("name", TEXT), key=("id",))
    created = changes(wide, [("c", None, {"id": 1 << 40, "name": "new"})], first=300)
    write(
        target,
        cell_batch(spark, 0, [("snapshot", rows(SCHEMA, 1, 2, 3))]),
        reading(cell_batch(spark, 1, [again(rows(SCHEMA, 1, first=200))]), "one", done=False),
        reading(cell_batch(spark, 2, [("log", created), again(rows(wide, 2, first=400))]), "one", done=True),
    )
    assert ids(target) == [1, 2, 1 << 40]
    assert tables_of_keys(target) == []


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_keys_of_a_reading_that_has_ended_or_was_replaced_are_dropped(
    spark: SparkSession, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(target, cell_batch(spark, 0, [("snapshot", rows(SCHEMA, 1, 2, 3))]))
    write(target, reading(cell_batch(spark, 1, [again(rows(SCHEMA, 1, first=200))]), "one", done=False))
    (one,) = tables_of_keys(target)
    write(target, reading(cell_batch(spark, 2, [again(rows(SCHEMA, 2, first=300))]), "two", done=False))
    (two,) = tables_of_keys(target)
    assert one != two
    last = reading(cell_batch(spark, 3, [again(rows(SCHEMA, 3, first=400))]), "two", done=True)
    monkeypatch.setenv(VARIABLE, f"sink.reread=raise@{tmp_path / 'token'}")
    with contextlib.suppress(InjectedError):
        write(target, last)
    monkeypatch.delenv(VARIABLE)
    assert ids(target) == [2, 3]
    assert tables_of_keys(target) == [two]
    write(target, last)
    assert ids(target) == [2, 3]
    assert tables_of_keys(target) == []


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_no_row_is_deleted_after_the_keys_were_dropped(spark: SparkSession, target: Target) -> None:
    write(target, cell_batch(spark, 0, [("snapshot", rows(SCHEMA, 1, 2, 3))]))
    write(target, reading(cell_batch(spark, 1, [again(rows(SCHEMA, 1, first=200))]), "one", done=False))
    (keys,) = tables_of_keys(target)
    target.execute(f"DROP TABLE {target.notes}.{keys}")
    last = reading(cell_batch(spark, 2, [again(rows(SCHEMA, 2, first=300))]), "one", done=True)
    with pytest.raises(StateError, match=r"keys of target `shop\.t` are gone") as gone:
        write(target, last)
    assert ids(target) == [1, 2, 3]
    assert gone.value.hint is not None
    target.execute(gone.value.hint.partition("then ")[2])
    write(target, last)
    assert ids(target) == [2]
    assert tables_of_keys(target) == []


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_refused_row_of_a_table_read_again_is_set_aside(spark: SparkSession, target: Target) -> None:
    write(target, cell_batch(spark, 0, [("snapshot", rows(SCHEMA, 1, 2, 3))]))
    target.execute("ALTER TABLE shop.t ADD CONSTRAINT low CHECK (id < 50)")
    batch = cell_batch(spark, 1, [again(rows(SCHEMA, 2, 33, 77, 34, first=200, name="y"))])
    write(target, reading(batch, "one", done=True), on_refused_row=RefusedRow.QUARANTINE)
    assert ids(target) == [2, 33, 34]
    assert [r["row_key"] for r in target.rows("_tailrace_quarantine")] == ['{"id": 77}']


def test_keys_are_compared_as_the_target_compares_them(spark: SparkSession, target: Target) -> None:
    """An update without all columns leaves the row's key as the target spells it."""
    schema = table(("id", TEXT), ("name", TEXT), ("note", TEXT), key=("id",))
    target.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.t (id varchar(20) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, name text, note text)",
        "INSERT INTO shop.t VALUES ('gone', 'x', 'x'), ('élan', 'x', 'kept')",
    )
    new = {"id": "Elan", "name": "new", "note": None}
    updated = replace(changes(schema, [("u", new, new)], first=200), absent_after=("note",))
    batch = reading(cell_batch(spark, 0, [("log", updated)]), "one", done=True)
    write(target, batch, existing_tables=ExistingTables.ADOPT)
    assert target.rows("shop.t") == [{"id": "élan", "name": "new", "note": "kept"}]


def test_rows_stay_in_a_target_that_does_not_tell_its_tables_apart(
    spark: SparkSession, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    router = Router([RouteRule("shop[.].", "shop.all")])
    other = table(("id", INT), ("name", TEXT), key=("id",), name="shop.u")
    first = [("snapshot", rows(SCHEMA, 1, 2)), ("snapshot", rows(other, 3))]
    batch = cell_batch(spark, 1, [again(rows(SCHEMA, 2, first=200, name="y"))])
    with caplog.at_level(logging.WARNING):
        write(target, cell_batch(spark, 0, first), reading(batch, "one", done=True), router=router)
    assert [(r["id"], r["name"]) for r in target.rows("shop.all")] == [(1, "x"), (2, "y"), (3, "x")]
    assert "rows that it no longer has stay in its target shop.all" in caplog.text
    assert tables_of_keys(target) == []


BY_NAME = replace(SCHEMA, key=("name",))


def named(schema: TableSchema, *found: tuple[int, str], first: int = 0) -> ChangeBatch:
    return changes(schema, [("r", None, {"id": i, "name": n}) for i, n in found], first=first)


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_table_gets_the_key_that_its_source_has_now(
    spark: SparkSession, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that do not fit it come back with the reading; the batch comes again after each crash."""
    first = named(SCHEMA, (1, "a"), (2, "b"), (3, "b"), (4, "d"))
    write(target, cell_batch(spark, 0, [("snapshot", first)]))
    write(
        target, reading(cell_batch(spark, 1, [again(named(SCHEMA, (1, "a"), first=50))]), "old", done=False)
    )
    log = changes(BY_NAME, [("u", {"id": 1, "name": "a"}, {"id": 9, "name": "a"})], first=100)
    batches = [
        reading(
            cell_batch(spark, 2, [("log", log), again(named(BY_NAME, (9, "a"), first=200))]),
            "new",
            done=False,
        ),
        reading(
            cell_batch(spark, 3, [again(named(BY_NAME, (2, "b"), (3, "c"), first=300))]), "new", done=True
        ),
    ]
    for point in ("sink.rekeyed", "sink.seen", "sink.reread"):
        for batch in batches if point != "sink.rekeyed" else batches[:1]:
            monkeypatch.setenv(VARIABLE, f"{point}=raise@{tmp_path / f'{point}-{batch.id}'}")
            with contextlib.suppress(InjectedError):
                write(target, batch)
    monkeypatch.delenv(VARIABLE)
    write(target, *batches)
    assert sorted((r["id"], r["name"]) for r in target.rows("shop.t")) == [(2, "b"), (3, "c"), (9, "a")]
    again_by_id = changes(SCHEMA, [("c", None, {"id": 7, "name": "c"})], first=500)
    left = named(SCHEMA, (2, "b"), (3, "c"), (9, "a"), (7, "c"), first=501)
    write(target, reading(cell_batch(spark, 4, [("log", again_by_id), again(left)]), "back", done=True))
    assert ids(target) == [2, 3, 7, 9]
    assert tables_of_keys(target) == []


@pytest.mark.parametrize("target", CASES, indirect=True, ids=str)
def test_renamed_key_column_keeps_the_rows(spark: SparkSession, target: Target) -> None:
    other = table(("number", INT), ("name", TEXT), key=("number",))
    write(target, cell_batch(spark, 0, [("snapshot", rows(SCHEMA, 1, 2, 3))]))
    log = changes(other, [("c", None, {"number": 4, "name": "new"})], first=100)
    batch = reading(cell_batch(spark, 1, [("log", log)]), "one", done=False)
    event = SchemaEvent("shop.t", (ColumnRenamed("id", "number"),), after=other)
    write(target, replace(batch, end={**(batch.end or {}), "schema": [event.to_json()]}))
    assert sorted(r["number"] for r in target.rows("shop.t")) == [1, 2, 3, 4]


def test_target_that_tables_share_keeps_its_key(spark: SparkSession, target: Target) -> None:
    router = Router([RouteRule("shop[.].", "shop.all")])
    other = table(("id", INT), ("name", TEXT), key=("id",), name="shop.u")
    batch = cell_batch(spark, 0, [("snapshot", rows(SCHEMA, 1)), ("snapshot", rows(other, 3))])
    write(target, batch, router=router)
    with pytest.raises(SinkError, match="the key has changed") as refused:
        write(target, cell_batch(spark, 1, [again(named(BY_NAME, (1, "x"), first=50))]), router=router)
    assert refused.value.code == "TR-7002"

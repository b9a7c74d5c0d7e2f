"""MySQL to Iceberg while tables are read again: the target then equals its table, gone rows included."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.config.model import RouteRule
from tailrace.config.sinks import IcebergSettings
from tailrace.model.change import OP_REREAD
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.iceberg.sink import IcebergSink
from tailrace.sinks.registry import make_sinks
from tailrace.sinks.route import Router
from tailrace.spark.checkpoint import Checkpoint
from tailrace.spark.requests import RequestDirectory, requests_path
from tests.e2e.test_mariadb import _Quiet
from tests.e2e.test_rereads import STEPS
from tests.support.cells import cell_batch
from tests.support.changes import INT, changes
from tests.support.changes import table as schema_of
from tests.support.databases import named_rows
from tests.support.sinks.iceberg import table_rows
from tests.support.wait import wait_until
from tests.support.workload import SUBJECTS, Writers, fill

ROWS = 300
#: How long the target may take to equal its table, on a loaded machine, seconds.
PATIENCE_S = 120
ADDED = "ALTER TABLE {} ADD COLUMN c INT DEFAULT 5"
TRUNCATED = "TRUNCATE TABLE {}"
#: Changes of the key; the writers' statements would no longer fit.
REKEYED = (
    "ALTER TABLE {} CHANGE id ID INT",
    "ALTER TABLE {} CHANGE ID uid INT",
    "ALTER TABLE {} DROP PRIMARY KEY, ADD COLUMN u INT NOT NULL AUTO_INCREMENT PRIMARY KEY",
)


def checkpoint_of(lake: Path) -> Path:
    return lake / "_tailrace" / "checkpoint"


@contextmanager
def running(spark: SparkSession, mysql: Any, table: str, lake: Path) -> Iterator[None]:
    """A pipeline of one table that runs until the end of the block."""
    pipeline = parse_pipeline(
        f"source: {{url: 'mysql://{mysql.host}:{mysql.port}', user: {mysql.user}, tls-mode: disabled,"
        f" password: {mysql.password}, tables: '{table}', snapshot-chunk-rows: 50}}\n"
        f"sink: {{type: iceberg, path: '{lake}', mode: upsert}}\n"
        f"pipeline: {{checkpoint: '{checkpoint_of(lake)}', restarts: 0}}\n"
    )
    stopping, failures = threading.Event(), []

    def run() -> None:
        try:
            with closing(make_sinks(pipeline)) as sink:
                Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), stopping).run()
        except Exception as error:  # noqa: BLE001 - raised at the end
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
    assert not failures, failures


@pytest.mark.timeout(900)
def test_target_equals_its_table_after_rows_and_keys_were_rewritten(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path
) -> None:
    subject, table = SUBJECTS[0], f"{database}.integer"
    fill(mysql, table, subject, ROWS)
    checkpoint = Checkpoint(str(checkpoint_of(tmp_path)))

    def source() -> list[dict[str, Any]]:
        with mysql.connect() as connection, connection.cursor() as cursor:
            return list(named_rows(cursor, f"SELECT * FROM {table}"))

    def target(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        try:
            held = table_rows(tmp_path, table)
        except Exception:  # noqa: BLE001 - it does not exist yet
            return []
        names = {name.lower(): name for name in held.column_names}
        columns = rows[0] if rows else {}
        return [
            {name: row.get(names.get(name.lower(), name)) for name in columns} for row in held.to_pylist()
        ]

    def batches() -> int:
        last = checkpoint.last_committed()
        return -1 if last is None else last.id

    def expect_equal(after: str) -> None:
        rows, seen = source(), [-1]

        def equal() -> bool:
            last = batches()
            is_new, seen[0] = last != seen[0], last
            return is_new and sorted(map(repr, target(rows))) == sorted(map(repr, rows))

        wait_until(equal, PATIENCE_S, lambda: f"{after}: {target(rows)[:5]} is not {rows[:5]}")

    def pass_batches() -> None:
        until = batches() + 2
        wait_until(lambda: batches() >= until, PATIENCE_S, "a batch")

    with running(spark, mysql, table, tmp_path):
        expect_equal("the snapshot")
        for statement in (ADDED, TRUNCATED):
            with Writers(mysql, table, subject, count=1, keys=2 * ROWS, pause_s=0.05) as writers:
                pass_batches()
                mysql.execute(statement.format(table))
                pass_batches()
                writers.stop()
            expect_equal(statement)
        for statement in REKEYED:
            mysql.execute(statement.format(table), f"UPDATE {table} SET v = v + 1")
            expect_equal(statement)
        mysql.execute(TRUNCATED.format(table))
        expect_equal("a table without rows")
    assert not table_rows(tmp_path, table).num_rows


@pytest.mark.slow  # the test before and `test_ddl_fuzz_sinks` have such rewrites, too
def test_target_equals_its_table_after_each_rewrite(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path
) -> None:
    table = f"{database}.t"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, d DECIMAL(10,2))",
        f"INSERT INTO {table} VALUES {', '.join(f'({i}, {i}, {i}.25)' for i in range(1, 51))}",
    )
    pipeline = parse_pipeline(
        f"source: {{url: 'mysql://{mysql.host}:{mysql.port}', user: {mysql.user}, tls-mode: disabled,"
        f" password: {mysql.password}, tables: '{table}', snapshot-chunk-rows: 20}}\n"
        f"sink: {{type: iceberg, path: '{tmp_path}', mode: upsert}}\n"
        f"pipeline: {{trigger: available-now, checkpoint: '{checkpoint_of(tmp_path)}', restarts: 0}}\n"
    )
    for statements in ([], *STEPS):
        mysql.execute(*(s.format(t=table, s=database) for s in statements if s != "RESYNC"))
        if "RESYNC" in statements:
            RequestDirectory(requests_path(pipeline.checkpoint)).add([table])
        with closing(make_sinks(pipeline)) as sink:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()
        with mysql.connect() as connection, connection.cursor() as cursor:
            wanted = {row["id"]: row for row in named_rows(cursor, f"SELECT * FROM {table}")}
        rows = table_rows(tmp_path, table).to_pylist()
        assert len(rows) == len(wanted), statements
        for row in rows:
            assert {name: row[name] for name in wanted[row["id"]]} == wanted[row["id"]], statements


def test_keys_of_a_reading_are_deleted_when_it_ends_or_is_given_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And keys are noted under the name that the target has for a column renamed by case only."""
    sinks = [IcebergSink(IcebergSettings(str(tmp_path)), Router([])) for _ in range(2)]
    numbers = count()

    def write(kind: str, name: str, ids: list[int], reading: str | None, *, done: bool = False) -> list[str]:
        number = next(numbers)
        schema = schema_of((name, INT), key=(name,))
        rows = changes(
            schema, [("c" if kind == "log" else "r", None, {name: i}) for i in ids], first=10 * number
        )
        if kind == "reread":
            rows = replace(rows, op=pa.repeat(pa.scalar(OP_REREAD, pa.int8()), len(rows)))
        end = {"again": {"shop.t": {"id": reading, "done": done}} if reading else {}}
        batch = replace(cell_batch(spark, number, [(kind, rows)] if ids else []), end=end)
        for sink in sinks:
            sink.write(batch)
        directory = tmp_path / "shop" / "t" / "seen"
        return sorted(p.suffix for p in directory.iterdir()) if directory.exists() else []

    def rows() -> list[int]:
        return sorted(row["id"] for row in table_rows(tmp_path, "shop.t").to_pylist())

    assert write("snapshot", "id", [1, 2, 3, 4], None) == []
    assert write("reread", "id", [1], "one") == [".json", ".parquet"]
    assert write("reread", "id", [2], "one") == [".json", ".parquet", ".parquet"]
    assert write("reread", "ID", [1], "another") == [".json", ".parquet"]
    assert rows() == [1, 2, 3, 4]
    assert write("log", "ID", [3], "another") == [".json", ".parquet", ".parquet"]
    assert write("log", "ID", [], "another", done=True) == []
    assert rows() == [1, 3]
    assert write("log", "ID", [5], "third") == [".json", ".parquet"]
    assert write("log", "ID", [6], None) == []
    assert rows() == [1, 3, 5, 6]
    for sink in sinks:
        sink.close()


def test_target_that_tables_share_without_a_shard_column_keeps_all_rows(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = IcebergSink(IcebergSettings(str(tmp_path)), Router([RouteRule("shop[.].", "shop.all")]))
    cells = []
    for id_, name in enumerate("tu"):
        schema = schema_of(("id", INT), key=("id",), name=f"shop.{name}")
        cells.append(("snapshot", changes(schema, [("r", None, {"id": id_})])))
    sink.write(cell_batch(spark, 0, cells))
    for done in (False, True):
        end = {"again": {"shop.t": {"id": "one", "done": done}}}
        assert not caplog.messages
        sink.write(replace(cell_batch(spark, 1 + done, []), end=end))
    sink.close()
    assert table_rows(tmp_path, "shop.all").num_rows == 2
    (message,) = caplog.messages
    assert "shard-column" in message

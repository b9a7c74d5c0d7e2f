"""Targets that somebody changed by hand equal their tables again after a repair, beside a writer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.errors import StateError
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.base import StreamId
from tailrace.sinks.registry import make_sinks, quarantine_of
from tailrace.spark.checkpoint import Checkpoint
from tailrace.verify.repair import compared, repair
from tailrace_dev.servers import MySqlServer, PostgresServer
from tests.e2e.test_verify import Copy, _Quiet
from tests.support.databases import fresh_database

#: How long the stream may take to begin on a loaded machine, seconds.
PATIENCE_S = 180
#: Changes by hand: rows that are missing, different and extra.
DAMAGE = (
    "DELETE FROM {t} WHERE part BETWEEN 20 AND 30",
    "UPDATE {t} SET d = 7 WHERE part = 40",
    "INSERT INTO {t} SELECT * FROM {t} WHERE part = 50",
    "UPDATE {t} SET part = -1 WHERE part = 60",
)


@contextmanager
def running(*works: Callable[[], None]) -> Iterator[threading.Event]:
    """Repeat each of `works` in a thread until the event is set, or the block ends."""
    stop, failures = threading.Event(), list[BaseException]()

    def repeat(work: Callable[[], None]) -> None:
        try:
            while not stop.wait(0.2):
                work()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield stop
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures, failures


def run(spark: SparkSession, pipeline: Pipeline) -> None:
    """Run a pipeline to the end of the log."""
    sink = make_sinks(pipeline)
    try:
        Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()
    finally:
        sink.close()


def require_repaired(
    spark: SparkSession, pipeline: Pipeline, table: str, write_row: Callable[[int], None]
) -> None:
    """Repair `table` while the pipeline runs, and rows are written until the reading has ended."""
    report = compared(pipeline, spark, [table])
    (target,) = report.targets
    assert target.differences is not None
    found = target.differences
    assert min(found.missing, found.extra, found.different) > 0, found
    written = iter(range(5000, 100_000))
    said: list[str] = []

    def write() -> None:
        write_row(next(written))

    with running(lambda: run(spark, pipeline)), running(write) as written_enough:

        def say(text: str) -> None:
            said.append(text)
            if "comparing again" in text:
                written_enough.set()

        after = repair(pipeline, spark, report, patience_s=PATIENCE_S, say=say)
    assert after.equal, after
    assert [t.tables for t in after.targets] == [(table,)]
    assert len(said) == 3
    run(spark, pipeline)
    assert compared(pipeline, spark, []).equal


def require_copy_repaired(copy: Copy) -> None:
    """See `require_repaired`; the table is `wide`."""
    table = f"{copy.database}.wide"

    def write_row(i: int) -> None:
        copy.server.execute(
            f"INSERT INTO {table} (name, part) VALUES ('new', {i})",
            f"UPDATE {table} SET d = {i} WHERE part IN (40, 41, {i - 2})",
            f"DELETE FROM {table} WHERE part IN ({i - 4960}, {i - 3})",
        )

    require_repaired(copy.spark, copy.pipeline, table, write_row)


@pytest.mark.slow  # the repair of few rows is not
def test_delta_table_that_was_changed_by_hand_is_repaired(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    copy = Copy.in_delta(mysql, database, spark, tmp_path)
    copy.run()
    for statement in DAMAGE:
        spark.sql(statement.format(t=copy.target("wide")))
    require_copy_repaired(copy)


@pytest.mark.slow
def test_replica_that_was_changed_by_hand_is_repaired(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    with fresh_database(mysql) as replica:
        url = f"mysql://{mysql.host}:{mysql.port}/{replica}"
        sink = f"type: mysql, url: '{url}', user: {mysql.user}, password: {mysql.password}"
        copy = Copy(mysql, database, spark, tmp_path, sink)
        copy.run()
        damage = [s for s in DAMAGE if not s.startswith("INSERT")]  # its key refuses a row twice
        mysql.execute(*(s.format(t=f"{replica}.wide") for s in damage))
        require_copy_repaired(copy)


def test_row_that_a_replica_had_refused_is_repaired_once_its_cause_is_gone(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    table = f"{database}.t"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES (1, 1), (2, 2)"
    )
    with fresh_database(mysql) as replica:
        server = f"user: {mysql.user}, password: {mysql.password}"
        pipeline = parse_pipeline(
            f"source: {{url: '{mysql.url}', {server}, tables: {table}}}\n"
            f"sink: {{type: mysql, url: '{mysql.url}/{replica}', {server}, on-refused-row: quarantine}}\n"
            f"route: [{{source-table: {table}, sink-table: t}}]\n"
            f"pipeline: {{trigger: available-now, checkpoint: '{tmp_path / 'checkpoint'}'}}\n"
        )

        def held() -> list[tuple[int, int]]:
            return list(mysql.execute(f"SELECT id, v FROM {replica}.t ORDER BY id"))

        run(spark, pipeline)
        mysql.execute(
            f"ALTER TABLE {replica}.t ADD CONSTRAINT small CHECK (v < 50)",
            f"UPDATE {table} SET v = 60 WHERE id = 2",
            f"INSERT INTO {table} VALUES (3, 3), (4, 70)",
        )
        run(spark, pipeline)
        assert held() == [(1, 1), (2, 2), (3, 3)], "the former version stays, new rows are missing"
        quarantine = quarantine_of(
            pipeline.sinks[0],
            pipeline,
            StreamId(pipeline.settings.name, str(Checkpoint(pipeline.checkpoint).query_id())),
        )
        assert quarantine is not None
        assert [(row.op, row.row) for row in quarantine.rows()] == [
            ("u", {"id": 2, "v": 60}),
            ("u", {"id": 4, "v": 70}),
        ]
        mysql.execute(f"ALTER TABLE {replica}.t DROP CONSTRAINT small")
        report = compared(pipeline, spark, [table])
        assert not report.equal
        with running(lambda: run(spark, pipeline)):
            after = repair(pipeline, spark, report, patience_s=PATIENCE_S)
        assert after.equal, after
        assert held() == [(1, 1), (2, 60), (3, 3), (4, 70)]
        assert quarantine.clear(table) == 2


@pytest.mark.slow
def test_postgresql_replica_that_was_changed_by_hand_is_repaired(
    postgres: PostgresServer, postgres_database: str, spark: SparkSession, tmp_path: Path
) -> None:
    def execute(*statements: str) -> None:
        postgres.execute(*statements, database=postgres_database)

    def write_row(i: int) -> None:
        execute(
            f"INSERT INTO t VALUES ({i}, 'new')",
            f"UPDATE t SET v = 'v{i}' WHERE id IN (40, 41, {i - 2})",
            f"DELETE FROM t WHERE id IN ({i - 4960}, {i - 3})",
        )

    execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)",
        "ALTER TABLE t REPLICA IDENTITY FULL",  # `verify` beside writers needs it
        "INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 400) i",
    )
    server = (
        f"url: 'postgresql://{postgres.host}:{postgres.port}/{postgres_database}', user: postgres,"
        f" password: {postgres.password}"
    )
    pipeline = parse_pipeline(
        f"source: {{{server}, tables: public.t, slot-name: slot_{postgres_database},"
        " snapshot-chunk-rows: 150}\n"
        f"sink: {{type: postgresql, {server}, schema: copy}}\n"
        "route: [{source-table: public.t, sink-table: t}]\n"
        f"pipeline: {{trigger: available-now, checkpoint: '{tmp_path / 'checkpoint'}'}}\n"
    )
    run(spark, pipeline)
    execute(
        "DELETE FROM copy.t WHERE id BETWEEN 20 AND 30",
        "UPDATE copy.t SET v = 'wrong' WHERE id = 40",
        "INSERT INTO copy.t VALUES (-1, 'extra')",
    )
    require_repaired(spark, pipeline, "public.t", write_row)


def test_few_rows_are_repaired_by_their_keys(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    copy = Copy.in_delta(mysql, database, spark, tmp_path)
    copy.run()
    wide = copy.target("wide")
    spark.sql(f"DELETE FROM {wide} WHERE part IN (7, 8)")
    spark.sql(f"UPDATE {wide} SET d = 7 WHERE part = 9")
    report = compared(copy.pipeline, spark, [])
    said: list[str] = []
    with running(copy.run):
        after = repair(copy.pipeline, spark, report, patience_s=PATIENCE_S, say=said.append)
    assert after.equal, after
    assert len(said) == 3
    assert f"rows of {database}.wide" in said[0]


def test_stopped_pipeline_leaves_the_request_and_the_target(
    mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    copy = Copy.in_delta(mysql, database, spark, tmp_path)
    copy.run()
    spark.sql(f"DELETE FROM {copy.target('small')} WHERE id = 1")
    report = compared(copy.pipeline, spark, [])
    with pytest.raises(StateError, match="TR-6045"):
        repair(copy.pipeline, spark, report, patience_s=0)
    copy.run()
    assert compared(copy.pipeline, spark, []).equal

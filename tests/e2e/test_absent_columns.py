"""Values that the log leaves out: unchanged TOAST, MySQL's partial images; the sinks that take them."""

from __future__ import annotations

import random
import threading
from contextlib import closing

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.config.sinks import ReplicaTransaction
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.registry import make_sinks
from tests.e2e.test_mariadb import _Quiet
from tests.support.sinks.clickhouse import target_of
from tests.support.sinks.iceberg import table_rows
from tests.support.sinks.opensearch import cluster
from tests.support.sinks.replica import replica_target

PARTS, WHOLE = ReplicaTransaction


class _Postgres:
    """Its log leaves unchanged TOAST values out."""

    bytes_ = "decode(repeat('{}', 3000), 'hex')"
    table = (
        "CREATE TABLE t (id int PRIMARY KEY, v int, big text, raw bytea)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL",
    )

    def __init__(self, request):
        self._server = request.getfixturevalue("postgres")
        self._database = request.getfixturevalue("postgres_database")
        self.options = (
            f"url: '{self._server.url}/{self._database}', user: postgres, tables: 'public.t',"
            f" password: {self._server.password},"
            f" slot-name: slot_{self._database}"
        )
        self.name = r"public\.t"

    def execute(self, *statements):
        return self._server.execute(*statements, database=self._database)


class _MySql:
    """Its log leaves out what a statement does not name, where the session says so."""

    bytes_ = "unhex(repeat('{}', 3000))"
    table = ("CREATE TABLE t (id int PRIMARY KEY, v int, big longtext, raw longblob)",)

    def __init__(self, request):
        self._server = request.getfixturevalue("mysql")
        database = request.getfixturevalue("database")
        self._before = (f"USE `{database}`", "SET binlog_row_image = MINIMAL")
        self.options = (
            f"url: 'mysql://{self._server.host}:{self._server.port}', user: {self._server.user},"
            f" password: {self._server.password},"
            f" tables: '{database}.t', tls-mode: disabled"
        )
        self.name = rf"{database}\.t"

    def execute(self, *statements):
        return self._server.execute(*self._before, *statements)


def random_changes(random_: random.Random, count: int, source) -> list[str]:
    """Statements over some thirty keys; few of them write both large columns."""
    statements = []
    for number in range(count):
        id_ = random_.randrange(30)
        is_new = f"NOT EXISTS (SELECT 1 FROM t WHERE id = {id_})"
        big, raw = f"repeat('{chr(97 + number % 26)}', 3000)", source.bytes_.format("0f")
        statements.append(
            random_.choice(
                [
                    f"UPDATE t SET v = {number} WHERE id = {id_}",
                    f"UPDATE t SET v = {number} WHERE id BETWEEN {id_} AND {id_ + 4}",
                    f"UPDATE t SET big = {big} WHERE id = {id_}",
                    f"UPDATE t SET raw = {raw}, v = NULL WHERE id = {id_}",
                    f"UPDATE t SET big = 'small', raw = NULL WHERE id = {id_}",
                    f"DELETE FROM t WHERE id = {id_}",
                    f"INSERT INTO t SELECT {id_}, {number}, {big}, {raw} WHERE {is_new}",
                ]
            )
        )
    return statements


@pytest.mark.parametrize("kind", [_Postgres, _MySql])
def test_targets_are_the_source_though_its_log_leaves_values_out(request, spark, tmp_path, kind):
    source = kind(request)
    replicas = [replica_target(request, "mysql", PARTS), replica_target(request, "postgres", WHOLE)]
    sinks = "".join(
        f"  - {{type: {kind}, url: '{target.settings.url}', user: {target.settings.user},"
        f" password: {target.settings.password.resolve()},"
        f" transaction: {target.settings.transaction}, tls-mode: disabled}}\n"
        for kind, target in zip(("mysql", "postgresql"), replicas, strict=True)
    )
    lake, documents, tables = tmp_path / "lake", cluster(request), target_of(request)
    pipeline = parse_pipeline(
        f"source: {{{source.options}, snapshot-chunk-rows: 10}}\n"
        f"sink:\n{sinks}  - {{type: iceberg, path: '{lake}', mode: upsert}}\n"
        f"  - {{type: opensearch, url: '{documents.url}'}}\n"
        f"  - {{type: clickhouse, url: '{tables.settings.url}'}}\n"
        f"route: [{{source-table: '{source.name}', sink-table: 'shop.t'}}]\n"
        f"pipeline: {{trigger: available-now, checkpoint: '{tmp_path / 'checkpoint'}', restarts: 0}}\n"
    )

    def run():
        with closing(make_sinks(pipeline)) as sink:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()

    def expect_equal():
        rows = source.execute("SELECT id, v, big, raw FROM t ORDER BY id")
        expected = [dict(zip(("id", "v", "big", "raw"), row, strict=True)) for row in rows]
        found = [target.rows("shop.t") for target in replicas]
        unordered = (
            table_rows(lake, "shop.t").to_pylist(),
            documents.typed_rows("shop.t"),
            tables.rows("shop.t"),
        )
        found += [sorted(rows, key=lambda row: row["id"]) for rows in unordered]
        for held in found:
            assert held == expected

    big, raw = "repeat('x', 3000)", source.bytes_.format("ff")
    source.execute(*source.table, *(f"INSERT INTO t VALUES ({n}, {n}, {big}, {raw})" for n in range(25)))
    run()
    expect_equal()
    random_ = random.Random(7)
    for _ in range(2):
        source.execute(*random_changes(random_, 80, source))
        run()
        expect_equal()

    source.execute(f"INSERT INTO t VALUES (50, 1, {big}, {raw})", "UPDATE t SET id = 51 WHERE id = 50")
    with pytest.raises(Exception, match="REPLICA IDENTITY FULL"):
        run()

"""Values that PostgreSQL's log leaves out (unchanged TOAST), into replicas and Iceberg."""

from __future__ import annotations

import random
import threading
from contextlib import closing

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.config.sinks import ReplicaTransaction
from tailrace.sinks.registry import make_sinks
from tailrace.spark.query import Supervisor, read_cells
from tests.e2e.test_mariadb import _Quiet
from tests.support.sinks.iceberg import table_rows
from tests.support.sinks.replica import replica_target

PARTS, WHOLE = ReplicaTransaction
_BIG = "repeat('{}', 3000)"


def random_changes(random_: random.Random, count: int) -> list[str]:
    """Statements over some thirty keys; few of them write both large columns."""
    statements = []
    for number in range(count):
        id_ = random_.randrange(30)
        big, raw = _BIG.format(chr(97 + number % 26)), f"decode({_BIG.format('0f')}, 'hex')"
        statements.append(
            random_.choice(
                [
                    f"UPDATE t SET v = {number} WHERE id = {id_}",
                    f"UPDATE t SET v = {number} WHERE id BETWEEN {id_} AND {id_ + 4}",
                    f"UPDATE t SET big = {big} WHERE id = {id_}",
                    f"UPDATE t SET raw = {raw}, v = NULL WHERE id = {id_}",
                    f"UPDATE t SET big = 'small', raw = NULL WHERE id = {id_}",
                    f"DELETE FROM t WHERE id = {id_}",
                    f"INSERT INTO t VALUES ({id_}, {number}, {big}, {raw}) ON CONFLICT DO NOTHING",
                ]
            )
        )
    return statements


def test_targets_are_the_source_though_its_log_leaves_large_values_out(
    request, postgres, postgres_database, spark, tmp_path
):
    replicas = [replica_target(request, "mysql", PARTS), replica_target(request, "postgres", WHOLE)]
    sinks = "".join(
        f"  - {{type: {kind}, url: '{target.settings.url}', user: {target.settings.user},"
        f" transaction: {target.settings.transaction}, tls-mode: disabled}}\n"
        for kind, target in zip(("mysql", "postgresql"), replicas, strict=True)
    )
    lake = tmp_path / "lake"
    pipeline = parse_pipeline(
        f"source: {{url: '{postgres.url}/{postgres_database}', user: postgres, tables: 'public.t',"
        f" snapshot-chunk-rows: 10, slot-name: slot_{postgres_database}}}\n"
        f"sink:\n{sinks}  - {{type: iceberg, path: '{lake}', mode: upsert}}\n"
        f"route: [{{source-table: 'public\\.t', sink-table: 'shop.t'}}]\n"
        f"pipeline: {{trigger: available-now, checkpoint: '{tmp_path / 'checkpoint'}', restarts: 0}}\n"
    )

    def run():
        with closing(make_sinks(pipeline)) as sink:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()

    def expect_equal():
        rows = postgres.execute("SELECT id, v, big, raw FROM t ORDER BY id", database=postgres_database)
        expected = [dict(zip(("id", "v", "big", "raw"), row, strict=True)) for row in rows]
        found = [target.rows("shop.t") for target in replicas]
        found.append(sorted(table_rows(lake, "shop.t").to_pylist(), key=lambda row: row["id"]))
        for held in found:
            assert held == expected

    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int, big text, raw bytea)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL",
        f"INSERT INTO t SELECT n, n, {_BIG.format('x')}, decode({_BIG.format('ff')}, 'hex')"
        " FROM generate_series(0, 24) n",
        database=postgres_database,
    )
    run()
    expect_equal()
    random_ = random.Random(7)
    for _ in range(2):
        postgres.execute(*random_changes(random_, 80), database=postgres_database)
        run()
        expect_equal()

    postgres.execute(
        f"INSERT INTO t VALUES (50, 1, {_BIG.format('y')}) ON CONFLICT DO NOTHING",
        "UPDATE t SET id = 51 WHERE id = 50",
        database=postgres_database,
    )
    with pytest.raises(Exception, match="REPLICA IDENTITY FULL"):
        run()

"""Shards with different columns in one target, while their schemas change one after the other."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.config.sinks import ReplicaTransaction
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.registry import make_sinks
from tailrace_dev.servers import MySqlServer
from tests.e2e.test_mariadb import _Quiet
from tests.support.sinks.iceberg import table_rows
from tests.support.sinks.replica import replica_target


@pytest.mark.slow
def test_target_equals_the_union_of_its_shards(
    spark: SparkSession, mysql: MySqlServer, database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Columns of one shard only, types of different width; columns added, renamed, dropped, and retyped."""
    replica = replica_target(request, "postgres", ReplicaTransaction.PARTS)
    server, policy = replica.server, "on-incompatible-type: text"
    pipeline = parse_pipeline(
        f"source: {{url: 'mysql://{mysql.host}:{mysql.port}', user: {mysql.user},"
        f" password: {mysql.password}, tables: '{database}.t_[ab]'}}\n"
        f"route: [{{source-table: '{database}.t_.', sink-table: shop.all_t, shard-column: _shard}}]\n"
        "sink:\n"
        f"  - {{type: delta, path: {tmp_path}/delta, merge-interval: 0, {policy}}}\n"
        f"  - {{type: iceberg, path: {tmp_path}/iceberg, {policy}}}\n"
        f"  - {{type: postgresql, url: '{replica.settings.url}', user: {server.user},"
        f" password: {server.password}, {policy}}}\n"
        "pipeline: {name: shards, trigger: available-now}\n"
    )

    def execute(*statements: str) -> None:
        mysql.execute(f"USE {database}", *statements)

    def shards() -> dict[tuple[str, int], dict[str, Any]]:
        """The rows of both shards, with the columns that they have."""
        found = {}
        for name in ("t_a", "t_b"):
            names = [line[0] for line in mysql.execute(f"SHOW COLUMNS FROM {database}.{name}")]
            for line in mysql.execute(f"SELECT * FROM {database}.{name}"):
                row = dict(zip(names, line, strict=True))
                found[f"{database}.{name}", row["id"]] = row
        return found

    def run(*texts: str) -> None:
        """Run the pipeline, and compare each target with the shards.

        Args:
            texts: columns that have become text in targets.
        """
        sink = make_sinks(pipeline)
        try:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()
        finally:
            sink.close()
        wanted = shards()
        columns = {name for row in wanted.values() for name in row}
        delta = spark.read.format("delta").load(f"{tmp_path}/delta/shop.all_t").collect()
        targets = {
            "delta": [row.asDict() for row in delta],
            "iceberg": table_rows(tmp_path / "iceberg", "shop.all_t").to_pylist(),
            "postgresql": replica.rows("shop.all_t"),
        }
        for target, rows in targets.items():
            found = {(row["_shard"], row["id"]): row for row in rows}
            assert found.keys() == wanted.keys(), target
            assert len(found) == len(rows), target
            for key, row in wanted.items():
                for name in found[key].keys() - {"_shard"}:
                    value = row.get(name)
                    if name in texts and value is not None:
                        value = str(value)
                    assert found[key][name] == value, (target, key, name)
                assert columns <= found[key].keys(), target

    execute(
        "CREATE TABLE t_a (id INT PRIMARY KEY, v INT, only_a VARCHAR(10), w TINYINT NOT NULL)",
        "CREATE TABLE t_b (id BIGINT PRIMARY KEY, w INT NOT NULL, only_b DECIMAL(10, 2), v BIGINT)",
        "INSERT INTO t_a VALUES (1, 10, 'a', 1), (2, 20, NULL, 2), (3, 30, 'c', 3)",
        "INSERT INTO t_b VALUES (1, 100000, 1.5, 5000000000), (2, 2, NULL, NULL)",
    )
    run()
    # a rolling ALTER: one shard first, rows of both change before and after
    execute(
        "UPDATE t_a SET v = 11 WHERE id = 1",
        "ALTER TABLE t_a ADD COLUMN n INT NOT NULL DEFAULT 7, RENAME COLUMN only_a TO was_a",
        "INSERT INTO t_a VALUES (4, 40, 'd', 4, 8)",
        "UPDATE t_b SET only_b = 2.5, v = 6 WHERE id = 2",
        "DELETE FROM t_a WHERE id = 3",
    )
    run()
    execute(
        "INSERT INTO t_b VALUES (3, 3, 3.25, 3)",
        "ALTER TABLE t_b DROP COLUMN only_b, ADD COLUMN n BIGINT NOT NULL DEFAULT 9",
        "UPDATE t_b SET n = 5000000000 WHERE id = 1",
        "UPDATE t_a SET was_a = 'x' WHERE id = 4",
    )
    run()
    execute(
        "ALTER TABLE t_a MODIFY v VARCHAR(20)",
        "UPDATE t_a SET v = 'eleven' WHERE id = 1",
        "UPDATE t_b SET v = 7 WHERE id = 3",
    )
    run("v")
    execute(
        "ALTER TABLE t_b MODIFY v VARCHAR(20)",
        "UPDATE t_b SET v = 'b' WHERE id = 1",
        "DELETE FROM t_b WHERE id = 2",
    )
    run("v")

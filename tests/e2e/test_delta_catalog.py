"""Delta's targets by names of Spark's catalog."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.sinks import DeltaSettings
from tailrace.errors import ConfigError, SinkError
from tailrace.model.table import TableId
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.route import Router
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, changes, table
from tests.support.iceberg_catalogs import CatalogServer
from tests.support.pipelines import PipelineProcess

EVERYTHING = Router([])


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[str]:
    name = f"shop_{uuid.uuid4().hex[:8]}"
    yield name
    spark.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def test_target_has_a_name_in_the_catalog_and_keeps_it_as_columns_come(
    spark: SparkSession, tmp_path: Path, schema: str
) -> None:
    settings = DeltaSettings(str(tmp_path / "lake"), merge_interval=0, catalog="spark_catalog")
    narrow = table(("id", INT), ("name", TEXT), key=("id",), name=f"{schema}.t")
    wide = table(("id", INT), ("name", TEXT), ("note", TEXT), key=("id",), name=f"{schema}.t")
    row = {"id": 1, "name": "a"}
    first = cell_batch(spark, 0, [("snapshot", changes(narrow, [("r", None, row)]))])
    second = cell_batch(
        spark, 1, [("log", changes(wide, [("u", row | {"note": None}, row | {"note": "n"})]))]
    )
    for batch in (first, first, second):
        with closing(DeltaSink(settings, EVERYTHING)) as sink:
            sink.write(batch)
    spark.catalog.refreshTable(f"{schema}.t")
    assert [tuple(held) for held in spark.table(f"{schema}.t").collect()] == [(1, "a", "n")]
    (detail,) = spark.sql(f"DESCRIBE DETAIL {schema}.t").collect()
    assert detail["location"].endswith(f"/lake/{schema}.t")

    elsewhere = DeltaSettings(str(tmp_path / "other"), merge_interval=0, catalog="spark_catalog")
    with (
        pytest.raises(SinkError, match="the catalog has another table") as taken,
        closing(DeltaSink(elsewhere, EVERYTHING)) as sink,
    ):
        sink.write(first)
    assert taken.value.code == "TR-7105"
    unknown = DeltaSettings(str(tmp_path / "unknown"), merge_interval=0, catalog="nowhere")
    with (
        pytest.raises(SinkError, match="cannot be registered as `nowhere`") as missing,
        closing(DeltaSink(unknown, EVERYTHING)) as sink,
    ):
        sink.write(first)
    assert missing.value.code == "TR-7103"
    with (
        pytest.raises(ConfigError, match="would be mixed in one target"),
        closing(DeltaSink(settings, EVERYTHING)) as sink,
    ):
        sink.claim([TableId("shop", "Orders"), TableId("shop", "orders")])


_READ = """
import json, sys
from tailrace.spark.session import spark_session
session = spark_session("reader", delta=True, extra_conf=json.loads(sys.argv[2]))
rows = session.table(sys.argv[1]).orderBy("id").toJSON().collect()
print(json.dumps([json.loads(row) for row in rows]))
"""


@pytest.mark.slow
def test_table_in_the_hive_metastore_equals_its_source_after_kills_and_schema_changes(
    iceberg_hive: CatalogServer, mysql: Any, database: str, tmp_path: Path
) -> None:
    metastore = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": iceberg_hive.properties["uri"],
    }
    name = f"{database}.t"
    lake = {"type": "delta", "path": str(tmp_path / "lake"), "catalog": "spark_catalog"}
    process = PipelineProcess(tmp_path, mysql, name, sink=lake, pipeline={"spark": metastore})

    def run(failpoint: str | None = None) -> None:
        code = process.run(failpoint=failpoint)
        assert code == (0 if failpoint is None else -9), process.output()

    def rows() -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-c", _READ, name, json.dumps(metastore)],
            env={**process.environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return found

    mysql.execute(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT, old VARCHAR(20), gone INT)",
        f"INSERT INTO {name} VALUES (1, 1, 'x', 1), (2, 2, 'y', 1)",
    )
    run("sink.table")
    run()
    assert rows() == [{"id": 1, "a": 1, "old": "x", "gone": 1}, {"id": 2, "a": 2, "old": "y", "gone": 1}]
    mysql.execute(
        f"ALTER TABLE {name} RENAME COLUMN old TO new",
        f"ALTER TABLE {name} DROP COLUMN gone",
        f"ALTER TABLE {name} MODIFY a BIGINT",
        f"UPDATE {name} SET a = {1 << 40} WHERE id = 1",
        f"DELETE FROM {name} WHERE id = 2",
    )
    run("sink.table")
    run()
    assert rows() == [{"id": 1, "a": 1 << 40, "new": "x"}]
    assert process.command("verify") == 0, process.output()

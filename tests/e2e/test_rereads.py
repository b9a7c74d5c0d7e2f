"""Schema changes that rewrite rows without logging them, end to end: targets equal their tables."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

from tailrace.config.load import parse_pipeline
from tailrace.errors import TailraceError
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.registry import make_sinks
from tailrace.spark.requests import RequestDirectory, requests_path
from tests.e2e.test_mariadb import _Quiet
from tests.support.sinks.iceberg import table_rows

#: Statements after each of which the pipeline runs to the log's end; {t} is the table, {s} its database.
STEPS: list[list[str]] = [
    ["ALTER TABLE {t} ADD COLUMN c INT DEFAULT 5", "UPDATE {t} SET a = 0 WHERE id = 3"],
    ["ALTER TABLE {t} RENAME COLUMN a TO b", "INSERT INTO {t} (id, b) VALUES (100, 1)"],
    ["ALTER TABLE {t} MODIFY d DECIMAL(10,1)"],
    [
        "CREATE TABLE {s}.n (id INT PRIMARY KEY, b INT, d DECIMAL(10,1), c INT, v VARCHAR(9) NOT NULL)",
        "INSERT INTO {s}.n SELECT id + 10, b, d, c, 'new' FROM {t}",
        "RENAME TABLE {t} TO {s}.o, {s}.n TO {t}",
    ],
    ["SET sql_log_bin = 0", "DELETE FROM {t} WHERE id > 30", "UPDATE {t} SET b = 7", "RESYNC"],
    ["TRUNCATE TABLE {t}", "INSERT INTO {t} (id, v) VALUES (1, 'x'), (2, 'y')"],
    ["DROP TABLE {t}", "CREATE TABLE {t} (id INT PRIMARY KEY, b INT)", "INSERT INTO {t} VALUES (7, 7)"],
]


@pytest.mark.slow  # the contract of sinks and `test_ddl_fuzz_sinks` have the same in fewer runs
@pytest.mark.parametrize("mode", ["upsert", "scd2", "changelog"])
def test_delta_target_equals_its_table_after_each_rewrite(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path, mode: str
) -> None:
    table = f"{database}.t"
    rows = ", ".join(f"({i}, {i}, {i}.25)" for i in range(1, 51))
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, d DECIMAL(10,2))",
        f"INSERT INTO {table} VALUES {rows}",
    )
    lake = tmp_path / "lake"
    merging = "" if mode == "changelog" else ", merge-interval: 0"
    pipeline = parse_pipeline(
        f"source: {{url: 'mysql://{mysql.host}:{mysql.port}', user: {mysql.user}, password: {mysql.password},"
        f" tables: '{table}', snapshot-chunk-rows: 20}}\n"
        f"sink: {{type: delta, path: {lake}, mode: {mode}{merging}}}\n"
        "pipeline: {name: rereads, trigger: available-now}\n",
        tmp_path / "pipeline.yaml",
    )

    def run() -> None:
        sink = make_sinks(pipeline)
        try:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()
        finally:
            sink.close()

    run()
    _require_equal(spark, mysql, table, lake, mode)
    for statements in STEPS:
        asks = statements[-1] == "RESYNC"
        mysql.execute(*(s.format(t=table, s=database) for s in (statements[:-1] if asks else statements)))
        if asks:
            RequestDirectory(requests_path(pipeline.checkpoint)).add([table])
        run()
        _require_equal(spark, mysql, table, lake, mode)


#: Sinks that hold rows, and what reads the rows they have.
HOLDING = {
    "delta-upsert": ("delta", "upsert"),
    "delta-scd2": ("delta", "scd2"),
    "iceberg": ("iceberg", "upsert"),
}


@pytest.mark.parametrize(
    "kind", ["delta-upsert", *(pytest.param(k, marks=pytest.mark.slow) for k in ("delta-scd2", "iceberg"))]
)
def test_rows_of_a_dropped_table_go_where_the_settings_say_so(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path, kind: str
) -> None:
    table, (type_, mode) = f"{database}.t", HOLDING[kind]
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY)",
        f"INSERT INTO {table} VALUES (1), (2)",
        f"CREATE TABLE {database}.other (id INT PRIMARY KEY)",
    )
    lake = tmp_path / "lake"
    merging = ", merge-interval: 0" if type_ == "delta" else ""
    pipeline = parse_pipeline(
        f"source: {{url: 'mysql://{mysql.host}:{mysql.port}', user: {mysql.user}, password: {mysql.password},"
        f" tables: '{database}.*', on-drop-table: apply}}\n"
        f"sink: {{type: {type_}, path: {lake}, mode: {mode}{merging}}}\n"
        "pipeline: {name: drops, trigger: available-now}\n",
        tmp_path / "pipeline.yaml",
    )

    def rows() -> list[int]:
        sink = make_sinks(pipeline)
        try:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()
        finally:
            sink.close()
        if type_ == "iceberg":
            return sorted(row["id"] for row in table_rows(lake, table).to_pylist())
        found = spark.read.format("delta").load(str(lake / table))
        return sorted(r["id"] for r in (found.where("_is_current") if mode == "scd2" else found).collect())

    assert rows() == [1, 2]
    mysql.execute(f"DROP TABLE {table}")
    assert rows() == []
    mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (2), (3)")
    assert rows() == [2, 3]


@pytest.mark.parametrize(
    "kind",
    [
        ("delta", "upsert"),
        pytest.param(("iceberg", "upsert"), marks=pytest.mark.slow),
        pytest.param(("delta", "scd2"), marks=pytest.mark.slow),
        pytest.param(("delta", "changelog"), marks=pytest.mark.slow),
        pytest.param(("iceberg", "changelog"), marks=pytest.mark.slow),
    ],
)
def test_rows_without_the_condition_are_not_touched(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path, kind: tuple[str, str]
) -> None:
    table, lake, (type_, mode) = f"{database}.t", tmp_path / "lake", kind
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
    )
    merging = ", merge-interval: 0" if type_ == "delta" and mode != "changelog" else ""
    pipeline = parse_pipeline(
        f"source: {{url: 'mysql://{mysql.host}:{mysql.port}', user: {mysql.user}, password: {mysql.password},"
        f" tables: '{table}'}}\n"
        f"sink: {{type: {type_}, path: {lake}, mode: {mode}{merging}}}\n"
        "pipeline: {name: where, trigger: available-now}\n",
        tmp_path / "pipeline.yaml",
    )

    def run() -> None:
        with closing(make_sinks(pipeline)) as sink:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()

    run()
    mysql.execute(
        "SET sql_log_bin = 0", f"UPDATE {table} SET v = 7", f"DELETE FROM {table} WHERE id IN (1, 4)"
    )
    conditions = [{"data-collection": ".*", "filter": "id > 2"}]
    RequestDirectory(requests_path(pipeline.checkpoint)).add_signal(
        {"type": "resync", "data": {"data-collections": [".*"], "additional-conditions": conditions}}
    )
    run()
    mysql.execute(f"INSERT INTO {table} VALUES (9, 9)")
    run()
    if type_ == "iceberg":
        found = table_rows(lake, table).to_pylist()
    else:
        rows = spark.read.format("delta").load(str(lake / table))
        found = [r.asDict() for r in (rows.where("_is_current") if mode == "scd2" else rows).collect()]
    has = sorted((row["id"], row["v"]) for row in found)
    corrected = [(3, 3), (3, 7)] if mode == "changelog" else [(3, 7)]
    assert has == [(1, 1), (2, 2), *corrected, (4, 4), (9, 9)]


@pytest.mark.parametrize("on_truncate", ["apply", pytest.param("ignore", marks=pytest.mark.slow), "fail"])
def test_rows_of_a_truncated_table_go_where_the_settings_say_so(
    spark: SparkSession, mysql: Any, database: str, tmp_path: Path, on_truncate: str
) -> None:
    table = f"{database}.t"
    mysql.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY)",
        f"INSERT INTO {table} VALUES (1), (2)",
        f"CREATE TABLE {database}.other (id INT PRIMARY KEY)",
    )
    lake = tmp_path / "lake"
    pipeline = parse_pipeline(
        f"source: {{url: 'mysql://{mysql.host}:{mysql.port}', user: {mysql.user}, password: {mysql.password},"
        f" tables: '{database}.*', on-truncate: {on_truncate}}}\n"
        f"sink: {{type: delta, path: {lake}, mode: upsert, merge-interval: 0}}\n"
        "pipeline: {name: truncates, trigger: available-now}\n",
        tmp_path / "pipeline.yaml",
    )

    def run() -> None:
        with closing(make_sinks(pipeline)) as sink:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()

    def rows() -> list[int]:
        return sorted(row["id"] for row in spark.read.format("delta").load(str(lake / table)).collect())

    run()
    mysql.execute(f"TRUNCATE TABLE {table}", f"INSERT INTO {table} VALUES (2), (3)")
    if on_truncate == "fail":
        with pytest.raises(TailraceError, match="a schema change of") as stopped:
            run()
        assert stopped.value.code == "TR-4430"
        assert rows() == [1, 2]
        return
    run()
    assert rows() == ([2, 3] if on_truncate == "apply" else [1, 2, 3])


def _require_equal(spark: SparkSession, mysql: Any, table: str, lake: Path, mode: str) -> None:
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        wanted = sorted(cursor.fetchall(), key=lambda row: row[0])
    found = spark.read.format("delta").load(str(lake / table))
    if mode == "scd2":
        found = found.where("_is_current")
    if mode == "changelog":
        found = found.withColumn("_last", f.max("_seq").over(Window.partitionBy("id")))
        found = found.where("_seq = _last AND _op <> 'd'")
    rows = [tuple(row) for row in found.select(*names).collect()]
    assert sorted(rows, key=lambda row: row[0]) == wanted

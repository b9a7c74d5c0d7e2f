"""Rows that Delta and Iceberg refuse: put aside once, with everything that is needed to correct them."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tailrace.cli import cli
from tailrace.config.load import parse_pipeline
from tailrace.config.sinks import DeltaSettings, WriteMode
from tailrace.errors import SinkError
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.base import Sink
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.quarantine import Quarantine
from tailrace.sinks.quarantining import QuarantiningSink
from tailrace.sinks.registry import make_sinks
from tailrace.sinks.route import Router
from tailrace.spark.requests import RequestDirectory, requests_path
from tailrace.verify.target import target_after
from tests.e2e.test_mariadb import _Quiet
from tests.support.cells import STREAM, cell_batch
from tests.support.changes import INT, TEXT, changes, table
from tests.support.sinks.iceberg import table_rows

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
OTHER = table(("id", INT), ("name", TEXT), key=("id",), name="shop.u")


def row(id_: int, name: str | None = "x") -> dict[str, Any]:
    return {"id": id_, "name": name}


def delta(path: Path, mode: WriteMode, *, most: int | None = 10, interval: int | None = 0) -> Sink:
    merges = mode is not WriteMode.CHANGELOG
    settings = DeltaSettings(str(path), mode, merge_interval=interval if merges else None)
    sink = DeltaSink(settings, Router([]))
    return sink if most is None else QuarantiningSink(sink, most)


def ids(spark: SparkSession, path: Path, mode: WriteMode, name: str = "shop.t") -> list[int]:
    frame = spark.read.format("delta").load(str(path / name))
    if mode is WriteMode.SCD2:
        frame = frame.where("_is_current")
    return sorted(r["id"] for r in frame.select("id").collect())


@pytest.mark.parametrize(
    "mode",
    [
        WriteMode.UPSERT,
        *(pytest.param(mode, marks=pytest.mark.slow) for mode in (WriteMode.CHANGELOG, WriteMode.SCD2)),
    ],
)
def test_row_that_violates_a_constraint_of_a_delta_table_never_gets_into_it(
    spark: SparkSession, tmp_path: Path, mode: WriteMode
) -> None:
    first = cell_batch(spark, 0, [("snapshot", changes(SCHEMA, [("r", None, row(1))]))])
    log = [
        *(("c", None, row(id_)) for id_ in (2, 200, 3)),
        ("u", row(1), row(1, "y")),
        ("c", None, row(300, "${secret}")),
        ("d", row(300), None),
    ]
    second = cell_batch(
        spark,
        1,
        [
            ("log", changes(SCHEMA, log, first=10)),
            ("snapshot", changes(SCHEMA, [("r", None, row(4)), ("r", None, row(400))], first=30)),
            ("log", changes(OTHER, [("c", None, row(500))], first=40)),
        ],
    )
    with closing(delta(tmp_path, mode, most=None)) as sink:
        sink.write(first)
        spark.sql(f"ALTER TABLE delta.`{tmp_path}/shop.t` ADD CONSTRAINT small CHECK (id < 100)")
        with pytest.raises(SinkError, match="violates CHECK constraint `small`") as refused:
            sink.write(second)
        assert refused.value.code == "TR-7006"
        assert refused.value.table == "shop.t"
    assert ids(spark, tmp_path, mode) == [1]
    for _ in range(2):  # the second time, the batch comes again to another process
        with closing(delta(tmp_path, mode)) as sink:
            sink.write(second)
            sink.write(second)
        assert sorted(set(ids(spark, tmp_path, mode))) == [1, 2, 3, 4]
        assert ids(spark, tmp_path, mode, "shop.u") == [500]
    entries = list(Quarantine(str(tmp_path), STREAM.query).rows())
    assert sorted((e.key["id"], e.op, e.position) for e in entries if e.key) == [
        (200, "c", "binlog.000001:1100"),
        (300, "c", "binlog.000001:1400"),
        *([(300, "d", "binlog.000001:1500")] if mode == "changelog" else []),
        (400, "r", "binlog.000001:3000"),
    ]
    assert {(e.table, e.target, e.batch, e.code) for e in entries} == {("shop.t", "shop.t", 1, "TR-7006")}
    assert {e.reason for e in entries} == {"it violates CHECK constraint `small`"}
    assert all("resync" in str(e.remedy) for e in entries)


def test_more_rows_than_may_be_put_aside_are_an_error_of_their_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    def batch(number: int, *found: int) -> Any:
        created = changes(SCHEMA, [("c", None, row(id_)) for id_ in found], first=10 * number)
        return cell_batch(spark, number, [("log", created)])

    with closing(delta(tmp_path, WriteMode.UPSERT, most=2)) as sink:
        sink.write(batch(0, 1))
        spark.sql(f"ALTER TABLE delta.`{tmp_path}/shop.t` ADD CONSTRAINT small CHECK (id < 100)")
        sink.write(batch(1, 2, 200, 201))
        sink.write(batch(1, 2, 200, 201))  # what the batch itself has put aside does not count twice
        with pytest.raises(SinkError, match="more refused rows than `max-quarantined`") as full:
            sink.write(batch(2, 3, 202))
        assert (full.value.code, full.value.table) == ("TR-7040", "shop.t")
        quarantine = Quarantine(str(tmp_path), STREAM.query)
        assert quarantine.count("shop.t") == 2
        assert quarantine.clear("shop.t") == 2
        sink.write(batch(2, 3, 202))
        assert quarantine.count("shop.t") == 1
    assert ids(spark, tmp_path, WriteMode.UPSERT) == [1, 2, 3]


@pytest.mark.parametrize("mode", [WriteMode.SCD2, pytest.param(WriteMode.UPSERT, marks=pytest.mark.slow)])
def test_constraint_that_comes_while_changes_wait_ends_their_merge_without_telling_values(
    spark: SparkSession, tmp_path: Path, mode: WriteMode
) -> None:
    sink = delta(tmp_path, mode, interval=3600)
    sink.write(cell_batch(spark, 0, [("snapshot", changes(SCHEMA, [("r", None, row(1))]))]))
    for number, created in ((1, row(2)), (2, row(200, "secret"))):  # the first ones are merged at once
        log = changes(SCHEMA, [("c", None, created)], first=10 * number)
        sink.write(cell_batch(spark, number, [("log", log)]))
    assert sink.pending_rows == 1
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/shop.t` ADD CONSTRAINT small CHECK (id < 100)")
    with pytest.raises(SinkError, match="violates CHECK constraint `small`") as refused:
        sink.close()
    assert refused.value.code == "TR-7006"
    assert refused.value.__suppress_context__
    assert "secret" not in str(refused.value)


@pytest.mark.slow
def test_row_that_the_log_holds_in_part_is_put_aside_until_the_table_is_read_again(
    spark: SparkSession, postgres: Any, postgres_database: str, tmp_path: Path
) -> None:
    def execute(*statements: str) -> Any:
        return postgres.execute(*statements, database=postgres_database)

    big = "repeat('x', 3000)"
    execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int, big text)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        f"INSERT INTO t SELECT n, n, {big} FROM generate_series(1, 4) n",
    )
    sinks = (
        f"  - {{name: upsert, type: delta, merge-interval: 0, path: '{tmp_path}/upsert', {{}}}}\n"
        f"  - {{name: versions, type: delta, mode: scd2, path: '{tmp_path}/versions', {{}}}}\n"
        f"  - {{name: ice, type: iceberg, path: '{tmp_path}/ice', {{}}}}\n"
    ).replace("{}", "on-refused-row: quarantine")
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"source: {{url: '{postgres.url}/{postgres_database}', user: postgres, tables: 'public.(t|u)',"
        f" password: {postgres.password}, slot-name: slot_{postgres_database}}}\n"
        f"sink:\n{sinks}"
        f"pipeline: {{trigger: available-now, checkpoint: '{tmp_path / 'checkpoint'}', restarts: 0}}\n"
    )
    pipeline = parse_pipeline(file.read_text())

    def run() -> None:
        with closing(make_sinks(pipeline)) as sink:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()

    def command(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["quarantine", str(file), *arguments])
        assert done.exit_code == 0, done.output
        return done.output

    def found() -> list[list[tuple[int, int]]]:
        upsert = spark.read.format("delta").load(f"{tmp_path}/upsert/public.t").collect()
        versions = target_after(
            spark, str(tmp_path / "versions"), "public.t", mode=WriteMode.SCD2, key=("id",), batch=1_000_000
        )
        assert versions is not None
        ice = table_rows(tmp_path / "ice", "public.t").to_pylist()
        return [sorted((r["id"], r["v"]) for r in rows) for rows in (upsert, versions.frame.collect(), ice)]

    run()
    assert found() == [[(1, 1), (2, 2), (3, 3), (4, 4)]] * 3
    execute(
        "UPDATE t SET id = 51 WHERE id = 1",  # a new key: the old row of the target does not help
        "UPDATE t SET v = 20 WHERE id = 2",  # only versions need the whole row
        "UPDATE t SET v = 52 WHERE id = 51",
        "DELETE FROM t WHERE id = 3",
        "INSERT INTO t VALUES (6, 6, 'small')",
        "INSERT INTO u VALUES (1)",
    )
    run()
    assert found() == [
        [(2, 20), (4, 4), (6, 6)],
        [(2, 2), (4, 4), (6, 6)],
        [(2, 20), (4, 4), (6, 6)],
    ]
    assert spark.read.format("delta").load(f"{tmp_path}/versions/public.u").count() == 1
    listed = json.loads(command("--json"))["rows"]
    assert {(r["table"], r["code"]) for r in listed} == {("public.t", "TR-4405")}
    assert [(r["sink"], r["op"], r["key"], r["row"]) for r in listed] == [
        ("upsert", "c", {"id": 51}, {"id": 51, "v": 1}),
        ("versions", "c", {"id": 51}, {"id": 51, "v": 1}),
        ("versions", "u", {"id": 2}, {"id": 2, "v": 20}),
        ("versions", "u", {"id": 51}, {"id": 51, "v": 52}),
        ("ice", "c", {"id": 51}, {"id": 51, "v": 1}),
    ]
    assert "sink versions, table public.t: 3" in command()
    assert "REPLICA IDENTITY FULL" in command()

    RequestDirectory(requests_path(pipeline.checkpoint)).add(["public.t"], "resync")
    run()
    assert found() == [[(2, 20), (4, 4), (6, 6), (51, 52)]] * 3
    assert "sink versions: 3 rows of public.t cleared" in command("--clear", "public.t")
    assert "no row is in quarantine" in command()

"""Lake tables and files that one pass over a batch writes, if it holds what is expected."""

from __future__ import annotations

import shutil
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.model import RouteRule
from tailrace.config.sinks import DeltaSettings, IcebergSettings, JsonSettings, ParquetSettings, WriteMode
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.base import CellBatch, Sink
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.delta.transaction import DeltaTransaction
from tailrace.sinks.files import FileSink
from tailrace.sinks.iceberg.sink import IcebergSink
from tailrace.sinks.route import Router
from tests.support.cells import cell_batch
from tests.support.changes import DECIMAL, INT, TEXT, changes, table
from tests.support.sinks.iceberg import data_files, table_rows

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
WIDER = table(("id", INT), ("name", TEXT), ("more", INT), key=("id",))
OTHER = table(("id", INT), ("name", TEXT), key=("id",), name="shop.u")


def created(first: int, count: int, schema: Any = SCHEMA) -> tuple[str, Any]:
    more = {"more": 7} if schema is WIDER else {}
    rows = [{"id": i, "name": f"n{i}", **more} for i in range(first, first + count)]
    return "log", changes(schema, [("c", None, row) for row in rows], first=first)


def iceberg_ids(root: Path, name: str) -> list[int]:
    return sorted(table_rows(root, name).column("id").to_pylist())


def ids(spark: SparkSession, root: Path, name: str) -> list[int]:
    return sorted(row["id"] for row in spark.read.format("delta").load(f"{root}/{name}").collect())


def write(sink: Sink, batch: CellBatch) -> bool:
    """Whether one pass has done it."""
    written = sink.write(batch)
    sums = batch.once.selectExpr("sum(changes)").collect()[0][0]
    assert sum(w.changes + w.snapshot_rows for w in written) == (sums or 0)
    return not batch.once.is_cached


BATCHES = (
    [created(1, 3), created(1, 2, OTHER)],
    [created(10, 3), created(20, 3), created(10, 2, OTHER)],
    [created(30, 2), created(40, 2, WIDER)],
    [created(50, 2, WIDER)],
    [created(60, 2, WIDER), created(60, 2, OTHER)],
    [],
    [created(70, 2, OTHER)],
)
#: Which of them one pass writes.
EXPECTED = [False, True, False, False, True, True, True]
IDS = [1, 2, 3, 10, 11, 12, 20, 21, 22, 30, 31, 40, 41, 50, 51, 60, 61]
OTHER_IDS = [1, 2, 10, 11, 60, 61, 70, 71]


@pytest.fixture
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    mode, interval = getattr(request, "param", (WriteMode.CHANGELOG, None))
    sink = DeltaSink(DeltaSettings(str(tmp_path), mode, merge_interval=interval), Router([]))
    yield sink
    sink.close()


@pytest.mark.parametrize(
    "sink",
    [
        # the tests below, too, are of a change log
        pytest.param((WriteMode.CHANGELOG, None), marks=pytest.mark.slow),
        pytest.param((WriteMode.UPSERT, 0), marks=pytest.mark.slow),
        (WriteMode.UPSERT, 3600),
    ],
    indirect=True,
    ids=["changelog", "upsert", "upsert-waiting"],
)
def test_what_is_expected_is_written_by_one_pass_and_what_is_not_the_long_way(
    spark: SparkSession, tmp_path: Path, sink: DeltaSink
) -> None:
    one_pass = [write(sink, cell_batch(spark, n, cells)) for n, cells in enumerate(BATCHES)]
    assert one_pass == EXPECTED
    assert not list((tmp_path / "_tailrace" / "staging").rglob("*.parquet"))
    sink.close()
    assert not (tmp_path / "_tailrace" / "staging").exists()
    assert ids(spark, tmp_path, "shop.t") == IDS
    assert ids(spark, tmp_path, "shop.u") == OTHER_IDS
    rows = spark.read.format("delta").load(f"{tmp_path}/shop.t").where("more = 7")
    assert rows.count() == 6


@pytest.mark.parametrize(
    "mode", [WriteMode.CHANGELOG, pytest.param(WriteMode.UPSERT, marks=pytest.mark.slow)]
)
def test_iceberg_tables_too_and_no_file_is_left_that_no_table_has(
    spark: SparkSession, tmp_path: Path, mode: WriteMode
) -> None:
    sink = IcebergSink(IcebergSettings(str(tmp_path), mode), Router([]))
    one_pass = [write(sink, cell_batch(spark, n, cells)) for n, cells in enumerate(BATCHES)]
    assert one_pass == EXPECTED
    assert write(sink, cell_batch(spark, len(BATCHES) - 1, BATCHES[-1])), "it comes again"
    sink.close()
    assert iceberg_ids(tmp_path, "shop.t") == IDS
    assert iceberg_ids(tmp_path, "shop.u") == OTHER_IDS
    assert table_rows(tmp_path, "shop.t").column("more").to_pylist().count(7) == 6
    for name in ("t", "u"):
        root = tmp_path / "shop" / name
        assert {f.name for f in root.glob("data/*.parquet")} == data_files(tmp_path, f"shop.{name}")
        assert not list(root.glob("changes/*"))


def test_batch_that_comes_again_changes_nothing(spark: SparkSession, tmp_path: Path, sink: DeltaSink) -> None:
    write(sink, cell_batch(spark, 0, [created(1, 3)]))
    for _ in range(2):
        assert write(sink, cell_batch(spark, 1, [created(10, 3)]))
    sink.close()
    assert ids(spark, tmp_path, "shop.t") == [1, 2, 3, 10, 11, 12]


def test_table_that_somebody_has_widened_meanwhile_takes_the_rows(
    spark: SparkSession, tmp_path: Path, sink: DeltaSink
) -> None:
    write(sink, cell_batch(spark, 0, [created(1, 3)]))
    place = "" if "_op" not in spark.read.format("delta").load(f"{tmp_path}/shop.t").columns else "_before."
    for prefix in {"", place}:
        spark.sql(f"ALTER TABLE delta.`{tmp_path}/shop.t` ADD COLUMN {prefix}theirs int")
    assert not write(sink, cell_batch(spark, 1, [created(10, 3)]))
    assert write(sink, cell_batch(spark, 2, [created(20, 3)]))
    sink.close()
    assert ids(spark, tmp_path, "shop.t") == [1, 2, 3, 10, 11, 12, 20, 21, 22]


def test_files_of_a_commit_that_another_writer_outran_are_made_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = DeltaSink(DeltaSettings(str(tmp_path), WriteMode.CHANGELOG), Router([]))
    write(sink, cell_batch(spark, 0, [created(1, 3)]))
    commit, rivals = DeltaTransaction.commit, [1]

    def outrun(self: DeltaTransaction, *given: Any) -> None:
        if rivals:
            rivals.pop()
            spark.newSession().sql(
                f"ALTER TABLE delta.`{tmp_path}/shop.t` SET TBLPROPERTIES ('theirs' = '1')"
            )
        commit(self, *given)

    monkeypatch.setattr(DeltaTransaction, "commit", outrun)
    sink.write(cell_batch(spark, 1, [created(10, 3)]))
    sink.close()
    assert ids(spark, tmp_path, "shop.t") == [1, 2, 3, 10, 11, 12]


def test_what_a_killed_run_has_left_is_thrown_away(
    spark: SparkSession, tmp_path: Path, sink: DeltaSink
) -> None:
    left = tmp_path / "_tailrace" / "staging" / "part-of-another-run.parquet"
    left.parent.mkdir(parents=True)
    left.touch()
    write(sink, cell_batch(spark, 0, [created(1, 3)]))
    assert not left.exists()


FILES = {"parquet": ParquetSettings, "json": JsonSettings}


def files_of(due: str) -> pytest.MarkDecorator:
    """Both kinds of files: that one in `make test`, the other one as a slow test."""
    marks = {kind: [] if kind == due else [pytest.mark.slow] for kind in FILES}
    return pytest.mark.parametrize(
        "settings", [pytest.param(FILES[kind], id=kind, marks=marks[kind]) for kind in FILES]
    )


def files_sink(root: Path, settings: Any) -> Any:
    return closing(FileSink(settings(str(root)), Router([])))


def file_rows(spark: SparkSession, directory: Path, settings: Any) -> tuple[Any, list[Any]]:
    """Spark's schema of the files, and their rows."""
    frame = spark.read.format(settings.type).load(str(directory))
    return frame.schema, sorted(frame.collect(), key=lambda row: row["_seq"])


@files_of("parquet")
def test_files_too_in_any_directory(spark: SparkSession, tmp_path: Path, settings: Any) -> None:
    root = tmp_path / "a [b]{c}* \\d?"
    with files_sink(root, settings) as sink:
        one_pass = [write(sink, cell_batch(spark, n, cells)) for n, cells in enumerate(BATCHES)]
    assert one_pass == EXPECTED
    shutil.move(root, root := tmp_path / "plain")
    assert not (root / "_tailrace" / "staging").exists()
    for name, expected in (("shop.t", IDS), ("shop.u", OTHER_IDS)):
        rows = spark.read.format(settings.type).load(f"{root}/{name}").select("id").collect()
        assert sorted(row["id"] for row in rows) == expected


@files_of("json")
def test_files_are_the_same_by_one_pass(spark: SparkSession, tmp_path: Path, settings: Any) -> None:
    schema = table(
        ("id", INT),
        ("d", ColumnType(Kind.DATE, "date")),
        ("at", ColumnType(Kind.DATETIME, "datetime", fraction=6)),
        ("instant", ColumnType(Kind.INSTANT, "timestamp", fraction=6)),
        ("time", ColumnType(Kind.TIME, "time", fraction=6)),
        ("price", DECIMAL),
        ("data", ColumnType(Kind.BYTES, "blob")),
        ("a.b `c`", TEXT),
        key=("id",),
    )
    old = {
        "id": 1,
        "d": date(1000, 1, 1),
        "at": datetime.fromisoformat("0001-01-01"),
        "a.b `c`": "é\n",
        "data": b"\x00\xff",
    }
    new = {
        "id": 1,
        "d": date(9999, 12, 31),
        "at": datetime.fromisoformat("9999-12-31 23:59:59.999999"),
        "price": Decimal("-0.01"),
    }
    new |= {"instant": datetime(2038, 1, 19, 3, 14, 7, 999999, UTC), "time": timedelta(hours=-838)}
    log = [("c", None, old), ("u", old, new), ("d", new, None)]
    again = cell_batch(spark, 1, [("log", changes(schema, log, first=10))])
    with files_sink(tmp_path, settings) as sink:
        assert not write(sink, cell_batch(spark, 0, [("log", changes(schema, log))]))
        assert write(sink, again)
        by_pass = file_rows(spark, tmp_path / "shop.t/tailrace_batch=1", settings)
    with files_sink(tmp_path, settings) as sink:
        assert not write(sink, again), "a new process expects nothing"
    assert by_pass == file_rows(spark, tmp_path / "shop.t/tailrace_batch=1", settings)
    assert len(by_pass[1]) == 3


@files_of("parquet")
def test_tables_of_one_target_have_its_columns(spark: SparkSession, tmp_path: Path, settings: Any) -> None:
    wider = table(("id", INT), ("name", TEXT), ("more", INT), key=("id",), name="shop.u")
    more = changes(wider, [("c", None, {"id": 9, "name": "w", "more": 7})], first=9)
    with closing(FileSink(settings(str(tmp_path)), Router([RouteRule(r"shop\..", "all")]))) as sink:
        batches = [created(1, 2), ("log", more)], [created(3, 2)], [created(5, 2), ("log", more)]
        one_pass = [write(sink, cell_batch(spark, n, cells)) for n, cells in enumerate(batches)]
        assert one_pass == [False, True, False], "two tables with different columns need a common schema"
    rows = file_rows(spark, tmp_path / "all/tailrace_batch=2", settings)[1]
    assert sorted((row["id"], row["more"]) for row in rows) == [(5, None), (6, None), (9, 7)]

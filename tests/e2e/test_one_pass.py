"""Delta tables that are written by one pass over a batch: what is expected holds, or the long way is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.sinks import DeltaSettings, WriteMode
from tailrace.sinks.base import CellBatch
from tailrace.sinks.delta import DeltaSink
from tailrace.spark.jvm import DeltaTransaction
from tailrace.transform.route import Router
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, changes, table

SHAPE = table(("id", INT), ("name", TEXT), key=("id",))
WIDER = table(("id", INT), ("name", TEXT), ("more", INT), key=("id",))
OTHER = table(("id", INT), ("name", TEXT), key=("id",), name="shop.u")


def created(first: int, count: int, shape: Any = SHAPE) -> tuple[str, Any]:
    more = {"more": 7} if shape is WIDER else {}
    rows = [{"id": i, "name": f"n{i}", **more} for i in range(first, first + count)]
    return "log", changes(shape, [("c", None, row) for row in rows], first=first)


def ids(spark: SparkSession, root: Path, name: str) -> list[int]:
    return sorted(row["id"] for row in spark.read.format("delta").load(f"{root}/{name}").collect())


def write(sink: DeltaSink, batch: CellBatch) -> bool:
    """Whether one pass has done it."""
    written = sink.write(batch)
    sums = batch.once.selectExpr("sum(changes)").collect()[0][0]
    assert sum(w.changes + w.snapshot_rows for w in written) == (sums or 0)
    return not batch.once.is_cached


@pytest.fixture(params=[(WriteMode.CHANGELOG, None), (WriteMode.UPSERT, 0), (WriteMode.UPSERT, 3600)])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    mode, interval = request.param
    sink = DeltaSink(DeltaSettings(str(tmp_path), mode, merge_interval=interval), Router([]))
    yield sink
    sink.close()


def test_what_is_expected_is_written_by_one_pass_and_what_is_not_the_long_way(
    spark: SparkSession, tmp_path: Path, sink: DeltaSink
) -> None:
    batches = [
        [created(1, 3), created(1, 2, OTHER)],
        [created(10, 3), created(20, 3), created(10, 2, OTHER)],
        [created(30, 2), created(40, 2, WIDER)],
        [created(50, 2, WIDER)],
        [created(60, 2, WIDER), created(60, 2, OTHER)],
        [],
        [created(70, 2, OTHER)],
    ]
    one_pass = [write(sink, cell_batch(spark, n, cells)) for n, cells in enumerate(batches)]
    assert one_pass == [False, True, False, False, True, True, True]
    assert not (tmp_path / "_tailrace" / "staging").exists()
    sink.close()
    assert ids(spark, tmp_path, "shop.t") == [1, 2, 3, 10, 11, 12, 20, 21, 22, 30, 31, 40, 41, 50, 51, 60, 61]
    assert ids(spark, tmp_path, "shop.u") == [1, 2, 10, 11, 60, 61, 70, 71]
    rows = spark.read.format("delta").load(f"{tmp_path}/shop.t").where("more = 7")
    assert rows.count() == 6


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

"""Delta: changes that wait, versions of rows, the table of batches, maintenance."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.sinks import DeltaSettings, WriteMode
from tailrace.failpoints import VARIABLE, InjectedError
from tailrace.model.change import OP_UPDATE
from tailrace.sinks.base import CellBatch
from tailrace.sinks.delta.maintenance import Maintenance
from tailrace.sinks.delta.merge import last_of_each_key
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.delta.table import DeltaTable
from tailrace.sinks.delta.upsert import upsert
from tailrace.sinks.route import Router
from tailrace.spark.sql import OwnSessions
from tailrace.verify.target import target_after
from tests.contract.test_sinks import again, reread
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, Change, changes, table

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))


def row(id_: int, name: str) -> dict[str, Any]:
    return {"id": id_, "name": name}


LOGS: list[list[Change]] = [
    [("u", row(1, "s1"), row(1, "a")), ("c", None, row(4, "four"))],
    [("u", row(1, "a"), row(1, "b")), ("d", row(2, "s2"), None)],
    [("u", row(1, "b"), row(1, "c")), ("d", row(4, "four"), None), ("c", None, row(2, "back"))],
]
#: What the table holds after each batch.
STATES = [
    {1: "s1", 2: "s2", 3: "s3"},
    {1: "a", 2: "s2", 3: "s3", 4: "four"},
    {1: "b", 3: "s3", 4: "four"},
    {1: "c", 2: "back", 3: "s3"},
]
#: When each version of key 1 begins and ends, in `_seq`'s order.
NAMES_OF_KEY_1 = ["s1", "a", "b", "c"]


@pytest.fixture
def batches(spark: SparkSession) -> list[CellBatch]:
    rows = changes(SCHEMA, [("r", None, row(i, f"s{i}")) for i in (1, 2, 3)])
    logs = [changes(SCHEMA, log, first=100 * n) for n, log in enumerate(LOGS, 1)]
    return [
        cell_batch(spark, 0, [("snapshot", rows)]),
        *(cell_batch(spark, n, [("log", log)]) for n, log in enumerate(logs, 1)),
    ]


@pytest.fixture
def open_sink(tmp_path: Path) -> Iterator[Any]:
    opened: list[DeltaSink] = []

    def open_(mode: WriteMode = WriteMode.UPSERT, interval: int | None = 3600) -> DeltaSink:
        opened.append(DeltaSink(DeltaSettings(str(tmp_path), mode, merge_interval=interval), Router([])))
        return opened[-1]

    yield open_
    for sink in opened:
        sink.close()


def held(spark: SparkSession, path: Path) -> dict[int, str]:
    return {r["id"]: r["name"] for r in spark.read.format("delta").load(str(path / "shop.t")).collect()}


def after(spark: SparkSession, path: Path, batch: int) -> dict[int, str]:
    found = target_after(spark, str(path), "shop.t", mode=WriteMode.UPSERT, key=("id",), batch=batch)
    assert found is not None
    return {r["id"]: r["name"] for r in found.frame.collect()}


def noted(spark: SparkSession, path: Path) -> list[Any]:
    frame = spark.read.format("delta").load(str(path / "_tailrace_batches"))
    return frame.orderBy("batch", "written_at").collect()


# the contract suite has a sink whose changes wait
@pytest.mark.slow
def test_changes_wait_until_the_sink_is_closed_and_verify_sees_them(
    spark: SparkSession, tmp_path: Path, batches: list[CellBatch], open_sink: Any
) -> None:
    sink = open_sink()
    for batch in batches:
        sink.write(batch)
    assert held(spark, tmp_path) == STATES[1]  # the first changes were merged at once
    assert [after(spark, tmp_path, n) for n in range(4)] == STATES
    sink.close()
    assert held(spark, tmp_path) == STATES[3]
    assert [after(spark, tmp_path, n) for n in (0, 1, 3)] == [STATES[0], STATES[1], STATES[3]]


def test_table_of_batches_names_the_versions_that_show_a_batch(
    spark: SparkSession, tmp_path: Path, batches: list[CellBatch], open_sink: Any
) -> None:
    sink = open_sink()
    for batch in [*batches, batches[-1]]:
        sink.write(batch)
    sink.close()
    rows = noted(spark, tmp_path)
    assert [(r["batch"], r["current"], r["tables"]["shop.t"]["batch"]) for r in rows] == [
        (0, True, 0),
        (1, True, 1),
        (2, False, 1),
        (3, False, 1),
        (3, True, 3),
    ]
    for r in (rows[0], rows[1], rows[4]):
        version = r["tables"]["shop.t"]["version"]
        frame = spark.read.format("delta").option("versionAsOf", version)
        found = frame.load(str(tmp_path / "shop.t")).collect()
        assert {f["id"]: f["name"] for f in found} == STATES[r["batch"]]
    assert rows[2]["position"] == '{"file":"binlog.000001","pos":2}'


def test_changes_of_a_small_table_are_merged_with_their_batch(
    spark: SparkSession, tmp_path: Path, batches: list[CellBatch], open_sink: Any
) -> None:
    sink = open_sink(interval=None)
    for number, batch in enumerate(batches):
        sink.write(batch)
        assert held(spark, tmp_path) == STATES[number]
    assert sink.pending_rows == 0
    assert not Path(tmp_path, "_tailrace/changes").exists()
    assert [row["current"] for row in noted(spark, tmp_path)] == [True] * len(batches)


def test_changes_of_a_table_that_is_dear_to_merge_are_set_aside(
    spark: SparkSession, tmp_path: Path, batches: list[CellBatch], open_sink: Any, monkeypatch: Any
) -> None:
    """It is tried twice: a merge may have waited for a JVM that was compiling."""

    def slow(*given: Any, **named: Any) -> float:
        upsert(*given, **named)
        time.sleep(3)
        return 0.0

    monkeypatch.setattr("tailrace.sinks.delta.target.upsert", slow)
    monkeypatch.setattr("tailrace.sinks.delta.schedule._IDLE_S", 3600)
    sink = open_sink(interval=None)
    seen = []
    for batch in batches:
        sink.write(batch)
        seen.append(held(spark, tmp_path))
    assert seen == [STATES[0], STATES[1], STATES[2], STATES[2]]
    assert sink.pending_rows > 0
    sink.close()
    assert held(spark, tmp_path) == STATES[3]


@pytest.mark.parametrize(
    ("point", "mode"),
    [
        ("sink.merged", WriteMode.SCD2),
        pytest.param("sink.table", WriteMode.UPSERT, marks=pytest.mark.slow),
        pytest.param("sink.table", WriteMode.SCD2, marks=pytest.mark.slow),
        pytest.param("sink.merged", WriteMode.UPSERT, marks=pytest.mark.slow),
    ],
)
def test_crash_round_a_merge_of_what_waits_loses_and_repeats_nothing(
    *,
    spark: SparkSession,
    tmp_path: Path,
    batches: list[CellBatch],
    open_sink: Any,
    monkeypatch: pytest.MonkeyPatch,
    mode: WriteMode,
    point: str,
) -> None:
    sink = open_sink(mode)
    for batch in batches[:3]:
        sink.write(batch)
    monkeypatch.setenv(VARIABLE, f"{point}=raise@{tmp_path / 'token'}")
    with pytest.raises(InjectedError):  # the last batch merges, for its sink merges each
        open_sink(mode, 0).write(batches[3])
    monkeypatch.delenv(VARIABLE)
    last = open_sink(mode)
    last.write(batches[3])
    last.close()
    if mode is WriteMode.UPSERT:
        assert held(spark, tmp_path) == STATES[3]
        return
    rows = spark.read.format("delta").load(str(tmp_path / "shop.t")).orderBy("_seq").collect()
    assert [r["name"] for r in rows if r["id"] == 1] == NAMES_OF_KEY_1
    assert {r["id"]: r["name"] for r in rows if r["_is_current"]} == STATES[3]


def test_run_without_a_batch_merges_what_a_killed_one_left(
    spark: SparkSession, tmp_path: Path, batches: list[CellBatch], open_sink: Any
) -> None:
    killed = open_sink()
    for batch in batches:
        killed.write(batch)
    open_sink().close()
    assert held(spark, tmp_path) == STATES[3]
    assert noted(spark, tmp_path)[-1]["current"]


def test_versions_of_a_row_follow_each_other_without_a_gap(
    spark: SparkSession, tmp_path: Path, batches: list[CellBatch], open_sink: Any
) -> None:
    sink = open_sink(WriteMode.SCD2, 0)
    sink.write(batches[0])
    log = changes(SCHEMA, [change for log in LOGS for change in log], first=100)
    for _ in range(2):
        sink.write(cell_batch(spark, 1, [("log", log)]))
    frame = spark.read.format("delta").load(str(tmp_path / "shop.t")).orderBy("_seq")
    rows = frame.collect()
    for key, names in ((1, NAMES_OF_KEY_1), (2, ["s2", "back"]), (3, ["s3"]), (4, ["four"])):
        of_key = [r for r in rows if r["id"] == key]
        assert [r["name"] for r in of_key] == names
        if key == 1:
            assert [r["_valid_to"] for r in of_key] == [r["_valid_from"] for r in of_key[1:]] + [None]
    assert {r["id"] for r in rows if r["_is_current"]} == {1, 2, 3}
    assert all((r["_valid_to"] is None) == r["_is_current"] for r in rows)


def test_change_log_of_an_older_version_gets_the_columns_it_lacks(
    spark: SparkSession, tmp_path: Path, batches: list[CellBatch], open_sink: Any
) -> None:
    sink = open_sink(WriteMode.CHANGELOG, None)
    sink.write(batches[0])
    path = tmp_path / "shop.t"
    spark.sql(
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name',"
        " 'delta.minReaderVersion' = '3', 'delta.minWriterVersion' = '7')"
    )
    spark.sql(f"ALTER TABLE delta.`{path}` DROP COLUMNS (_absent, _absent_before)")
    sink.write(batches[1])
    found = spark.read.format("delta").load(str(path))
    assert {"_absent", "_absent_before"} <= set(found.columns)
    assert found.count() == 5


def tasks(spark: SparkSession) -> int:
    """How many tasks Spark has begun so far."""
    return int(spark._jsc.sc().taskScheduler().nextTaskId())


def test_optimize_and_vacuum_run_when_they_are_due(
    spark: SparkSession, tmp_path: Path, batches: list[CellBatch]
) -> None:
    settings = DeltaSettings(
        str(tmp_path), merge_interval=0, cluster_by_key=True, optimize_interval=100, vacuum_interval=200
    )
    sink = DeltaSink(settings, Router([]))
    for batch in batches:
        sink.write(batch)
    sink.close()
    delta = DeltaTable(OwnSessions(spark), str(tmp_path / "shop.t"))
    begun = spark.sql(f"DESCRIBE HISTORY {delta.sql}").agg({"timestamp": "min"}).collect()[0][0].timestamp()
    keeper = Maintenance(settings)
    begun_tasks = tasks(spark)
    assert [keeper.run(delta, begun + s) for s in (99, 150, 160, 201, 260)] == [
        False,
        True,
        False,
        True,
        True,
    ]
    assert tasks(spark) - begun_tasks < 500  # by Spark's default, VACUUM lists these few files in 20,000
    operations = [r["operation"] for r in spark.sql(f"DESCRIBE HISTORY {delta.sql}").collect()]
    assert (operations.count("OPTIMIZE"), operations.count("VACUUM END")) == (1, 1)
    assert held(spark, tmp_path) == STATES[3]


def test_columns_may_have_the_names_that_merging_uses_in_between(
    spark: SparkSession, tmp_path: Path, open_sink: Any
) -> None:
    key = ("_known0", "_key0")
    schema = table(("_known0", INT), ("_key0", INT), ("_held", TEXT), ("_earlier", TEXT), key=key)

    def named(id_: int, text: str) -> dict[str, Any]:
        return {"_known0": id_, "_key0": -id_, "_held": text, "_earlier": text}

    first = changes(schema, [("r", None, named(i, "s")) for i in (1, 2)])
    seen = reread(changes(schema, [("r", None, named(1, "b")), ("r", None, named(2, "s"))], first=200))
    last = cell_batch(spark, 1, [("reread", seen)])
    versions = open_sink(WriteMode.SCD2, 0)
    for batch in (cell_batch(spark, 0, [("snapshot", first)]), again(last, "x", done=True)):
        versions.write(batch)
    rows = spark.read.format("delta").load(str(tmp_path / "shop.t"))
    found = sorted((r["_known0"], r["_held"], r["_is_current"]) for r in rows.collect())
    assert found == [(1, "b", True), (1, "s", False), (2, "s", True)]
    lacking = spark.createDataFrame(
        [(1, -1, "a", None, OP_UPDATE, "01", ["_earlier"])],
        "_known0 int, _key0 int, _held string, _earlier string, _op int, _seq string, _absent array<string>",
    )
    (merged,) = last_of_each_key(lacking, key, ["_earlier"]).collect()
    assert (merged["_known0"], merged["_held"], merged["_lacks"]) == (1, "a", [0])

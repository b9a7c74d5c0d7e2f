"""The Delta sink with real Spark and Delta, fed with batches made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace.config.model import RouteRule
from tailrace.config.sinks import DeltaSettings, WriteMode
from tailrace.errors import SinkError, StateError, TransientSinkError
from tailrace.sinks.base import CellBatch, StreamId
from tailrace.sinks.delta import conflict, target
from tailrace.sinks.delta.merge import merge
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.delta.table import DeltaTable
from tailrace.sinks.delta.transaction import CommitMark, DeltaTransaction
from tailrace.sinks.route import Router
from tailrace.spark.jvm import map_in_arrow
from tests.support.cells import cell_batch
from tests.support.changes import BIGINT, DECIMAL, INT, TEXT, changes, table
from tests.support.wait import wait_until

SCHEMA = table(("id", INT), ("name", TEXT), ("price", DECIMAL), key=("id",))


def row(id_: int, name: str, price: str | None = None) -> dict[str, Any]:
    from decimal import Decimal

    return {"id": id_, "name": name, "price": None if price is None else Decimal(price)}


def snapshot(*ids: int) -> tuple[str, Any]:
    return "snapshot", changes(SCHEMA, [("r", None, row(i, f"s{i}")) for i in ids])


def rows_of(spark: SparkSession, path: Path, name: str = "shop.t") -> list[dict[str, Any]]:
    found = spark.read.format("delta").load(str(path / name)).collect()
    return sorted((r.asDict(recursive=True) for r in found), key=lambda r: (r["id"], r.get("_seq", "")))


def commits(spark: SparkSession, path: Path, name: str = "shop.t") -> list[tuple[str, Any]]:
    history = spark.sql(f"DESCRIBE HISTORY delta.`{path / name}`").collect()
    return [(h["operation"], h["userMetadata"] and json.loads(h["userMetadata"])) for h in reversed(history)]


@pytest.fixture
def upsert(tmp_path: Path) -> Any:
    sink = DeltaSink(DeltaSettings(str(tmp_path)), Router([]))
    yield sink
    sink.close()


@pytest.fixture
def changelog(tmp_path: Path) -> Any:
    sink = DeltaSink(DeltaSettings(str(tmp_path), WriteMode.CHANGELOG), Router([]))
    yield sink
    sink.close()


def first_batches(spark: SparkSession) -> list[CellBatch]:
    log = changes(
        SCHEMA,
        [
            ("u", row(1, "s1"), row(1, "once")),
            ("u", row(1, "once"), row(1, "twice", "1.50")),
            ("d", row(2, "s2"), None),
            ("c", None, row(7, "new")),
            ("c", None, row(8, "short lived")),
            ("d", row(8, "short lived"), None),
        ],
        first=10,
    )
    later = changes(SCHEMA, [("d", row(7, "new"), None), ("c", None, row(7, "again"))], first=20)
    return [
        cell_batch(spark, 0, [snapshot(1, 2), snapshot(3)]),
        cell_batch(spark, 1, [snapshot(4), ("log", log), ("log", later)]),
    ]


STATE_AFTER = [(1, "twice"), (3, "s3"), (4, "s4"), (7, "again")]
#: Both modes write these batches by the same code.
UPSERT_FIRST = pytest.mark.parametrize(
    "mode", [WriteMode.UPSERT, pytest.param(WriteMode.CHANGELOG, marks=pytest.mark.slow)]
)


def test_upsert_target_equals_the_source_and_its_commits_say_which_batch_and_offset_they_hold(
    spark: SparkSession, tmp_path: Path, upsert: DeltaSink
) -> None:
    for batch in first_batches(spark):
        upsert.write(batch)
    assert [(r["id"], r["name"]) for r in rows_of(spark, tmp_path)] == STATE_AFTER
    said = [c for _, c in commits(spark, tmp_path) if c]
    assert sorted((c["batch"], c["part"]) for c in said) == [(0, "snapshot"), (1, "log"), (1, "snapshot")]
    assert all(c["end"]["log"]["pos"] == c["batch"] and c["table"] == "shop.t" for c in said)


@UPSERT_FIRST
def test_batch_that_comes_again_changes_nothing(spark: SparkSession, tmp_path: Path, mode: WriteMode) -> None:
    batches = first_batches(spark)
    states = []
    for _ in range(2):
        sink = DeltaSink(DeltaSettings(str(tmp_path), mode), Router([]))
        for batch in batches:
            sink.write(batch)
        states.append((rows_of(spark, tmp_path), len(commits(spark, tmp_path))))
        sink.close()
    assert states[0] == states[1]


@UPSERT_FIRST
def test_batch_of_many_tables_is_written_once(spark: SparkSession, tmp_path: Path, mode: WriteMode) -> None:
    schemas = [table(("id", INT), (f"v{i}", TEXT), key=("id",), name=f"shop.t{i}") for i in range(6)]
    cells = [
        ("snapshot", changes(s, [("r", None, {"id": k, f"v{i}": "x"}) for k in range(i)]))
        for i, s in enumerate(schemas)
        if i
    ]
    for _ in range(2):  # a batch comes again
        sink = DeltaSink(DeltaSettings(str(tmp_path), mode), Router([]))
        written = sink.write(cell_batch(spark, 0, cells))
        sink.close()
        assert {str(w.table): w.snapshot_rows for w in written} == {f"shop.t{i}": i for i in range(1, 6)}
        for i in range(1, 6):
            rows = rows_of(spark, tmp_path, f"shop.t{i}")
            assert [(row["id"], row[f"v{i}"]) for row in rows] == [(k, "x") for k in range(i)]
    assert not list((tmp_path / "_tailrace").glob("staging/*")), "staged files are removed"


def test_replay_adds_only_the_part_that_was_missing(
    spark: SparkSession, tmp_path: Path, upsert: DeltaSink
) -> None:
    first, second = first_batches(spark)
    upsert.write(first)
    only_snapshot = CellBatch(second.stream, 1, second.frame.where("kind = 'snapshot'"), second.end)
    upsert.write(only_snapshot)
    upsert.write(second)
    assert [(r["id"], r["name"]) for r in rows_of(spark, tmp_path)] == STATE_AFTER


@pytest.mark.parametrize("attempts", [4, 1])
def test_commit_that_another_writer_outran_is_done_again(
    spark: SparkSession, tmp_path: Path, upsert: DeltaSink, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    theirs = f"INSERT INTO delta.`{tmp_path}/shop.t` (id, name) VALUES (5, 'theirs')"
    first, second = first_batches(spark)
    upsert.write(first)
    rivals = [theirs]

    def outrun(self: DeltaTransaction, actions: Sequence[str], mark: CommitMark) -> None:
        if rivals and any('"remove"' in action for action in actions):
            spark.newSession().sql(rivals.pop())
        commit(self, actions, mark)

    commit = DeltaTransaction.commit
    monkeypatch.setattr(DeltaTransaction, "commit", outrun)
    monkeypatch.setattr(conflict, "_ATTEMPTS", attempts)
    if attempts == 1:
        with pytest.raises(
            TransientSinkError, match=r"another writer changes target `shop.t`.*\s.*ConcurrentAppend"
        ):
            upsert.write(second)
    upsert.write(second)
    assert rivals == []
    found = [(r["id"], r["name"]) for r in rows_of(spark, tmp_path)]
    assert found == sorted([*STATE_AFTER, (5, "theirs")])


@pytest.mark.slow
def test_merge_that_another_writer_outran_is_done_again(
    spark: SparkSession,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other writer commits while the MERGE, which has begun, reads its source.

    A table with a change data feed is left to MERGE.
    """
    theirs = f"ALTER TABLE delta.`{tmp_path}/shop.t` SET TBLPROPERTIES (told = 'them')"
    gate = tmp_path_factory.mktemp("gate")
    first, second = first_batches(spark)
    sink = DeltaSink(DeltaSettings(str(tmp_path), WriteMode.SCD2, merge_interval=0), Router([]))
    sink.write(first)
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/shop.t` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")

    def held_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if (gate / "begun").exists() and not (gate / "met").exists():
            # One task: the other writer needs a place to run.
            with suppress(FileExistsError):
                (gate / "met").touch(exist_ok=False)
                wait_until((gate / "outrun").exists, 60, "a file")
        yield from batches

    def merge_held_up(table: DeltaTable, mode: Any, changes: DataFrame, *rest: Any, **more: Any) -> None:
        merges.append(mode)
        merge(table, mode, map_in_arrow(changes, held_up, changes.schema), *rest, **more)

    @contextmanager
    def marked(self: DeltaTable, mark: CommitMark) -> Iterator[None]:
        with plain_marked(self, mark):
            (gate / "begun").touch()
            yield

    def outrun() -> None:
        wait_until((gate / "met").exists, 60, "a file")
        try:
            spark.newSession().sql(theirs)
        finally:
            (gate / "outrun").touch()

    merges: list[Any] = []
    plain_marked = DeltaTable.marked
    monkeypatch.setattr(DeltaTable, "marked", marked)
    monkeypatch.setattr(target, "merge", merge_held_up)
    with ThreadPoolExecutor() as pool:
        other = pool.submit(outrun)
        sink.write(second)
        other.result()
    sink.close()
    assert len(merges) == 2
    assert [(r["id"], r["name"]) for r in rows_of(spark, tmp_path) if r["_is_current"]] == STATE_AFTER


def test_changelog_holds_each_change_once_with_its_old_row(
    spark: SparkSession, tmp_path: Path, changelog: DeltaSink
) -> None:
    for batch in first_batches(spark):
        changelog.write(batch)
    rows = rows_of(spark, tmp_path)
    assert len(rows) == 4 + 8
    assert [r["_op"] for r in rows if r["id"] == 1] == ["r", "u", "u"]
    updates = [r for r in rows if r["_op"] == "u"]
    assert [(r["_before"]["name"], r["name"]) for r in updates] == [("s1", "once"), ("once", "twice")]
    assert all(r["_before"] is None for r in rows if r["_op"] != "u")
    deleted = next(r for r in rows if r["_op"] == "d" and r["id"] == 2)
    assert (deleted["name"], deleted["_txn"], deleted["_position"]) == (
        "s2",
        "server:12",
        "binlog.000001:1200",
    )


@pytest.mark.slow  # the contract suite shows the same
@pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.CHANGELOG])
def test_target_follows_added_dropped_and_widened_columns(
    spark: SparkSession, tmp_path: Path, mode: WriteMode
) -> None:
    sink = DeltaSink(DeltaSettings(str(tmp_path), mode), Router([]))
    wider = table(("id", BIGINT), ("price", DECIMAL), ("note", TEXT), key=("id",))
    old = changes(SCHEMA, [("c", None, row(2, "old"))], first=5)
    new = changes(wider, [("c", None, {"id": 1 << 40, "price": None, "note": "hi"})], first=6)
    sink.write(cell_batch(spark, 0, [snapshot(1)]))
    sink.write(cell_batch(spark, 1, [("log", new), ("log", old)]))
    rows = [(r["id"], r["name"], r["note"]) for r in rows_of(spark, tmp_path)]
    sink.close()
    assert rows == [(1, "s1", None), (2, "old", None), (1 << 40, None, "hi")]


@pytest.mark.slow  # the contract suite shows the same
def test_column_that_changes_its_kind_is_refused_by_name(spark: SparkSession, upsert: DeltaSink) -> None:
    upsert.write(cell_batch(spark, 0, [snapshot(1)]))
    other = table(("id", INT), ("name", BIGINT), key=("id",))
    cells = changes(other, [("c", None, {"id": 9, "name": 9})])
    with pytest.raises(SinkError, match=r"column `name` of target `shop\.t` cannot follow"):
        upsert.write(cell_batch(spark, 1, [("log", cells)]))


@pytest.mark.slow  # the contract suite shows the same
def test_target_of_another_stream_is_not_touched(
    spark: SparkSession, tmp_path: Path, upsert: DeltaSink
) -> None:
    upsert.write(cell_batch(spark, 0, [snapshot(1)]))
    other = DeltaSink(DeltaSettings(str(tmp_path)), Router([]))
    with pytest.raises(StateError, match="is not this stream's"):
        other.write(cell_batch(spark, 0, [snapshot(2)], StreamId("test", "another")))
    other.close()
    assert [r["id"] for r in rows_of(spark, tmp_path)] == [1]


def test_table_made_by_hand_is_not_touched(spark: SparkSession, tmp_path: Path, upsert: DeltaSink) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "shop.t"))
    with pytest.raises(StateError, match="is not this stream's"):
        upsert.write(cell_batch(spark, 0, [snapshot(1)]))


@pytest.mark.slow  # the contract suite shows the same
def test_shards_routed_to_one_target_share_it(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(DeltaSettings(str(tmp_path)), Router([RouteRule(r"shop\.t\d", "shop.t")]))
    cells = []
    for shard in (1, 2):
        schema = table(("id", INT), ("name", TEXT), key=("id",), name=f"shop.t{shard}")
        cells.append(("snapshot", changes(schema, [("r", None, {"id": shard, "name": f"of {shard}"})])))
    written = sink.write(cell_batch(spark, 0, cells))
    sink.close()
    assert [(r["id"], r["name"]) for r in rows_of(spark, tmp_path)] == [(1, "of 1"), (2, "of 2")]
    assert [(str(w.table), w.target, w.snapshot_rows) for w in written] == [
        ("shop.t1", "shop.t", 1),
        ("shop.t2", "shop.t", 1),
    ]

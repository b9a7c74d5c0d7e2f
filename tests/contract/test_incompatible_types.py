"""A column whose type its target cannot hold becomes text, gets one of its own, or stops its table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.sinks import DeltaSettings, IcebergSettings, OnIncompatibleType, WriteMode
from tailrace.errors import SinkError
from tailrace.failpoints import InjectedError
from tailrace.model.change import ChangeBatch
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.iceberg.sink import IcebergSink
from tailrace.sinks.route import Router
from tests.contract.test_sinks import again, reread
from tests.support.cells import cell_batch
from tests.support.changes import BIGINT, INT, TEXT, changes, table
from tests.support.sinks.iceberg import table_rows

BINARY = ColumnType(Kind.BYTES, "varbinary", length=10)
INSTANT = ColumnType(Kind.INSTANT, "timestamp", fraction=6)
NUMBERS = table(("id", BIGINT), ("v", INT), ("w", TEXT), key=("id",))
TEXTS = table(("id", BIGINT), ("v", TEXT), ("w", TEXT), key=("id",))


@dataclass
class Lake:
    """One kind of table.

    Args:
        open: a sink with a policy, as a new process would open it.
        rows: the rows in the target.
        mode: what the target holds.
    """

    open: Callable[[OnIncompatibleType], Any]
    rows: Callable[[], list[dict[str, Any]]]
    mode: WriteMode

    def values(self) -> dict[int, tuple[Any, ...]]:
        """By id what the newest row has in `v`, `v__string` and `w`."""
        rows = [row for row in self.rows() if row.get("_is_current", True)]
        rows.sort(key=lambda row: str(row.get("_seq", "")))
        return {row["id"]: (row["v"], row.get("v__string"), row["w"]) for row in rows}


LAKES = [
    ("delta", WriteMode.UPSERT, 0),
    ("iceberg", WriteMode.UPSERT, None),
]
#: Those that differ from others in what changes become, not in the columns they go to.
MORE_LAKES = [
    ("delta", WriteMode.CHANGELOG, None),
    ("delta", WriteMode.UPSERT, 3600),
    ("delta", WriteMode.SCD2, 0),
    ("iceberg", WriteMode.CHANGELOG, None),
]


@pytest.fixture(
    params=[*LAKES, *(pytest.param(lake, marks=pytest.mark.slow) for lake in MORE_LAKES)],
    ids=lambda p: "-".join(map(str, p)),
)
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    kind, mode, interval = request.param
    opened: list[Any] = []

    def open_(policy: OnIncompatibleType) -> Any:
        if kind == "delta":
            delta = DeltaSettings(str(tmp_path), mode, on_incompatible_type=policy, merge_interval=interval)
            opened.append(DeltaSink(delta, Router([])))
        else:
            settings = IcebergSettings(str(tmp_path), mode, on_incompatible_type=policy)
            opened.append(IcebergSink(settings, Router([])))
        return opened[-1]

    def rows() -> list[dict[str, Any]]:
        if kind == "iceberg":
            found: list[dict[str, Any]] = table_rows(tmp_path, "shop.t").to_pylist()
            return found
        frame = spark.read.format("delta").load(str(tmp_path / "shop.t"))
        return [row.asDict() for row in frame.collect()]

    yield Lake(open_, rows, mode)
    for sink in opened:
        sink.close()


def without_v(batch: ChangeBatch) -> ChangeBatch:
    """`batch` with updates from which the log left `v` out."""
    return replace(batch, absent_after=("v",))


def batches(spark: SparkSession) -> list[Any]:
    first = [("r", None, {"id": i, "v": i, "w": f"w{i}"}) for i in (1, 2, 3)]
    log = [
        ("u", {"id": 1, "v": "1", "w": "w1"}, {"id": 1, "v": "one", "w": "w1"}),
        ("c", None, {"id": 4, "v": "four", "w": "w4"}),
        ("d", {"id": 3, "v": "3", "w": "w3"}, None),
    ]
    rows = [("r", None, {"id": i, "v": v, "w": f"w{i}"}) for i, v in ((1, "one"), (2, "2"), (4, "four"))]
    return [
        cell_batch(spark, 0, [("snapshot", changes(NUMBERS, first))]),
        again(
            cell_batch(
                spark,
                1,
                [
                    ("log", changes(TEXTS, log, first=100)),
                    ("reread", reread(changes(TEXTS, rows, first=200))),
                ],
            ),
            "one",
            done=True,
        ),
    ]


WANTED = {1: (None, "one", "w1"), 2: (None, "2", "w2"), 4: (None, "four", "w4")}


def noise(number: int) -> ChangeBatch:
    other = table(("id", BIGINT), key=("id",), name="shop.noise")
    return changes(other, [("c", None, {"id": number})], first=10_000 + number)


def test_column_gets_one_of_its_own_for_its_new_type(spark: SparkSession, lake: Lake) -> None:
    sink = lake.open(OnIncompatibleType.NEW_COLUMN)
    for batch in batches(spark):
        sink.write(batch)
    found = lake.values()
    if lake.mode is WriteMode.CHANGELOG:
        assert {id_: found[id_] for id_ in WANTED} == WANTED
    else:
        assert found == WANTED


def test_batch_with_the_new_type_may_come_again(spark: SparkSession, lake: Lake) -> None:
    for _ in range(2):
        sink = lake.open(OnIncompatibleType.NEW_COLUMN)
        for batch in batches(spark):
            sink.write(batch)
    rows = len(lake.rows())
    assert lake.values() | WANTED == lake.values()
    sink.write(batches(spark)[1])
    assert len(lake.rows()) == rows


def test_type_that_fits_again_goes_to_the_former_column(spark: SparkSession, lake: Lake) -> None:
    sink = lake.open(OnIncompatibleType.NEW_COLUMN)
    for batch in batches(spark):
        sink.write(batch)
    back = [("r", None, {"id": i, "v": i * 10, "w": f"w{i}"}) for i in (1, 2, 4)]
    sink.write(
        again(cell_batch(spark, 2, [("reread", reread(changes(NUMBERS, back, first=300)))]), "two", done=True)
    )
    found = lake.values()
    assert {id_: found[id_] for id_ in (1, 2, 4)} == {
        1: (10, None, "w1"),
        2: (20, None, "w2"),
        4: (40, None, "w4"),
    }


def test_value_that_the_log_left_out_stays_in_the_new_column(spark: SparkSession, lake: Lake) -> None:
    if lake.mode is not WriteMode.UPSERT:
        pytest.skip("a target that holds no rows keeps no values")
    sink = lake.open(OnIncompatibleType.NEW_COLUMN)
    for batch in batches(spark):
        sink.write(batch)
    update = [("u", {"id": 1, "v": None, "w": "w1"}, {"id": 1, "v": None, "w": "changed"})]
    sink.write(
        again(cell_batch(spark, 2, [("log", without_v(changes(TEXTS, update, first=300)))]), "x", done=False)
    )
    sink.write(again(cell_batch(spark, 3, [("log", noise(3))]), "x", done=False))
    if lake.values()[1][2] == "changed":
        assert lake.values()[1] == (None, "one", "changed")
    else:
        pytest.skip("the change still waits for a merge")


def texts(lake: Lake) -> dict[int, Any]:
    """By id what the newest row has in `v`."""
    return {id_: v for id_, (v, _, _) in lake.values().items()}


def test_column_becomes_text_and_stays_text(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its old rows at once, also if the process dies then; equal to the source after the reading."""
    sink = lake.open(OnIncompatibleType.TEXT)
    first, second = batches(spark)
    sink.write(first)
    monkeypatch.setenv("TAILRACE_FAILPOINT", f"sink.text=raise@{tmp_path / 'hit'}")
    with pytest.raises(InjectedError):
        sink.write(second)
    assert texts(lake) == {1: "1", 2: "2", 3: "3"}

    sink = lake.open(OnIncompatibleType.TEXT)
    sink.write(second)
    is_log = lake.mode is WriteMode.CHANGELOG
    assert texts(lake) == {**({3: "3"} if is_log else {}), 1: "one", 2: "2", 4: "four"}
    rows = len(lake.rows())
    sink.write(second)
    assert len(lake.rows()) == rows

    back = [("r", None, {"id": i, "v": i * 10, "w": f"w{i}"}) for i in (1, 2, 4)]
    cells = [("reread", reread(changes(NUMBERS, back, first=300)))]
    sink.write(again(cell_batch(spark, 2, cells), "two", done=True))
    assert texts(lake) == {**({3: "3"} if is_log else {}), 1: "10", 2: "20", 4: "40"}


def test_types_of_any_kind_become_text_alike(spark: SparkSession, lake: Lake) -> None:
    """Rows from before the change, and later rows of a table that keeps its type, have the same text."""
    kinds = table(("id", BIGINT), ("v", BINARY), ("t", INSTANT), ("w", TEXT), key=("id",))
    changed = table(("id", BIGINT), ("v", TEXT), ("t", TEXT), ("w", TEXT), key=("id",))
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def row(id_: int, v: object, t: object) -> tuple[str, None, dict[str, object]]:
        return "c", None, {"id": id_, "v": v, "t": t, "w": "w"}

    sink = lake.open(OnIncompatibleType.TEXT)
    sink.write(cell_batch(spark, 0, [("log", changes(kinds, [row(1, b"\xff", at), row(2, None, None)]))]))
    sink.write(cell_batch(spark, 1, [("log", changes(changed, [row(3, "x", "y")], first=100))]))
    sink.write(cell_batch(spark, 2, [("log", changes(kinds, [row(4, b"\xff", at)], first=200))]))
    sink.close()
    found = {r["id"]: (r["v"], r["t"]) for r in lake.rows()}
    same = ("/w==", "2026-03-01 12:00:00Z")
    assert found == {1: same, 2: (None, None), 3: ("x", "y"), 4: same}


def test_delta_table_keeps_what_belongs_to_it_when_a_column_becomes_text(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Clustering, properties, constraints of other columns; also of a column that was widened before."""
    settings = DeltaSettings(str(tmp_path), merge_interval=0, cluster_by_key=True)
    settings = replace(settings, on_incompatible_type=OnIncompatibleType.TEXT)
    path = str(tmp_path / "shop.t")
    wide = table(("id", BIGINT), ("v", BIGINT), ("w", TEXT), key=("id",))

    def created(schema: Any, id_: int, v: object, first: int) -> Any:
        return "log", changes(schema, [("c", None, {"id": id_, "v": v, "w": "w"})], first=first)

    def detail() -> Any:
        found = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0]
        return found["clusteringColumns"], found["properties"], found["partitionColumns"]

    sink = DeltaSink(settings, Router([]))
    sink.write(cell_batch(spark, 0, [created(NUMBERS, 1, 1, 0)]))
    sink.write(cell_batch(spark, 1, [created(wide, 2, 1 << 40, 10)]))
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT named CHECK (w <> '')")
    before = detail()
    sink.write(cell_batch(spark, 2, [created(TEXTS, 3, "x", 20)]))
    sink.close()
    assert detail() == before
    rows = spark.read.format("delta").load(path).collect()
    assert {row["id"]: row["v"] for row in rows} == {1: "1", 2: str(1 << 40), 3: "x"}


def test_column_with_a_constraint_does_not_become_text(spark: SparkSession, tmp_path: Path) -> None:
    settings = DeltaSettings(str(tmp_path), merge_interval=0, on_incompatible_type=OnIncompatibleType.TEXT)
    sink = DeltaSink(settings, Router([]))
    first, second = batches(spark)
    sink.write(first)
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/shop.t` ADD CONSTRAINT low CHECK (v < 100)")
    with pytest.raises(SinkError, match="its constraint `low` needs the column") as raised:
        sink.write(second)
    sink.close()
    assert (raised.value.code, raised.value.table) == ("TR-7001", "shop.t")

"""Columns of Delta targets that are renamed, dropped and widened: the table then, and who reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import polars
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.model import RouteRule
from tailrace.config.sinks import DeltaSettings, ReaderFeatures, WriteMode
from tailrace.errors import SinkError
from tailrace.failpoints import VARIABLE, InjectedError
from tailrace.model.change import OP_REREAD
from tailrace.model.schema_change import ColumnDropped, ColumnRenamed, KeyAltered
from tailrace.model.schema_policy import SchemaPolicy
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.delta.table import DeltaTable, TableDefinition
from tailrace.sinks.delta.transaction import DeltaTransaction, needs
from tailrace.sinks.route import Router
from tailrace.sinks.tables.columns import WidenColumn
from tailrace.spark.sql import OwnSessions
from tests.contract import test_far_dates as far_dates
from tests.contract.test_former_columns import AFTER, BEFORE, CHANGED, LOG, ROWS, SNAPSHOT, Batches
from tests.support.changes import BIGINT, INT, TEXT, changes, table

WIDE = table(("id", INT), ("n", BIGINT), key=("id",))
WIDE_LOG = [("u", {"id": 1, "n": 10}, {"id": 1, "n": 1 << 40}), ("c", None, {"id": 4, "n": 40})]


class Target:
    """One target, `shop.t`, of a sink that can be opened anew."""

    def __init__(self, spark: SparkSession, path: Path, policy: SchemaPolicy, **settings: Any) -> None:
        self.path = str(path / "shop.t")
        self._spark = spark
        self._settings = DeltaSettings(str(path), **settings)
        self._sinks = [DeltaSink(self._settings, Router([]))]
        self._batches = Batches(spark, self._sinks, policy)
        self.write = self._batches.write

    def restart(self) -> None:
        self._sinks.append(DeltaSink(self._settings, Router([])))

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()

    def sql(self, statement: str) -> Any:
        return self._spark.sql(statement.replace("TARGET", f"delta.`{self.path}`"))

    def rows(self, by: str = "id") -> list[dict[str, Any]]:
        found = self._spark.read.format("delta").load(self.path).collect()
        return sorted((row.asDict(recursive=True) for row in found), key=lambda row: _order(row, by))

    def by_polars(self) -> list[dict[str, Any]]:
        return sorted(_polars(self.path).to_dicts(), key=_order)

    def by_delta_rs(self) -> list[dict[str, Any]]:
        return sorted(_delta_rs(self.path).to_dicts(), key=_order)

    def log(self) -> list[list[dict[str, Any]]]:
        """The actions of each commit."""
        files = sorted(Path(self.path, "_delta_log").glob("*.json"))
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]

    def features(self) -> set[str]:
        """What readers must know."""
        found = [a["protocol"] for actions in self.log() for a in actions if "protocol" in a]
        return set(found[-1].get("readerFeatures", []))


def _order(row: dict[str, Any], by: str = "id") -> Any:
    return row[by], str(row.get("_seq", ""))


@pytest.fixture
def open_target(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Target]]:
    opened: list[Target] = []

    def open_(policy: SchemaPolicy | None = None, **settings: Any) -> Target:
        interval = {} if settings.get("mode") is WriteMode.CHANGELOG else {"merge_interval": 0}
        opened.append(Target(spark, tmp_path, policy or SchemaPolicy(), **(interval | settings)))
        return opened[-1]

    yield open_
    for target in opened:
        target.close()


def test_rows_get_new_files_in_one_commit_and_the_table_keeps_all_else(
    open_target: Callable[..., Target], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = open_target(cluster_by_key=True)
    target.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    target.sql("INSERT INTO TARGET VALUES (7, 7, 7)")
    target.sql("DELETE FROM TARGET WHERE id = 7")
    target.sql("ALTER TABLE TARGET ADD CONSTRAINT positive CHECK (id > 0)")
    target.sql("ALTER TABLE TARGET ALTER COLUMN a COMMENT 'amount'")
    target.sql(
        "ALTER TABLE TARGET SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'id,`a`,b', 'own' = 'x')"
    )
    before = len(target.log())
    parts = [("log", changes(WIDE, WIDE_LOG, first=100))]
    monkeypatch.setenv(VARIABLE, f"sink.altered=raise@{tmp_path / 'failed'}")
    with pytest.raises(InjectedError):
        target.write(1, parts, *CHANGED)
    monkeypatch.delenv(VARIABLE)
    target.restart()
    rows = [{"id": 1, "n": 1 << 40}, {"id": 2, "n": 20}, {"id": 4, "n": 40}]
    for _ in range(2):
        target.write(1, parts, *CHANGED)
        assert target.rows() == target.by_polars() == target.by_delta_rs() == rows
    columns, written = target.log()[before:]
    files = [action.get("add") or action["remove"] for action in columns if {"add", "remove"} & action.keys()]
    assert not any(file["dataChange"] for file in files)
    (metadata,) = (action["metaData"] for action in columns if "metaData" in action)
    fields = json.loads(metadata["schemaString"])["fields"]
    assert [(f["name"], f["type"], f["metadata"]) for f in fields] == [
        ("id", "integer", {}),
        ("n", "long", {"comment": "amount"}),
    ]
    kept = metadata["configuration"]
    assert kept["delta.dataSkippingStatsColumns"] == "id,`n`"
    assert (kept["own"], kept["delta.constraints.positive"]) == ("x", "id > 0")
    marks = [a["txn"]["version"] for actions in (columns, written) for a in actions if "txn" in a]
    assert marks == [1, 1]
    assert target.features() == {"deletionVectors"}
    (described,) = target.sql("DESCRIBE DETAIL TARGET").select("clusteringColumns").collect()
    assert described[0] == ["id"]


def test_columns_are_altered_in_place_with_the_latest_features(
    open_target: Callable[..., Target], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = open_target(reader_features=ReaderFeatures.LATEST)
    target.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    before = len(target.log())
    parts = [("log", changes(WIDE, WIDE_LOG, first=100))]
    monkeypatch.setenv(VARIABLE, f"sink.altered=raise@{tmp_path / 'failed'}")
    with pytest.raises(InjectedError):
        target.write(1, parts, *CHANGED)
    monkeypatch.delenv(VARIABLE)
    assert not any(
        {"add", "remove"} & action.keys() for actions in target.log()[before:] for action in actions
    )
    target.restart()
    for _ in range(2):
        target.write(1, parts, *CHANGED)
        assert target.rows() == [{"id": 1, "n": 1 << 40}, {"id": 2, "n": 20}, {"id": 4, "n": 40}]
    assert target.features() == {"deletionVectors", "columnMapping", "typeWidening"}


def test_rows_that_another_writer_adds_meanwhile_are_kept(
    spark: SparkSession, open_target: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = open_target()
    target.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    write, others = DeltaTransaction.write, ["INSERT INTO TARGET VALUES (9, 90, 9)"]

    def outrun(transaction: DeltaTransaction, rows: Any) -> list[dict[str, Any]]:
        written = write(transaction, rows)
        while others:
            target.sql(others.pop())
        return written

    monkeypatch.setattr(DeltaTransaction, "write", outrun)
    target.write(1, [], *CHANGED)
    assert target.rows() == target.by_polars() == [{"id": i, "n": 10 * i} for i in (1, 2, 9)]


def test_table_whose_columns_are_mapped_is_altered_in_place(open_target: Callable[..., Target]) -> None:
    target = open_target()
    mapped = table(("id", INT), ("a", INT), ("b c", INT), key=("id",))
    target.write(0, [("snapshot", changes(mapped, [("r", None, {"id": 1, "a": 10, "b c": 1})]))])
    commits = len(target.log())
    target.write(1, [], ColumnRenamed("a", "n"), ColumnDropped("b c"))
    assert target.rows() == [{"id": 1, "n": 10}]
    assert not any(
        {"add", "remove"} & action.keys() for actions in target.log()[commits:] for action in actions
    )


@pytest.mark.parametrize("interval", [0, pytest.param(3600, marks=pytest.mark.slow)])
def test_former_column_of_the_key_goes_with_the_reading(
    open_target: Callable[..., Target], interval: int
) -> None:
    target = open_target(merge_interval=interval)
    target.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    keyed = table(("k", INT), ("n", INT), key=("k",))
    rows = changes(keyed, [("r", None, {"k": i, "n": 10 * i}) for i in (1, 2)], first=100)
    read = replace(rows, op=pa.repeat(pa.scalar(OP_REREAD, pa.int8()), 2))
    made = (ColumnRenamed("id", "k"), *CHANGED, KeyAltered(("id",), ("k",)))
    for _ in range(2):
        target.write(1, [("reread", read)], *made, done=True, after=keyed)
    target.close()
    found = [(row["k"], row["n"], set(row)) for row in target.rows(by="k")]
    assert found == [(1, 10, {"k", "n"}), (2, 20, {"k", "n"})]


def test_table_that_a_former_version_has_widened_goes_on(open_target: Callable[..., Target]) -> None:
    target = open_target()
    target.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    target.sql("ALTER TABLE TARGET SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    target.sql("ALTER TABLE TARGET ALTER COLUMN a TYPE BIGINT")
    target.write(1, [], *CHANGED)
    commits = len(target.log())
    wider = table(("id", BIGINT), ("n", INT), key=("id",))
    target.write(2, [("log", changes(wider, [("c", None, {"id": 1 << 40, "n": 3})], first=100))])
    assert target.rows() == [{"id": 1, "n": 10}, {"id": 2, "n": 20}, {"id": 1 << 40, "n": 3}]
    written = [action["add"] for actions in target.log()[commits:] for action in actions if "add" in action]
    assert len(written) == 1  # in place: only the new row has a file


@pytest.mark.parametrize(
    "features", [ReaderFeatures.COMPATIBLE, pytest.param(ReaderFeatures.LATEST, marks=pytest.mark.slow)]
)
def test_change_log_is_renamed_and_widened_as_a_whole(
    spark: SparkSession, open_target: Callable[..., Target], tmp_path: Path, features: ReaderFeatures
) -> None:
    """Also in the rows before updates, and where a row names the columns that the log left out of it."""
    target = open_target(mode=WriteMode.CHANGELOG, reader_features=features)
    target.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    partial = changes(BEFORE, [("u", {"id": 1, "a": 10, "b": 1}, {"id": 1, "a": None, "b": 2})], first=50)
    target.write(1, [("log", replace(partial, absent_after=("a",)))])
    version = len(target.log())
    target.write(2, [("log", changes(WIDE, WIDE_LOG, first=100))], *CHANGED)
    rows = target.rows()
    found = [(row["id"], row["_op"], row["n"], row["b"], row["_absent"]) for row in rows]
    assert found == [
        (1, "r", 10, 1, None),
        (1, "u", None, 2, ["n"]),
        (1, "u", 1 << 40, None, None),
        (2, "r", 20, 2, None),
        (4, "c", 40, None, None),
    ]
    before = [row["_before"] for row in rows if row["_op"] == "u"]
    assert before == [{"id": 1, "n": 10, "b": 1}, {"id": 1, "n": 10, "b": None}]
    if features is ReaderFeatures.COMPATIBLE:
        assert target.by_polars() == target.by_delta_rs() == rows
        assert _followed(spark, target, version, tmp_path / "checkpoint") == ["c", "u"]


def _followed(spark: SparkSession, target: Target, version: int, checkpoint: Path) -> list[str]:
    """The operations of the rows that a stream finds which follows the table's commits from one on."""
    found: list[str] = []

    def keep(frame: Any, number: int) -> None:
        found.extend(row[0] for row in frame.select("_op").collect())

    stream = spark.readStream.format("delta").option("startingVersion", version).load(target.path)
    writer = stream.writeStream.foreachBatch(keep).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    return sorted(found)


def test_history_is_renamed_and_keeps_dropped_columns(open_target: Callable[..., Target]) -> None:
    target = open_target(mode=WriteMode.SCD2)
    target.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    target.write(1, [("log", changes(AFTER, LOG[:1], first=100))], *CHANGED)
    found = [(row["id"], row["n"], row["b"], row["_is_current"]) for row in target.rows()]
    assert found == [(1, 10, 1, False), (1, 11, None, True), (2, 20, 2, True)]
    assert [(row["id"], row["n"], row["b"], row["_is_current"]) for row in target.by_polars()] == found


@pytest.mark.slow
def test_dates_that_python_lacks_stay(spark: SparkSession, open_target: Callable[..., Target]) -> None:
    target = open_target()
    dates = table(*far_dates.COLUMNS, ("b", INT), key=("id",))
    rows = [("r", None, {**row, "b": 1}) for row in far_dates.ROWS]
    target.write(0, [("snapshot", changes(dates, rows))])
    read, path = far_dates.READERS["delta-upsert"], Path(target.path)
    before = read(spark, path.parent, path.name)
    target.write(1, [], ColumnDropped("b"), after=far_dates.SHAPE)
    assert read(spark, path.parent, path.name) == before
    assert "b" not in spark.read.format("delta").load(target.path).columns


def test_column_that_comes_back_has_no_former_values(open_target: Callable[..., Target]) -> None:
    target = open_target(merge_interval=3600)
    target.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    target.write(1, [("log", changes(BEFORE, [("c", None, {"id": 3, "a": 30, "b": 3})], first=50))])
    only_a = table(("id", INT), ("a", INT), key=("id",))
    target.write(
        2, [("log", changes(only_a, [("c", None, {"id": 4, "a": 40})], first=100))], ColumnDropped("b")
    )
    back = table(("id", INT), ("a", INT), ("b", TEXT), key=("id",))
    target.write(3, [("log", changes(back, [("c", None, {"id": 5, "a": 50, "b": "x"})], first=200))])
    target.close()
    assert (
        target.rows()
        == target.by_polars()
        == [
            *({"id": i, "a": 10 * i, "b": None} for i in (1, 2, 3, 4)),
            {"id": 5, "a": 50, "b": "x"},
        ]
    )


def test_columns_that_change_places_wait_for_the_reading(open_target: Callable[..., Target]) -> None:
    target = open_target()
    target.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    commits = len(target.log())
    swapped = (ColumnRenamed("a", "t"), ColumnRenamed("b", "a"), ColumnRenamed("t", "b"))
    for _ in range(2):
        target.write(1, [], *swapped, after=BEFORE)
        assert len(target.log()) == commits


@pytest.mark.parametrize(
    ("taken", "free"),
    [
        ("ADD CONSTRAINT some CHECK (b > 0)", "DROP CONSTRAINT some"),
        pytest.param("CLUSTER BY (b)", "CLUSTER BY (id)", marks=pytest.mark.slow),
        pytest.param(
            "SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
            "SET TBLPROPERTIES ('delta.enableRowTracking' = 'false')",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_column_that_the_table_needs_is_an_error_of_its_table_or_stays(
    open_target: Callable[..., Target], taken: str, free: str
) -> None:
    target = open_target(cluster_by_key=True)
    target.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    target.sql(f"ALTER TABLE TARGET {taken}")
    commits = len(target.log())
    with pytest.raises(SinkError) as raised:
        target.write(1, [], *CHANGED)
    assert (raised.value.code, raised.value.table) == ("TR-7038", str(AFTER.id))
    assert len(target.log()) == commits
    target.sql(f"ALTER TABLE TARGET {free}")
    target.write(1, [], *CHANGED)
    assert target.rows() == [{"id": 1, "n": 10}, {"id": 2, "n": 20}]


def test_what_needs_a_column(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (`a b` INT, p INT, free INT, s STRUCT<`f.g`: INT, free: INT>,"
        " g INT GENERATED ALWAYS AS (`a b` + 1)) USING delta PARTITIONED BY (p)"
        " TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT `some` CHECK (s.`f.g` > 0)")
    found = [
        needs(spark, path, way) for way in (["a b"], ["p"], ["free"], ["s", "f.g"], ["s", "free"], ["gone"])
    ]
    assert found == [
        "generated column `g` reads it",
        "the table is partitioned by it",
        None,
        "CHECK constraint `some` reads it",
        None,
        None,
    ]


def test_needed_column_stays_with_try_evolve(open_target: Callable[..., Target]) -> None:
    target = open_target(SchemaPolicy("try_evolve"))
    target.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    target.sql("ALTER TABLE TARGET ADD CONSTRAINT some CHECK (b IS NULL OR b > 0)")
    target.write(1, [("log", changes(AFTER, LOG, first=100))], *CHANGED)
    assert [{"id": row["id"], "n": row["n"]} for row in target.rows()] == ROWS
    assert set(target.rows()[0]) == {"id", "n", "b"}


#: What reads a target with one of the features: docs/guides/delta.md. delta-rs reads by SQL.
READERS = {
    "deletionVectors": (True, True),
    "timestampNtz": (True, True),
    "columnMapping": (False, True),
    "typeWidening": (False, False),
}


def test_readers_know_the_features_that_targets_get(spark: SparkSession, tmp_path: Path) -> None:
    def made(feature: str, column: str, *statements: str, **properties: str) -> DeltaTable:
        target = DeltaTable(OwnSessions(spark), str(tmp_path / feature))
        columns = pa.schema([pa.field("id", pa.int32()), pa.field(column, pa.timestamp("us"))])
        target.create(TableDefinition(columns, {"tailrace.target": feature} | properties))
        for statement in ("INSERT INTO {} VALUES (1, NULL), (2, NULL)", *statements):
            spark.sql(statement.format(target.sql))
        return target

    vectors = {"delta.enableDeletionVectors": "true"}
    tables = {
        "deletionVectors": made("deletionVectors", "at", "DELETE FROM {} WHERE id = 2", **vectors),
        "timestampNtz": made("timestampNtz", "at", "DELETE FROM {} WHERE id = 2"),
        "columnMapping": made("columnMapping", "a name", "DELETE FROM {} WHERE id = 2"),
        "typeWidening": made("typeWidening", "at", "DELETE FROM {} WHERE id = 2"),
    }
    tables["typeWidening"].change([WidenColumn("id", pa.int64())])
    found = {feature: (_read(_polars, t.path), _read(_delta_rs, t.path)) for feature, t in tables.items()}
    assert found == READERS
    guide = Path(__file__).parents[2] / "docs" / "guides" / "delta.md"
    told = re.findall(r"^\| `(\w+)` \|.*\| yes \| (yes|no) \| (yes|no) \|$", guide.read_text(), re.MULTILINE)
    assert {name: (one == "yes", other == "yes") for name, one, other in told} == READERS


def _read(reader: Callable[[str], polars.DataFrame], path: str) -> bool:
    try:
        return reader(path)["id"].to_list() == [1]
    except Exception as error:
        if not re.search("feature|column mapping", str(error), re.IGNORECASE):
            raise
        return False


def _polars(path: str) -> polars.DataFrame:
    return polars.read_delta(path)


def _delta_rs(path: str) -> polars.DataFrame:
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    return polars.DataFrame(query.execute("SELECT * FROM t"))


def test_target_of_several_tables_keeps_columns(spark: SparkSession, tmp_path: Path) -> None:
    other = table(("id", INT), ("a", INT), ("b", INT), key=("id",), name="shop.u")
    sink = DeltaSink(
        DeltaSettings(str(tmp_path), merge_interval=0), Router([RouteRule(r"shop\..", "shop.t")])
    )
    try:
        batches = Batches(spark, [sink], SchemaPolicy())
        sink.claim([BEFORE.id, other.id])
        rows = [("r", None, {"id": 5, "a": 5, "b": 5})]
        batches.write(0, [("snapshot", changes(BEFORE, SNAPSHOT)), ("snapshot", changes(other, rows))])
        batches.write(1, [("log", changes(AFTER, LOG[1:], first=100))], *CHANGED)
        found = spark.read.format("delta").load(str(tmp_path / "shop.t"))
        assert set(found.columns) == {"id", "a", "b", "n"}
    finally:
        sink.close()

"""Columns that the source renames and drops: targets that can follow do, once, whatever fails in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.sinks import ReplicaTransaction
from tailrace.errors import SinkError
from tailrace.failpoints import VARIABLE, InjectedError
from tailrace.model.change import OP_REREAD, ChangeBatch
from tailrace.model.schema_change import ColumnDropped, ColumnRenamed, SchemaChange, SchemaEvent
from tailrace.model.schema_policy import SchemaPolicy
from tailrace.model.table import TableSchema
from tailrace.sinks.base import CellBatch
from tailrace.sinks.replica.sink import ReplicaSink
from tailrace.sinks.route import Router
from tailrace.sinks.written_tables import WrittenTables
from tailrace.spark.requests import RequestDirectory
from tests.support.cells import CELL_SCHEMA, STREAM, cell_row
from tests.support.changes import INT, changes, table
from tests.support.sinks import CASES, delta
from tests.support.sinks.case import SinkCase
from tests.support.sinks.replica import replica_target

BEFORE = table(("id", INT), ("a", INT), ("b", INT), key=("id",))
AFTER = table(("id", INT), ("n", INT), key=("id",))
SNAPSHOT = [("r", None, {"id": i, "a": 10 * i, "b": i}) for i in (1, 2)]
LOG = [("u", {"id": 1, "n": 10}, {"id": 1, "n": 11}), ("c", None, {"id": 3, "n": 30})]
FOLLOWING = (
    *(
        "delta-upsert",
        "iceberg-upsert",
        "mysql",
        "mariadb-whole-batch",
        "postgresql",
        "postgresql-whole-batch",
        "clickhouse",
        "duckdb",
    ),
    *("delta-upsert-waiting", "delta-upsert-in-place"),
    *("iceberg-rest", "iceberg-hive", "iceberg-glue"),
)
#: Always slow tests.
RARE = (
    "delta-upsert-waiting",
    "delta-upsert-in-place",
    "iceberg-rest",
    "iceberg-hive",
    "iceberg-glue",
)
#: A test has one of two, in turn, and the other one as a slow test.
TWINS = (
    ("delta-upsert", "iceberg-upsert"),
    ("mysql", "mariadb-whole-batch"),
    ("postgresql", "postgresql-whole-batch"),
)
ROWS = [{"id": 1, "n": 11}, {"id": 2, "n": 20}, {"id": 3, "n": 30}]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    names = [name for name in vars(metafunc.module) if name.startswith("test_")]
    turn = names.index(metafunc.function.__name__)
    others = {*RARE, *(twins[(turn + number) % 2] for number, twins in enumerate(TWINS))}
    params = [pytest.param(name, marks=[pytest.mark.slow] if name in others else []) for name in FOLLOWING]
    metafunc.parametrize("case", params, indirect=True)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> SinkCase:
    return (CASES | {"delta-upsert-in-place": delta.upsert_in_place})[request.param](request)


@pytest.fixture
def sinks(case: SinkCase) -> Iterator[list[Any]]:
    """Opened sinks, the last of which writes."""
    opened = [case.open(Router([]))]
    yield opened
    for sink in opened:
        sink.close()


class Batches:
    """The batches of a stream, written by the last of `sinks`."""

    def __init__(
        self,
        spark: SparkSession,
        sinks: list[Any],
        policy: SchemaPolicy,
        written: WrittenTables | None = None,
    ) -> None:
        self._spark = spark
        self._written = written
        self._sinks = sinks
        self._policy = policy

    def write(
        self,
        number: int,
        parts: list[tuple[str, ChangeBatch]],
        *made: SchemaChange,
        done: bool | None = None,
        after: TableSchema = AFTER,
    ) -> None:
        """Write a batch; with `done` its table is read again, up to its last row or not."""
        event = SchemaEvent(str(AFTER.id), made, after=after)
        end: dict[str, Any] = {"v": 1, "log": {"pos": number}, "schema": [event.to_json()] if made else []}
        if done is not None:
            entry = {"id": "reading", "c": None, "n": 0, "e": 0, "done": done}
            end |= {"v": 2, "done": {str(AFTER.id): 3}, "again": {str(AFTER.id): entry}}
        frame = self._spark.createDataFrame([cell_row(*part) for part in parts], CELL_SCHEMA)
        self._sinks[-1].claim([AFTER.id])
        self._sinks[-1].write(
            CellBatch(
                STREAM,
                number,
                frame,
                end,
                written_tables=self._written,
                policy=self._policy,
                following=self._policy.following,
            )
        )


@pytest.fixture
def batches(spark: SparkSession, sinks: list[Any]) -> Batches:
    return Batches(spark, sinks, SchemaPolicy())


CHANGED = (ColumnRenamed("a", "n"), ColumnDropped("b"))


def in_order(case: SinkCase) -> list[Any]:
    assert case.rows is not None
    return sorted(case.rows("shop.t"), key=lambda row: row["id"])


def test_target_follows_with_the_rows_of_the_batch(case: SinkCase, batches: Batches) -> None:
    batches.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    batches.write(1, [("log", changes(AFTER, LOG, first=100))], *CHANGED)
    assert in_order(case) == ROWS
    batches.write(2, [("log", changes(AFTER, [("d", {"id": 2, "n": 20}, None)], first=200))])
    assert in_order(case) == [ROWS[0], ROWS[2]]


def test_column_that_is_renamed_twice_is_followed_once(case: SinkCase, batches: Batches) -> None:
    batches.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    twice = (ColumnRenamed("a", "t"), ColumnRenamed("t", "n"), ColumnRenamed("b", "t"), ColumnDropped("t"))
    for _ in range(2):
        batches.write(1, [("log", changes(AFTER, LOG, first=100))], *twice)
        assert in_order(case) == ROWS


def test_target_follows_without_rows(case: SinkCase, batches: Batches) -> None:
    batches.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    batches.write(1, [], *CHANGED)
    assert in_order(case) == [{"id": 1, "n": 10}, {"id": 2, "n": 20}]
    batches.write(2, [("log", changes(AFTER, LOG, first=100))])
    assert in_order(case) == ROWS


def test_batch_that_fails_and_comes_again_is_followed_once(
    case: SinkCase, batches: Batches, sinks: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    batches.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    parts = [("log", changes(AFTER, LOG, first=100))]
    monkeypatch.setenv(VARIABLE, f"sink.table=raise@{tmp_path / 'failed'}")
    with pytest.raises(InjectedError):
        batches.write(1, parts, *CHANGED)
    monkeypatch.delenv(VARIABLE)
    sinks.append(case.open(Router([])))
    batches.write(1, parts, *CHANGED)
    assert in_order(case) == ROWS
    batches.write(1, parts, *CHANGED)  # Spark has not recorded it
    assert in_order(case) == ROWS


def test_target_that_missed_the_change_follows_when_its_table_is_read_again(
    case: SinkCase, batches: Batches
) -> None:
    """The table, or the sink, was parked meanwhile."""
    batches.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    batches.write(1, [("log", changes(AFTER, LOG, first=100))], done=False)
    read = changes(AFTER, [("r", None, row) for row in ROWS], first=200)
    read = replace(read, op=pa.repeat(pa.scalar(OP_REREAD, pa.int8()), len(read)))
    for _ in range(2):
        batches.write(2, [("reread", read)], done=True)
        assert in_order(case) == ROWS


def test_lenient_target_keeps_the_columns(spark: SparkSession, case: SinkCase, sinks: list[Any]) -> None:
    batches = Batches(spark, sinks, SchemaPolicy("lenient"))
    batches.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    batches.write(1, [("log", changes(AFTER, LOG, first=100))], *CHANGED)
    assert set(in_order(case)[0]) == {"id", "a", "b", "n"}


@pytest.mark.parametrize(
    ("product", "taken", "free"),
    [
        ("postgres", "CREATE VIEW shop.v AS SELECT b FROM shop.t", "DROP VIEW shop.v"),
        ("mysql", "ALTER TABLE shop.t ADD COLUMN g INT AS (b + 1)", "ALTER TABLE shop.t DROP COLUMN g"),
        ("mariadb", "ALTER TABLE shop.t ADD COLUMN g INT AS (b + 1)", "ALTER TABLE shop.t DROP COLUMN g"),
    ],
)
@pytest.mark.parametrize("transaction", ReplicaTransaction)
def test_column_that_something_in_the_target_needs_is_an_error_of_its_table(  # noqa: PLR0917
    request: pytest.FixtureRequest,
    spark: SparkSession,
    product: str,
    taken: str,
    free: str,
    transaction: ReplicaTransaction,
) -> None:
    target = replica_target(request, product, transaction)
    sink = ReplicaSink(target.settings, Router([]))
    try:
        batches = Batches(spark, [sink], SchemaPolicy())
        batches.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
        target.execute(taken)
        with pytest.raises(SinkError) as raised:
            batches.write(1, [], *CHANGED)
        assert (raised.value.code, raised.value.table) == ("TR-7038", str(AFTER.id))
        target.execute(free)
        batches.write(1, [], *CHANGED)
        assert target.rows("shop.t") == [{"id": 1, "n": 10}, {"id": 2, "n": 20}]
    finally:
        sink.close()


def test_column_that_something_in_the_target_needs_stays_with_try_evolve(
    request: pytest.FixtureRequest, spark: SparkSession
) -> None:
    target = replica_target(request, "postgres", ReplicaTransaction.PARTS)
    sink = ReplicaSink(target.settings, Router([]))
    try:
        batches = Batches(spark, [sink], SchemaPolicy("try_evolve"))
        batches.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
        target.execute("CREATE VIEW shop.v AS SELECT b FROM shop.t")
        batches.write(1, [("log", changes(AFTER, LOG, first=100))], *CHANGED)
        found = [{"id": row["id"], "n": row["n"]} for row in target.rows("shop.t")]
        assert (found, set(target.rows("shop.t")[0])) == (ROWS, {"id", "n", "b"})
    finally:
        sink.close()


@pytest.mark.parametrize("name", ["iceberg-upsert", "postgresql", "clickhouse"])
def test_target_that_has_a_column_of_the_new_name_asks_for_its_rows(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    case = CASES[name](request)
    sink = case.open(Router([]))
    try:
        written = WrittenTables(str(tmp_path), str(tmp_path / "requests"), lambda _: None)
        batches = Batches(spark, [sink], SchemaPolicy(), written)
        batches.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
        written.note(0, [BEFORE.id], [str(BEFORE.id)])
        batches.write(1, [], ColumnRenamed("a", "b"))
        (asked,) = RequestDirectory(str(tmp_path / "requests")).pending()
        assert asked.tables == (str(BEFORE.id),)
    finally:
        sink.close()

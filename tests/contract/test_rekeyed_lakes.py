"""A table that gets a further key column, which older rows of its target do not have, and is read again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.model import RouteRule
from tailrace.model.change import OP_REREAD, ChangeBatch
from tailrace.model.table import TableId, TableSchema
from tailrace.sinks.base import CellBatch
from tailrace.sinks.route import Router
from tests.support.cells import cell_batch
from tests.support.changes import INT, changes, table
from tests.support.sinks import CASES

BEFORE = table(("id", INT), ("v", INT), key=("id",))
AFTER = table(("id", INT), ("v", INT), ("part", INT), key=("id", "part"))
ROWS = [{"id": 1, "v": 11, "part": 0}, {"id": 2, "v": 20, "part": 0}, {"id": 2, "v": 21, "part": 7}]


def reading(batch: CellBatch, *, done: bool, name: str = "reading") -> CellBatch:
    """`batch` as one in which the table is read again."""
    end = {"v": 2, "log": {"ts_ms": 1_700_000_000_000}, "done": {"shop.t": 3}}
    entry = {"id": name, "c": None, "n": 0, "e": 0, "done": done}
    return replace(batch, end={**end, "again": {"shop.t": entry}})


def read_again(batch: ChangeBatch) -> ChangeBatch:
    return replace(batch, op=pa.repeat(pa.scalar(OP_REREAD, pa.int8()), len(batch)))


@pytest.mark.parametrize(
    ("name", "is_under_way"),
    [
        ("delta-upsert", False),
        pytest.param("delta-upsert", True, marks=pytest.mark.slow),
        pytest.param("iceberg-upsert", False, marks=pytest.mark.slow),
        ("iceberg-upsert", True),
        ("duckdb", False),
        ("duckdb", True),
    ],
)
def test_target_equals_the_table_once_it_was_read_again(
    request: pytest.FixtureRequest, spark: SparkSession, name: str, is_under_way: bool
) -> None:
    """By the former key it has been read again before, or is being read when the key changes."""
    case: Any = CASES[name](request)
    sink = case.open(Router([]))
    try:
        old = [("r", None, {"id": i, "v": 10 * i}) for i in (1, 2, 3)]
        sink.write(cell_batch(spark, 0, [("snapshot", changes(BEFORE, old))]))
        former = cell_batch(spark, 1, [("reread", read_again(changes(BEFORE, old, first=50)))])
        sink.write(reading(former, done=not is_under_way, name="by the former key"))
        made = [("u", {**ROWS[0], "v": 10}, ROWS[0]), ("c", None, ROWS[2])]
        logged = cell_batch(spark, 2, [("log", changes(AFTER, made, first=100))])
        sink.write(reading(logged, done=False))
        read = read_again(changes(AFTER, [("r", None, row) for row in ROWS], first=200))
        sink.write(reading(cell_batch(spark, 3, [("reread", read)]), done=True))
        assert sorted(case.rows("shop.t"), key=lambda row: (row["id"], row["part"])) == ROWS
    finally:
        sink.close()


def test_changes_of_a_batch_that_become_pending_in_several_parts_are_all_merged(
    request: pytest.FixtureRequest, spark: SparkSession
) -> None:
    """Changes of the old key are pending when the new key comes, with changes and rows in one batch."""
    case: Any = CASES["delta-upsert-waiting"](request)
    sink = case.open(Router([]))
    try:
        old = [("r", None, {"id": i, "v": 10 * i}) for i in (1, 2, 3)]
        sink.write(cell_batch(spark, 0, [("snapshot", changes(BEFORE, old))]))
        logged = changes(BEFORE, [("u", {"id": 1, "v": 10}, {"id": 1, "v": 11})], first=50)
        sink.write(cell_batch(spark, 1, [("log", logged)]))
        made = changes(AFTER, [("c", None, ROWS[2])], first=100)
        read = read_again(changes(AFTER, [("r", None, row) for row in ROWS[:2]], first=200))
        sink.write(reading(cell_batch(spark, 2, [("log", made), ("reread", read)]), done=True))
        assert sorted(case.rows("shop.t"), key=lambda row: (row["id"], row["part"])) == ROWS
    finally:
        sink.close()


def test_tables_of_one_target_may_have_their_key_changed_one_after_the_other(
    request: pytest.FixtureRequest, spark: SparkSession
) -> None:
    case: Any = CASES["delta-upsert-waiting"](request)
    sink = case.open(Router([RouteRule("shop.*", "shop.t")]))
    first, second = ("a", "b")
    try:
        for number, name in enumerate((first, second)):
            row = {"id": number, "v": 0}
            snapshot = changes(of(BEFORE, name), [("r", None, row)])
            sink.write(cell_batch(spark, number, [("snapshot", snapshot)]))
        mixed = [
            ("log", changes(of(AFTER, first), [("c", None, {"id": 10, "v": 1, "part": 7})], first=100)),
            ("log", changes(of(BEFORE, second), [("u", {"id": 1, "v": 0}, {"id": 1, "v": 5})], first=110)),
        ]
        sink.write(cell_batch(spark, 2, mixed))
        sink.write(cell_batch(spark, 2, mixed))
        rows = {row["id"]: (row["v"], row["part"]) for row in case.rows("shop.t")}
        assert rows == {0: (0, None), 1: (5, None), 10: (1, 7)}
    finally:
        sink.close()


def of(schema: TableSchema, name: str) -> TableSchema:
    """The schema, as that of another table."""
    return replace(schema, id=TableId(schema.id.database, name))

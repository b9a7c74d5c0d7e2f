"""Targets that keep their columns as they are, by the settings, while the data of these flows on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.errors import SinkError
from tailrace.model.change import OP_REREAD
from tailrace.model.schema_change import ColumnDropped
from tailrace.model.schema_policy import SchemaPolicy
from tailrace.sinks.route import Router
from tests.contract.test_former_columns import AFTER, BEFORE, CHANGED, SNAPSHOT, Batches, in_order
from tests.support.changes import BIGINT, INT, TEXT, changes, table
from tests.support.sinks import CASES
from tests.support.sinks.case import SinkCase

KEPT = [{"id": 1, "a": None, "b": 7}, {"id": 2, "a": 20, "b": 2}, {"id": 3, "a": None, "b": 3}]

SNAPSHOT_ROWS = [after for _, _, after in SNAPSHOT]


@pytest.fixture(params=("delta-upsert", "iceberg-upsert", "mysql", "postgresql", "clickhouse"))
def case(request: pytest.FixtureRequest) -> SinkCase:
    return CASES[request.param](request)


@pytest.fixture
def sinks(case: SinkCase) -> Iterator[list[Any]]:
    opened = [case.open(Router([]))]
    yield opened
    opened[0].close()


def plain(case: SinkCase) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if not name.startswith("_")} for row in in_order(case)]


def current(case: SinkCase) -> list[Any]:
    """The rows that a target holds, or that the changes in it leave."""
    if case.rows is not None:
        return case.rows("shop.t")
    assert case.changes is not None
    found: dict[int, Any] = {}
    for op, before, after in case.changes("shop.t"):
        row = after or before or {}
        found.pop(row["id"], None)
        if op != "d":
            found[row["id"]] = row
    return list(found.values())


def test_target_keeps_its_columns_and_their_data_flows_on(
    spark: SparkSession, case: SinkCase, sinks: list[Any]
) -> None:
    batches = Batches(spark, sinks, SchemaPolicy("ignore"))
    batches.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    later = table(("id", INT), ("n", INT), ("b", INT), ("c", TEXT), key=("id",))
    old = {"id": 1, "n": 10, "b": 1, "c": None}
    log = [
        ("u", old, {"id": 1, "n": 11, "b": 7, "c": "x"}),
        ("c", None, {"id": 3, "n": 30, "b": 3, "c": "y"}),
    ]
    parts = [("log", changes(later, log, first=100))]
    for _ in range(2):
        batches.write(1, parts, *CHANGED[:1])
        assert plain(case) == KEPT
    batches.write(2, [("log", changes(AFTER, [("c", None, {"id": 4, "n": 1})], first=200))], *CHANGED[1:])
    assert plain(case) == [*KEPT, {"id": 4, "a": None, "b": None}]
    wide = table(("id", INT), ("b", BIGINT), key=("id",))
    with pytest.raises(SinkError) as raised:
        batches.write(3, [("log", changes(wide, [("c", None, {"id": 5, "b": 1 << 40})], first=300))])
    assert (raised.value.code, raised.value.table) == ("TR-7001", str(AFTER.id))
    keyed = table(("id", INT), ("k", INT), ("b", INT), key=("id", "k"))
    with pytest.raises(SinkError) as raised:
        batches.write(3, [("log", changes(keyed, [("c", None, {"id": 5, "k": 1, "b": 1})], first=300))])
    assert (raised.value.code, raised.value.table) == ("TR-7039", str(AFTER.id))
    assert plain(case) == [*KEPT, {"id": 4, "a": None, "b": None}]


def test_changes_that_are_not_listed_are_not_followed(
    spark: SparkSession, case: SinkCase, sinks: list[Any]
) -> None:
    batches = Batches(spark, sinks, SchemaPolicy(exclude=("add.column", "drop.column")))
    batches.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    wide = table(("id", INT), ("a", BIGINT), ("c", INT), key=("id",))
    log = changes(wide, [("c", None, {"id": 3, "a": 1 << 40, "c": 1})], first=100)
    batches.write(1, [("log", log)], ColumnDropped("b"))
    assert plain(case) == [*SNAPSHOT_ROWS, {"id": 3, "a": 1 << 40, "b": None}]


@pytest.mark.parametrize(
    "case",
    [
        *("delta-upsert-waiting", "iceberg-changelog", "mariadb-whole-batch", "postgresql"),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("delta-upsert", "delta-scd2", "delta-changelog", "iceberg-upsert")
        ),
    ],
    indirect=True,
)
def test_target_that_keeps_its_columns_takes_a_table_that_is_read_again(
    spark: SparkSession, case: SinkCase, sinks: list[Any]
) -> None:
    batches = Batches(spark, sinks, SchemaPolicy("ignore"))
    batches.write(0, [("snapshot", changes(BEFORE, SNAPSHOT))])
    wider = table(("id", INT), ("a", INT), ("b", INT), ("c", INT), key=("id",))
    read = changes(wider, [("r", None, {"id": i, "a": i, "b": 9, "c": 5}) for i in (2, 3)], first=200)
    read = replace(read, op=pa.repeat(pa.scalar(OP_REREAD, pa.int8()), len(read)))
    for _ in range(2):
        batches.write(1, [("reread", read)], done=True)
    rows = current(case)
    assert {row["id"]: (row["a"], row["b"]) for row in rows} == {2: (2, 9), 3: (3, 9)}
    assert all("c" not in row for row in rows)

"""Rows that a table no longer has, in targets that keep such rows: marked, never removed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.failpoints import VARIABLE, InjectedError
from tailrace.model.soft_delete import SoftDelete
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.base import CellBatch
from tailrace.sinks.route import Router
from tests.contract.test_kept_columns import current
from tests.contract.test_sinks import again, reread
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, changes, table
from tests.support.sinks import CASES
from tests.support.sinks.case import SinkCase

FLAG = ColumnType(Kind.BOOLEAN, "bit", bits=1)
SCHEMA = table(("id", INT), ("name", TEXT), ("deleted", FLAG), ("op", TEXT), key=("id",))
MARKS = SoftDelete({"deleted": True, "op": "-D"}, {"deleted": (False, False), "op": ("+I", "+U")})


SINKS = ("delta-upsert", "iceberg-upsert", "postgresql", "opensearch", "clickhouse", "duckdb")
MORE_SINKS = (
    "delta-upsert-waiting",
    "delta-scd2",
    "delta-changelog",
    "iceberg-changelog",
    "clickhouse-changelog",
    "duckdb-changelog",
    "mysql",
    "mariadb-whole-batch",
)
SLOW = pytest.mark.slow


@pytest.fixture(params=[*SINKS, *(pytest.param(name, marks=SLOW) for name in MORE_SINKS)])
def case(request: pytest.FixtureRequest) -> SinkCase:
    return CASES[request.param](request)


def row(id_: int, op: str = "+I", name: str = "x") -> dict[str, Any]:
    return {"id": id_, "name": name, "deleted": op == "-D", "op": op}


def batches(spark: SparkSession, marks: SoftDelete) -> list[CellBatch]:
    """Rows 1 to 4; 4 is deleted; the table loses 2 and 3 without a log, as by TRUNCATE, and is read again."""
    first = [("r", None, row(i)) for i in (1, 2, 3, 4)]
    log = [("u", row(2), row(2, "+U")), ("u", row(4, "-D"), row(4, "-D"))]
    found = reread(changes(SCHEMA, [("r", None, row(1, name="again"))], first=200))
    return [
        cell_batch(spark, 0, [("snapshot", changes(SCHEMA, first))]),
        cell_batch(spark, 1, [("log", changes(SCHEMA, log, first=100))]),
        replace(
            again(cell_batch(spark, 2, [("reread", found)]), "one", done=True),
            soft_deletes={"shop.t": marks},
        ),
    ]


def written(case: SinkCase) -> dict[int, tuple[Any, ...]]:
    # MySQL's BIT is bytes
    rows = {r["id"]: (r["name"], r["deleted"] in (True, b"\x01"), r["op"]) for r in current(case)}
    assert len(rows) == len(current(case))
    return dict(sorted(rows.items()))


MARKED = {1: ("again", False, "+I"), 2: ("x", True, "-D"), 3: ("x", True, "-D"), 4: ("x", True, "-D")}


@pytest.mark.parametrize(
    ("case", "point"),
    [
        # each sink breaks off at one of the points, in turn, at the other one as a slow test
        pytest.param(name, point, marks=[] if name in SINKS and number % 2 == turn else [SLOW])
        for number, name in enumerate((*SINKS, *MORE_SINKS))
        for turn, point in enumerate(("sink.seen", "sink.reread"))
    ],
    indirect=["case"],
)
def test_rows_that_are_gone_are_marked(
    spark: SparkSession, case: SinkCase, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = case.open(Router([]))
    first, second, last = batches(spark, MARKS)
    sink.write(first)
    sink.write(second)
    monkeypatch.setenv(VARIABLE, f"{point}=raise@{tmp_path / 'token'}")
    with pytest.raises(InjectedError):
        sink.write(last)
    monkeypatch.delenv(VARIABLE)
    sink = case.open(Router([]))
    for _ in range(2):
        sink.write(last)
        assert written(case) == MARKED
    sink.close()


def test_rows_that_are_gone_stay_where_nothing_marks_them(spark: SparkSession, case: SinkCase) -> None:
    sink = case.open(Router([]))
    for batch in batches(spark, SoftDelete()):
        sink.write(batch)
    assert written(case) == {
        1: ("again", False, "+I"),
        2: ("x", False, "+U"),
        3: ("x", False, "+I"),
        4: ("x", True, "-D"),
    }
    sink.close()

"""Dates and times that Python lacks: PostgreSQL's infinities, B.C., after 9999; times over a day."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tailrace.config.sinks import ConsoleSettings
from tailrace.model.moments import rows_to_python, to_python
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.console import ConsoleSink
from tailrace.sinks.route import Router
from tests.support.cells import cell_batch
from tests.support.changes import BIGINT, changes, table
from tests.support.sinks import CASES
from tests.support.sinks.iceberg import table_rows

DATE = ColumnType(Kind.DATE, "date")
WALL = ColumnType(Kind.DATETIME, "timestamp", fraction=6)
INSTANT = ColumnType(Kind.INSTANT, "timestamptz", fraction=6)
TIME = ColumnType(Kind.TIME, "time", fraction=6)
COLUMNS = (("id", BIGINT), ("day", DATE), ("wall", WALL), ("instant", INSTANT), ("span", TIME))
SHAPE = table(*COLUMNS, key=("id",))
BY_DAY = table(*COLUMNS, key=("day",), name="shop.by_day")
#: Days and microseconds: infinities, 44 B.C., 12024, today; a time of 838:59:59.
_MOST, _LEAST = 2**63 - 1, -(2**63)
ROWS = [
    {"id": 1, "day": 2**31 - 1, "wall": _MOST, "instant": _MOST, "span": 3_020_399_000_000},
    {"id": 2, "day": -(2**31), "wall": _LEAST, "instant": _LEAST, "span": -3_020_399_000_000},
    {"id": 3, "day": -735160, "wall": -63517824000000000, "instant": -63517824000000000, "span": 0},
    {"id": 4, "day": 3672222, "wall": 317279980800000000, "instant": 317279980800000000, "span": None},
    {"id": 5, "day": 19782, "wall": 1709210096000000, "instant": None, "span": 86_400_000_000},
]


def _by_spark(format_: str) -> Callable[[SparkSession, Path, str], list[tuple[Any, ...]]]:
    def read(spark: SparkSession, path: Path, name: str) -> list[tuple[Any, ...]]:
        frame = spark.read.format(format_).load(str(path / name))
        chosen = (
            "id",
            "unix_date(day)",
            "unix_micros(CAST(wall AS timestamp))",
            "unix_micros(instant)",
            "span",
        )
        return sorted(tuple(row) for row in frame.selectExpr(*chosen).collect())

    return read


def _by_iceberg(_: SparkSession, path: Path, name: str) -> list[tuple[Any, ...]]:
    return _numbers(table_rows(path, name))


def _by_arrow(_: SparkSession, path: Path, name: str) -> list[tuple[Any, ...]]:
    files = list((path / name).rglob("*.parquet"))
    return _numbers(pa.concat_tables([pq.ParquetFile(file).read() for file in files]))


def _numbers(rows: pa.Table) -> list[tuple[Any, ...]]:
    columns = [rows.column("id").to_pylist(), rows.column("day").cast(pa.int32()).to_pylist()]
    columns += [rows.column(name).cast(pa.int64()).to_pylist() for name in ("wall", "instant", "span")]
    return sorted(zip(*columns, strict=True))


READERS = {
    "delta-upsert": _by_spark("delta"),
    "delta-changelog": _by_spark("delta"),
    "iceberg-upsert": _by_iceberg,
    "iceberg-changelog": _by_iceberg,
    "parquet": _by_arrow,
}


@pytest.mark.parametrize("sink", ["delta-changelog", "iceberg-changelog", "parquet"])
def test_a_lake_holds_them_as_they_are(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, sink: str
) -> None:
    case = CASES[sink](request)
    opened = case.open(Router([]))
    try:
        for number, rows in enumerate((ROWS[:2], ROWS[2:])):
            created = [("c", None, row) for row in rows]
            made = [changes(shape, created, first=10 * number) for shape in (SHAPE, BY_DAY)]
            opened.write(cell_batch(spark, number, [("log", part) for part in made]))
    finally:
        opened.close()
    expected = [tuple(row.values()) for row in ROWS]
    for name in ("shop.t", "shop.by_day"):
        assert READERS[sink](spark, tmp_path, name) == expected


def test_lines_of_json_hold_them_as_text(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    opened = CASES["json"](request).open(Router([]))
    try:
        opened.write(cell_batch(spark, 0, [("log", changes(SHAPE, [("c", None, row) for row in ROWS]))]))
    finally:
        opened.close()
    lines = [json.loads(line) for file in tmp_path.rglob("*.json") for line in file.read_text().splitlines()]
    assert {row["id"]: (row["day"], row["wall"][:-7]) for row in lines if "id" in row} == {
        1: ("+5881580-07-11", "+294247-01-10T04:00:54"),
        2: ("-5877641-06-23", "-290308-12-21T19:59:05"),
        3: ("-0043-03-15", "-0043-03-15T00:00:00"),
        4: ("+12024-03-15", "+12024-03-15T00:00:00"),
        5: ("2024-02-29", "2024-02-29T12:34:56"),
    }


def test_a_changed_row_with_such_a_key_replaces_the_former(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    for sink in ("delta-upsert", "iceberg-upsert"):
        opened = CASES[sink](request).open(Router([]))
        try:
            created = changes(BY_DAY, [("c", None, row) for row in ROWS])
            opened.write(cell_batch(spark, 0, [("log", created)]))
            changed = [("u", row, {**row, "span": 7}) for row in ROWS[:3]]
            opened.write(cell_batch(spark, 1, [("log", changes(BY_DAY, changed, first=50))]))
        finally:
            opened.close()
        expected = [(*tuple(row.values())[:4], 7 if row["id"] < 4 else row["span"]) for row in ROWS]
        assert READERS[sink](spark, tmp_path, "shop.by_day") == expected


def test_the_console_shows_them(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    sink = ConsoleSink(ConsoleSettings(), Router([]))
    sink.write(cell_batch(spark, 0, [("log", changes(SHAPE, [("c", None, row) for row in ROWS]))]))
    shown = capsys.readouterr().out
    assert "infinity" in shown
    assert "12024" in shown


def test_python_gets_text_where_it_has_no_date() -> None:
    days = pa.array([2**31 - 1, -(2**31), -735160, None], pa.int32()).cast(pa.date32())
    assert to_python(days) == ["infinity", "-infinity", "-0043-03-15", None]
    moments = pa.array([[_MOST, None], None], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us", "UTC")))
    assert rows_to_python(pa.table({"m": moments, "n": [1, 2]})) == [
        {"m": ["infinity", None], "n": 1},
        {"m": None, "n": 2},
    ]

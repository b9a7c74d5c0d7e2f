"""Change logs whose tables are read again receive true differences only, and then add up to their tables."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.config.model import RouteRule
from tailrace.config.sinks import DeltaSettings, IcebergSettings, WriteMode
from tailrace.model.change import OP_REREAD, ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.base import CellBatch, Sink
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.iceberg.sink import IcebergSink
from tailrace.sinks.route import Router
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, Change, Row, changes, table
from tests.support.sinks.iceberg import table_rows

DOUBLE = ColumnType(Kind.DOUBLE, "double")
SCHEMA = table(("id", INT), ("name", TEXT), ("x", DOUBLE), key=("id",))


def row(id_: int, name: str | None, x: float | None = None) -> dict[str, Any]:
    return {"id": id_, "name": name, "x": x}


class ChangeLog:
    """A change log and the sink that writes it."""

    def __init__(self, spark: SparkSession, kind: str, path: Path) -> None:
        self._spark, self._kind, self._path = spark, kind, path
        self._number = 0

    def sink(self, router: Router | None = None) -> Sink:
        if self._kind == "delta":
            return DeltaSink(DeltaSettings(str(self._path), WriteMode.CHANGELOG), router or Router([]))
        return IcebergSink(IcebergSettings(str(self._path), WriteMode.CHANGELOG), router or Router([]))

    def write(
        self,
        *cells: tuple[str, ChangeBatch],
        reading: str | None = None,
        done: bool = False,
        router: Router | None = None,
    ) -> None:
        """Write a batch, twice: a batch may come again."""
        again = {"shop.t": {"id": reading, "done": done}} if reading else {}
        end = {"log": {"ts_ms": 1_700_000_000_000}, "again": again}
        batch: CellBatch = replace(cell_batch(self._spark, self._number, cells), end=end)
        for _ in range(2):
            with closing(self.sink(router)) as sink:
                sink.write(batch)
        self._number += 1

    def rows(self, name: str = "shop.t") -> list[dict[str, Any]]:
        """Its rows by `_seq`."""
        if self._kind == "delta":
            frame = self._spark.read.format("delta").load(str(self._path / name))
            found = [line.asDict(recursive=True) for line in frame.collect()]
        else:
            found = table_rows(self._path, name).to_pylist()
        return sorted(found, key=lambda line: line["_seq"])

    def operations(self, name: str = "shop.t") -> list[tuple[str, int, str | None]]:
        """Operation, id and name of each row, by `_seq` and id."""
        found = sorted(self.rows(name), key=lambda line: (line["_seq"], line["id"]))
        return [(line["_op"], line["id"], line["name"]) for line in found]

    def state(self) -> dict[int, str | None]:
        """What it adds up to."""
        state: dict[int, str | None] = {}
        for line in self.rows():
            state.pop(line["id"], None)
            if line["_op"] != "d":
                state[line["id"]] = line["name"]
        return state


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test has one kind of table, in turn, and the other one as a slow test."""
    if "log" not in metafunc.fixturenames:
        return
    names = [name for name in vars(metafunc.module) if name.startswith("test_")]
    due = ("delta", "iceberg")[names.index(metafunc.function.__name__) % 2]
    params = [
        pytest.param(kind, marks=[] if kind == due else [pytest.mark.slow]) for kind in ("delta", "iceberg")
    ]
    metafunc.parametrize("log", params, indirect=True)


@pytest.fixture
def log(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> ChangeLog:
    return ChangeLog(spark, request.param, tmp_path)


def first(*rows: Row, schema: TableSchema = SCHEMA) -> tuple[str, ChangeBatch]:
    return "snapshot", changes(schema, [("r", None, r) for r in rows])


def logged(*found: Change, seq: int, schema: TableSchema = SCHEMA) -> tuple[str, ChangeBatch]:
    return "log", changes(schema, found, first=seq)


def read(*rows: Row, seq: int, schema: TableSchema = SCHEMA) -> tuple[str, ChangeBatch]:
    """Rows as of one position."""
    batch = changes(schema, [("r", None, r) for r in rows], first=seq)
    at = batch.origin.column("seq")[0]
    origin = batch.origin.set_column(0, "seq", pa.repeat(at, len(rows)))
    return "reread", replace(batch, op=pa.repeat(pa.scalar(OP_REREAD, pa.int8()), len(rows)), origin=origin)


def test_only_rows_that_differ_come_and_rows_that_are_gone_are_deleted(log: ChangeLog) -> None:
    log.write(first(row(1, "a"), row(2, "b"), row(3, None), row(4, "d", 0.5), row(5, "e")))
    log.write(
        logged(("u", row(1, "a"), row(1, "A")), seq=10),
        read(row(1, "A"), row(2, "rewritten"), row(3, None), seq=11),
        reading="one",
    )
    log.write(
        logged(("u", row(2, "rewritten"), row(2, "later")), ("c", None, row(9, "new")), seq=20),
        read(row(4, "d", 0.5), row(6, "unlogged"), seq=30),
        reading="one",
        done=True,
    )
    assert log.operations()[5:] == [
        ("u", 1, "A"),
        ("u", 2, "later"),
        ("c", 9, "new"),
        ("d", 5, "e"),
        ("r", 6, "unlogged"),
    ]
    assert log.rows()[-1]["_ts_ms"] is not None
    assert log.state() == {1: "A", 2: "later", 3: None, 4: "d", 6: "unlogged", 9: "new"}


def test_table_that_has_not_changed_adds_nothing_to_its_change_log(log: ChangeLog) -> None:
    rows = [row(i, f"s{i}", x) for i, x in enumerate([None, math.nan, 0.5, math.inf])]
    log.write(first(*rows))
    log.write(read(*rows, seq=10), reading="one", done=True)
    log.write(logged(("c", None, row(7, "new")), seq=20))
    assert [op for op, *_ in log.operations()] == ["r"] * 4 + ["c"]


def test_readings_at_one_position_are_told_apart(log: ChangeLog) -> None:
    """The log does not move, but unlogged statements change rows, again and again."""
    log.write(first(row(1, "a"), row(2, "b", -0.0)))
    log.write(read(row(1, "x"), row(2, "b", 0.0), seq=0), reading="one", done=True)
    log.write(read(row(1, "y"), seq=0), reading="two", done=True)
    log.write(read(row(1, "y"), row(2, "back"), seq=0), reading="three", done=True)
    log.write(logged(("u", row(2, "back"), row(2, "logged")), seq=1))
    assert [(op, id_, name) for op, id_, name in log.operations() if op != "r" or name not in ("a", "b")] == [
        ("r", 1, "x"),
        ("r", 1, "y"),
        ("d", 2, "b"),
        ("r", 2, "back"),
        ("u", 2, "logged"),
    ]
    assert [line["x"] for line in log.rows() if line["id"] == 2][:2] == [0.0, 0.0]
    assert len([line for line in log.rows() if line["id"] == 2]) == 5
    assert log.state() == {1: "y", 2: "logged"}


def test_table_that_is_empty_has_all_rows_deleted_once(log: ChangeLog) -> None:
    log.write(first(row(1, "a"), row(2, "b")))
    log.write(reading="one", done=True)
    log.write(reading="two", done=True)
    assert log.operations()[2:] == [("d", 1, "a"), ("d", 2, "b")]


def test_rows_of_a_reading_that_was_given_up_count_for_nothing(log: ChangeLog) -> None:
    log.write(first(row(1, "a"), row(2, "b")))
    log.write(read(row(1, "given up"), seq=10), reading="one")
    log.write(read(row(2, "b"), seq=20), reading="two")
    log.write(reading="two", done=True)
    assert log.operations()[2:] == [("d", 1, "a")]


def test_columns_that_the_log_left_out_are_those_of_an_earlier_change(log: ChangeLog) -> None:
    log.write(first(row(1, "a", 1.0), row(2, "b", 2.0)))
    parts = [("u", row(1, None, 1.0), row(1, None, 5.0)), ("u", row(2, None, 2.0), row(2, None, 6.0))]
    batch = replace(changes(SCHEMA, parts, first=10), absent_after=("name",), absent_before=("name",))
    log.write(("log", batch))
    log.write(read(row(1, "a", 5.0), row(2, "B", 6.0), seq=20), reading="one", done=True)
    assert log.operations()[4:] == [("r", 2, "B")]


def test_another_key_compares_rows_by_it(log: ChangeLog) -> None:
    log.write(first(row(1, "a"), row(2, "b")))
    by_name = replace(SCHEMA, key=("name",))
    log.write(read(row(7, "a"), row(2, "b"), seq=10, schema=by_name), reading="one", done=True)
    assert log.operations()[2:] == [("r", 7, "a")]


def test_rows_of_another_shard_stay(log: ChangeLog) -> None:
    router = Router([RouteRule("shop[.].", "all.rows", shard_column="name")])
    mine = replace(SCHEMA, key=("id", "name"))
    theirs = table(("id", INT), ("name", TEXT), ("x", DOUBLE), key=("id", "name"), name="shop.u")
    log.write(
        first(row(1, "shop.t"), row(2, "shop.t"), schema=mine),
        first(row(1, "shop.u"), schema=theirs),
        router=router,
    )
    log.write(read(row(1, "shop.t"), seq=9, schema=mine), reading="one", done=True, router=router)
    assert log.operations("all.rows")[3:] == [("d", 2, "shop.t")]


def test_rows_of_a_target_whose_tables_are_not_told_apart_are_all_appended(log: ChangeLog) -> None:
    router = Router([RouteRule("shop[.].", "all.rows")])
    other = table(("id", INT), ("name", TEXT), ("x", DOUBLE), key=("id",), name="shop.u")
    log.write(first(row(1, "a")), first(row(5, "u"), schema=other), router=router)
    log.write(read(row(1, "a"), seq=9), reading="one", done=True, router=router)
    assert log.operations("all.rows")[-1] == ("r", 1, "a")
    assert len(log.operations("all.rows")) == 3


def test_rows_without_a_key_are_all_appended(log: ChangeLog) -> None:
    keyless = replace(SCHEMA, key=())
    log.write(first(row(1, "a"), schema=keyless))
    log.write(read(row(1, "a"), seq=9, schema=keyless), reading="one", done=True)
    assert log.operations() == [("r", 1, "a"), ("r", 1, "a")]

"""Columns of replicas become text, in place: with old values, new ones and those read again in one form."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.model import RouteRule
from tailrace.config.sinks import OnIncompatibleType, ReplicaTransaction
from tailrace.errors import SinkError
from tailrace.failpoints import VARIABLE, InjectedError
from tailrace.model.table import TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.base import CellBatch
from tailrace.sinks.replica.sink import ReplicaSink
from tailrace.sinks.route import Router
from tests.support.cells import cell_batch
from tests.support.changes import BIGINT, DECIMAL, INT, TEXT, changes, table
from tests.support.sinks.replica import Target, replica_target

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
#: By column: its type, two values, and their text.
VALUES: dict[str, tuple[ColumnType, Any, Any, str, str]] = {
    "number": (BIGINT, 0, -(2**63), "0", str(-(2**63))),
    "money": (DECIMAL, Decimal("0.00"), Decimal("-12345678.90"), "0.00", "-12345678.90"),
    "flag": (ColumnType(Kind.BOOLEAN, "tinyint"), False, True, "false", "true"),
    "day": (ColumnType(Kind.DATE, "date"), date(1, 1, 1), date(9999, 12, 31), "0001-01-01", "9999-12-31"),
    "local": (
        ColumnType(Kind.DATETIME, "datetime", fraction=6),
        NOON.replace(tzinfo=None),
        NOON.replace(tzinfo=None) + timedelta(microseconds=120_000),
        "2026-03-01 12:00:00",
        "2026-03-01 12:00:00.12",
    ),
    "moment": (
        ColumnType(Kind.INSTANT, "timestamp", fraction=6),
        NOON,
        NOON + timedelta(microseconds=1),
        "2026-03-01 12:00:00Z",
        "2026-03-01 12:00:00.000001Z",
    ),
    "span": (
        ColumnType(Kind.TIME, "time", fraction=6),
        timedelta(hours=-100, minutes=-1),
        timedelta(hours=12, milliseconds=500),
        "-100:01:00",
        "12:00:00.5",
    ),
    "raw": (ColumnType(Kind.BYTES, "varbinary", length=200), b"", bytes(range(120)), "", ""),
}
KINDS = table(("id", INT), *((name, of[0]) for name, of in VALUES.items()), key=("id",))
TEXTS = table(("id", INT), *((name, TEXT) for name in VALUES), key=("id",))
PARTS, WHOLE = ReplicaTransaction


@pytest.fixture(
    params=[
        ("mysql", PARTS),
        ("postgres", WHOLE),
        pytest.param(("mariadb", PARTS), marks=pytest.mark.slow),
    ],
    ids=str,
)
def target(request: pytest.FixtureRequest) -> Target:
    return replica_target(request, *request.param)


def write(target: Target, *batches: CellBatch, router: Router | None = None) -> None:
    settings = replace(target.settings, on_incompatible_type=OnIncompatibleType.TEXT)
    with closing(ReplicaSink(settings, router or Router([]))) as sink:
        for batch in batches:
            sink.write(batch)


def rows_of(schema: TableSchema, *ids: int, which: int = 1, first: int = 0) -> Any:
    rows = [
        {
            "id": id_,
            **{
                name: f"text {id_}" if schema.columns[1].type == TEXT else of[which]
                for name, of in VALUES.items()
            },
        }
        for id_ in ids
    ]
    return "log", changes(schema, [("c", None, row) for row in rows], first=first)


def test_old_and_new_values_become_the_same_text(
    spark: SparkSession, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        target, cell_batch(spark, 0, [rows_of(KINDS, 1), ("log", changes(KINDS, [("c", None, {"id": 5})]))])
    )
    write(target, cell_batch(spark, 1, [rows_of(KINDS, 2, which=2, first=10)]))
    changed = cell_batch(spark, 2, [rows_of(TEXTS, 9, first=100)])
    monkeypatch.setenv(VARIABLE, f"sink.text=raise@{tmp_path / 'token'}")
    with pytest.raises(InjectedError):
        write(target, changed)
    monkeypatch.delenv(VARIABLE)
    assert [row["id"] for row in target.rows("shop.t")] == [1, 2, 5]
    write(target, changed)
    write(target, changed)
    later = [rows_of(KINDS, 3, first=200), rows_of(KINDS, 4, which=2, first=300)]
    for number, part in enumerate(later, 3):
        write(target, cell_batch(spark, number, [part]))
    found = {row.pop("id"): row for row in target.rows("shop.t")}
    assert found[9] == dict.fromkeys(VALUES, "text 9")
    assert found[5] == dict.fromkeys(VALUES)
    assert found[3] == found[1]
    assert found[4] == found[2]
    for name, (_, _, _, one, other) in VALUES.items():
        if name != "raw":
            assert (found[1][name], found[2][name]) == (one, other)
    assert list(target.rows("shop.t")[0]) == ["id", *VALUES]


def test_type_without_exact_text_parks_the_table_in_a_shared_target(
    spark: SparkSession, target: Target
) -> None:
    router = Router([RouteRule("shop[.].", "shop.all")])
    double = ColumnType(Kind.DOUBLE, "double")
    one = table(("id", INT), ("v", double), key=("id",), name="shop.a")
    other = table(("id", INT), ("v", TEXT), key=("id",), name="shop.b")
    numbers = changes(one, [("c", None, {"id": 1, "v": 0.1})])
    texts = changes(other, [("c", None, {"id": 2, "v": "x"})], first=100)
    write(target, cell_batch(spark, 0, [("log", numbers)]), router=router)
    with pytest.raises(SinkError, match="other tables share the target") as raised:
        write(target, cell_batch(spark, 1, [("log", numbers), ("log", texts)]), router=router)
    assert raised.value.code == "TR-7001"
    assert [row["v"] for row in target.rows("shop.all")] == [0.1]

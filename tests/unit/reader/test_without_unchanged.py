"""Updates that change no captured column are left out, as far as the log shows what they change."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tailrace.model.change import OP_CREATE, OP_UPDATE, ChangeBatch, origin_of_rows
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.reader.log import without_unchanged

INT = ColumnType(Kind.INTEGER, "int", bits=32)
TABLE = TableSchema(
    TableId("s", "t"),
    (
        Column("id", INT),
        Column("v", ColumnType(Kind.DOUBLE, "double")),
        Column("l", ColumnType(Kind.LIST, "_int4", element=INT)),
    ),
    ("id",),
)


def row(id_: int, v: float | None, numbers: list[int] | None) -> dict[str, object]:
    return {"id": id_, "v": v, "l": numbers}


def batch(*pairs: tuple[dict[str, object] | None, dict[str, object]]) -> ChangeBatch:
    return ChangeBatch(
        TABLE,
        pa.array([OP_CREATE if before is None else OP_UPDATE for before, _ in pairs], pa.int8()),
        pa.array([before for before, _ in pairs], TABLE.arrow),
        pa.array([after for _, after in pairs], TABLE.arrow),
        origin_of_rows(len(pairs), seq="0" * 32, ts_us=0, file="", pos=0),
    )


SAME = batch((row(1, 1.5, [1]), row(1, 1.5, [1])), (row(2, None, None), row(2, None, None)))


def test_updates_with_other_values_are_kept() -> None:
    other = [
        (row(3, 1.5, [1]), row(3, 2.5, [1])),
        (row(4, 1.5, [1]), row(4, 1.5, [1, 2])),
        (row(5, None, [1]), row(5, 1.5, [1])),
        (row(6, 1.5, [1]), row(6, 1.5, None)),
        (row(8, 0.0, [1]), row(8, -0.0, [1])),
        (None, row(7, None, None)),
    ]
    mixed = batch((row(1, 1.5, [1]), row(1, 1.5, [1])), *other, (row(2, None, None), row(2, None, None)))
    found = without_unchanged(mixed)
    assert found.image("after").field("id").to_pylist() == [3, 4, 5, 6, 8, 7]
    assert len(without_unchanged(SAME)) == 0


def test_updates_that_the_log_shows_in_part_are_kept() -> None:
    assert len(without_unchanged(replace(SAME, absent_before=("v",)))) == 2
    assert len(without_unchanged(replace(SAME, absent_after=("v",)))) == 2
    assert len(without_unchanged(replace(SAME, before=None))) == 2

"""Rows of a source as their targets hold them."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa

from tailrace.model.types import ColumnType, Kind
from tailrace.verify.run import _columns_of
from tailrace.verify.source import SourceTable, as_stored
from tests.support.changes import BIGINT, INT, TEXT, table

TIME = ColumnType(Kind.TIME, "time", fraction=6)
SCHEMA = table(("id", INT), ("v", INT), ("at", TIME), key=("id",))


def test_column_that_has_become_text_is_compared_by_its_text() -> None:
    row = {"id": 1, "v": 7, "at": timedelta(hours=1, microseconds=500_000)}
    rows = pa.array([row, {"id": 2, "v": None, "at": None}], pa.struct(list(SCHEMA.arrow)))
    held = pa.schema([("id", pa.int64()), ("v", pa.string()), ("at", pa.string())])
    assert as_stored(rows, held, SCHEMA).to_pylist() == [
        {"id": 1, "v": "7", "at": "3600500000"},
        {"id": 2, "v": None, "at": None},
    ]
    assert as_stored(rows, held, SCHEMA, keeps_times=True).column("at").to_pylist() == ["01:00:00.5", None]


def test_columns_of_shards_are_those_of_all_of_them() -> None:
    shards = [
        table(("id", INT), ("v", INT), ("a", TEXT), key=("id",)),
        table(("ID", BIGINT), ("v", TEXT), ("b", INT), key=("ID",)),
    ]
    assert _columns_of([SourceTable(shard, 1) for shard in shards]) == pa.schema(
        [("id", pa.int64()), ("v", pa.string()), ("a", pa.string()), ("b", pa.int32())]
    )

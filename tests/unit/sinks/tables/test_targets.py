"""Targets of several tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.errors import SinkError
from tailrace.model.table import TableId
from tailrace.sinks.tables.columns import follow
from tailrace.sinks.tables.targets import following

TABLES = [TableId("shop", f"orders_{number}") for number in range(6)]


def change(table: TableId, tables: list[TableId]) -> SinkError:
    held, needed = pa.schema([("price", pa.int32())]), pa.schema([("price", pa.string())])
    with pytest.raises(SinkError) as raised, following(table, tables):
        follow("orders", held, needed)
    return raised.value


def test_incompatible_columns_of_shards_name_both_tables_and_concern_one() -> None:
    error = change(TABLES[1], TABLES[:2])
    assert (error.code, error.table) == ("TR-7001", "shop.orders_1")
    assert error.detail is not None
    assert "`shop.orders_1` brings it, and `shop.orders_0` share the target" in error.detail
    assert "and 2 more share" in (change(TABLES[0], TABLES).detail or "")


def test_table_with_a_target_of_its_own_is_named_by_whoever_writes_it() -> None:
    assert "share" not in (change(TABLES[0], TABLES[:1]).detail or "")

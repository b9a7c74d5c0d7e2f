"""Small tables and batches for the tests of formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tailrace.model.change import OP_LETTERS, ORIGIN, TRANSACTION_ORDER, ChangeBatch
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind

ID = Column("id", ColumnType(Kind.INTEGER, "bigint", bits=64), nullable=False)
NAME = Column("name", ColumnType(Kind.STRING, "varchar", length=20))
ORDERS = TableSchema(TableId("shop", "orders"), (ID, NAME), ("id",))

Row = Mapping[str, Any]

#: What `change` takes for granted of every change's origin.
ORIGIN_ROW: Row = {
    "seq": "0000000000010000000000c800000000",
    "ts_us": 1_700_000_000_123_456,
    "txn": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23",
    "file": "binlog.000001",
    "pos": 200,
    "row": 0,
    "server_id": 7,
    "thread": 11,
}

Change = tuple[str, Row | None, Row | None, Row]


def change(op: str, before: Row | None = None, after: Row | None = None, **origin: Any) -> Change:
    return op, before, after, {**ORIGIN_ROW, **origin}


def batch(table: TableSchema, changes: Sequence[Change]) -> ChangeBatch:
    """The changes as a batch; a side that no change has is left out."""

    def image(side: int) -> pa.StructArray | None:
        values = [c[side] for c in changes]
        if all(v is None for v in values):
            return None
        return pa.array(values, table.arrow)

    origin = pa.RecordBatch.from_arrays(
        [pa.array([c[3][f.name] for c in changes], f.type) for f in ORIGIN], schema=ORIGIN
    )
    ops = pa.array([OP_LETTERS.index(c[0]) for c in changes], pa.int8())
    return ChangeBatch(table, ops, image(1), image(2), origin)


def placed(changes: ChangeBatch, places: Sequence[tuple[int, int] | None]) -> ChangeBatch:
    """The changes with their places in transactions; None where there is no transaction."""
    return replace(changes, order=pa.array(places, TRANSACTION_ORDER))

"""Change batches made by hand, for tests of the code after the wire decoders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tailrace.model.change import OP_LETTERS, ORIGIN, ChangeBatch
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind

Row = Mapping[str, Any]
#: (op letter, before, after)
Change = tuple[str, Row | None, Row | None]

INT = ColumnType(Kind.INTEGER, "int", bits=32)
BIGINT = ColumnType(Kind.INTEGER, "bigint", bits=64)
TEXT = ColumnType(Kind.STRING, "varchar", length=100)
DECIMAL = ColumnType(Kind.DECIMAL, "decimal", precision=10, scale=2)


def table(*columns: tuple[str, ColumnType], key: tuple[str, ...], name: str = "shop.t") -> TableSchema:
    return TableSchema(TableId.parse(name), tuple(Column(n, t) for n, t in columns), key)


def changes(schema: TableSchema, rows: Iterable[Change], first: int = 0) -> ChangeBatch:
    """A batch of log changes; the n-th has seq 2 * (first + n)."""
    listed = list(rows)
    n = len(listed)
    origin = pa.RecordBatch.from_arrays(
        [
            pa.array([f"{2 * (first + i):032x}" for i in range(n)], pa.string()),
            pa.array([1_700_000_000_000_000 + i for i in range(n)], pa.int64()),
            pa.array([f"server:{first + i}" for i in range(n)]).dictionary_encode()
            if n
            else pa.array([], ORIGIN.field("txn").type),
            pa.array(["binlog.000001"] * n).dictionary_encode()
            if n
            else pa.array([], ORIGIN.field("file").type),
            pa.array([100 * (first + i) for i in range(n)], pa.int64()),
            pa.array([0] * n, pa.int32()),
            pa.array([1] * n, pa.int64()),
            pa.array([7] * n, pa.int64()),
        ],
        schema=ORIGIN,
    )
    return ChangeBatch(
        schema,
        pa.array([OP_LETTERS.index(op) for op, _, _ in listed], pa.int8()),
        pa.array([b for _, b, _ in listed], schema.arrow),
        pa.array([a for _, _, a in listed], schema.arrow),
        origin,
    )

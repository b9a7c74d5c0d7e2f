"""The `envelope` shape: both row images as structs, the operation, and the origin.

Debezium's envelope as typed Spark columns, with `_seq` and `_absent`, which are Tailrace's. One column is not
a function of the log: `ts_ms`, the processing time. The caller passes it, so this module stays pure; a replay
with another `now_ms` gives rows that differ only in `ts_ms`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace import __version__
from tailrace.formats.connect.source_block import MYSQL_FIELDS, SourceBlock, origin_values
from tailrace.formats.row import ABSENT_TYPE, IN_AFTER, IN_BEFORE, absent, absent_columns, op_letters, ts_ms
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema

#: The fields of `source`: Debezium's, without those that Tailrace leaves null and without finer times.
_SOURCE_FIELDS = tuple(
    field for field in MYSQL_FIELDS if field.name not in ("sequence", "query", "ts_us", "ts_ns")
)
_ARROW_TYPES = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
#: The origin of a change: version, connector, name, ts_ms (null if unknown), snapshot, db, table, server_id,
#: gtid, file, pos, row, thread; see `formats.connect.source_block` and model.change.ORIGIN.
SOURCE_TYPE = pa.struct([pa.field(field.name, _ARROW_TYPES[field.type]) for field in _SOURCE_FIELDS])

#: Names of the columns that the log omits from the images: their values are unknown, not NULL.
ABSENT_SIDES = pa.struct([pa.field("before", ABSENT_TYPE), pa.field("after", ABSENT_TYPE)])


def envelope_schema(table: TableSchema) -> pa.Schema:
    """The columns of `to_envelopes` for changes of `table`."""
    return pa.schema(
        [
            pa.field("before", table.arrow),
            pa.field("after", table.arrow),
            pa.field("op", pa.string()),
            pa.field("source", SOURCE_TYPE),
            pa.field("ts_ms", pa.int64()),
            pa.field("_seq", pa.string()),
            pa.field("_absent", ABSENT_SIDES),
        ]
    )


def to_envelopes(batch: ChangeBatch, now_ms: int, *, name: str, connector: str = "mysql") -> pa.RecordBatch:
    """One envelope per change; the row images are not copied.

    Args:
        batch: changes of one table.
        now_ms: processing time to write, milliseconds since 1970 UTC.
        name: logical name of the source, for `source.name`.
        connector: kind of source, for `source.connector`.

    Returns:
        A record batch of `len(batch)` rows with schema `envelope_schema(batch.table)`.
    """
    arrays = [
        batch.image("before"),
        batch.image("after"),
        op_letters(batch),
        _source(batch, name, connector),
        _repeated(now_ms, pa.int64(), len(batch)),
        batch.origin.column("seq"),
        _absent(batch),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=envelope_schema(batch.table))


def _source(batch: ChangeBatch, name: str, connector: str) -> pa.StructArray:
    database = batch.table.id.database
    constants = SourceBlock(connector, name, __version__, database).constants(batch.table.id)
    values = []
    for field in _SOURCE_FIELDS:
        if field.column is None:
            values.append(_repeated(constants[field.name], pa.string(), len(batch)))
        else:
            values.append(ts_ms(batch) if field.name == "ts_ms" else origin_values(batch, field.column))
    return pa.StructArray.from_arrays(values, fields=list(SOURCE_TYPE))


def _absent(batch: ChangeBatch) -> pa.StructArray:
    """The columns that the images lack; null for changes with whole images."""
    if not (absent_columns(batch, "before") or absent_columns(batch, "after")):
        return pa.nulls(len(batch), ABSENT_SIDES)
    sides = [absent(batch, IN_BEFORE), absent(batch, IN_AFTER)]
    whole = pc.and_(*(side.is_null() for side in sides))
    return pa.StructArray.from_arrays(sides, fields=list(ABSENT_SIDES), mask=whole)


def _repeated(value: Any, type_: pa.DataType, n: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, type_), n)

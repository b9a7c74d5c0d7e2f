"""The `envelope` shape: both row images as structs, what happened, and where it comes from.

Debezium's envelope as typed Spark columns, and `_seq` and `_absent`, which are ours. One thing in it is not a
function of the log: `ts_ms`, when the change was processed. Whoever calls gives that time, so this module
stays pure; a replay whose `now_ms` differs gives rows that differ in `ts_ms` and in nothing else.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace import __version__
from tailrace.formats.row import ABSENT_TYPE, IN_AFTER, IN_BEFORE, absent, absent_columns, op_letters, ts_ms
from tailrace.model.change import OP_LETTERS, ChangeBatch
from tailrace.model.table import TableSchema

#: Where a change comes from, in Debezium's words.
#:
#: version    of Tailrace
#: connector  kind of source: mysql
#: name       logical name of the source
#: ts_ms      commit time at the source, milliseconds since 1970 UTC; null if unknown
#: snapshot   "true" for rows read by a SELECT, else "false"
#: server_id, gtid, file, pos, row, thread   see model.change.ORIGIN
SOURCE_TYPE = pa.struct(
    [
        pa.field("version", pa.string()),
        pa.field("connector", pa.string()),
        pa.field("name", pa.string()),
        pa.field("ts_ms", pa.int64()),
        pa.field("snapshot", pa.string()),
        pa.field("db", pa.string()),
        pa.field("table", pa.string()),
        pa.field("server_id", pa.int64()),
        pa.field("gtid", pa.string()),
        pa.field("file", pa.string()),
        pa.field("pos", pa.int64()),
        pa.field("row", pa.int32()),
        pa.field("thread", pa.int64()),
    ]
)

#: Names of the columns that the log left out of the images: not NULL but unknown.
ABSENT_SIDES = pa.struct([pa.field("before", ABSENT_TYPE), pa.field("after", ABSENT_TYPE)])

_SNAPSHOT_MARKS = pa.array(["true" if letter == "r" else "false" for letter in OP_LETTERS])


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
    origin, table, n = batch.origin, batch.table.id, len(batch)
    values = [
        _repeated(__version__, pa.string(), n),
        _repeated(connector, pa.string(), n),
        _repeated(name, pa.string(), n),
        ts_ms(batch),
        snapshot_marks(batch),
        _repeated(table.database, pa.string(), n),
        _repeated(table.table, pa.string(), n),
        origin.column("server_id"),
        origin.column("txn").dictionary_decode(),
        origin.column("file").dictionary_decode(),
        origin.column("pos"),
        origin.column("row"),
        origin.column("thread"),
    ]
    return pa.StructArray.from_arrays(values, fields=list(SOURCE_TYPE))


def _absent(batch: ChangeBatch) -> pa.StructArray:
    """The columns that the images lack, null for changes whose images are whole."""
    if not (absent_columns(batch, "before") or absent_columns(batch, "after")):
        return pa.nulls(len(batch), ABSENT_SIDES)
    sides = [absent(batch, IN_BEFORE), absent(batch, IN_AFTER)]
    whole = pc.and_(*(side.is_null() for side in sides))
    return pa.StructArray.from_arrays(sides, fields=list(ABSENT_SIDES), mask=whole)


def snapshot_marks(batch: ChangeBatch) -> pa.Array:
    """Debezium's `source.snapshot`: "true" for rows read by a SELECT, else "false"."""
    return _SNAPSHOT_MARKS.take(batch.op)


def _repeated(value: Any, type_: pa.DataType, n: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, type_), n)

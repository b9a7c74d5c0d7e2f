"""The `row` shape: the table's columns, then the operation and the origin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import ConfigError
from tailrace.model.change import OP_DELETE, OP_LETTERS, ChangeBatch
from tailrace.model.table import TableSchema

#: Names of the columns that a row image lacks; null where it lacks none.
ABSENT_TYPE = pa.list_(pa.string())

#: The columns after the table's.
#:
#: _op        r, c, u or d
#: _seq       sorts in log order for the life of the stream, snapshot rows included
#: _ts_ms     commit time at the source, milliseconds since 1970 UTC; null if unknown
#: _txn       the source's transaction id (MySQL: GTID), null if it has none
#: _position  `file:pos` of the change's event in the log; PostgreSQL: its LSN
#: _absent    columns of the row that the log omits: unknown, not NULL; null if the row is whole
ROW_FIELDS = (
    pa.field("_op", pa.string()),
    pa.field("_seq", pa.string()),
    pa.field("_ts_ms", pa.int64()),
    pa.field("_txn", pa.string()),
    pa.field("_position", pa.string()),
    pa.field("_absent", ABSENT_TYPE),
)

# By operation, the image to search for absent columns; rows read by a SELECT are whole, a TRUNCATE has none.
IN_BEFORE = (None, None, "before", "before", None, None)
IN_AFTER = (None, "after", "after", None, None, None)
#: The image that the row shape shows.
IN_SHOWN = (None, "after", "after", "before", None, None)
#: The image with the old row of an update.
IN_OLD = (None, None, "before", None, None, None)

# scalars created once: pyarrow looks for pandas on each conversion of a Python value
_LETTERS = pa.array([*OP_LETTERS, "t"])
_DELETE = pa.scalar(OP_DELETE, pa.int8())
_UNKNOWN = pa.scalar(0, pa.int64())
_THOUSAND = pa.scalar(1000, pa.int64())
_NULL = pa.scalar(None, pa.int64())
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def row_schema(table: TableSchema) -> pa.Schema:
    """The columns of `to_rows` for changes of `table`.

    Raises:
        ConfigError: a column has the name of one of ROW_FIELDS (Spark's names are case-insensitive).
    """
    reserved = {f.name for f in ROW_FIELDS}
    for column in table.columns:
        if column.name.lower() in reserved:
            raise ConfigError(
                f"column `{column.name}` of table `{table.id}` has a name that is reserved in shape `row`",
                f"shape `row` adds {', '.join(f'`{f.name}`' for f in ROW_FIELDS)}",
                "use shape `envelope` or `debezium`, or rename the column",
                code="TR-7005",
            )
    return pa.schema([*table.arrow, *ROW_FIELDS])


def to_rows(batch: ChangeBatch) -> pa.RecordBatch:
    """One row per change: the row after it, or the deleted row as it was.

    Columns are not copied when all changes show the same side.

    Args:
        batch: changes of one table.

    Returns:
        A record batch of `len(batch)` rows with schema `row_schema(batch.table)`.

    Raises:
        ConfigError: see `row_schema`.
    """
    schema = row_schema(batch.table)
    origin = batch.origin
    arrays = [
        *_shown(batch),
        op_letters(batch),
        origin.column("seq"),
        ts_ms(batch),
        origin.column("txn").dictionary_decode(),
        positions(batch),
        absent(batch, IN_SHOWN),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def op_letters(batch: ChangeBatch) -> pa.Array:
    """Debezium's letter of each change's operation."""
    return _LETTERS.take(batch.op)


def ts_ms(batch: ChangeBatch) -> pa.Array:
    """Commit time of each change in milliseconds, null if unknown."""
    us = batch.origin.column("ts_us")
    return pc.if_else(pc.equal(us, _UNKNOWN), _NULL, pc.divide(us, _THOUSAND))


def positions(batch: ChangeBatch) -> pa.Array:
    """`file:pos` of each change; the LSN, as `0/16B3748`, if the log has no files (PostgreSQL)."""
    pos = batch.origin.column("pos")
    if batch.origin.column("file").dictionary.to_pylist() == [""]:
        lsns = np.asarray(pos.fill_null(0).to_numpy())
        return pc.binary_join_element_wise(_hexadecimal(lsns >> 32), _hexadecimal(lsns & 0xFFFFFFFF), "/")
    file = batch.origin.column("file").dictionary_decode()
    return pc.binary_join_element_wise(file, pos.cast(pa.string()), ":")


def _hexadecimal(values: np.ndarray) -> pa.StringArray:
    """32-bit numbers in hexadecimal, without leading zeros."""
    digits = _HEX[(values[:, None] >> np.arange(28, -1, -4)) & 15]
    offsets = np.arange(len(values) + 1, dtype=np.int32) * 8
    text = pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(digits.tobytes()))
    return pc.binary_join_element_wise(
        pc.utf8_ltrim(pc.utf8_slice_codeunits(text, 0, 7), "0"), pc.utf8_slice_codeunits(text, 7, 8), ""
    )


def absent(batch: ChangeBatch, sides: Sequence[str | None]) -> pa.ListArray:
    """For each change the names of the columns that one of its images lacks, null if the image is whole.

    Args:
        batch: changes of one table.
        sides: the image, `before` or `after`, by operation: IN_BEFORE, IN_AFTER, IN_SHOWN or IN_OLD.
    """
    lacking = {side: absent_columns(batch, side) for side in ("before", "after")}
    of_op = [lacking[side] or None if side else None for side in sides]
    if not any(of_op):
        return pa.nulls(len(batch), ABSENT_TYPE)
    return pa.array(of_op, ABSENT_TYPE).take(batch.op)


def absent_columns(batch: ChangeBatch, side: str) -> tuple[str, ...]:
    """The columns of the batch's table that the log omits from its `before` or `after` images."""
    names = batch.absent_before if side == "before" else batch.absent_after
    return tuple(name for name in names if name in batch.table.arrow.names)


def _shown(batch: ChangeBatch) -> list[pa.Array]:
    """The table's columns: from the before image of a delete, from the after image otherwise."""
    if batch.before is None:
        return list(batch.image("after").flatten())
    deleted = pc.equal(batch.op, _DELETE)
    if batch.after is None or pc.all(deleted).as_py():
        return list(batch.before.flatten())
    if not pc.any(deleted).as_py():
        return list(batch.after.flatten())
    # `flatten` applies the parent's nulls to the children, whose values there are arbitrary
    sides = zip(batch.before.flatten(), batch.after.flatten(), strict=True)
    return [pc.if_else(deleted, before, after) for before, after in sides]

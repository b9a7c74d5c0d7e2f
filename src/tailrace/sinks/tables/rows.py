"""Turns cells into rows, in Spark's tasks, column by column: never one Python object per row.

There are four kinds of rows. Each has the columns of the *target*, in its order and with its types, whatever
schema the cell has: a column that the schema lacks is null, a narrower type is widened.

    snapshot rows   the columns
    last rows       the last change per key of a cell: the columns, `_op`, `_seq`, and `_absent`, the columns
                    that the log left out of an update and that keep their values (upsert)
    versions        the columns, the time when the row was valid, and `_seq` (scd2): snapshot rows become
                    versions at once, changes with `_op`, `_seq` and `_ts` by a merge
    log rows        formats.row's columns, `_before`, the whole old row of an update, and `_absent_before`,
                    the columns that the log left out of the old row (changelog)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SinkError
from tailrace.formats.row import ABSENT_TYPE, IN_OLD, ROW_FIELDS, absent, to_rows
from tailrace.model.change import OP_CREATE, OP_DELETE, OP_UPDATE, ChangeBatch
from tailrace.reader.schema_projection import column_indices
from tailrace.sinks.tables.columns import stored_type
from tailrace.sinks.tables.keys import last_of_each_key
from tailrace.spark.cells import Unpack

#: The columns that a row to be merged has in addition.
MERGE_FIELDS = (pa.field("_op", pa.int8()), pa.field("_seq", pa.string()))

#: ... if the last change of a key counts: `_absent` names the columns that it lacks, as the target does.
UPSERT_FIELDS = (*MERGE_FIELDS, pa.field("_absent", ABSENT_TYPE))

_INSTANT = pa.timestamp("us", "UTC")
#: ... if each change makes a version: `_ts` is its commit time, null if it is unknown.
CHANGE_FIELDS = (*MERGE_FIELDS, pa.field("_ts", _INSTANT))

#: The columns that a version of a row has in addition. `_seq` is that of the change that begins it.
VERSION_FIELDS = (
    pa.field("_valid_from", _INSTANT),
    pa.field("_valid_to", _INSTANT),
    pa.field("_is_current", pa.bool_()),
    pa.field("_seq", pa.string()),
)

# Made once: pyarrow looks for pandas on each conversion of a Python value.
_UNKNOWN = pa.scalar(0, pa.int64())
_CREATE = pa.scalar(OP_CREATE, pa.int8())
_DELETE = pa.scalar(OP_DELETE, pa.int8())


def snapshot_rows(columns: pa.Schema) -> Unpack:
    """Makes the rows after the change; for batches of snapshot rows."""

    def unpack(batch: ChangeBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(_fit(batch.image("after"), columns), schema=columns)

    return unpack


def last_rows(columns: pa.Schema, key: tuple[str, ...]) -> Unpack:
    """Makes the last change of each key of a batch; a delete has the old row."""
    schema = pa.schema([*columns, *UPSERT_FIELDS])

    def unpack(batch: ChangeBatch) -> pa.RecordBatch:
        missing = absent_names(batch, columns.names)
        rows = to_rows(batch)
        # All rows of a batch lack the same columns: what the last row lacks no other row has.
        last = last_of_each_key(rows.select(list(key)).columns)
        image = rows.select(batch.table.arrow.names)
        arrays = [*_fit_columns(image, columns), batch.op, batch.origin.column("seq"), missing]
        return pa.RecordBatch.from_arrays([a.take(last) for a in arrays], schema=schema)

    return unpack


def first_versions(columns: pa.Schema) -> Unpack:
    """Makes versions that begin with a snapshot row; for batches of snapshot rows."""
    schema = pa.schema([*columns, *VERSION_FIELDS])

    def unpack(batch: ChangeBatch) -> pa.RecordBatch:
        n = len(batch)
        versions = [
            _commit_times(batch),
            pa.nulls(n, _INSTANT),
            pa.array(np.ones(n, dtype=bool)),
            batch.origin.column("seq"),
        ]
        return pa.RecordBatch.from_arrays([*_fit(batch.image("after"), columns), *versions], schema=schema)

    return unpack


def version_changes(columns: pa.Schema) -> Unpack:
    """Makes a row of each change, with its time; a delete has the old row."""
    schema = pa.schema([*columns, *CHANGE_FIELDS])

    def unpack(batch: ChangeBatch) -> pa.RecordBatch:
        _require_whole_rows(batch)
        image = to_rows(batch).select(batch.table.arrow.names)
        change = [batch.op, batch.origin.column("seq"), _commit_times(batch)]
        return pa.RecordBatch.from_arrays([*_fit_columns(image, columns), *change], schema=schema)

    return unpack


def remaining_keys(keys: pa.Schema) -> Unpack:
    """Makes the keys (columns `keys`) of the rows that a batch's changes leave: those of no delete.

    Changes from before the table had these columns leave none.
    """

    def unpack(batch: ChangeBatch) -> pa.RecordBatch:
        if None in column_indices(batch.table.arrow.names, keys.names):
            return pa.RecordBatch.from_pylist([], schema=keys)
        image = to_rows(batch).select(batch.table.arrow.names)
        rows = pa.RecordBatch.from_arrays(_fit_columns(image, keys), schema=keys)
        return rows.filter(pc.not_equal(batch.op, _DELETE))

    return unpack


def log_fields(columns: pa.Schema) -> pa.Schema:
    """The columns of a change log of tables with `columns`."""
    old = [pa.field("_before", pa.struct(list(columns))), pa.field("_absent_before", ABSENT_TYPE)]
    return pa.schema([*columns, *ROW_FIELDS, *old])


def log_rows(columns: pa.Schema) -> Unpack:
    """Makes a row of each change, with the old row of an update."""
    schema = log_fields(columns)

    def unpack(batch: ChangeBatch) -> pa.RecordBatch:
        rows = to_rows(batch)
        image = rows.select(batch.table.arrow.names)
        updated = pc.equal(batch.op, OP_UPDATE)
        if batch.before is None or not pc.any(updated).as_py():
            before = pa.nulls(len(batch), schema.field("_before").type)
        else:
            before = pa.StructArray.from_arrays(
                _fit(batch.before, columns), fields=list(columns), mask=pc.invert(updated)
            )
        origin = [rows.column(field.name) for field in ROW_FIELDS]
        arrays = [*_fit_columns(image, columns), *origin, before, absent(batch, IN_OLD)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return unpack


def absent_names(batch: ChangeBatch, columns: Sequence[str]) -> pa.ListArray:
    """For each change the names of those `columns` that its row lacks, null if it lacks none.

    Raises:
        SinkError: a new row, or one with a new key, lacks columns: there is no old value to keep.
    """
    missing = {name.lower() for name in batch.absent_after}
    names = [name for name in columns if name.lower() in missing]
    if not names:
        return pa.nulls(len(batch), ABSENT_TYPE)
    if pc.any(pc.equal(batch.op, _CREATE)).as_py():
        raise lacks_columns(batch, "a new row, or one with a new key,")
    return pa.repeat(pa.scalar(names, ABSENT_TYPE), len(batch))


def _require_whole_rows(batch: ChangeBatch) -> None:
    """Reject changes whose rows lack columns: every version is a row of its own.

    Raises:
        SinkError: the log left columns out.
    """
    if batch.absent_after:
        raise lacks_columns(batch, "a version of a row")


def lacks_columns(batch: ChangeBatch, row: str = "a row") -> SinkError:
    """The error for a row that the log does not hold as a whole."""
    return SinkError(
        f"{row} of `{batch.table.id}` is in the log without all of its columns",
        f"the columns {', '.join(batch.absent_after)} were left out when the change was logged",
        "MySQL: SET PERSIST binlog_row_image = FULL, let sessions reconnect; PostgreSQL (unchanged TOAST"
        f" values): ALTER TABLE {batch.table.id.sql} REPLICA IDENTITY FULL; then begin a new stream; or use a"
        " change log, which names absent columns: sink: {type: delta, mode: changelog}",
        code="TR-4405",
    )


def _commit_times(batch: ChangeBatch) -> pa.Array:
    us = batch.origin.column("ts_us")
    known = pc.if_else(pc.equal(us, _UNKNOWN), pa.scalar(None, pa.int64()), us)
    return known.cast(_INSTANT)


def _fit(image: pa.StructArray, columns: pa.Schema) -> list[pa.Array]:
    """The fields of `image` as `columns`."""
    return _fit_columns(
        pa.RecordBatch.from_arrays(image.flatten(), names=[field.name for field in image.type]), columns
    )


def _fit_columns(rows: pa.RecordBatch, columns: pa.Schema) -> list[pa.Array]:
    arrays = []
    for field, i in zip(columns, column_indices(rows.schema.names, columns.names), strict=True):
        if i is None:
            arrays.append(pa.nulls(rows.num_rows, field.type))
            continue
        array = rows.column(i)
        if pa.types.is_duration(array.type):
            array = array.cast(stored_type(array.type))
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return arrays

"""From cells to the rows to write, in Spark's tasks, column by column.

    snapshot cells    the rows, unchanged                                       -> one set of inserts
    log cells         the last change of each key in a cell, by key bucket      (`split_by_bucket`)
                      the last change of each key in a bucket                   (`last_changes`)
                                                                                -> deletes, updates, upserts

An update with columns missing from the log is composed with the changes before it (`sinks.tables.keys`). A
column that is still absent keeps its value in the target: each set of absent columns has its own
`RowChanges`.

The rows of a `RowChanges` are sorted by key: index maintenance in the database is twice as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.formats.row import positions
from tailrace.kernels.rowhash import hash_rows
from tailrace.model.change import OP_DELETE, ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.reader.schema_projection import fit_batch
from tailrace.sinks.replica.dialect import RowOperation
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.replica.unit_writer import RowChanges
from tailrace.sinks.tables.keys import comparable, composed, lacking, last_of_each_key
from tailrace.sinks.tables.rows import absent_names
from tailrace.sinks.tables.text_form import with_text

#: Columns of a change next to those of its row.
_OP, _SEQ, _SOURCE, _POSITION = "_tailrace_op", "_tailrace_seq", "_tailrace_source", "_tailrace_position"
_ABSENT = "_tailrace_absent"
_DELETE = pa.scalar(OP_DELETE, pa.int8())


def snapshot_inserts(batches: Sequence[ChangeBatch], schema: TargetSchema) -> RowChanges:
    """Snapshot rows as inserts."""
    rows = pa.Table.from_batches(
        [_image(_fitted(b, schema).image("after"), schema) for b in batches], _schema(schema)
    )

    def origin(row: int) -> tuple[str, str]:
        for batch in batches:
            if row < len(batch):
                return str(batch.table.id), positions(batch.slice(row, 1))[0].as_py() or ""
            row -= len(batch)
        raise IndexError(row)

    return RowChanges(RowOperation.INSERT, rows, origin)


def split_by_bucket(
    batch: ChangeBatch, schema: TargetSchema, buckets: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The last change of each key in a cell, by the bucket that the key hashes to.

    Raises:
        SinkError: the log has a partial image of a new row.
    """
    absent = absent_names(batch, schema.arrow.names)
    fitted = _fitted(batch, schema)
    keys = [fitted_column(fitted, name) for name in schema.key]
    # all rows of a cell lack the same columns: an earlier change cannot supply them
    last = last_of_each_key(keys)
    fitted, keys = fitted.take(last), [key.take(last) for key in keys]
    rows = _with_origin(fitted, absent.take(last), schema)
    if buckets == 1:
        yield 0, rows
        return
    numbers = (hash_rows([comparable(key) for key in keys], len(last)) >> np.uint64(40)) % np.uint64(buckets)
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(buckets + 1))
    for bucket in range(buckets):
        if ends[bucket] < ends[bucket + 1]:
            yield bucket, rows.take(pa.array(order[ends[bucket] : ends[bucket + 1]]))


def changed_keys(batch: ChangeBatch, schema: TargetSchema) -> pa.RecordBatch:
    """The keys of all changes; some may come more than once."""
    fitted = _fitted(batch, schema.of_keys)
    return pa.RecordBatch.from_arrays([fitted_column(fitted, n) for n in schema.key], list(schema.key))


def last_changes(batches: Sequence[pa.RecordBatch], schema: TargetSchema) -> list[RowChanges]:
    """The last change of each key in a bucket, in the order to write them."""
    rows = pa.Table.from_batches(batches)
    if len(batches) > 1:
        rows = composed(rows.take(pc.sort_indices(rows.column(_SEQ))), schema.key, _ABSENT)
    order = [(name, "ascending") for name in schema.key]
    plain = pa.Table.from_arrays([comparable(rows.column(n)) for n in schema.key], list(schema.key))
    rows = rows.take(pc.sort_indices(plain, sort_keys=order))
    deleted = pc.equal(rows.column(_OP), _DELETE)
    # deletes first: an upsert may reuse a unique value of a deleted row
    return [
        *_row_changes(RowOperation.DELETE, rows.filter(deleted), schema),
        *_by_absent_columns(rows.filter(pc.invert(deleted)), schema),
    ]


def _by_absent_columns(rows: pa.Table, schema: TargetSchema) -> Iterator[RowChanges]:
    """Changes for each set of absent columns; complete rows come last."""
    lacks = lacking(rows.column(_ABSENT))
    if not lacks:
        yield from _row_changes(RowOperation.UPSERT, rows, schema)
        return
    names = np.array(list(lacks))
    sets, numbers = np.unique(np.stack(list(lacks.values()), axis=1), axis=0, return_inverse=True)
    for number in reversed(range(len(sets))):
        selected = rows.filter(pa.array(numbers.reshape(-1) == number))
        absent = tuple(names[sets[number]].tolist())
        yield from _row_changes(
            RowOperation.UPDATE if absent else RowOperation.UPSERT, selected, schema.without(absent), absent
        )


def _row_changes(
    operation: RowOperation, rows: pa.Table, schema: TargetSchema, absent: tuple[str, ...] = ()
) -> Iterator[RowChanges]:
    """The rows as changes; nothing if there is nothing to write."""
    if rows.num_rows and (operation is not RowOperation.UPDATE or len(schema.columns) > len(schema.key)):
        yield RowChanges(operation, rows.select(schema.arrow.names), _origin(rows), absent)


def fitted_column(batch: ChangeBatch, name: str) -> pa.Array:
    """A column of the changed rows: the image before a delete, the image after any other change."""
    index = batch.table.arrow.get_field_index(name)
    before, after = (None if i is None else i.flatten()[index] for i in (batch.before, batch.after))
    if before is None or after is None:
        column = after if before is None else before
        assert column is not None
        return column
    return pc.if_else(pc.equal(batch.op, _DELETE), before, after)


def _fitted(batch: ChangeBatch, schema: TargetSchema) -> ChangeBatch:
    """`batch` with the columns of the target, of which some may have become text."""
    table = schema.table_schema
    fitted = fit_batch(with_text(batch, table.arrow, lambda type_: type_), table)
    if fitted.after is None or not (empty := _empty_where_lacking(batch.table, schema)):
        return fitted
    columns = [
        pc.fill_null(column, pa.scalar([], field.type)) if field.name in empty else column
        for field, column in zip(table.arrow, fitted.after.flatten(), strict=True)
    ]
    after = pa.StructArray.from_arrays(columns, fields=list(table.arrow), mask=fitted.after.is_null())
    return replace(fitted, after=after)


def _empty_where_lacking(source: TableSchema, schema: TargetSchema) -> set[str]:
    """The lists that rows of the schema `source` may lack and that the target does not let be NULL."""
    there = {column.name.lower() for column in source.columns if not column.gone}
    return {
        column.name
        for column in schema.columns
        if not column.nullable and pa.types.is_list(column.type.arrow) and column.name.lower() not in there
    }


def _with_origin(batch: ChangeBatch, absent: pa.ListArray, schema: TargetSchema) -> pa.RecordBatch:
    n = len(batch)
    arrays = [fitted_column(batch, name) for name in schema.arrow.names]
    arrays += [batch.op, batch.origin.column("seq"), pa.repeat(str(batch.table.id), n), positions(batch)]
    names = [*schema.arrow.names, _OP, _SEQ, _SOURCE, _POSITION, _ABSENT]
    return pa.RecordBatch.from_arrays([*arrays, absent], names)


def _origin(rows: pa.Table) -> Callable[[int], tuple[str, str]]:
    def origin(row: int) -> tuple[str, str]:
        return rows.column(_SOURCE)[row].as_py(), rows.column(_POSITION)[row].as_py() or ""

    return origin


def _image(rows: pa.StructArray, schema: TargetSchema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(rows.flatten(), schema.arrow.names)


def _schema(schema: TargetSchema) -> pa.Schema:
    return pa.schema(list(schema.table_schema.arrow))

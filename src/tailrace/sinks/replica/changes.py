"""Cells to the rows that a target is brought, in Spark's tasks, column by column.

    snapshot cells    rows as they are                                          -> one portion of inserts
    log cells         the last change of each key of a cell, by bucket of keys  (`spread`)
                      the last change of each key of a bucket                   (`last_changes`)
                                                                                -> deletes, updates, upserts

An update of which the log left columns out is composed with the changes before it (`sinks.tables.keys`). What
it lacks still stays as it is in the target: a portion for each set of columns that rows lack.

Rows of a portion are sorted by key: a database's index takes them twice as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.formats.row import positions
from tailrace.kernels.rowhash import hash_rows
from tailrace.model.change import OP_DELETE, ChangeBatch
from tailrace.reader.schema_projection import fit_batch
from tailrace.sinks.replica.dialect import RowOperation
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.replica.unit import Portion
from tailrace.sinks.tables.keys import comparable, composed, lacking, last_of_each_key
from tailrace.sinks.tables.rows import absent_names

#: What a change carries beside its row.
_OP, _SEQ, _SOURCE, _POSITION = "_tailrace_op", "_tailrace_seq", "_tailrace_source", "_tailrace_position"
_ABSENT = "_tailrace_absent"
_DELETE = pa.scalar(OP_DELETE, pa.int8())


def snapshot_portion(batches: Sequence[ChangeBatch], shape: TargetSchema) -> Portion:
    """Snapshot rows as one portion."""
    rows = pa.Table.from_batches(
        [_image(fit_batch(b, shape.schema).image("after"), shape) for b in batches], _schema(shape)
    )

    def origin(row: int) -> tuple[str, str]:
        for batch in batches:
            if row < len(batch):
                return str(batch.table.id), positions(batch.slice(row, 1))[0].as_py() or ""
            row -= len(batch)
        raise IndexError(row)

    return Portion(RowOperation.INSERT, rows, origin)


def spread(batch: ChangeBatch, shape: TargetSchema, buckets: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The last change of each key of a cell, by the bucket that the key hashes to.

    Raises:
        SinkError: the log has a row that is new in parts.
    """
    absent = absent_names(batch, shape.arrow.names)
    fitted = fit_batch(batch, shape.schema)
    keys = [fitted_column(fitted, name) for name in shape.key]
    # all of a cell's rows lack the same columns: what the last one lacks no other one has
    last = last_of_each_key(keys)
    fitted, keys = fitted.take(last), [key.take(last) for key in keys]
    rows = _with_origin(fitted, absent.take(last), shape)
    if buckets == 1:
        yield 0, rows
        return
    numbers = (hash_rows([comparable(key) for key in keys], len(last)) >> np.uint64(40)) % np.uint64(buckets)
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(buckets + 1))
    for bucket in range(buckets):
        if ends[bucket] < ends[bucket + 1]:
            yield bucket, rows.take(pa.array(order[ends[bucket] : ends[bucket + 1]]))


def last_changes(pieces: Sequence[pa.RecordBatch], shape: TargetSchema) -> list[Portion]:
    """The last change of each key of a bucket, as portions."""
    rows = pa.Table.from_batches(pieces)
    if len(pieces) > 1:
        rows = composed(rows.take(pc.sort_indices(rows.column(_SEQ))), shape.key, _ABSENT)
    order = [(name, "ascending") for name in shape.key]
    plain = pa.Table.from_arrays([comparable(rows.column(n)) for n in shape.key], list(shape.key))
    rows = rows.take(pc.sort_indices(plain, sort_keys=order))
    deleted = pc.equal(rows.column(_OP), _DELETE)
    # deletes first: another row may need their place in a unique index
    return [
        *_portion(RowOperation.DELETE, rows.filter(deleted), shape),
        *_portions_by_columns(rows.filter(pc.invert(deleted)), shape),
    ]


def _portions_by_columns(rows: pa.Table, shape: TargetSchema) -> Iterator[Portion]:
    """Rows by the columns that they lack, those that lack none last."""
    lacks = lacking(rows.column(_ABSENT))
    if not lacks:
        yield from _portion(RowOperation.UPSERT, rows, shape)
        return
    names = np.array(list(lacks))
    sets, numbers = np.unique(np.stack(list(lacks.values()), axis=1), axis=0, return_inverse=True)
    for number in reversed(range(len(sets))):
        of_set = rows.filter(pa.array(numbers.reshape(-1) == number))
        absent = tuple(names[sets[number]].tolist())
        yield from _portion(
            RowOperation.UPDATE if absent else RowOperation.UPSERT, of_set, shape.without(absent), absent
        )


def _portion(
    verb: RowOperation, rows: pa.Table, shape: TargetSchema, absent: tuple[str, ...] = ()
) -> Iterator[Portion]:
    """Rows as a portion; none where there is nothing to write."""
    if rows.num_rows and (verb is not RowOperation.UPDATE or len(shape.columns) > len(shape.key)):
        yield Portion(verb, rows.select(shape.arrow.names), _origin(rows), absent)


def fitted_column(batch: ChangeBatch, name: str) -> pa.Array:
    """A column of the rows that changes show: before a delete, after anything else."""
    at = batch.table.arrow.get_field_index(name)
    before, after = (None if i is None else i.flatten()[at] for i in (batch.before, batch.after))
    if before is None or after is None:
        found = after if before is None else before
        assert found is not None
        return found
    return pc.if_else(pc.equal(batch.op, _DELETE), before, after)


def _with_origin(batch: ChangeBatch, absent: pa.ListArray, shape: TargetSchema) -> pa.RecordBatch:
    n = len(batch)
    arrays = [fitted_column(batch, name) for name in shape.arrow.names]
    arrays += [batch.op, batch.origin.column("seq"), pa.repeat(str(batch.table.id), n), positions(batch)]
    names = [*shape.arrow.names, _OP, _SEQ, _SOURCE, _POSITION, _ABSENT]
    return pa.RecordBatch.from_arrays([*arrays, absent], names)


def _origin(rows: pa.Table) -> Callable[[int], tuple[str, str]]:
    def origin(row: int) -> tuple[str, str]:
        return rows.column(_SOURCE)[row].as_py(), rows.column(_POSITION)[row].as_py() or ""

    return origin


def _image(rows: pa.StructArray, shape: TargetSchema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(rows.flatten(), shape.arrow.names)


def _schema(shape: TargetSchema) -> pa.Schema:
    return pa.schema(list(shape.schema.arrow))

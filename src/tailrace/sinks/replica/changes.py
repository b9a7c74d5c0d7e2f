"""Cells to the rows that a target is brought, in Spark's tasks, column by column.

    snapshot cells    rows as they are                                          -> one portion of inserts
    log cells         the last change of each key of a cell, by bucket of keys  (`spread`)
                      the last change of each key of a bucket                   (`last_changes`)
                                                                                -> deletes, then upserts

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
from tailrace.reader.fit import fit_batch
from tailrace.sinks.keys import comparable, last_of_each_key
from tailrace.sinks.replica.dialect import Verb
from tailrace.sinks.replica.shape import Shape
from tailrace.sinks.replica.unit import Portion
from tailrace.sinks.unpack import require_whole_rows

#: What a change carries beside its row.
_OP, _SEQ, _SOURCE, _POSITION = "_tailrace_op", "_tailrace_seq", "_tailrace_source", "_tailrace_position"
_DELETE = pa.scalar(OP_DELETE, pa.int8())


def snapshot_portion(batches: Sequence[ChangeBatch], shape: Shape) -> Portion:
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

    return Portion(Verb.INSERT, rows, origin)


def spread(batch: ChangeBatch, shape: Shape, buckets: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The last change of each key of a cell, by the bucket that the key hashes to.

    Raises:
        SinkError: the log has parts of rows.
    """
    require_whole_rows(batch)
    fitted = fit_batch(batch, shape.schema)
    keys = [fitted_column(fitted, name) for name in shape.key]
    last = last_of_each_key(keys)
    fitted, keys = fitted.take(last), [key.take(last) for key in keys]
    rows = _with_origin(fitted, shape)
    if buckets == 1:
        yield 0, rows
        return
    numbers = (hash_rows([comparable(key) for key in keys], len(last)) >> np.uint64(40)) % np.uint64(buckets)
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(buckets + 1))
    for bucket in range(buckets):
        if ends[bucket] < ends[bucket + 1]:
            yield bucket, rows.take(pa.array(order[ends[bucket] : ends[bucket + 1]]))


def last_changes(pieces: Sequence[pa.RecordBatch], shape: Shape) -> list[Portion]:
    """The last change of each key of a bucket, as portions."""
    rows = pa.Table.from_batches(pieces)
    if len(pieces) > 1:
        rows = rows.take(pc.sort_indices(rows.column(_SEQ)))
        rows = rows.take(last_of_each_key([rows.column(name).combine_chunks() for name in shape.key]))
    order = [(name, "ascending") for name in shape.key]
    plain = pa.Table.from_arrays([comparable(rows.column(n)) for n in shape.key], list(shape.key))
    rows = rows.take(pc.sort_indices(plain, sort_keys=order))
    deleted = pc.equal(rows.column(_OP), _DELETE)
    portions = []
    # deletes first: another row may need their place in a unique index
    for verb, mask in ((Verb.DELETE, deleted), (Verb.UPSERT, pc.invert(deleted))):
        of_verb = rows.filter(mask)
        if of_verb.num_rows:
            portions.append(Portion(verb, of_verb.select(shape.arrow.names), _origin(of_verb)))
    return portions


def fitted_column(batch: ChangeBatch, name: str) -> pa.Array:
    """A column of the rows that changes show: before a delete, after anything else."""
    at = batch.table.arrow.get_field_index(name)
    before, after = (None if i is None else i.flatten()[at] for i in (batch.before, batch.after))
    if before is None or after is None:
        found = after if before is None else before
        assert found is not None
        return found
    return pc.if_else(pc.equal(batch.op, _DELETE), before, after)


def _with_origin(batch: ChangeBatch, shape: Shape) -> pa.RecordBatch:
    n = len(batch)
    arrays = [fitted_column(batch, name) for name in shape.arrow.names]
    arrays += [batch.op, batch.origin.column("seq"), pa.repeat(str(batch.table.id), n), positions(batch)]
    return pa.RecordBatch.from_arrays(arrays, [*shape.arrow.names, _OP, _SEQ, _SOURCE, _POSITION])


def _origin(rows: pa.Table) -> Callable[[int], tuple[str, str]]:
    def origin(row: int) -> tuple[str, str]:
        return rows.column(_SOURCE)[row].as_py(), rows.column(_POSITION)[row].as_py() or ""

    return origin


def _image(rows: pa.StructArray, shape: Shape) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(rows.flatten(), shape.arrow.names)


def _schema(shape: Shape) -> pa.Schema:
    return pa.schema(list(shape.schema.arrow))

"""Reading a log split: the changes of the range up to the snapshot cursors, with key updates split in two.

A change belongs to the batch iff its key is less than or equal to its table's cursor in the batch's *start*
offset. Rows with greater keys are read later by a snapshot split, as of a later position. This comparison is
the whole hand-over between snapshot and log (docs/design/0001-as-of-snapshots.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import concerning
from tailrace.model.change import OP_CREATE, OP_DELETE, OP_UPDATE, ChangeBatch
from tailrace.model.key import key_changed, key_of
from tailrace.model.split import LogSplit
from tailrace.model.table import TableSchema
from tailrace.sources.base import Session


def read_log(split: LogSplit, session: Session, *, skips_unchanged: bool = False) -> Iterator[ChangeBatch]:
    """The changes of `split` that belong to its batch, in log order per table.

    Args:
        split: the split.
        session: a session with the database.
        skips_unchanged: whether to leave out updates that change no captured column. A target has such rows
            already, or the rows are read later.

    Raises:
        SchemaMismatchError: a table's key has other columns than the cursor of its snapshot.
    """
    for batch in session.changes(split):
        with concerning(batch.table.id):
            changes = split_key_updates(batch)
            if skips_unchanged and not len(changes := without_unchanged(changes)):
                continue
            cursor = split.cursors.get(changes.table.id)
            mask = None
            if cursor is not None:
                _require_key(cursor.table, changes.table)
                mask = session.at_or_below(cursor.table, keys_of(changes), cursor.upto)
        if mask is None:
            yield changes
            continue
        if pc.all(mask).as_py():
            yield changes
        elif pc.any(mask).as_py():
            yield changes.take(pa.array(np.flatnonzero(mask.to_numpy(zero_copy_only=False))))


def without_unchanged(batch: ChangeBatch) -> ChangeBatch:
    """A batch without the updates whose rows are the same before and after, as far as the log shows that."""
    if batch.before is None or batch.after is None or batch.absent_before or batch.absent_after:
        return batch
    same = batch.op.to_numpy() == OP_UPDATE
    for old, new in zip(batch.before.flatten(), batch.after.flatten(), strict=True):
        if not same.any():
            return batch
        same &= _equal(old, new)
    return batch if not same.any() else batch.take(pa.array(np.flatnonzero(~same)))


def _equal(old: pa.Array, new: pa.Array) -> np.ndarray:
    """For each value whether it is the same; NULL equals NULL."""
    both_null = pc.and_(old.is_null(), new.is_null()).to_numpy(zero_copy_only=False)
    if pa.types.is_nested(old.type):  # Arrow does not compare lists; texts tell 0.0 from -0.0
        pairs = zip(old.to_pylist(), new.to_pylist(), strict=True)
        found = np.array([repr(a) == repr(b) for a, b in pairs], bool)
    else:
        if pa.types.is_floating(old.type):
            bits = pa.int32() if old.type == pa.float32() else pa.int64()
            old, new = old.view(bits), new.view(bits)
        found = pc.fill_null(pc.equal(old, new), False).to_numpy(zero_copy_only=False)
    equal: np.ndarray = found | both_null
    return equal


def _require_key(cursor: TableSchema, changes: TableSchema) -> None:
    """Raise KeyChangedError if changes have another key than the cursor; either may be the newer one."""
    error = key_changed(key_of(cursor), changes)
    if error is not None and key_changed(key_of(changes), cursor) is not None:
        raise error


def split_key_updates(batch: ChangeBatch) -> ChangeBatch:
    """Split every update that changes the key into a delete of the old row and a create of the new row.

    Both halves keep the origin; the second one's `seq` is one higher (the source leaves a gap for it).
    """
    if batch.before is None or batch.after is None or not batch.table.key:
        return batch
    moved = _key_changed(batch)
    if not moved.any():
        return batch
    n = len(batch)
    counts = np.where(moved, 2, 1)
    indices = np.repeat(np.arange(n), counts)
    ends = np.cumsum(counts)
    second = np.zeros(len(indices), bool)
    second[ends[moved] - 1] = True
    first = np.zeros(len(indices), bool)
    first[ends[moved] - 2] = True
    wide = batch.take(pa.array(indices))
    op = wide.op.to_numpy().copy()
    op[first], op[second] = OP_DELETE, OP_CREATE
    assert wide.before is not None
    assert wide.after is not None
    seq = wide.origin.column("seq")
    bumped = pc.binary_join_element_wise(pc.utf8_slice_codeunits(seq, 0, 31), _next_digit(seq), "")
    columns = list(wide.origin.columns)
    columns[wide.origin.schema.get_field_index("seq")] = pc.if_else(pa.array(second), bumped, seq)
    return replace(
        wide,
        op=pa.array(op),
        before=nulled(wide.before, second),
        after=nulled(wide.after, first),
        origin=pa.RecordBatch.from_arrays(columns, schema=wide.origin.schema),
    )


def keys_of(batch: ChangeBatch) -> pa.StructArray:
    """Each change's key: from the before image of a delete, from the after image otherwise."""
    if batch.after is None:
        return key_columns(batch.before, batch.table.key)
    if batch.before is None:
        return key_columns(batch.after, batch.table.key)
    deleted = pc.equal(batch.op, pa.scalar(OP_DELETE, pa.int8()))
    before, after = key_columns(batch.before, batch.table.key), key_columns(batch.after, batch.table.key)
    return pa.StructArray.from_arrays(
        [pc.if_else(deleted, before.field(i), after.field(i)) for i in range(len(batch.table.key))],
        names=list(batch.table.key),
    )


def key_columns(rows: pa.StructArray, key: tuple[str, ...]) -> pa.StructArray:
    """The key columns in key order, ignoring nulls of the rows themselves."""
    return pa.StructArray.from_arrays([rows.field(name) for name in key], names=list(key))


def nulled(images: pa.StructArray, rows: np.ndarray) -> pa.StructArray:
    """`images` with null where `rows` is true."""
    present = images.is_valid().to_numpy(zero_copy_only=False) & ~rows
    return pa.StructArray.from_arrays(
        [images.field(i) for i in range(images.type.num_fields)],
        fields=list(images.type),
        mask=pa.array(~present),
    )


def _key_changed(batch: ChangeBatch) -> np.ndarray:
    assert batch.before is not None
    assert batch.after is not None
    updates = batch.op.to_numpy() == OP_UPDATE
    changed = np.zeros(len(batch), bool)
    if not updates.any():
        return changed
    for name in batch.table.key:
        different = pc.not_equal(batch.before.field(name), batch.after.field(name))
        changed |= pc.fill_null(different, False).to_numpy(zero_copy_only=False)
    moved: np.ndarray = changed & updates
    return moved


def _next_digit(seq: pa.StringArray) -> pa.StringArray:
    """The last hex digit of each `seq`, which is even, plus one."""
    digit = pc.utf8_slice_codeunits(seq, 31, 32)
    index = pc.index_in(digit, pa.array(list("02468ace")))
    return pa.array(list("13579bdf")).take(index)

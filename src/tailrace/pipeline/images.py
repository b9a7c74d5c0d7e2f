"""Changes as a table of row images, and back, so that one projection applies to before and after. Pure.

A change becomes one or two rows: its before image, then its after image, both with the table's columns:

    id  name  ...  _change  _side    _keep      of the change
    1   a           0       BEFORE   true       u: before
    1   b           0       AFTER    true       u: after
    2   c           1       BEFORE   false      d

After a transform that treats such rows one by one and in order, `Repack` pairs them again. A row that is not
kept is removed from the table, and the operation changes accordingly:

    before kept   after kept   r, c     u     d
    yes           yes                   u
    yes           no                    d     d
    no            yes          r, c     c
    no            no           -        -     -

The log may hold an update without its before image (PostgreSQL, REPLICA IDENTITY DEFAULT). Whether that row
was kept is unknown: the update stays an update if the new row is kept, and else becomes a delete of its key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SinkError
from tailrace.model.change import OP_CREATE, OP_DELETE, OP_READ, OP_REREAD, OP_UPDATE, ORIGIN, ChangeBatch
from tailrace.model.table import TableSchema

BEFORE, AFTER = 0, 1
#: Prefix of the columns that are not the table's own.
SYSTEM = "__tailrace_"
_PLAIN_ORIGIN = tuple(
    pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in ORIGIN
)
#: Columns that `Repack` pairs rows by; with them SALT, null if no values are hashed.
SYSTEM_FIELDS = (
    pa.field(f"{SYSTEM}change", pa.int64()),
    pa.field(f"{SYSTEM}side", pa.int8()),
    pa.field(f"{SYSTEM}op", pa.int8()),
    pa.field(f"{SYSTEM}absent", pa.string()),
    *(pa.field(f"{SYSTEM}{f.name}", f.type) for f in _PLAIN_ORIGIN),
)
SALT = pa.field(f"{SYSTEM}salt", pa.string())
KEEP = f"{SYSTEM}keep"
#: Columns that an expression may name besides the table's own, as in Flink CDC.
METADATA = (
    pa.field("__namespace_name__", pa.string()),
    pa.field("__schema_name__", pa.string()),
    pa.field("__table_name__", pa.string()),
    pa.field("__data_event_type__", pa.string()),
)
_EVENT_TYPES = pa.array(["+I", "+I", "-U", "+U", "-D"])


def image_schema(table: TableSchema) -> pa.Schema:
    """The columns of `to_images`."""
    return pa.schema([*table.arrow, *METADATA, *SYSTEM_FIELDS, SALT])


def to_images(batch: ChangeBatch, first: int, salt: str | None) -> pa.RecordBatch:
    """The images of `batch`'s changes, in order.

    Args:
        batch: n changes.
        first: number of the first change.
        salt: the salt of hashed values; None: no values are hashed.
    """
    op = batch.op.to_numpy(zero_copy_only=False)
    has_before = np.isin(op, (OP_UPDATE, OP_DELETE)) & (batch.before is not None)
    has_after = op != OP_DELETE
    rows = has_before.astype(np.int64) + has_after
    change = np.repeat(np.arange(len(op)), rows)
    begins = np.r_[True, change[1:] != change[:-1]] if len(change) else np.zeros(0, bool)
    side = np.where(begins & has_before[change], BEFORE, AFTER).astype(np.int8)
    before, after = (
        batch.image(name).take(pa.array(change[side == s])).flatten()
        for s, name in ((BEFORE, "before"), (AFTER, "after"))
    )
    order = np.empty(len(change), np.int64)
    order[side == BEFORE] = np.arange((side == BEFORE).sum())
    order[side == AFTER] = (side == BEFORE).sum() + np.arange((side == AFTER).sum())
    columns = [
        pa.chunked_array([b, a]).combine_chunks().take(pa.array(order))
        for b, a in zip(before, after, strict=True)
    ]
    ops = op[change]
    kind = np.where(ops == OP_DELETE, 4, np.where(ops == OP_UPDATE, 2 + side, 0))
    n = len(change)
    origin = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.origin.take(pa.array(change)).columns
    ]
    absent = json.dumps([batch.absent_before, batch.absent_after])
    arrays = [
        *columns,
        pa.repeat("", n),
        pa.repeat(batch.table.id.database, n),
        pa.repeat(batch.table.id.table, n),
        _EVENT_TYPES.take(pa.array(kind)),
        pa.array(change + first),
        pa.array(side),
        pa.array(ops.astype(np.int8)),
        pa.repeat(absent, n),
        *origin,
        pa.repeat(salt, n).cast(pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=image_schema(batch.table))


@dataclass(frozen=True)
class Repack:
    """Converts images to changes again.

    Args:
        table: the schema of the transformed table.
        skipped: operations (codes) whose changes are left out.
        soft_delete: a delete becomes an update that keeps the row.
        sources: of each column the source column, None for a computed one; absent columns are renamed by it.
        shard: a computed column that needs no other one; None: there is none.
        moving: the columns of its key that a row may change and keep the source's key.
    """

    table: TableSchema
    skipped: frozenset[int]
    soft_delete: bool
    sources: Mapping[str, str | None]
    shard: str | None = None
    moving: frozenset[str] = frozenset()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[ChangeBatch]:
        """The changes of images in order; a batch may end between the two images of a change.

        Raises:
            SinkError: an expression, or the key, needs a column that the log left out.
        """
        held: pa.RecordBatch | None = None
        for batch in batches:
            rows = batch if held is None else _joined(held, batch)
            held = None
            if rows.num_rows == 0:
                continue
            if rows.column(f"{SYSTEM}side")[-1].as_py() == BEFORE:
                # Its after image may be the first row of the next batch.
                held, rows = rows.slice(rows.num_rows - 1), rows.slice(0, rows.num_rows - 1)
            yield from self._changes(rows)
        if held is not None:
            yield from self._changes(held)

    def _changes(self, rows: pa.RecordBatch) -> Iterator[ChangeBatch]:
        if rows.num_rows == 0:
            return
        for start, end in _runs(rows):
            batch = self._batch(rows.slice(start, end - start))
            if len(batch):
                yield batch

    def _batch(self, rows: pa.RecordBatch) -> ChangeBatch:
        change = rows.column(f"{SYSTEM}change").to_numpy()
        side = rows.column(f"{SYSTEM}side").to_numpy()
        self._require_former_keys(rows)
        keep = pc.fill_null(rows.column(KEEP), False).to_numpy(zero_copy_only=False)
        first = np.flatnonzero(np.r_[True, change[1:] != change[:-1]])
        last = np.r_[first[1:], len(change)] - 1
        op = rows.column(f"{SYSTEM}op").to_numpy()[first].astype(np.int8)
        before = np.where((side[first] == BEFORE) & keep[first], first, -1)
        after = np.where((side[last] == AFTER) & keep[last], last, -1)
        if self.soft_delete:
            deleted = op == OP_DELETE
            after, op = np.where(deleted, before, after), np.where(deleted, OP_UPDATE, op)
        updated = op == OP_UPDATE
        had_before = side[first] == BEFORE
        op = np.where(updated & had_before & (before < 0), OP_CREATE, op)
        before = np.where(updated & ~had_before & (after < 0), first, before)
        op = np.where(updated & (after < 0), OP_DELETE, op)
        kept = ((before >= 0) | (after >= 0)) & ~np.isin(op, list(self.skipped))
        first, before, after, op = first[kept], before[kept], after[kept], op[kept]
        origin = rows.select([f.name for f in SYSTEM_FIELDS[-len(ORIGIN) :]]).take(pa.array(first))
        absent_before, absent_after = self._absent(rows)
        batch = ChangeBatch(
            self.table,
            pa.array(op.astype(np.int8)),
            self._image(rows, before),
            self._image(rows, after),
            pa.RecordBatch.from_arrays(
                [c.cast(f.type) for c, f in zip(origin.columns, ORIGIN, strict=True)], schema=ORIGIN
            ),
            absent_before,
            absent_after,
        )
        return _split_key_updates(batch)

    def _require_former_keys(self, rows: pa.RecordBatch) -> None:
        """Refuse changes whose former row may have had another key, which the log does not tell.

        Raises:
            SinkError: there is one.
        """
        op, side = rows.column(f"{SYSTEM}op").to_numpy(), rows.column(f"{SYSTEM}side").to_numpy()
        changes = rows.column(f"{SYSTEM}change").to_numpy()
        first = np.r_[True, changes[1:] != changes[:-1]]
        changed = first & np.isin(op, (OP_UPDATE, OP_DELETE))
        if not self.moving or not changed.any():
            return
        absent = frozenset(json.loads(rows.column(f"{SYSTEM}absent")[0].as_py())[0])
        has_no_image = bool((changed & (side != BEFORE)).any())
        unknown = [name for name in self.moving if has_no_image or self.sources[name] in absent]
        if unknown:
            raise SinkError(
                f"the key of `{self.table.id}` in its transform needs whole rows",
                f"the log holds changes without the former value of `{min(unknown)}`, so the row under its"
                " former key could not be found",
                "let the source log whole rows: binlog_row_image = FULL, or REPLICA IDENTITY FULL",
                code="TR-4405",
            )

    def _image(self, rows: pa.RecordBatch, index: npt.NDArray[np.int64]) -> pa.StructArray | None:
        if not (index >= 0).any():
            return None
        missing = index < 0
        taken = pa.array(np.where(missing, 0, index))
        columns = [rows.column(f.name).cast(f.type).take(taken) for f in self.table.arrow]
        return pa.StructArray.from_arrays(columns, fields=list(self.table.arrow), mask=pa.array(missing))

    def _absent(self, rows: pa.RecordBatch) -> tuple[tuple[str, ...], tuple[str, ...]]:
        before, after = (frozenset(names) for names in json.loads(rows.column(f"{SYSTEM}absent")[0].as_py()))
        if not (before or after):
            return (), ()
        computed = [name for name, source in self.sources.items() if source is None and name != self.shard]
        if computed:
            raise SinkError(
                f"a transform of `{self.table.id}` needs whole rows",
                f"`{computed[0]}` is computed, and the log holds rows without "
                + ", ".join(f"`{name}`" for name in sorted(before | after)),
                "let the source log whole rows: binlog_row_image = FULL, or REPLICA IDENTITY FULL",
                code="TR-4405",
            )
        names = [
            tuple(name for name, source in self.sources.items() if source in side) for side in (before, after)
        ]
        return names[0], names[1]


def _joined(held: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
    (joined,) = pa.Table.from_batches([held, batch]).combine_chunks().to_batches()
    return joined


def _runs(rows: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Ranges of rows that can be one batch: they lack the same columns; if they were read, of one origin."""
    absent = rows.column(f"{SYSTEM}absent").dictionary_encode().indices.to_numpy()
    differs = absent[1:] != absent[:-1]
    if rows.column(f"{SYSTEM}op")[0].as_py() in (OP_READ, OP_REREAD):
        seq = rows.column(f"{SYSTEM}seq").dictionary_encode().indices.to_numpy()
        differs |= seq[1:] != seq[:-1]
    starts = [0, *(np.flatnonzero(differs) + 1).tolist()]
    yield from zip(starts, [*starts[1:], rows.num_rows], strict=True)


def _split_key_updates(batch: ChangeBatch) -> ChangeBatch:
    """`batch` with each update of a key as a delete of the old key and a create of the new one."""
    if batch.before is None or batch.after is None or not batch.table.key:
        return batch
    known = [name for name in batch.table.key if name not in (*batch.absent_before, *batch.absent_after)]
    moved = np.zeros(len(batch), bool)
    for name in known:
        old, new = batch.before.field(name), batch.after.field(name)
        same = pc.fill_null(pc.equal(old, new), False).to_numpy(zero_copy_only=False)
        both_null = pc.and_(pc.is_null(old), pc.is_null(new)).to_numpy(zero_copy_only=False)
        moved |= ~(same | both_null)
    moved &= batch.op.to_numpy() == OP_UPDATE
    if not moved.any():
        return batch
    index = np.repeat(np.arange(len(batch)), 1 + moved)
    second = np.r_[False, index[1:] == index[:-1]]
    first = moved[index] & ~second
    split = batch.take(pa.array(index))
    op = split.op.to_numpy().copy()
    op[first], op[second] = OP_DELETE, OP_CREATE
    return ChangeBatch(
        batch.table,
        pa.array(op),
        _without(split.before, second),
        _without(split.after, first),
        split.origin.set_column(0, "seq", _next_seq(split.origin.column("seq"), second)),
        batch.absent_before,
        batch.absent_after,
    )


def _without(image: pa.StructArray | None, gone: npt.NDArray[np.bool_]) -> pa.StructArray:
    assert image is not None
    mask = pc.or_(image.is_null(), pa.array(gone))
    return pa.StructArray.from_arrays(image.flatten(), fields=list(image.type), mask=mask)


def _next_seq(seq: pa.Array, which: npt.NDArray[np.bool_]) -> pa.Array:
    """The place right behind, which log readers leave free (see `sources`): the last digit is even."""
    last = pc.utf8_slice_codeunits(seq, -1)
    after = pa.array(list("13579bdf")).take(pc.index_in(last, pa.array(list("02468ace"))))
    return pc.if_else(
        pa.array(which), pc.binary_join_element_wise(pc.utf8_slice_codeunits(seq, 0, -1), after, ""), seq
    )

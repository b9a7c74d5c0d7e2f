"""Rewind: rows selected at any later moment, put back to what they were at position P.

A SELECT that ran after P saw some state between P and H, the log's end after it. For every key that the log
touches in (P, H], the *first* event decides what the row was at P: an insert means it did not exist, an
update or delete carries it as its before image. Keys that were not touched are as selected. So

    rows at P = (selected rows whose key was not touched) + (first before images of the touched keys)

and the result does not depend on when the SELECT ran, nor on whether it saw a given event. Keys are compared
by their bytes, never by collation: an update of 'a' to 'A' is a delete of one key and an insert of the other,
and each is undone by itself.

Some logs hold just the key of the row before a change (PostgreSQL without REPLICA IDENTITY FULL). What such a
row was at P is not known: it stays as it was selected, which is newer. One that was inserted is left out all
the same, so nothing comes twice but in the shape of an update.

Pure: no server, no clock. The property test rebuilds tables from random histories and compares.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SchemaMismatchError
from tailrace.model.change import OP_CREATE, ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.reader.log import key_columns, keys_of, split_key_updates, without
from tailrace.reader.schema_projection import fit_keys, fit_rows

#: Changes that may wait before those of the same key are put together.
_PENDING = 65_536


class Rewind:
    """The first event of every key touched after P, for one table.

    Args:
        table: shape of the rows to restore; images of another shape are fitted by column name.
        keys_only: whether the log may hold just the key of a row before its change.
    """

    def __init__(self, table: TableSchema, *, keys_only: bool = False) -> None:
        self._table = table
        self._keys_only = keys_only
        key_type = pa.struct([table.arrow.field(name) for name in table.key])
        self._keys = [pa.array([], key_type)]
        self._rows = [pa.array([], table.arrow)]
        #: Whether it is known what the row was, or that there was none.
        self._known = [pa.array([], pa.bool_())]
        self._pending = 0

    @property
    def keys(self) -> pa.StructArray:
        """The keys touched so far, each once."""
        self._compact()
        return self._keys[0]

    def observe(self, batch: ChangeBatch) -> None:
        """Take note of a batch of the table's changes; batches come in log order.

        Raises:
            SchemaMismatchError: its before images are not whole rows, or do not fit the table's shape.
        """
        if batch.absent_before and not self._keys_only:
            raise SchemaMismatchError(
                f"rows of `{self._table.id}` cannot be put back: the log holds parts of rows",
                f"at {_place(batch)} without the columns {', '.join(batch.absent_before)}: "
                "binlog_row_image was not FULL when the change was logged",
                "SET PERSIST binlog_row_image = FULL, let sessions reconnect, then begin a new stream; "
                "or use delivery at-least-once",
            )
        changes = split_key_updates(batch)
        keys = fit_keys(keys_of(changes), self._keys[0].type, self._table)
        known = _known(changes)
        rows = changes.image("before")
        if not pc.all(known).as_py():
            rows = without(rows, ~known.to_numpy(zero_copy_only=False))
        try:
            rows = fit_rows(rows, self._table)
        except SchemaMismatchError:
            # a value of a wider type that came with a schema change: it counts only in a key's first event
            self._compact()
            first = _first_of_each(keys)
            keys, rows, known = keys.take(first), rows.take(first), known.take(first)
            unknown = _not_in(keys, self._keys[0])
            if unknown is not None:
                keys, rows, known = keys.take(unknown), rows.take(unknown), known.take(unknown)
            rows = fit_rows(rows, self._table)
        self._keys.append(keys)
        self._rows.append(rows)
        self._known.append(known)
        self._pending += len(keys)
        if self._pending > max(_PENDING, len(self._keys[0])):
            self._compact()

    def apply(self, selected: pa.StructArray, in_range: pa.BooleanArray) -> pa.StructArray:
        """The rows of a range at P.

        Args:
            selected: rows of the range as the SELECT gave them, in whatever shape the table had then.
            in_range: for each of `keys` whether it lies in the range.

        Returns:
            Rows of type `table.arrow`.

        Raises:
            SchemaMismatchError: a row that was not touched does not fit that type.
        """
        keys = self.keys
        if not len(keys):
            return fit_rows(selected, self._table)
        there = fit_keys(key_columns(selected, self._table.key), keys.type, self._table)
        known = self._known[0]
        untouched = _not_in(there, keys if pc.all(known).as_py() else keys.filter(known))
        kept = fit_rows(selected if untouched is None else selected.take(untouched), self._table)
        existed = pc.and_(in_range, self._rows[0].is_valid())
        restored = self._rows[0].filter(existed)
        return pa.concat_arrays([kept, restored]) if len(restored) else kept

    def _compact(self) -> None:
        if len(self._keys) == 1:
            return
        keys = pa.concat_arrays(self._keys)
        first = _first_of_each(keys)
        # one row image per key: what a later event says of it does not matter
        self._keys, self._rows = [keys.take(first)], [pa.concat_arrays(self._rows).take(first)]
        self._known = [pa.concat_arrays(self._known).take(first)]
        self._pending = 0


def _known(changes: ChangeBatch) -> pa.BooleanArray:
    """For each change whether it tells what the row was before: all of it, or that there was none."""
    created = pc.equal(changes.op, pa.scalar(OP_CREATE, pa.int8()))
    if changes.before is None or changes.absent_before:
        return created
    return pc.or_(created, changes.before.is_valid())


def _place(batch: ChangeBatch) -> str:
    """Where its first change is in the log."""
    return f"`{batch.origin.column('file')[0].as_py()}:{batch.origin.column('pos')[0].as_py()}`"


def _first_of_each(keys: pa.StructArray) -> pa.Array:
    """Indices of the first occurrence of each distinct key, ascending."""
    names = [f"k{i}" for i in range(keys.type.num_fields)]
    columns = [keys.field(i) for i in range(keys.type.num_fields)]
    table = pa.table([*columns, pa.array(np.arange(len(keys)))], names=[*names, "i"])
    first = table.group_by(names, use_threads=False).aggregate([("i", "min")]).column("i_min")
    return pa.array(np.sort(first.to_numpy()))


def _not_in(keys: pa.StructArray, touched: pa.StructArray) -> pa.Array | None:
    """Indices of `keys` that are not in `touched`, or None when that is all of them."""
    if keys.type.num_fields == 1:
        hit = pc.is_in(keys.field(0), touched.field(0))
        if not pc.any(hit).as_py():
            return None
        return pa.array(np.flatnonzero(~hit.to_numpy(zero_copy_only=False)))
    names = [f"k{i}" for i in range(keys.type.num_fields)]
    left = pa.table(
        [*(keys.field(i) for i in range(len(names))), pa.array(np.arange(len(keys)))],
        names=[*names, "i"],
    )
    right = pa.table([touched.field(i) for i in range(len(names))], names=names)
    kept = left.join(right, keys=names, join_type="left anti", use_threads=False).column("i")
    return None if len(kept) == len(keys) else pa.array(np.sort(kept.to_numpy()))

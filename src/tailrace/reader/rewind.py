"""Rewind: reconstruct rows as of position P from rows that were selected later.

A SELECT that ran after P saw some state between P and H, the log's end after it. For every key that the log
touches in (P, H], the *first* event determines the row at P: an insert means that there was none, an update
or delete carries it as its before image. The rows of untouched keys are as selected. So

    rows at P = (selected rows whose key was not touched) + (first before images of the touched keys)

and the result depends neither on when the SELECT ran nor on whether it saw a given event. Keys are compared
by their bytes, never by collation: an update of 'a' to 'A' is a delete of one key and an insert of the other,
and each is undone separately.

Some logs hold only the key of the row before a change (PostgreSQL without REPLICA IDENTITY FULL). Such a
row's state at P is unknown: the row stays as selected, which is newer. A row that was inserted after P is
still left out, so a row can occur twice only as a row and a later update of it.

Pure: no server, no clock. The property test rebuilds tables from random histories and compares.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SchemaMismatchError
from tailrace.model.change import OP_CREATE, ChangeBatch
from tailrace.model.ending import not_as_of_end
from tailrace.model.key import key_changed, key_of
from tailrace.model.table import TableSchema
from tailrace.reader.log import key_columns, keys_of, nulled, split_key_updates
from tailrace.reader.schema_projection import fit_keys, fit_rows, missing_columns
from tailrace.reader.spilled_rows import SpilledRows

#: Changes collected before duplicates of a key are dropped: their number, and their rows' bytes.
_COMPACT_AFTER, _COMPACT_BYTES = 65_536, 16 << 20


class Rewind:
    """The first event of every key touched after P, for one table.

    Args:
        table: schema of the rows to reconstruct; images with another schema are matched by column name.
        keys_only: whether the log may hold only the key of a row before its change.
    """

    def __init__(self, table: TableSchema, *, keys_only: bool = False) -> None:
        self._table = table
        self._keys_only = keys_only
        key_type = pa.struct([table.arrow.field(name) for name in table.key])
        #: The touched keys, each once, and for each its row at P.
        self._keys = pa.array([], key_type)
        self._rows = SpilledRows(table.arrow)
        #: Whether there is a row, and whether that is known.
        self._existed = self._known = pa.array([], pa.bool_())
        #: Keys, rows and whether they are known, collected since the last compaction; number and bytes.
        self._collected: list[tuple[pa.StructArray, pa.StructArray, pa.BooleanArray]] = []
        self._count = self._bytes = 0
        #: Columns of the table that some changes lack: it was altered on the way.
        self.missing: set[str] = set()

    @property
    def keys(self) -> pa.StructArray:
        """The keys touched so far, each once."""
        self._compact()
        return self._keys

    def observe(self, batch: ChangeBatch) -> None:
        """Record a batch of the table's changes; batches come in log order.

        Args:
            batch: changes of the table in (P, H].

        Raises:
            SchemaMismatchError: the before images are not whole rows, or do not fit the table's schema.
        """
        batch = batch.without({*batch.absent_before} - {c.name for c in self._table.columns})
        if batch.absent_before and not self._keys_only:
            raise SchemaMismatchError(
                f"cannot reconstruct snapshot rows of `{self._table.id}`: the log has partial row images",
                f"at {_position(batch)} without the columns {', '.join(batch.absent_before)}: "
                "binlog_row_image was not FULL when the change was logged",
                "SET PERSIST binlog_row_image = FULL, let sessions reconnect, then start a new stream; "
                "or use delivery at-least-once",
                code="TR-4405",
            )
        if batch.table.key != self._table.key and (error := key_changed(key_of(self._table), batch.table)):
            raise error
        changes = split_key_updates(batch)
        keys = fit_keys(keys_of(changes), self._keys.type, self._table)
        known = _known(changes)
        rows = changes.image("before")
        self.missing |= missing_columns(rows.type, self._table)
        if not pc.all(known).as_py():
            rows = nulled(rows, ~known.to_numpy(zero_copy_only=False))
        try:
            rows = fit_rows(rows, self._table)
        except SchemaMismatchError:
            # a value of a wider type after a schema change: it matters only in the first event of a key
            self._compact()
            first = _first_of_each(keys)
            keys, rows, known = keys.take(first), rows.take(first), known.take(first)
            unknown = _not_in(keys, self._keys)
            if unknown is not None:
                keys, rows, known = keys.take(unknown), rows.take(unknown), known.take(unknown)
            rows = fit_rows(rows, self._table)
        self._collected.append((keys, rows, known))
        self._count += len(keys)
        self._bytes += rows.nbytes
        if self._count > max(_COMPACT_AFTER, len(self._keys)) or self._bytes > _COMPACT_BYTES:
            self._compact()

    def apply(self, selected: pa.StructArray, in_range: pa.BooleanArray) -> Iterator[pa.StructArray]:
        """The rows of a range at P, in any order; those that were touched come a few thousand at a time.

        Args:
            selected: rows of the range as the SELECT returned them, with the table's schema at that time.
            in_range: for each of `keys` whether it is in the range.

        Returns:
            Rows of type `table.arrow`.

        Raises:
            SchemaMismatchError: an untouched row does not fit that type.
        """
        keys = self.keys
        if not len(keys):
            yield fit_rows(selected, self._table)
            return
        selected_keys = fit_keys(key_columns(selected, self._table.key), keys.type, self._table)
        known = self._known
        untouched = _not_in(selected_keys, keys if pc.all(known).as_py() else keys.filter(known))
        yield fit_rows(selected if untouched is None else selected.take(untouched), self._table)
        yield from self._rows.where(pc.and_(in_range, self._existed).to_numpy(zero_copy_only=False))

    def _compact(self) -> None:
        """Keep one row per key: later events do not matter."""
        if not self._collected:
            return
        keys, rows, known = (pa.concat_arrays(part) for part in zip(*self._collected, strict=True))
        self._collected, self._count, self._bytes = [], 0, 0
        first = _first_of_each(keys)
        keys = keys.take(first)
        unknown = _not_in(keys, self._keys) if len(self._keys) else None
        if unknown is not None:
            keys, first = keys.take(unknown), first.take(unknown)
        rows = rows.take(first)
        self._keys = pa.concat_arrays([self._keys, keys])
        self._known = pa.concat_arrays([self._known, known.take(first)])
        self._existed = pa.concat_arrays([self._existed, rows.is_valid()])
        self._rows.append(rows)


def require_known(batch: ChangeBatch, behind_end: pa.BooleanArray) -> None:
    """Check that the rows before changes are known that the stream does not come to.

    Args:
        batch: changes of a table.
        behind_end: for each whether it lies behind the stream's end.

    Raises:
        SchemaMismatchError: the log has only the key of one.
    """
    if pc.any(pc.and_(behind_end, pc.invert(_known(batch)))).as_py():
        table = batch.table.id
        raise not_as_of_end(
            table,
            "a row was changed behind it while its table was still to be read, and the log has only the key "
            f"of the row: with ALTER TABLE {table.sql} REPLICA IDENTITY FULL it has the row",
        )


def _known(changes: ChangeBatch) -> pa.BooleanArray:
    """For each change whether it determines the row before it: a whole image, or none for a create."""
    created = pc.equal(changes.op, pa.scalar(OP_CREATE, pa.int8()))
    if changes.before is None or changes.absent_before:
        return created
    return pc.or_(created, changes.before.is_valid())


def _position(batch: ChangeBatch) -> str:
    """The log position of the batch's first change."""
    return f"`{batch.origin.column('file')[0].as_py()}:{batch.origin.column('pos')[0].as_py()}`"


def _first_of_each(keys: pa.StructArray) -> pa.Array:
    """Indices of the first occurrence of each distinct key, ascending."""
    names = [f"k{i}" for i in range(keys.type.num_fields)]
    columns = [keys.field(i) for i in range(keys.type.num_fields)]
    table = pa.table([*columns, pa.array(np.arange(len(keys)))], names=[*names, "i"])
    first = table.group_by(names, use_threads=False).aggregate([("i", "min")]).column("i_min")
    return pa.array(np.sort(first.to_numpy()))


def _not_in(keys: pa.StructArray, touched: pa.StructArray) -> pa.Array | None:
    """Indices of `keys` that are not in `touched`; None if that is all of them."""
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

"""Rows as of a later position, from rows as of an earlier one, of a table without a key: by multiset counts.

As `reader.forward`; a row is identified by its values only, and may occur several times. Each change removes
the row before it and adds the row after it, which is `reader.rewind_rows` read the other way round:

    rows at the end = rows at the begin - rows before the changes + rows after them

So the log must have whole rows. A lost change is noticed where it has left a row that a later one removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace.errors import SchemaMismatchError
from tailrace.model.change import OP_CREATE, ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.reader.forward import contradiction
from tailrace.reader.rewind_rows import RewindRows


def rows_carried_forward(
    rows: Iterable[pa.StructArray], table: TableSchema, changes: Iterable[ChangeBatch | None]
) -> Iterator[pa.StructArray]:
    """The rows after `changes`, in any order.

    Args:
        rows: all rows before them.
        table: the schema of the rows, without a key, and of all changes.
        changes: the changes in log order; None: the table is emptied there.

    Raises:
        SourceError: the changes do not lead on from the rows.
    """
    counts = RewindRows(table)
    for batch in changes:
        if batch is None:
            rows, counts = (), RewindRows(table)
        elif len(batch):
            counts.observe(_inverted(batch))
    yield counts.apply(pa.array([], table.arrow))
    for part in rows:
        yield counts.apply(part)
    try:
        counts.require_all_found()
    except SchemaMismatchError:
        raise contradiction(table, "it removes rows that are not there before it") from None


def _inverted(batch: ChangeBatch) -> ChangeBatch:
    """The changes with their rows before and after exchanged; those are whole."""
    removed = batch.image("before").is_valid().to_numpy(zero_copy_only=False)
    if (~removed & (batch.op.to_numpy() != OP_CREATE)).any():
        raise contradiction(batch.table, "the table has no key, and a change lacks the row before it")
    lacks = {*batch.absent_after, *(batch.absent_before if np.any(removed) else ())}
    if lacks:
        raise contradiction(batch.table, f"the table has no key, and rows lack {', '.join(sorted(lacks))}")
    return replace(batch, before=batch.after, after=batch.before, absent_before=(), absent_after=())

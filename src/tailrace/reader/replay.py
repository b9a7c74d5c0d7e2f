"""Rows as of a later position, from rows as of an earlier one and the changes between: `Rewind` backwards.

What an event did to a row, read backwards, is an event too: a create is a delete, an update has its images
exchanged. So the log from B to P in reverse order, inverted, is a log that leads from P to B, and rewinding
the rows as of B over it gives those as of P. The changes wait in a file: they arrive in the other order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace.model.cell import decode_cell, encode_cell
from tailrace.model.change import OP_CREATE, OP_DELETE, ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.reader.rewind import Rewind


def replayed(
    rows: Iterable[pa.StructArray], table: TableSchema, changes: Iterable[ChangeBatch]
) -> Iterator[pa.StructArray]:
    """The rows after `changes`, in any order.

    Args:
        rows: all rows before them.
        table: the schema of the rows, before and after.
        changes: the changes in log order.

    Raises:
        SchemaMismatchError: the log has not whole rows, or they do not fit the schema.
    """
    with tempfile.TemporaryFile() as file:
        places = []
        for batch in changes:
            cell = encode_cell(batch)
            places.append((file.tell(), cell.size))
            file.write(cell)
        rewind = Rewind(table)
        for at, size in reversed(places):
            file.seek(at)
            rewind.observe(_inverted(decode_cell(file.read(size))))
    yield from undone(rows, table, rewind)


def undone(rows: Iterable[pa.StructArray], table: TableSchema, rewind: Rewind) -> Iterator[pa.StructArray]:
    """All rows of a table, rewound."""
    everything = pa.array(np.ones(len(rewind.keys), bool))
    first = pa.array([], table.arrow)
    yield from rewind.apply(first, everything)
    nothing = pa.array(np.zeros(len(rewind.keys), bool))
    for part in rows:
        yield from rewind.apply(part, nothing)


def _inverted(batch: ChangeBatch) -> ChangeBatch:
    """What undoes the changes, last one first."""
    backwards = batch.take(pa.array(np.arange(len(batch))[::-1]))
    op = backwards.op.to_numpy().copy()
    created, deleted = op == OP_CREATE, op == OP_DELETE
    op[created], op[deleted] = OP_DELETE, OP_CREATE
    return replace(
        backwards,
        op=pa.array(op),
        before=backwards.after,
        after=backwards.before,
        absent_before=batch.absent_after,
        absent_after=batch.absent_before,
    )

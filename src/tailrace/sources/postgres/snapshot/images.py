"""Rows of the log from before a table was altered, by the names that a snapshot split has for its columns.

A repeated batch reconstructs its rows from the log, where they have the columns of their time. The log names
columns and gives them in the order of their numbers in the catalog; it does not give the numbers. So rows are
understood where that suffices:

    the same names in the same order     as they are; columns that were dropped since are left out
    no column was ever dropped           the n-th column of the row is the n-th of the table
    only columns at the end are missing  they were added later

In all other cases a name may mean another column, and the rows are refused: they are never NULL by mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tailrace.errors import SchemaMismatchError
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema


class Images:
    """Names the columns of rows.

    Args:
        table: the split's table.
        numbers: of each of its columns the number in the catalog.
    """

    def __init__(self, table: TableSchema, numbers: Sequence[int]) -> None:
        self._table = table
        self._names = [c.name for c in table.columns]
        self._is_whole = list(numbers) == list(range(1, len(numbers) + 1))

    def named(self, batch: ChangeBatch) -> ChangeBatch:
        """The batch, its columns named as in the split; a batch of another table as it is.

        Raises:
            SchemaMismatchError: it cannot be said which columns they are.
        """
        if batch.table.id != self._table.id:
            return batch
        found = [c.name for c in batch.table.columns]
        common = [name for name in found if name in self._names]
        if found == self._names or [name for name in self._names if name in found] == common == self._names:
            return batch
        if self._is_whole and self._are_first(batch.table):
            return self._renamed(batch, dict(zip(found, self._names, strict=False)))
        if found == self._names[: len(found)]:
            return batch
        raise SchemaMismatchError(
            f"cannot reconstruct snapshot rows of `{self._table.id}`: its columns were renamed",
            f"the log has rows with columns {', '.join(found)}, the table has {', '.join(self._names)} now",
            "set onRewrite: refresh, with startingPosition initial, to read such tables again",
            code="TR-5013",
        )

    def _are_first(self, table: TableSchema) -> bool:
        """Whether a row's columns may be the first ones of the table."""
        pairs = zip(table.columns, self._table.columns, strict=False)
        return len(table.columns) <= len(self._names) and all(a.type.arrow == b.type.arrow for a, b in pairs)

    def _renamed(self, batch: ChangeBatch, names: dict[str, str]) -> ChangeBatch:
        columns = tuple(replace(c, name=names[c.name]) for c in batch.table.columns)
        table = TableSchema(batch.table.id, columns, self._table.key)
        return replace(
            batch,
            table=table,
            before=_rows(batch.before, table),
            after=_rows(batch.after, table),
            absent_before=tuple(names[name] for name in batch.absent_before),
            absent_after=tuple(names[name] for name in batch.absent_after),
        )


def _rows(rows: pa.StructArray | None, table: TableSchema) -> pa.StructArray | None:
    if rows is None:
        return None
    columns = [rows.field(i) for i in range(rows.type.num_fields)]
    return pa.StructArray.from_arrays(columns, fields=list(table.arrow), mask=rows.is_null())

"""Rewind without a key: rows of a table as they were at P, from rows as they were at H, whole rows counted.

A row without a key is nothing but its values, and there may be several of it. Between P and H a change takes
the row before it away and adds the row after it. So, counted,

    rows at P = rows at H - rows after the changes + rows before them

which holds only if the rows are read exactly as they were at H, as a snapshot of PostgreSQL gives them, and
if the log has whole rows. What a key's first event decides (`reader.rewind`) is not known here.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SchemaMismatchError
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.reader.schema_projection import fit_rows


class RewindRows:
    """The rows before and after all changes in (P, H] of one table without a key.

    Args:
        table: shape of the rows to restore.
    """

    def __init__(self, table: TableSchema) -> None:
        self._table = table
        self._before = [pa.array([], table.arrow)]
        self._after = [pa.array([], table.arrow)]
        #: How many of the rows at H are yet to be left out, by hash; None before the first rows came.
        self._added: dict[int, int] | None = None
        self._columns: list[str] = []

    def observe(self, batch: ChangeBatch) -> None:
        """Take note of a batch of the table's changes.

        Raises:
            SchemaMismatchError: its rows are not whole, or do not fit the table's shape.
        """
        if absent := batch.absent_before or batch.absent_after:
            raise SchemaMismatchError(
                f"rows of `{self._table.id}` cannot be put back: the log holds parts of rows",
                f"it has no key, and columns {', '.join(absent)} were left out",
                f"ALTER TABLE {self._table.id.sql} REPLICA IDENTITY FULL; then begin a new stream",
            )
        for images, image in ((self._before, batch.before), (self._after, batch.after)):
            if image is not None:
                images.append(fit_rows(image.filter(image.is_valid()), self._table))

    def apply(self, selected: pa.StructArray) -> pa.StructArray:
        """Rows at P, of rows that were read as of H.

        Args:
            selected: some of the rows at H; all calls together bring each once.
        """
        rows = fit_rows(selected, self._table)
        if self._added is None:
            here = {field.name for field in selected.type}
            self._columns = [name for name in self._table.arrow.names if name in here]
            rows = pa.concat_arrays([rows, self._settle()])
        if not self._added:
            return rows
        return rows.filter(pa.array(self._is_kept(rows)))

    def require_all_found(self) -> None:
        """All rows at H have been seen.

        Raises:
            SchemaMismatchError: rows that the log says were added are not among them.
        """
        if self._added:
            raise SchemaMismatchError(
                f"rows of `{self._table.id}` cannot be put back",
                f"it has no key, and {sum(self._added.values())} rows that the log has were not found in it",
                "give it a primary key, then begin a new stream",
            )

    def _settle(self) -> pa.StructArray:
        """The rows at P that are not there at H."""
        before, after = pa.concat_arrays(self._before), pa.concat_arrays(self._after)
        hashes, counts = np.unique(self._hashes(after), return_counts=True)
        self._added = dict(zip(hashes.tolist(), counts.tolist(), strict=True))
        return before

    def _is_kept(self, rows: pa.StructArray) -> np.ndarray:
        """For each row whether it is not one that was added."""
        assert self._added is not None
        hashes = self._hashes(rows)
        kept = np.ones(len(rows), bool)
        for i in np.flatnonzero(np.isin(hashes, np.fromiter(self._added, np.uint64, len(self._added)))):
            row = int(hashes[i])
            if row in self._added:
                kept[i] = False
                self._added[row] -= 1
                if not self._added[row]:
                    del self._added[row]
        return kept

    def _hashes(self, rows: pa.StructArray) -> np.ndarray:
        """Of the columns that the table has had all along."""
        from tailrace.kernels.rowhash import hash_rows  # noqa: PLC0415 - loads kernels, seldom needed

        return hash_rows([pc.struct_field(rows, name) for name in self._columns], len(rows))

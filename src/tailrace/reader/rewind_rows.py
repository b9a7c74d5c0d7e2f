"""Rewind without a key: reconstruct the rows at P from the rows at H, with multiset counts.

A row without a key is identified by its values only, and may occur several times. Between P and H each change
removes the row before it and adds the row after it. So, as multisets,

    rows at P = rows at H - rows after the changes + rows before them

This requires that the rows are read exactly as of H, as a snapshot of PostgreSQL returns them, and that the
log has whole rows. The rule of the first event (`reader.rewind`) does not apply without keys.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SchemaMismatchError
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableSchema
from tailrace.reader.schema_projection import fit_rows, missing_columns


class RewindRows:
    """The rows before and after all changes in (P, H] of one table without a key.

    Args:
        table: schema of the rows to reconstruct.
    """

    def __init__(self, table: TableSchema) -> None:
        self._table = table
        self._before = [pa.array([], table.arrow)]
        self._after = [pa.array([], table.arrow)]
        #: Number of rows at H that are still to be removed, by hash; None before the first call of `apply`.
        self._added: dict[int, int] | None = None
        self._columns: list[str] = []
        #: Columns of the table that some rows lack: it was altered on the way.
        self.missing: set[str] = set()

    def observe(self, batch: ChangeBatch) -> None:
        """Record a batch of the table's changes.

        Args:
            batch: changes of the table in (P, H].

        Raises:
            SchemaMismatchError: its images are not whole rows, or do not fit the table's schema.
        """
        if absent := batch.absent_before or batch.absent_after:
            raise SchemaMismatchError(
                f"cannot reconstruct snapshot rows of `{self._table.id}`: the log has partial row images",
                f"the table has no key, and the log omits the columns {', '.join(absent)}",
                f"PostgreSQL: ALTER TABLE {self._table.id.sql} REPLICA IDENTITY FULL; MySQL: SET PERSIST "
                "binlog_row_image = FULL, and let sessions reconnect; then start a new stream",
                code="TR-4405",
            )
        for images, image in ((self._before, batch.before), (self._after, batch.after)):
            if image is not None:
                self.missing |= missing_columns(image.type, self._table)
                images.append(fit_rows(image.filter(image.is_valid()), self._table))

    def apply(self, selected: pa.StructArray) -> pa.StructArray:
        """Reconstruct rows at P.

        Args:
            selected: some of the rows at H; all calls together pass each row once.

        Returns:
            Rows of type `table.arrow`; those that exist at P only come with the first call.

        Raises:
            SchemaMismatchError: a row does not fit the table's schema.
        """
        self.missing |= missing_columns(selected.type, self._table)
        rows = fit_rows(selected, self._table)
        if self._added is None:
            names = {field.name for field in selected.type}
            self._columns = [name for name in self._table.arrow.names if name in names]
            self._added = self._count_added()
            rows = pa.concat_arrays([rows, *self._before])
        if not self._added:
            return rows
        return rows.filter(pa.array(self._is_kept(rows)))

    def require_all_found(self) -> None:
        """Check, after the last call of `apply`, that all rows added by the log were among the rows at H.

        Raises:
            SchemaMismatchError: some were not.
        """
        if self._added:
            raise SchemaMismatchError(
                f"cannot reconstruct snapshot rows of `{self._table.id}`",
                f"it has no key, and {sum(self._added.values())} rows that the log has were not found in it",
                "give it a primary key, then start a new stream",
                code="TR-4406",
            )

    def _count_added(self) -> dict[int, int]:
        """Number of rows after the changes, by hash."""
        hashes, counts = np.unique(self._hashes(pa.concat_arrays(self._after)), return_counts=True)
        return dict(zip(hashes.tolist(), counts.tolist(), strict=True))

    def _is_kept(self, rows: pa.StructArray) -> np.ndarray:
        """For each row whether no change added it; counts the added ones down."""
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
        """Hashes of the rows, over the columns that the table has both at P and at H."""
        from tailrace.kernels.rowhash import hash_rows  # noqa: PLC0415 - loads kernels, rarely needed

        return hash_rows([pc.struct_field(rows, name) for name in self._columns], len(rows))

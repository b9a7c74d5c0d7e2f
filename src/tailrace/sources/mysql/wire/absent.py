"""Columns that the log leaves out of row images: `binlog_row_image` MINIMAL and NOBLOB.

An update's after image lacks unchanged columns, so their values are known if the before image has them; in
MINIMAL it has the key. A column that neither image has is unknown: it is null in the images, and the batch
names it.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pyarrow as pa

from tailrace.errors import SchemaMismatchError
from tailrace.model.change import ChangeBatch
from tailrace.sources.mysql.wire.kernels.rows import ALL_COLUMNS


def mark_absent(batch: ChangeBatch, in_before: int, in_after: int) -> ChangeBatch:
    """`batch` with the absent columns named, and after images completed.

    Args:
        batch: changes of one kind, whose images all have the same columns.
        in_before: address of the bitmap of columns that the before images have, ALL_COLUMNS, or 0.
        in_after: the same for the after images.

    Raises:
        SchemaMismatchError: the key's columns are among those that are absent.
    """
    names = [column.name for column in batch.table.columns]
    before, after = _absent(in_before, names), _absent(in_after, names)
    completed = batch.after
    if batch.before is not None and batch.after is not None:
        unchanged = [name for name in after if name not in before]
        completed = _with_columns(batch.after, batch.before, unchanged)
        after = tuple(name for name in after if name in before)
    lacking = [name for name in batch.table.key if name in before or name in after]
    if lacking:
        raise SchemaMismatchError(
            f"the log does not hold the key of changed rows of table `{batch.table.id}`",
            f"without the column {lacking[0]}: binlog_row_image was not FULL when the change was logged",
            "SET PERSIST binlog_row_image = FULL, then take a new snapshot of what was logged before",
            code="TR-4405",
        )
    return replace(batch, after=completed, absent_before=before, absent_after=after)


def _absent(bitmap: int, names: list[str]) -> tuple[str, ...]:
    if bitmap <= ALL_COLUMNS:
        return ()
    bits = ctypes.string_at(bitmap, (len(names) + 7) // 8)
    return tuple(name for i, name in enumerate(names) if not bits[i >> 3] >> (i & 7) & 1)


def _with_columns(rows: pa.StructArray, source: pa.StructArray, names: list[str]) -> pa.StructArray:
    """`rows`, none of which is null, with the named columns taken from `source`."""
    fields = list(rows.type)
    columns = [(source if f.name in names else rows).field(i) for i, f in enumerate(fields)]
    return pa.StructArray.from_arrays(columns, fields=fields)

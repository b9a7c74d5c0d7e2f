"""Rows by their keys, whole columns at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def last_of_each_key(keys: Sequence[pa.Array]) -> pa.Array:
    """Row numbers of the last row of each key, ascending.

    Args:
        keys: the key's columns, of one length.
    """
    names = [f"k{i}" for i in range(len(keys))]
    row = pa.array(np.arange(len(keys[0]), dtype="int64"))
    table = pa.Table.from_arrays([*(comparable(key) for key in keys), row], names=[*names, "row"])
    last = table.group_by(names, use_threads=False).aggregate([("row", "max")]).column("row_max")
    return last.combine_chunks().sort()


def comparable(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Durations as numbers: they are neither grouped, sorted nor hashed (seen in Arrow 26)."""
    return column.cast(pa.int64()) if pa.types.is_duration(column.type) else column

"""The keys that a part of the log touches, numbered."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.table import TableSchema

#: Keys collected before duplicates are dropped.
_COMPACT_AFTER = 65_536


class TouchedKeys:
    """Distinct keys of one table; they have numbers once all were added.

    Args:
        table: the table.
    """

    def __init__(self, table: TableSchema) -> None:
        type_ = pa.struct([table.arrow.field(name) for name in table.key])
        self._names = [f"k{i}" for i in range(type_.num_fields)]
        self._keys = self._columns(pa.array([], type_))
        self._collected: list[pa.Table] = []
        self._count = 0

    def add(self, keys: pa.StructArray) -> None:
        """Add keys."""
        if len(keys):
            self._collected.append(self._columns(keys))
            self._count += len(keys)
            if self._count > max(_COMPACT_AFTER, len(self._keys)):
                self._compact()

    def __len__(self) -> int:
        self._compact()
        return len(self._keys)

    def numbers(self, keys: pa.StructArray) -> np.ndarray:
        """The number of each key, -1 for one that was not added."""
        self._compact()
        found = np.full(len(keys), -1, np.int64)
        if len(self._names) == 1:
            index = pc.index_in(keys.field(0), self._keys.column(0).combine_chunks())
            found[:] = pc.fill_null(index, -1).to_numpy(zero_copy_only=False)
            return found
        known = self._keys.append_column("n", pa.array(np.arange(len(self._keys))))
        asked = self._columns(keys).append_column("i", pa.array(np.arange(len(keys))))
        joined = asked.join(known, keys=self._names, join_type="inner", use_threads=False)
        found[joined.column("i").to_numpy()] = joined.column("n").to_numpy()
        return found

    def _columns(self, keys: pa.StructArray) -> pa.Table:
        return pa.table([keys.field(i) for i in range(keys.type.num_fields)], names=self._names)

    def _compact(self) -> None:
        if self._collected:
            together = pa.concat_tables([self._keys, *self._collected])
            self._keys = together.group_by(self._names, use_threads=False).aggregate([]).select(self._names)
            self._collected, self._count = [], 0

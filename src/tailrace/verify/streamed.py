"""A target whose rows come in batches, all of them each time it is asked: what such targets share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tailrace.verify.checksum import Checksums, rows_in
from tailrace.verify.portion import KeyRanges, limited


class StreamedTarget(ABC):
    """See ComparedTarget."""

    @property
    @abstractmethod
    def columns(self) -> pa.Schema:
        """See ComparedTarget."""

    @abstractmethod
    def _rows(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The columns `names` of all rows that count."""

    def checksums(self, names: Sequence[str], key: Sequence[str], only: KeyRanges | None = None) -> Checksums:
        """See ComparedTarget."""
        return Checksums.of(limited(self._rows(names), only), key)

    def rows(
        self, names: Sequence[str], key: Sequence[str], buckets: np.ndarray, only: KeyRanges | None = None
    ) -> pa.Table:
        """See ComparedTarget."""
        kept = [rows_in(rows, key, buckets) for rows in limited(self._rows(names), only)]
        return pa.Table.from_batches(kept, self._select(names))

    def _select(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in names])

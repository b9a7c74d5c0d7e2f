"""A target whose rows come in batches, all of them each time it is asked: what such targets share.

They come in parts, of which some are read at the same time.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np
import pyarrow as pa

from tailrace.verify.checksum import Checksums, rows_in
from tailrace.verify.portion import KeyRanges, limited

T = TypeVar("T")
#: Rows of a target, in batches.
Rows = Iterator[pa.RecordBatch]


class StreamedTarget(ABC):
    """See ComparedTarget."""

    @property
    @abstractmethod
    def columns(self) -> pa.Schema:
        """See ComparedTarget."""

    @property
    def readers(self) -> int:
        """How many parts are read at the same time."""
        return 1

    @abstractmethod
    def _parts(self, names: Sequence[str], only: KeyRanges | None) -> Sequence[Callable[[], Rows]]:
        """Parts of the rows that count: together the columns `names` of all of them, or of those in `only`.

        They may have other rows than those in `only`, too.
        """

    def checksums(self, names: Sequence[str], key: Sequence[str], only: KeyRanges | None = None) -> Checksums:
        """See ComparedTarget."""
        total = Checksums.empty()
        for sums in self._of_parts(names, only, lambda rows: Checksums.of(rows, key)):
            total.merge(sums)
        return total

    def rows(
        self, names: Sequence[str], key: Sequence[str], buckets: np.ndarray, only: KeyRanges | None = None
    ) -> pa.Table:
        """See ComparedTarget."""

        def kept(rows: Iterable[pa.RecordBatch]) -> pa.Table:
            return pa.Table.from_batches([rows_in(batch, key, buckets) for batch in rows], schema)

        schema = self._select(names)
        return pa.concat_tables([schema.empty_table(), *self._of_parts(names, only, kept)])

    def _of_parts(self, names: Sequence[str], only: KeyRanges | None, use: Callable[[Rows], T]) -> list[T]:
        """What `use` makes of each part; an error of one ends the others."""
        stopping = threading.Event()

        def of_part(part: Callable[[], Rows]) -> T:
            return use(limited(_until(stopping, part()), only))

        parts = self._parts(names, only)
        if len(parts) == 1:
            return [of_part(parts[0])]
        with ThreadPoolExecutor(self.readers, "verify-target") as pool:
            jobs = [pool.submit(of_part, part) for part in parts]
            try:
                wait(jobs, return_when=FIRST_EXCEPTION)
                failed = [job for job in jobs if job.done() and job.exception() is not None]
                return [job.result() for job in (*failed, *jobs)]
            finally:
                stopping.set()

    def _select(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in names])


def _until(stopping: threading.Event, rows: Rows) -> Rows:
    for batch in rows:
        if stopping.is_set():
            raise CancelledError
        yield batch

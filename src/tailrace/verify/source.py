"""The source side: the key ranges of tables, read as of a batch's end by a few threads, or by tasks of Spark.

    ranges ─▶ threads, one for each reader ─▶ with Spark: a job of one task (`source_tasks`) ─┐
                                          └─▶ without: the thread itself ──────────────────────┴▶ checksums

A thread waits for its task. So there are never more readers than threads, a range that is read is known at
once, and one that fails ends the others. A task tells nothing before its end, a thread does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.enumerator.snapshot import KeyRange
from tailrace.model.split import Key
from tailrace.sources.base import Source
from tailrace.verify.checksum import Checksums
from tailrace.verify.kept import KeptComparison, RangeRead
from tailrace.verify.progress import ReadProgress
from tailrace.verify.range_reader import RangeReader, SourceRange, SourceTable
from tailrace.verify.source_tasks import SourceTasks

#: A table is read by several readers if each has at least this many rows.
READER_ROWS = 400_000
#: Tasks read it in more ranges than there are readers if each has at least this many rows: those that are
#: read to their end tell how far it is. A job takes 80 ms of CPU time.
RANGE_ROWS = 1_200_000
#: Ranges of a table for each reader, at most: the log is read once per range, from P(n) to the time when its
#: rows are read.
RANGES_PER_READER = 8


def ranges(source: Source, table: SourceTable, readers: int, per_reader: int = 1) -> Iterator[KeyRange]:
    """Divide `table` into key ranges that are read concurrently.

    Args:
        source: the database, which is asked for the end of each but the last.
        table: the table.
        readers: how many read at the same time.
        per_reader: most ranges for each of them, if they are large.
    """
    if not table.begun:
        return
    if table.unfinished:
        yield KeyRange(None, table.cursor)
        return
    rows = table.estimated_rows
    parts = max(1, min(readers, rows // READER_ROWS), min(readers * per_reader, rows // RANGE_ROWS))
    after: Key | None = None
    for _ in range(parts - 1):
        upto = source.boundary(table.schema, after, rows // parts)
        if upto is None:
            break
        yield KeyRange(after, upto)
        after = upto
    yield KeyRange(after, None)


def by_table(parts: Sequence[tuple[SourceTable, KeyRange]]) -> dict[str, tuple[int, int]]:
    """For each table of `parts` its estimated number of rows, and the number of its parts."""
    names = [str(table.schema.id) for table, _ in parts]
    return {
        name: (table.estimated_rows, names.count(name)) for name, (table, _) in zip(names, parts, strict=True)
    }


class Stopping(threading.Event):
    """Set once nothing more is to be read.

    Attributes:
        error: with what a range has failed, so that it is set; None: it is for another reason.
    """

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self._lock = threading.Lock()

    def failed(self, error: BaseException) -> bool:
        """A range has failed; returns whether that is why nothing more is read."""
        with self._lock:
            if self.is_set():
                return False
            self.error = error
            self.set()
            return True


@dataclass(frozen=True)
class Reader:
    """Has key ranges read as of one position; each call waits for one.

    Args:
        ranges: reads a range.
        stopping: set to cancel reading.
        progress: hears of rows that are read.
        tasks: has them do that in tasks; None: the thread that calls does it.
        kept: notes how far ranges are read; None: nothing does.
    """

    ranges: RangeReader
    stopping: Stopping
    progress: ReadProgress
    tasks: SourceTasks | None = None
    kept: KeptComparison | None = None

    @property
    def ranges_per_reader(self) -> int:
        """In how many ranges a table is read for each reader, at most."""
        # a paced reader takes long, and long is the log that each range reads again
        return 1 if self.tasks is None or self.ranges.is_paced else RANGES_PER_READER

    def checksums(
        self, table: SourceTable, part: RangeRead, columns: pa.Schema, key: Sequence[str]
    ) -> Checksums:
        """The checksums of the rows in `part`; those that were read before are not read again.

        Raises:
            CancelledError: nothing more is to be read.
            TailraceError: the range cannot be read; nothing more is, then.
        """
        work = SourceRange(table, part.rest, columns, tuple(key))

        def note(upto: Key | None) -> None:
            if self.kept is not None and not self.stopping.is_set():
                self.kept.read(work.name, part, upto)

        with self.ending_all():
            if not part.done and self.tasks is not None:
                found = self.tasks.checksums(self.ranges, work)
                part.sums.merge(found)
                self.progress.read(work.name, found.rows)
            elif not part.done:
                self.ranges.add(work, part.sums, on_rows=self._heard(work), on_page=note, sleep=self._sleep)
            if not part.done:
                note(None)
            self.progress.ended(work.name)
        return part.sums

    def rows(
        self, table: SourceTable, part: KeyRange, columns: pa.Schema, key: Sequence[str], buckets: np.ndarray
    ) -> pa.Table:
        """The rows in `part` that belong to some buckets; errors as of `checksums`."""
        work = SourceRange(table, part, columns, tuple(key))
        with self.ending_all():
            if self.tasks is None:
                found = self.ranges.rows(work, buckets, on_rows=self._heard(work), sleep=self._sleep)
            else:
                read, found = self.tasks.rows(self.ranges, work, buckets)
                self.progress.read(work.name, read)
            self.progress.ended(work.name)
        return found

    def until_stopped(self, planned: Iterable[KeyRange]) -> Iterator[KeyRange]:
        """`planned`, while these are still to be read.

        Raises:
            CancelledError: nothing more is to be read.
        """
        for part in planned:
            if self.stopping.is_set():
                raise CancelledError
            yield part

    def stop(self) -> None:
        """Have nothing more read."""
        self.stopping.set()
        if self.tasks is not None:
            self.tasks.cancel()

    @contextmanager
    def ending_all(self) -> Iterator[None]:
        """An error in this context ends the reading of all ranges; their own errors then mean nothing.

        Raises:
            CancelledError: nothing more is to be read.
        """
        if self.stopping.is_set():
            raise CancelledError
        try:
            yield
        except BaseException as error:
            if not self.stopping.failed(error):
                raise CancelledError from error
            self.stop()
            raise

    def _heard(self, work: SourceRange) -> Callable[[int], None]:
        """Hears of rows of a range that this process reads."""

        def on_rows(rows: int) -> None:
            if self.stopping.is_set():
                raise CancelledError
            self.progress.read(work.name, rows)

        return on_rows

    def _sleep(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise CancelledError

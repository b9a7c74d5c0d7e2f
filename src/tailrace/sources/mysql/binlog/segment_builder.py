"""Segments of an archive from the blocks of a dump: each ends between two transactions.

The index of a segment is an Arrow stream: a row for each transaction (offsets, commit time, GTID: its source
and number), and in the metadata the sources, and the schema changes with their texts.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.model.table import TableId
from tailrace.sources.archive.archive import Archive, now_us
from tailrace.sources.archive.segment import Segment
from tailrace.sources.archive.writing import SegmentWriter
from tailrace.sources.mysql.gtid import GtidSet, GtidSource
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.filehead import previous_gtids
from tailrace.sources.mysql.wire.kernels.boundaries import (
    END,
    FILE_START,
    FLAGS,
    GNO,
    NO_TRANSACTION,
    SOURCE,
    START,
    TS_US,
)
from tailrace.sources.mysql.wire.transactions import DdlStatement, TransactionIndex

#: Bytes of a transaction that has not ended which are kept in memory.
_KEPT_BYTES = 16 << 20
_SCHEMA_CHANGES = b"tailrace.schema_changes"
_SOURCES = b"tailrace.gtid_sources"
_COLUMNS = {"start": START, "end": END, "ts_us": TS_US, "source": SOURCE, "number": GNO}


@dataclass(frozen=True)
class LogStart:
    """Where the archive goes on.

    Args:
        server: the server.
        file: log file.
        pos: offset in it: a transaction boundary, or the file's head.
        gtids: the GTIDs in the log before it; at a file's head, the file says them.
        begins: whether a section begins there.
    """

    server: str
    file: str
    pos: int
    gtids: GtidSet
    begins: bool


class SegmentBuilder:
    """Builds one segment after the other.

    Args:
        archive: the archive.
        start: where the log goes on.
        folds: whether the names in statements stand for names in lower case.

    Attributes:
        file: the log file of the present segment; "" before the first.
        gtids: the GTIDs in the log up to the last whole transaction.
    """

    def __init__(self, archive: Archive, start: LogStart, folds: Callable[[], bool]) -> None:
        self.file, self.gtids = "", start.gtids.copy()
        self._archive, self._server, self._begins = archive, start.server, start.begins
        self._index = TransactionIndex(_every, past=True, folds=folds)
        self._writer: SegmentWriter | None = None
        #: Bytes behind the last whole transaction, and how many of them are written already.
        self._pending, self._ahead = bytearray(), 0
        self._closed = False
        self._begin(0)

    def _begin(self, pos: int) -> None:
        """A segment begins at an offset."""
        self._start = self._end = pos
        self._gtids = str(self.gtids)
        self._rows: list[np.ndarray] = []
        self._ddl: list[DdlStatement] = []
        self._since = time.monotonic()

    @property
    def size(self) -> int:
        """Bytes of the whole transactions in the present segment."""
        return self._end - self._start

    def age_s(self) -> float:
        """How long the present segment waits to be written; 0 if it has nothing."""
        return time.monotonic() - self._since if self.size else 0.0

    def enter(self, block: EventBlock) -> None:
        """Another log file begins with `block`; the one before it has ended and is written."""
        self.file, self._checksum, self._closed = block.file, block.checksum, False
        self._begin(block.pos)

    def end_of_file(self) -> None:
        """The present log file has ended: what is behind its last transaction belongs to it."""
        if not self.file:
            return
        if self._pending or self._ahead:
            self._end += self._ahead + len(self._pending)
            self._write(self._pending)
            self._pending.clear()
            self._ahead = 0
        self._closed = True

    def take(self, block: EventBlock) -> None:
        """Add the next block of the present log file."""
        if not self.size:
            self._since = time.monotonic()
        done = self._index.feed(block)
        rows = done.rows
        base = block.start - block.pos
        events = block.buffer.data
        rest = block.start
        if len(rows):
            if rows[0, FLAGS] & FILE_START:
                self.gtids = previous_gtids(block, int(rows[0, START]), int(rows[0, END]))
                self._gtids = str(self.gtids)
            self._count(rows)
            self._rows.append(rows)
            self._ddl += done.ddl
            rest = base + int(rows[-1, END])
            self._write(self._pending)
            self._write(events[block.start : rest])
            self._pending.clear()
            self._ahead = 0
            self._end = int(rows[-1, END])
        self._pending += events[rest : block.end]
        if len(self._pending) > _KEPT_BYTES:
            self._write(self._pending)
            self._ahead += len(self._pending)
            self._pending.clear()

    def _write(self, events: bytearray | memoryview) -> None:
        if not len(events):
            return
        if self._writer is None:
            segments = self._archive.segments
            self._writer = SegmentWriter(self._archive, segments[-1].number + 1 if segments else 0)
        self._writer.add(events)

    def _count(self, rows: np.ndarray) -> None:
        for source in np.unique(rows[:, SOURCE]).tolist():
            if source >= 0:
                self.gtids.add_numbers(self._index.sources[source], rows[rows[:, SOURCE] == source, GNO])

    def finished(self) -> Segment | None:
        """The present segment, written; None if it has nothing, or its file holds a part of a transaction."""
        if not self.size or self._ahead or self._writer is None:
            return None
        rows = np.concatenate([np.zeros((0, 8), np.int64), *self._rows])
        real = rows[rows[:, FLAGS] & NO_TRANSACTION == 0]
        times = real[real[:, TS_US] > 0, TS_US]
        token = self._writer.token
        size, digest = self._writer.finish(index_of(real, self._index.sources, self._ddl))
        self._writer = None
        segments = self._archive.segments
        found = Segment(
            number=segments[-1].number + 1 if segments else 0,
            token=token,
            begins=self._begins,
            server=self._server,
            file=self.file,
            start=self._start,
            end=self._end,
            checksum=self._checksum,
            closed=self._closed,
            gtids=self._gtids,
            gtids_after=str(self.gtids),
            transactions=len(real),
            first_us=int(times[0]) if len(times) else 0,
            last_us=int(times[-1]) if len(times) else 0,
            written_us=now_us(),
            size=size,
            digest=digest,
            previous=segments[-1].digest if segments else "",
        )
        self._begins = False
        self._begin(self._end)
        return found

    def abandon(self) -> None:
        """Drop what is not whole."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None


def index_of(rows: np.ndarray, sources: list[GtidSource], changes: list[DdlStatement]) -> bytes:
    """The index of a segment's transactions."""
    ddl = [
        {
            "start": change.start,
            "end": change.end,
            "ts_ms": change.ts_ms,
            "database": change.database,
            "text": change.text,
            "tables": [[table.database, table.table] for table in change.tables],
            "folds": change.folds,
        }
        for change in changes
    ]
    table = pa.table({name: pa.array(np.ascontiguousarray(rows[:, at])) for name, at in _COLUMNS.items()})
    names = [[sid.hex(), tag] for sid, tag in sources]
    table = table.replace_schema_metadata({_SCHEMA_CHANGES: json.dumps(ddl), _SOURCES: json.dumps(names)})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def read_index(data: bytes, file: str) -> tuple[pa.Table, list[DdlStatement]]:
    """The transactions of a segment, and its schema changes.

    Args:
        data: what `index_of` wrote.
        file: the segment's log file.

    Raises:
        ValueError: it is something else.
    """
    try:
        with pa.ipc.open_stream(data) as stream:
            table = stream.read_all()
        table.validate(full=True)
        values: list[Mapping[str, Any]] = json.loads((table.schema.metadata or {})[_SCHEMA_CHANGES])
        changes = [
            DdlStatement(
                file,
                value["start"],
                value["end"],
                value["database"],
                value["text"],
                tuple(TableId(*names) for names in value["tables"]),
                value["ts_ms"],
                folds=value["folds"],
            )
            for value in values
        ]
    except (pa.ArrowException, KeyError, TypeError, OSError) as error:
        raise ValueError("not an index of transactions") from error
    return table, changes


def _every(table: TableId) -> bool:  # noqa: ARG001
    return True

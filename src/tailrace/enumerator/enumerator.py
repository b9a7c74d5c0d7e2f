"""Plans batches: from a batch's start offset to its end offset, and from both to splits.

    start ──latest()──▶ end ──splits(start, end)──▶ [SnapshotSplit…, LogSplit…]

A batch ends at the log position P that `latest` chose. Its log splits read up to P, its snapshot splits read
the key ranges between the two offsets' cursors *as of* P. `splits` needs only the offsets: what it remembers
from `latest` (chunk boundaries, the events themselves) only saves work. So a batch that is replayed after a
crash gives the same rows.

Snapshot chunks are planned only while the log is caught up, because a rewind costs as much as reading the
lag, and while no schema change follows directly after P.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from tailrace.config.options import SourceOptions
from tailrace.enumerator.batch_sizing import BatchSizing
from tailrace.enumerator.boundary_prefetch import BoundaryPrefetch
from tailrace.enumerator.offset import StreamOffset, TableProgress
from tailrace.enumerator.snapshot import KeyRange, advance
from tailrace.errors import ConfigError, PositionLostError, ServerChangedError
from tailrace.model.messages import MESSAGES
from tailrace.model.split import Cursor, LogSplit, SnapshotSplit, Split
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.base import Log, LogRange, Position, Source

T = TypeVar("T")

#: Minimum time between two advances of the offset over log without captured changes, seconds.
QUIET_ADVANCE_S = 10.0
#: Interval at which the catalog is searched for new tables, seconds; immediately after a schema change.
CATALOG_REFRESH_S = 30.0
#: Most rows of one SELECT: this bounds a task's memory, not the chunk's size.
PAGE_ROWS = 65_536


@dataclass(frozen=True)
class Limits:
    """Limits of one batch; None: no limit."""

    max_rows: int | None = None
    max_bytes: int | None = None


class Enumerator:
    """The driver's side of one stream.

    Args:
        options: the stream's options.
        source: the database.
        parallelism: snapshot splits that are read concurrently.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        options: SourceOptions,
        source: Source,
        *,
        parallelism: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._source = source
        self._parallelism = parallelism
        self._sizing = BatchSizing(parallelism, clock)
        self._clock = clock
        self._log: Log | None = None
        self._boundary = BoundaryPrefetch(source.boundary)
        self._offset = StreamOffset()
        self._schemas: dict[str, TableSchema] = {}
        self._schemas_read_at: float | None = None
        #: Tables that were added to the log since the last batch.
        self._published: set[str] = set()
        self._plan: tuple[StreamOffset, StreamOffset, dict[str, list[KeyRange]]] | None = None
        self._advanced_at = clock()
        #: Position beyond which nothing is read (Trigger.AvailableNow).
        self._target: Position | None = None
        self._checked = False

    def hold(self) -> None:
        """Read no transaction that commits from now on (Trigger.AvailableNow)."""
        self._check_source()
        self._target = self._source.log_end()

    def latest(self, start: StreamOffset, limits: Limits) -> StreamOffset:
        """Choose the end of the batch that begins at `start`.

        Args:
            start: where the batch begins.
            limits: how much it may hold.

        Returns:
            The end offset; the object `start` itself if there is nothing to read.

        Raises:
            TailraceError: an error of the source.
        """
        return self._on_one_server(lambda: self._latest(start, limits))

    def _latest(self, start: StreamOffset, limits: Limits) -> StreamOffset:
        self._check_source()
        if start.log is None:
            offset = self._begin()
            log_range = None
        else:
            self._source.confirm(self._source.position(start.log))
            offset, log_range = self._advance_log(start, limits)
        offset = self._register(offset, log_range)
        self._offset = offset
        planned: dict[str, list[KeyRange]] = {}
        if offset.tables and self._may_snapshot(offset, log_range):
            chunk_rows, splits = self._budget(limits)
            schemas = {n: s for n, s in self._tables().items() if n in offset.tables}
            offset, planned = advance(offset, schemas, self._boundary, splits=splits, chunk_rows=chunk_rows)
            for name, progress in list(offset.tables.items())[:1]:
                if name in schemas:
                    self._boundary.prepare(schemas[name], progress.cursor, chunk_rows, splits)
        if not start.is_new and not planned and log_range is None and offset == start:
            return start
        self._plan = (start, offset, planned)
        self._offset = offset
        self._advanced_at = self._clock()
        return offset

    def splits(self, start: StreamOffset, end: StreamOffset) -> list[Split]:
        """The splits of the batch `(start, end]`."""
        return self._on_one_server(lambda: self._splits(start, end))

    def _splits(self, start: StreamOffset, end: StreamOffset) -> list[Split]:
        self._check_source()
        self._offset = end
        assert end.log is not None
        splits: list[Split] = []
        if start.log is not None and start.log != end.log and end.mode != "snapshot":
            splits.extend(self._log_splits(start, end))
        ranges = self._ranges(start, end)
        if ranges:
            schemas = self._tables()
            page_rows = min(self._options.snapshot_chunk_rows, PAGE_ROWS)
            as_of = self._source.as_of(self._source.position(end.log))
            for name, table_ranges in ranges.items():
                if name not in schemas:
                    continue  # dropped since: its rows at P are lost; the log carries the DROP
                for r in table_ranges:
                    split = SnapshotSplit(schemas[name], r.after, r.upto, as_of, page_rows)
                    splits.extend(self._source.divided(split, self._parallelism))
        return splits

    def commit(self, end: StreamOffset) -> None:
        """Confirm to the source that the sink has the batch that ends at `end` and all earlier ones."""
        if end.log is not None:
            self._source.confirm(self._source.position(end.log))

    def head(self, offset: StreamOffset | None = None) -> StreamOffset:
        """The offset of a stream without lag."""
        current = self._offset if offset is None else offset
        if current.is_new or self._log is None:
            return current
        try:
            head = self._log.head()
        except ServerChangedError:
            return current  # the next batch looks up its position on the other server
        return replace(current, log=head.to_json(), tables={}, done=current.done)

    def close(self) -> None:
        """Stop following the log and close the connections."""
        if self._log is not None:
            self._log.close()
            self._log = None
        self._boundary.close()
        self._source.close()

    def _on_one_server(self, plan: Callable[[], T]) -> T:
        """Call `plan`, and once more if another server has taken over meanwhile."""
        try:
            return plan()
        except ServerChangedError:
            self.close()
            self._source.server_changed()
            if self._target is not None:
                self._target = self._source.position(self._target.to_json())
            return plan()

    # ---- steps of latest ----

    def _check_source(self) -> None:
        if not self._checked:
            self._source.require()
            self._checked = True

    def _begin(self) -> StreamOffset:
        mode = self._options.starting_position
        tables = self._tables()  # before the position, so that the log holds all their changes after it
        self._published.clear()
        position = self._source.starting_position()
        offset = StreamOffset(mode=mode, log=position.to_json())
        if mode not in ("initial", "snapshot"):
            for name in tables:
                offset = offset.with_done(name, None)
        return offset

    def _advance_log(self, start: StreamOffset, limits: Limits) -> tuple[StreamOffset, LogRange | None]:
        assert start.log is not None
        if start.mode == "snapshot":
            return start, None
        position = self._source.position(start.log)
        log_range = self._follow(start).range_after(
            position,
            upto=self._target,
            max_bytes=limits.max_bytes,
            max_rows=limits.max_rows,
            for_rows=bool(start.tables),
        )
        if log_range is None:
            return start, None
        quiet = not log_range.has_changes and not log_range.ddl_ahead and not start.tables
        quiet = quiet and not log_range.is_far
        if quiet and self._target is None and self._clock() - self._advanced_at < QUIET_ADVANCE_S:
            return start, None
        return replace(start, log=log_range.end.to_json()), log_range

    def _register(self, offset: StreamOffset, log_range: LogRange | None) -> StreamOffset:
        """Add captured tables that are new to the stream.

        A table whose CREATE is in the batch, or directly after it, is followed from its first row. A table
        that exists already is snapshotted. That is correct whenever it was created: as of a position before
        its first row it is empty.
        """
        if log_range is not None:
            _require_apart([*log_range.created, *(schema.id for schema in self._tables().values())])
            for table in log_range.created:
                if not offset.knows(str(table)):
                    offset = offset.with_done(str(table), None)
        due = self._schemas_read_at is None or (self._clock() - self._schemas_read_at >= CATALOG_REFRESH_S)
        if due or (log_range is not None and log_range.ddl_ahead):
            self._read_catalog()
        self._refuse_gaps(offset)
        if offset.mode not in ("initial", "snapshot"):
            return offset
        if offset.mode == "snapshot" and not self._is_first(offset):
            return offset
        for name in self._schemas:
            if not offset.knows(name):
                offset = offset.with_table(name, TableProgress(estimated=self._estimates[name]))
        return offset

    def _refuse_gaps(self, offset: StreamOffset) -> None:
        """Raise an error if a table that the stream follows was missing from the log for a time."""
        lost = sorted(name for name in self._published if offset.knows(name))
        self._published.clear()
        if lost:
            raise PositionLostError(
                f"changes of {', '.join(f'`{name}`' for name in lost)} are missing from the log",
                "the stream already followed it: it was dropped and created again, or removed from the log",
                "start a new stream with a new checkpoint",
                code="TR-4106",
            )

    @staticmethod
    def _is_first(offset: StreamOffset) -> bool:
        return not offset.tables and not offset.done

    def _may_snapshot(self, offset: StreamOffset, log_range: LogRange | None) -> bool:
        if offset.mode == "snapshot":
            return True
        if log_range is not None and log_range.ddl_ahead:
            return False
        assert offset.log is not None
        position = self._source.position(offset.log)
        if not self._source.shows(position):
            return False
        return self._log is None or self._target is not None or self._log.is_caught_up(position)

    def _budget(self, limits: Limits) -> tuple[int, int]:
        chunk_rows, splits = self._options.snapshot_chunk_rows, self._sizing.chunks()
        if limits.max_rows is not None:
            chunk_rows = min(chunk_rows, limits.max_rows)
            splits = max(1, min(splits, limits.max_rows // chunk_rows))
        return chunk_rows, splits

    # ---- steps of splits ----

    def _log_splits(self, start: StreamOffset, end: StreamOffset) -> list[LogSplit]:
        assert start.log is not None
        assert end.log is not None
        schemas = self._tables()
        whole = LogSplit(
            start=self._source.position(start.log).to_json(),
            end=self._source.position(end.log).to_json(),
            cursors={
                schemas[n].id: Cursor(schemas[n], p.cursor)
                for n, p in start.tables.items()
                if p.cursor is not None and n in schemas  # nothing of a dropped table is emitted
            },
            finished=self._finished(start, end),
            keys={s.id: s.key for s in schemas.values() if s.key},
        )
        tasks = self._options.log_parallelism
        if self._options.partitioner == "forward":
            return self._follow(start).splits(whole, tasks)
        (split,) = self._follow(start).splits(whole, 1)
        if tasks == 1 or split.events is not None:
            return [split]
        return [replace(split, share=(number, tasks)) for number in range(tasks)]

    @staticmethod
    def _finished(start: StreamOffset, end: StreamOffset) -> frozenset[str] | None:
        """Tables of which the batch emits all changes; None: all captured tables.

        A stream with snapshots follows a table from its registration on. A table that is created within the
        batch, or directly after it, is followed from its first row.
        """
        if end.mode != "initial":
            return None
        created = {n for n, rows in end.done.items() if rows is None}
        return frozenset(start.done) | created

    def _ranges(self, start: StreamOffset, end: StreamOffset) -> dict[str, list[KeyRange]]:
        if self._plan is not None and self._plan[:2] == (start, end):
            return self._plan[2]
        ranges: dict[str, list[KeyRange]] = {}
        for name, rows in end.done.items():
            if rows is not None and name not in start.done:
                before = start.tables.get(name, TableProgress())
                ranges[name] = [KeyRange(before.cursor, None)]
        for name, progress in end.tables.items():
            before = start.tables.get(name, TableProgress())
            if before.cursor != progress.cursor:
                ranges[name] = [KeyRange(before.cursor, progress.cursor)]
        return ranges

    # ---- queries to the source ----

    def _follow(self, start: StreamOffset) -> Log:
        if self._log is None:
            assert start.log is not None
            self._log = self._source.follow(self._source.position(start.log), self._follows)
        return self._log

    def _follows(self, table: TableId) -> bool:
        return self._options.captures(str(table))

    def _tables(self) -> dict[str, TableSchema]:
        if self._schemas_read_at is None:
            self._read_catalog()
        return self._schemas

    def _read_catalog(self) -> None:
        found = self._source.tables()
        if not found and self._schemas_read_at is None:
            raise ConfigError(
                "no table is captured",
                f"no table matches {', '.join(f'`{p}`' for p in self._options.tables)}",
                "each pattern must match a whole `database.table`; a dot matches any character",
                code="TR-1401",
            )
        _require_apart(t.schema.id for t in found)
        if self._options.has_messages and any(t.schema.id == MESSAGES.id for t in found):
            raise ConfigError(
                f"table {MESSAGES.id.quoted} has the name of the stream of logical messages",
                "the stream captures both",
                "leave the table out of `tables`, or the messages out (`message.prefix.include.list`)",
                code="TR-1402",
            )
        self._schemas = {str(t.schema.id): t.schema for t in found}
        self._estimates = {str(t.schema.id): t.estimated_rows for t in found}
        self._schemas_read_at = self._clock()
        self._published.update(map(str, self._source.publish([t.schema for t in found])))


def _require_apart(tables: Iterable[TableId]) -> None:
    """Refuse tables whose names are one text: offsets, targets and routes know tables by it."""
    by_text: dict[str, TableId] = {}
    for table in tables:
        other = by_text.setdefault(str(table), table)
        if other != table:
            raise ConfigError(
                f"tables {other.quoted} and {table.quoted} cannot be captured by one pipeline",
                f"the names of both are `{table}`, by which offsets, routes and targets know them",
                "rename one of them, or capture only one of the databases (schemas) that hold them",
                code="TR-1403",
            )

"""Plans batches: from a batch's start offset to its end offset, and from both to splits.

    start ──latest()──▶ end ──splits(start, end)──▶ [SnapshotSplit…, LogSplit…]

A batch ends at the log position P that `latest` chose. Its log splits read up to P, its snapshot splits read
the key ranges between the two offsets' cursors *as of* P. `splits` needs only the offsets: what it remembers
from `latest` (chunk boundaries, the events themselves) only saves work. So a batch that is replayed after a
crash gives the same rows.

Snapshot chunks are planned only while the log is caught up, because a rewind costs as much as reading the
lag, and while no schema change follows directly after P.

A signal may set other `tables` (`table_setting`): the offset has them, and all that depends on them is made
anew (`_use`), as by a restart.

The parts: what is captured (`captured_tables`), what the log lacks (`gaps`), what is read again
(`rereading`), what is asked of the stream (`request_queue`), the splits of two offsets (`splits`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tailrace.config.options import SourceOptions
from tailrace.config.snapshot_overrides import OVERRIDES
from tailrace.enumerator import rereading, signals
from tailrace.enumerator.batch_sizing import BatchSizing, LogSizing
from tailrace.enumerator.boundary_prefetch import BoundaryPrefetch
from tailrace.enumerator.captured_tables import CapturedTables, require_apart
from tailrace.enumerator.column_changes import column_changes
from tailrace.enumerator.declared import with_declared
from tailrace.enumerator.followed_columns import ReadTables, followed
from tailrace.enumerator.freshness import Freshness
from tailrace.enumerator.gaps import Gaps
from tailrace.enumerator.heartbeat import Heartbeat
from tailrace.enumerator.horizon import Horizon
from tailrace.enumerator.log_room import LogRoom
from tailrace.enumerator.offset import StreamOffset, TableProgress
from tailrace.enumerator.parked import after_a_gap, may_park, park, parked_at, with_parked
from tailrace.enumerator.request import Request, Requests
from tailrace.enumerator.request_queue import RequestQueue
from tailrace.enumerator.rereading import blocks, refreshes, to_reread, unfinished
from tailrace.enumerator.schema_events import SchemaEvents
from tailrace.enumerator.shapes import Shapes
from tailrace.enumerator.signal_table import SignalTable
from tailrace.enumerator.snapshot import Boundary, KeyRange, advance
from tailrace.enumerator.snapshot_load import SnapshotLoad
from tailrace.enumerator.snapshot_pace import SnapshotPace
from tailrace.enumerator.splits import SplitPlanner, ranges_between
from tailrace.enumerator.stream_end import StreamEnd
from tailrace.enumerator.stream_keys import with_keys
from tailrace.enumerator.table_setting import Decision, patterns_of
from tailrace.errors import (
    ConfigError,
    PositionLostError,
    SchemaMismatchError,
    ServerChangedError,
    TableGapError,
    TableLockedError,
    TailraceError,
    TransientSourceError,
    coded,
)
from tailrace.model.column_filter import ColumnFilter
from tailrace.model.condition import condition_problem
from tailrace.model.declaration import CatalogTexts
from tailrace.model.ending import not_as_of_end
from tailrace.model.parked import Reason
from tailrace.model.split import Key, SnapshotSplit, Split
from tailrace.model.table import TableId, TableSchema
from tailrace.model.table_setting import TableSetting, in_force
from tailrace.sources import registry
from tailrace.sources.base import (
    GONE,
    TRUNCATED,
    Activity,
    CapturedTable,
    LoadWatch,
    Log,
    LogClock,
    LogRange,
    LogRetention,
    Position,
    Source,
)

_logger = logging.getLogger(__name__)
T = TypeVar("T")

#: Minimum time between two advances of the offset over log without captured changes, seconds.
QUIET_ADVANCE_S = 10.0


@dataclass(frozen=True)
class Limits:
    """Limits of one batch; None: no limit.

    Args:
        max_rows: rows, of the log and of tables.
        max_bytes: bytes of log.
        most_bytes: to how many `max_bytes` may grow as long as batches are short.
    """

    max_rows: int | None = None
    max_bytes: int | None = None
    most_bytes: int | None = None

    @classmethod
    def of(cls, options: SourceOptions) -> Limits:
        """The limits of a stream's batches."""
        return cls(options.max_rows_per_trigger, *options.batch_bytes)


class Enumerator:
    """The driver's side of one stream.

    Args:
        options: the stream's options.
        source: the database.
        parallelism: snapshot splits that are read concurrently.
        requests: requests to the stream, None if it accepts none.
        compares: whether the process that runs the stream compares tables with their targets.
        clock: monotonic seconds.

    Attributes:
        log_room: how long the server keeps the stream's log.
    """

    def __init__(
        self,
        options: SourceOptions,
        source: Source,
        *,
        parallelism: int,
        requests: Requests | None = None,
        compares: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        #: The options as they were given: a signal may have set other tables in those that are used.
        self._given = options
        self._parallelism = parallelism
        self._clock = clock
        self._sizing = BatchSizing(parallelism, clock)
        self._log_sizing = LogSizing(clock)
        self._log: Log | None = None
        self._horizon = Horizon()
        self._end = StreamEnd(options, self._horizon, clock)
        #: Whether the log was found to be read up to the stream's end, when the last batch was planned.
        self._log_read = False
        #: Whether nothing concerns the stream in the log that the last batch was planned over.
        self._is_quiet = True
        self._requests = RequestQueue(requests, self._horizon, dialect=options.dialect, compares=compares)
        self._signal_table = None if options.signal_data_collection is None else SignalTable(options)
        self._read_tables = ReadTables(self._log_end)
        self._set_up(options, source)
        self._freshness = Freshness(self._log_clock, clock)
        is_limit = options.snapshot_max_held_log_bytes is not None
        self.log_room = LogRoom(self._log_retention, clock, often=is_limit)
        self._pace = SnapshotPace(
            options,
            self._activity,
            clock,
            rows_held=self._rows_held,
            held_log=lambda: self.log_room.held_bytes,
        )
        self._load = SnapshotLoad(self._load_watch, clock)
        self._heartbeat = _heartbeat(options, self._beat, clock)
        self._offset = StreamOffset()
        #: Whether no rows could be planned when it was tried last: their tables are locked.
        self._was_stuck = False
        #: Tables that were found when the end of the stream was known.
        self._too_new: set[str] = set()
        #: The batch that was planned last: its offsets, and the key ranges that it reads.
        self._plan: tuple[StreamOffset, StreamOffset, dict[str, list[KeyRange]]] | None = None
        self._advanced_at = clock()

    def _set_up(self, options: SourceOptions, source: Source, captured: CapturedTables | None = None) -> None:
        """Make what depends on the patterns of captured tables.

        Args:
            options: the stream's, with these patterns.
            source: the database, with these options.
            captured: its catalog, if that has been read.
        """
        self._options = options
        self._source = source
        self._captured = captured or self._catalog(options, source)
        self._gaps = self._captured.gaps
        self._requests.look_at(source, self._captured)
        self._planner = SplitPlanner(
            options, source, self._captured, parallelism=self._parallelism, follow=self._follow
        )
        self._shapes = Shapes(options, source, self._gaps, self._captured)
        self._schema_events = SchemaEvents(source, options.schema_policy, options.columns)
        self._boundary = BoundaryPrefetch(source.boundary)

    def _catalog(self, options: SourceOptions, source: Source) -> CapturedTables:
        return CapturedTables(options, source, Gaps(options, source), self._horizon, self._clock)

    def _use(self, offset: StreamOffset, columns: ColumnFilter | None = None) -> None:
        """Capture the tables that an offset says, and some columns of them; None: those of the options."""
        tables = in_force(offset.setting, self._given.tables)
        options = self._given.capturing(tables, columns)
        if (options.tables, options.columns) == (self._options.tables, self._options.columns):
            return
        if tables not in (self._given.tables, self._options.tables):
            _logger.warning("a signal has set the tables: %s", ", ".join(tables))
        self.close()
        self._set_up(options, registry.source(options))

    def hold(self) -> None:
        """Read no transaction that commits from now on (Trigger.AvailableNow)."""
        self._captured.require_checked()
        self._horizon.hold(self._source.log_end())

    def has_news(self, start: StreamOffset, limits: Limits) -> bool:
        """Whether there is anything to read but log that does not concern the stream.

        To be called once, after `hold`, instead of planning batches.

        Args:
            start: where the stream stands.
            limits: how much log to look at; there is news if there is more.

        Raises:
            TailraceError: an error of the source.
        """
        end = self.latest(start, limits)
        if end is start:
            return False
        upto = self._horizon.upto
        shapes = end.shapes if _only_settled(start, end) else start.shapes
        moved = replace(start, log=end.log, shapes=shapes, declared=end.declared)
        if upto is None or end.log is None or not self._is_quiet or end != moved:
            return True
        return bool(self._source.position(end.log).order < upto.order)

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
        return self._on_one_server(lambda: self._latest_or_rejoined(start, limits))

    def _latest_or_rejoined(self, start: StreamOffset, limits: Limits) -> StreamOffset:
        try:
            return self._latest(start, limits)
        except TableGapError:
            raise
        except PositionLostError:
            if not self._rejoins(start):
                raise
            return self._rejoin(start)

    def _latest(self, start: StreamOffset, limits: Limits) -> StreamOffset:
        self._use(start)
        queue = self._requests
        self._captured.require_checked()
        self._offset = start
        if self._end.is_reached(start):
            return start
        self._keep_pace(start)
        waiting = queue.waiting(start)
        queue.note(start, waiting)
        decision = self._set_tables(start, waiting)
        if decision is not None:
            waiting = queue.waiting(start)  # they may concern other tables now
        captured = self._captured
        if start.log is None:
            offset = with_parked(self._begin(start), waiting, captured.schemas)
            offset = self._end.look(offset, self._source)
            log_range = None
        else:
            position = self._source.position(start.log)
            if self._log is None and self._rejoins(start) and not self._source.has_log(position):
                return self._rejoin(start)  # before rows are read as of it
            self._source.confirm(position)
            if self._follows_columns:
                self._read_tables.look(start)
            offset = queue.resumed(with_parked(self._end.look(start, self._source), waiting))
            offset, log_range = self._advance_log(offset, limits)
        captured.require_read(start)
        self._shapes.check_read(start)
        offset = rereading.begun(offset, start, captured.schemas, self._options)
        unchanged = rereading.begun(start, start, captured.schemas, self._options)
        offset = self._register(self._without_excluded(offset), log_range)
        if log_range is None and self._horizon.upto is not None and self._gaps.wait:
            offset, log_range = self._advance_log(offset, limits)  # a gap has moved the horizon
            offset = self._register(offset, log_range)
        offset = self._with_signals(start, offset, log_range)
        offset, told, again = self._shapes.advance(start, offset, log_range)
        changed = column_changes(start, offset, self._options, captured.tables)
        offset, again = changed.offset, again | changed.again
        events = self._schema_events.of(
            log_range,
            captured.whole(),
            left_out=offset.parked.keys(),
            told=told,
            captured=changed.events,
        )
        offset = self._without_refused(start, replace(offset, schema=events))
        offset = with_declared(
            start, offset, self._options.propagation, captured.tables, self._source.source_type
        )
        offset = self._gaps.identified(self._with_rereads(start, offset, log_range, again))
        offset = queue.accept(replace(offset, setting=self._setting(offset)), waiting, decision)
        is_current = log_range is not None and not log_range.ddl_ahead
        offset = with_keys(offset, captured.tables, is_current=is_current)
        offset = self._end.advanced(offset, log_read=self._log_read)
        offset, planned = self._plan_chunks(offset, log_range, limits)
        offset = self._ended(offset, planned)
        unchanged = replace(unchanged, shapes=offset.shapes if _only_settled(start, offset) else start.shapes)
        unchanged = replace(unchanged, declared=offset.declared)
        if not start.is_new and not planned and log_range is None and offset == unchanged:
            if self._horizon.is_held and self._gaps.wait and not self._gaps.is_passed(start):
                return self._latest(start, limits)  # the last look at the catalog has moved the horizon
            return start
        self._planned(start, offset, planned)
        return offset

    def _ended(self, offset: StreamOffset, planned: Mapping[str, Any]) -> StreamOffset:
        """`offset` with the stream's end as reached, if it is.

        Raises:
            StateError: targets would lack what begins behind it.
        """
        if offset.ending is None or not offset.ending.log_read or planned:
            return offset
        gone = unfinished(offset).keys() - self._captured.tables.keys()
        behind = [f"`{name}` is to be read again, and no longer there" for name in gone]
        behind += [f"`{name}`: {why}" for name, why in self._gaps.found.items()]
        behind += [f"`{name}` has other columns" for name in self._gaps.pending - self._gaps.found.keys()]
        if not behind and self._waits_for_log(offset):
            behind = ["a request waits for it"]
        if not behind and (offset.tables or unfinished(offset)):
            return offset
        return self._end.reached(offset, behind)

    def _setting(self, offset: StreamOffset) -> TableSetting | None:
        """The tables that a signal has set, unless the option has changed since."""
        is_held = offset.setting is not None and offset.setting.instead_of == self._given.tables
        return offset.setting if is_held else None

    def _set_tables(self, start: StreamOffset, waiting: Sequence[Request]) -> Decision | None:
        """Obey the signal that sets the tables of the batch from `start`, or find out why that cannot be.

        Raises:
            TailraceError: the server cannot be reached.
        """
        request = self._requests.sets_tables(waiting)
        if request is None or request.signal is None:
            return None
        if start.log is None:
            return Decision(request.id, "the stream has not begun")
        if self._given.shape in ("row", "envelope"):
            return Decision(request.id, f"rows of shape `{self._given.shape}` are those of one table")
        if start.mode == "snapshot":
            return Decision(request.id, "the stream reads its tables once")
        try:
            tables = patterns_of(request.signal)
        except ValueError as error:
            return Decision(request.id, str(error))
        before = set(self._captured.schemas)
        if tables != self._options.tables:
            problem = self._change_tables(start, tables)
            if problem is not None:
                return Decision(request.id, problem)
        is_option = tables == self._given.tables
        setting = None if is_option else TableSetting(tables, self._given.tables)
        after = set(self._captured.schemas)
        left_out, taken_in = tuple(sorted(before - after)), tuple(sorted(after - before))
        return Decision(request.id, None, setting, left_out, taken_in)

    def _change_tables(self, start: StreamOffset, tables: tuple[str, ...]) -> str | None:
        """Capture other tables from now on; why that cannot be, or None if it is so.

        What would stop a stream that is started with these patterns is found before the present ones end.
        """
        options = self._given.capturing(tables)
        source = registry.source(options)
        captured = self._catalog(options, source)
        try:
            captured.require_checked()
            captured.read(start)
            rest = replace(start, tables={}, done={})  # others may be left out
            if captured.refused and not may_park(rest, captured.refused, captured.tables, options.max_parked):
                raise next(iter(captured.refused.values()))
        except TailraceError as error:
            source.close()
            if error.retryable:
                raise
            return coded(": ".join(filter(None, (error.message, error.detail))), error.code)
        self.close()
        self._set_up(options, source, captured)
        return None

    def _planned(self, start: StreamOffset, end: StreamOffset, ranges: dict[str, list[KeyRange]]) -> None:
        self._plan = (start, end, ranges)
        self._offset = end
        self._advanced_at = self._clock()

    def wait(self, start: StreamOffset, timeout_s: float) -> None:
        """Wait for more of the log, if the stream at `start` waits for nothing else."""
        may_wait = not self._horizon.is_held and start.mode != "snapshot"
        if may_wait and self._log is not None and not self._has_rows_to_read(start):
            with suppress(TailraceError):  # `latest` meets it again
                self._log.wait(timeout_s)

    def splits(self, start: StreamOffset, end: StreamOffset) -> list[Split]:
        """The splits of the batch `(start, end]`."""
        return self._on_one_server(lambda: self._splits(start, end))

    def _splits(self, start: StreamOffset, end: StreamOffset) -> list[Split]:
        self._use(end, end.columns)
        self._captured.require_checked()
        self._offset = end
        assert end.log is not None
        left_out = self._requests.left_out(end)
        ranges = self._ranges(start, end)
        splits: list[Split] = []
        if self._is_lost(start, end):
            self._requests.request_all(end)
            if not self._source.has_log(self._source.position(end.log)):
                ranges = {}  # they cannot be reconstructed, either
        elif self._has_log(start, end):
            splits.extend(self._planner.log_splits(start, end, left_out))
        splits.extend(self._planner.replays(start, end, left_out))
        ranges = {name: found for name, found in ranges.items() if name not in left_out}
        splits += self._planner.snapshot_splits(start, end, ranges, self._load.share)
        splits = [_declaring(split, end.declared) for split in splits] if end.declared else splits
        if self._options is self._given:
            return splits
        used = self._options
        return [replace(split, tables=used.tables, columns=used.columns) for split in splits]

    @staticmethod
    def _has_log(start: StreamOffset, end: StreamOffset) -> bool:
        """Whether the batch reads a part of the log."""
        is_followed = start.log is not None and end.mode != "snapshot"
        return is_followed and start.log != end.log and start.gaps == end.gaps

    def commit(self, end: StreamOffset) -> None:
        """Confirm to the source that the sink has the batch that ends at `end` and all earlier ones."""
        if end.log is not None:
            self._source.confirm(self._source.position(end.log))
        self._requests.committed(end)

    def head(self, offset: StreamOffset | None = None) -> StreamOffset:
        """The offset of a stream without lag."""
        current = self._offset if offset is None else offset
        if current.is_new or self._log is None:
            return current
        try:
            head = self._log.head()
        except ServerChangedError:
            return current  # the next batch looks up its position on the other server
        rest = replace(current, requests=(), schema=(), waits={}, signals={}, answers=())
        return replace(rest, log=head.to_json(), tables={}, again={})

    @property
    def complete_us(self) -> int | None:
        """The time up to which the stream is complete with the newest batch that is planned.

        It is the server's clock, in microseconds since 1970 UTC; None before it is known. Tables whose rows
        are still being read are not complete.
        """
        return self._freshness.complete_us

    @property
    def unanswered(self) -> TransientSourceError | None:
        """Why the server did not answer when it was asked last; None: it did."""
        return self._freshness.unanswered

    @property
    def held_by(self) -> str:
        """The limit because of which no rows of tables are read now; "" if none are held."""
        has_rows = self._offset.is_new or self._offset.tables or unfinished(self._offset)
        return self._pace.held_by if has_rows else ""

    @property
    def slowed_by(self) -> str:
        """Why rows of tables are read slowly now; "" if they are not."""
        return "" if self.held_by else self._load.slowed_by

    def close(self) -> None:
        """Stop following the log and close the connections."""
        if self._log is not None:
            self._log.close()
            self._log = None
        self._boundary.close()
        self._load.close()
        self._source.close()

    def _on_one_server(self, plan: Callable[[], T]) -> T:
        """Call `plan`, and once more if another server has taken over meanwhile."""
        try:
            return plan()
        except ServerChangedError:
            self.close()
            self._source.server_changed()
            self._freshness.forget()
            self._read_tables.forget()
            self._horizon.relocate(self._source)
            return plan()

    # ---- steps of latest ----

    def _begin(self, start: StreamOffset) -> StreamOffset:
        self._log_read = False
        mode = self._options.starting_position
        tables = self._captured.schemas_in(start)  # first: the log holds all their changes after the position
        position = self._source.starting_position()
        self._captured.read_before(position)
        offset = StreamOffset(mode=mode, log=position.to_json())
        if mode not in ("initial", "snapshot"):
            for name in tables:
                offset = offset.with_done(name, None)
        return offset

    def _advance_log(self, start: StreamOffset, limits: Limits) -> tuple[StreamOffset, LogRange | None]:
        assert start.log is not None
        self._log_read = False
        if start.mode == "snapshot":
            return start, None
        position = self._source.position(start.log)
        has_rows_to_read = self._has_rows_to_read(start) and not self._waits_for_log(start)
        if self._heartbeat is not None:
            self._heartbeat.beat()
        self._freshness.look(position)
        self.log_room.look(position)
        log = self._follow(start)
        stands_still = not self._horizon.is_fixed and self._stands_still(start)
        read_upto = log.read_upto()
        log_range = log.range_after(
            position,
            upto=self._horizon.upto,
            max_bytes=self._log_sizing.max_bytes(start.log, limits.max_bytes, limits.most_bytes),
            max_rows=limits.max_rows,
            # rows as of the end are reconstructed: a position to read them at would lie behind it
            for_rows=has_rows_to_read and not self._horizon.is_fixed,
            before_us=self._horizon.before_us,
        )
        self._log_sizing.ends(was_full=log_range is not None and log_range.is_far)
        if stands_still and log.is_caught_up(position) and not (log_range and log_range.alters_tables):
            return start, None
        if log_range is None:
            self._log_read = self._horizon.is_end(position)
            if not has_rows_to_read:  # else it may have waited for a position to read rows at
                self._freshness.reached(read_upto)
            return start, None
        self._freshness.reached(log_range.end)
        quiet = not (log_range.has_changes or log_range.ddl_ahead or log_range.has_rewrites)
        quiet = quiet and not (has_rows_to_read or log_range.is_far or self._waits_for_log(start))
        self._is_quiet = quiet
        if quiet and self._horizon.upto is None and self._clock() - self._advanced_at < QUIET_ADVANCE_S:
            return start, None
        return replace(start, log=log_range.end.to_json()), log_range

    def _stands_still(self, start: StreamOffset) -> bool:
        """Whether the log waits until rows are read, unless these have to wait themselves."""
        waits = self._waits_for_log(start) or bool(self._pace.held_by) or self._was_stuck
        return blocks(start) and not waits and self._has_unread_rows(start)

    def _register(self, offset: StreamOffset, log_range: LogRange | None) -> StreamOffset:
        """Add captured tables that are new to the stream.

        A table whose CREATE is in the batch, or directly after it, is followed from its first row. A table
        that exists already is snapshotted. That is correct whenever it was created: as of a position before
        its first row it is empty.
        """
        if log_range is not None:
            schemas = self._captured.schemas_in(offset).values()
            require_apart([*log_range.created, *(schema.id for schema in schemas)])
            for table in log_range.created:
                if not offset.knows(str(table)) and not offset.forgot:
                    offset = offset.with_done(str(table), None)
        due = self._captured.are_outdated and not self._gaps.wait
        left: dict[str, str] = {}
        if log_range is not None:
            if refreshes(offset, self._options) and self._schema_events.truncates:
                left = {str(table): TRUNCATED for table in log_range.truncated}
            left |= dict.fromkeys(log_range.left, GONE)
            left = {name: id_ for name, id_ in left.items() if _has_rows(offset, name)}
        if left:
            offset = replace(offset, ids={**offset.ids, **left})
        self._offset = offset
        alters = log_range is not None and log_range.alters_tables
        if due or left or alters or self._shapes.are_others_in(log_range, offset):
            self._captured.read(offset)
        return self._with_new_tables(offset)

    def _without_excluded(self, offset: StreamOffset) -> StreamOffset:
        """`offset` without the tables that `tables` no longer names.

        The stream skips what is logged of them from now on: if they are named again, they are read again. A
        table with an identity has a gap then (`Gaps.note`), which is an error if no table is read again.
        """
        if offset.mode == "initial":
            for name in offset.names():
                may_forget = name not in offset.ids or refreshes(offset, self._options)
                if may_forget and not self._options.captures(name):
                    offset = offset.without(name)
        return offset

    def _with_new_tables(self, offset: StreamOffset) -> StreamOffset:
        if offset.mode not in ("initial", "snapshot"):
            return offset
        if offset.mode == "snapshot" and not self._is_first(offset):
            return offset
        new = [name for name in self._captured.schemas if not offset.knows(name)]
        if self._horizon.is_fixed and not self._is_first(offset):  # created behind the end, perhaps
            for name in set(new) - self._too_new:
                _logger.warning("table `%s` is not read: it was found after the end was fixed", name)
            self._too_new.update(new)
            return offset
        for name in new:
            offset = self._begin_table(offset, name)
        for name in offset.partial if offset.mode == "initial" else ():
            is_due = name in offset.done and name not in offset.again and self._options.reads_rows_of(name)
            if is_due and name in self._captured.schemas:
                offset = to_reread(offset, self._captured.tables[name])
        return offset

    def _begin_table(self, offset: StreamOffset, name: str) -> StreamOffset:
        """Begin to read a table that is new to the stream, or only to follow it."""
        table = self._captured.tables[name]
        if not self._options.reads_rows_of(name):
            offset = offset.with_done(name, None).with_partial({*offset.partial, name})
            where = self._options.first_rows_of(name)
            if where is None:
                return offset
            self._require_condition(table, where)
            return to_reread(offset, table, where=where)
        if offset.forgot:  # perhaps a dropped table's name: its target may hold rows
            return to_reread(offset, table)
        return offset.with_table(name, TableProgress(estimated=table.estimated_rows))

    def _require_condition(self, table: CapturedTable, where: str) -> None:
        """Check the condition of the rows that are read of a table first.

        Raises:
            ConfigError: it cannot be used.
        """
        schema = table.schema
        problem = "rows of a table without a key cannot be replaced one by one" if not schema.key else None
        problem = problem or condition_problem(where, [c.name for c in schema.columns], self._options.dialect)
        problem = problem or self._source.condition_problem(schema, where)
        if problem is not None:
            raise ConfigError(
                f"`{OVERRIDES}` cannot be taken for table `{schema.id}`",
                problem,
                "correct the condition, or leave the table out of the option",
                code="TR-1018",
            )

    def _rejoin(self, start: StreamOffset) -> StreamOffset:
        """Continue behind a part of the log that is lost: every table is read again."""
        assert start.log is not None
        self._use(start)
        self.close()
        self._captured.read(self._offset)  # before the position, as in `_begin`
        self._gaps.forget()
        self._schema_events.forget()
        position = self._source.rejoin(start.log)
        offset = replace(start, log=position.to_json(), gaps=start.gaps + 1, schema=(), answers=(), shapes={})
        offset = replace(offset, declared=None)  # the lost part may have schema changes
        offset = after_a_gap(replace(offset, columns=self._options.columns))
        # dropped in the lost part: if such a table returns, its target holds rows that no log deletes
        followed = offset.tables.keys() | offset.done.keys()
        for name in followed - self._captured.tables.keys() - self._captured.refused.keys():
            offset = offset.without(name)
        for name in self._captured.schemas:
            if name in offset.parked:
                continue
            if offset.knows(name):
                offset = to_reread(offset, self._captured.tables[name])
            else:
                offset = self._begin_table(offset, name)
        offset = self._gaps.identified(offset)
        self._planned(start, offset, {})
        return offset

    def _with_rereads(
        self, start: StreamOffset, offset: StreamOffset, log_range: LogRange | None, again: set[str]
    ) -> StreamOffset:
        """`offset` with the tables read again whose rows have changed without entries in the log."""
        tables, events = self._captured.tables, self._schema_events
        kept: set[str] = set()
        if self._follows_columns and start.log is not None and offset.schema:
            read = self._read_tables.before(self._source.position(start.log))
            kept = followed(offset.schema, events.before, read)
        found = again | rereading.rewritten(offset, log_range, tables, events, self._options, followed=kept)
        if refreshes(offset, self._options):
            found |= self._gaps.cut_short(offset)
        offset = rereading.parked_rewritten(offset, log_range, self._options)
        return rereading.read_again(offset, found, tables, events, self._options)

    def _with_signals(
        self, start: StreamOffset, offset: StreamOffset, log_range: LogRange | None
    ) -> StreamOffset:
        """`offset` with the signals that the log has in the batch."""
        if log_range is None or not log_range.may_have_signals or self._signal_table is None:
            return offset
        assert start.log is not None
        found = self._signal_table.read(self._follow(start), start.log, log_range.end.to_json())
        return signals.with_signals(offset, found)

    def _without_refused(self, start: StreamOffset, offset: StreamOffset) -> StreamOffset:
        """`offset`, planned from `start`, with the tables parked that cannot be captured.

        Raises:
            TailraceError: there are too many of them, or no others.
        """
        refused = self._captured.refused
        new = {name: error for name, error in refused.items() if name not in offset.parked}
        if not new:
            return offset
        if not may_park(offset, new, self._captured.tables, self._options.max_parked):
            raise next(iter(new.values()))
        for name, error in new.items():
            entry = parked_at(name, start, offset, Reason.of(error))
            offset = park(offset, name, replace(entry, log=entry.log or offset.log))
        return offset

    def _waits_for_log(self, offset: StreamOffset) -> bool:
        """Whether something begins once the log is read up to a position that is known already."""
        return self._gaps.wait or self._requests.waits_for_log(offset)

    @staticmethod
    def _is_first(offset: StreamOffset) -> bool:
        return not offset.tables and not offset.done

    def _may_snapshot(self, offset: StreamOffset, log_range: LogRange | None) -> bool:
        if offset.mode == "snapshot":
            return True
        if self._gaps.wait or (log_range is not None and log_range.ddl_ahead):
            return False
        assert offset.log is not None
        position = self._source.position(offset.log)
        if self._horizon.is_fixed:
            return offset.ending is not None and offset.ending.log_read
        if not self._source.shows(position):
            return False
        return self._log is None or self._horizon.upto is not None or self._log.is_caught_up(position)

    def _boundary_beside(self, locked: Mapping[str, str]) -> Boundary:
        """`Source.boundary` with prefetched answers, which know nothing of locks."""

        def boundary(table: TableSchema, after: Key | None, rows: int) -> Key | None:
            if str(table.id) in locked:
                raise TableLockedError(f"table `{table.id}` is locked", locked[str(table.id)], code="TR-4304")
            return self._boundary(table, after, rows)

        return boundary

    def _plan_chunks(
        self, offset: StreamOffset, log_range: LogRange | None, limits: Limits
    ) -> tuple[StreamOffset, dict[str, list[KeyRange]]]:
        """`offset` with the cursors behind the rows that the batch reads, and their key ranges."""
        captured = self._captured
        self._load.look(wanted=self._is_protected and self._has_unread_rows(offset))
        if not (self._has_rows_to_read(offset) and self._may_snapshot(offset, log_range)):
            return offset, {}
        planned: dict[str, list[KeyRange]] = {}
        names = offset.tables.keys() | unfinished(offset).keys()
        captured.refresh(names, offset)
        if not self._may_snapshot(offset, log_range):  # the catalog shows a schema change
            return offset, {}
        for name in offset.tables if self._horizon.is_fixed else ():
            if name not in captured.schemas:
                raise not_as_of_end(name, "it was dropped, or renamed, behind it")
        row_bytes = self._row_bytes(offset)
        chunk_rows, splits = self._budget(limits, row_bytes)
        before = offset
        boundary = self._boundary_beside(self._source.locked(names))
        try:
            offset, planned = advance(
                offset, captured.schemas_in(offset), boundary, splits=splits, chunk_rows=chunk_rows
            )
            self._was_stuck = not planned
            self._pace.planned(_rows_read(before, offset), row_bytes)
            self._prepare_next(offset, chunk_rows, splits)
        except SchemaMismatchError:
            if not captured.has_news(offset):
                raise
            # else the next batch plans chunks
        ended = planned.keys() - offset.tables.keys() - unfinished(offset).keys()
        return self._shapes.with_read(offset, ended), planned

    def _has_rows_to_read(self, offset: StreamOffset) -> bool:
        """Whether rows of tables are still to be read, and may be now."""
        return self._pace.may_read and self._has_unread_rows(offset)

    def _has_unread_rows(self, offset: StreamOffset) -> bool:
        if offset.paused:
            return False
        self._captured.require_read(offset)
        return bool(offset.tables) or any(name in self._captured.tables for name in unfinished(offset))

    def _keep_pace(self, start: StreamOffset) -> None:
        """Find out whether the batch may read rows; a stream that would end for that waits."""
        would_end = self._horizon.is_held or start.mode == "snapshot"
        self._pace.look(ends=would_end)
        if start.is_new and self._options.starting_position in ("initial", "snapshot"):
            self._load.look(wanted=self._is_protected)  # while the catalog is read
        if would_end and (start.is_new or self._has_unread_rows(start)):
            self._pace.wait()

    @property
    def _is_protected(self) -> bool:
        return self._options.snapshot_protection == "auto"

    def _prepare_next(self, offset: StreamOffset, chunk_rows: int, splits: int) -> None:
        """Look up the ends of the next batch's first chunks while the present batch is written."""
        schemas = self._captured.schemas_in(offset)
        for name, progress in list({**offset.tables, **unfinished(offset)}.items())[:1]:
            if name in schemas:
                self._boundary.prepare(schemas[name], progress.cursor, chunk_rows, splits)

    def _row_bytes(self, offset: StreamOffset) -> int | None:
        """The mean size of a row of the table that is read next, if it matters."""
        if not self._pace.limits_bytes:
            return None
        schemas = self._captured.schemas_in(offset)
        names = [name for name in (*offset.tables, *unfinished(offset)) if name in schemas]
        return self._source.row_bytes(schemas[names[0]].id) if names else None

    def _budget(self, limits: Limits, row_bytes: int | None) -> tuple[int, int]:
        """The rows of a chunk, and the chunks of the batch."""
        chunk_rows, splits = self._load.chunks(self._options.snapshot_chunk_rows, self._sizing.chunks())
        chunk_rows, splits = self._pace.chunks(chunk_rows, splits, row_bytes)
        if limits.max_rows is not None:
            chunk_rows = min(chunk_rows, limits.max_rows)
            splits = max(1, min(splits, limits.max_rows // chunk_rows))
        return chunk_rows, splits

    # ---- steps of splits ----

    def _ranges(self, start: StreamOffset, end: StreamOffset) -> dict[str, list[KeyRange]]:
        """The key ranges that the batch reads."""
        if self._plan is not None and self._plan[:2] == (start, end):
            return dict(self._plan[2])
        return ranges_between(start, end)

    def _is_lost(self, start: StreamOffset, end: StreamOffset) -> bool:
        """Whether the log of a batch is gone that an earlier process has planned.

        Its changes are unknowable, and its offsets cannot change: it is delivered without them, each time.
        """
        if start.log is None or not (self._requests.may_be_made and self._rejoins(end)):
            return False
        planned_here = self._plan is not None and self._plan[:2] == (start, end)
        return not planned_here and not self._source.has_log(self._source.position(start.log))

    def _rejoins(self, offset: StreamOffset) -> bool:
        """Whether the stream goes on behind a part of the log that is lost."""
        may = offset.mode == "initial" and not offset.partial
        return may and self._options.on_position_lost == "refresh"

    # ---- queries to the source ----

    # what asks them outlives a source: a signal may set other tables

    def _activity(self) -> Activity:
        return self._source.activity()

    def _load_watch(self) -> LoadWatch | None:
        return self._source.load_watch()

    def _rows_held(self) -> str:
        return self._source.rows_held()

    def _log_end(self) -> Any:
        return self._source.log_end()

    @property
    def _follows_columns(self) -> bool:
        """Whether targets rename and drop columns by statements in the log."""
        return self._source.logs_statements and self._options.former_columns == "follow"

    def _log_clock(self, position: Position) -> LogClock | None:
        return self._source.log_clock(position)

    def _log_retention(self, position: Position) -> LogRetention | None:
        return self._source.log_retention(position)

    def _beat(self, statement: str) -> None:
        self._source.heartbeat(statement)

    def _follow(self, start: StreamOffset) -> Log:
        if self._log is None:
            assert start.log is not None
            self._log = self._source.follow(self._source.position(start.log), self._follows)
        return self._log

    def _follows(self, table: TableId) -> bool:
        return self._options.captures(str(table)) and self._captured.may_be(table)


def _declaring(split: Split, declared: CatalogTexts) -> Split:
    """`split` with what the catalog says of its tables."""
    if isinstance(split, SnapshotSplit):
        name = str(split.table.id)
        declared = {name: declared[name]} if name in declared else {}
    return replace(split, declared=declared)


def _has_rows(offset: StreamOffset, name: str) -> bool:
    """Whether the stream may have emitted rows of a table."""
    return name in offset.done or (name in offset.tables and offset.tables[name].cursor is not None)


def _only_settled(start: StreamOffset, end: StreamOffset) -> bool:
    """Whether two offsets have the same shapes, and differ at most in what is settled of them."""
    before, after = start.shapes, end.shapes
    return before.keys() == after.keys() and all(before[n].shape == after[n].shape for n in before)


def _rows_read(before: StreamOffset, after: StreamOffset) -> int:
    """The rows between two offsets of one batch, as far as they are known before they are read."""
    read = 0
    for name, progress in before.tables.items():
        rows = after.tables[name].rows if name in after.tables else after.done.get(name)
        read += (rows or 0) - progress.rows
    for name, reread in before.again.items():
        read += after.again[name].progress.rows - reread.progress.rows
    return max(read, 0)


def _heartbeat(
    options: SourceOptions, beat: Callable[[str], None], clock: Callable[[], float]
) -> Heartbeat | None:
    statement = options.heartbeat_action_query
    if statement is None:
        return None
    return Heartbeat(lambda: beat(statement), options.heartbeat_interval_ms / 1000, clock)

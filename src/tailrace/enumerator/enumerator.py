"""Plans batches: from a batch's start offset to its end offset, and from both to splits.

    start ──latest()──▶ end ──splits(start, end)──▶ [SnapshotSplit…, LogSplit…]

A batch ends at the log position P that `latest` chose. Its log splits read up to P, its snapshot splits read
the key ranges between the two offsets' cursors *as of* P. `splits` needs only the offsets: what it remembers
from `latest` (chunk boundaries, the events themselves) only saves work. So a batch that is replayed after a
crash gives the same rows.

Snapshot chunks are planned only while the log is caught up, because a rewind costs as much as reading the
lag, and while no schema change follows directly after P.

A table whose rows have changed without entries in the log is read again, chunk by chunk, in the same way; the
stream follows its log meanwhile (docs/design/0006-reading-tables-again.md).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from tailrace.config.options import SourceOptions
from tailrace.enumerator import signals
from tailrace.enumerator.batch_sizing import BatchSizing
from tailrace.enumerator.boundary_prefetch import BoundaryPrefetch
from tailrace.enumerator.freshness import Freshness
from tailrace.enumerator.offset import RereadProgress, StreamOffset, TableProgress
from tailrace.enumerator.parked import (
    after_a_gap,
    left_out,
    may_park,
    not_replayable,
    park,
    parked_at,
    replayed,
    resume,
    to_resume,
    waits_to_resume,
    with_parked,
)
from tailrace.enumerator.request import Request, Requests
from tailrace.enumerator.schema_events import SchemaEvents
from tailrace.enumerator.signal_table import SignalTable
from tailrace.enumerator.snapshot import Boundary, KeyRange, advance
from tailrace.enumerator.stream_keys import (
    changed_key,
    cursor_in,
    key_in_log,
    progress_of,
    schema_in,
    with_keys,
)
from tailrace.errors import (
    ConfigError,
    PositionLostError,
    PreflightError,
    SchemaMismatchError,
    ServerChangedError,
    TableGapError,
    TableLockedError,
    TailraceError,
)
from tailrace.model.messages import MESSAGES
from tailrace.model.parked import Reason
from tailrace.model.split import Key, LogSplit, SnapshotSplit, Split
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.base import GONE, TRUNCATED, CapturedTable, Log, LogRange, Position, Source

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
        requests: requests to the stream, None if it accepts none.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        options: SourceOptions,
        source: Source,
        *,
        parallelism: int,
        requests: Requests | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._source = source
        self._requests = requests
        self._parallelism = parallelism
        self._sizing = BatchSizing(parallelism, clock)
        self._clock = clock
        self._log: Log | None = None
        self._signal_table = None if options.signal_data_collection is None else SignalTable(options)
        self._schema_events = SchemaEvents(source, options.schema_policy)
        self._boundary = BoundaryPrefetch(source.boundary)
        self._freshness = Freshness(source.log_clock, clock)
        self._offset = StreamOffset()
        self._schemas: dict[str, TableSchema] = {}
        self._captured: dict[str, CapturedTable] = {}
        self._schemas_read_at: float | None = None
        #: Tables of which the log lacks changes, with the reason: they are to be read again.
        self._gaps: dict[str, str] = {}
        #: From where on: the log's end when they were found. A batch in which a reading begins must not hold
        #: changes from before the gap: their rows would count as present.
        self._gaps_end: Position | None = None
        #: The log's end when requests to read tables again were found, by id: as with gaps.
        self._noted: dict[str, Position] = {}
        #: Those of them that the log has not been read up to.
        self._resyncs: dict[str, Position] = {}
        #: The tables for which the server's checks have been made.
        self._checked_tables: set[str] = set()
        #: Tables that match `tables` and cannot be captured, with the reason: they are parked.
        self._refused: dict[str, TailraceError] = {}
        #: Tables that are not in the log yet, as others hold locks on them.
        self._unpublished: set[str] = set()
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
        self._check_source()
        self._offset = start
        waiting = self._waiting(start)
        self._note_resyncs(start, waiting)
        if start.log is None:
            offset = with_parked(self._begin(), waiting, self._schemas)
            log_range = None
        else:
            position = self._source.position(start.log)
            if self._log is None and self._rejoins(start) and not self._source.has_log(position):
                return self._rejoin(start)  # before rows are read as of it
            self._source.confirm(position)
            offset = self._resumed(with_parked(start, waiting))
            offset, log_range = self._advance_log(offset, limits)
        offset, unchanged = self._begun(offset, start), self._begun(start, start)
        offset = self._register(self._without_excluded(offset), log_range)
        if log_range is None and self._target is not None and self._waits_for_gaps():
            offset, log_range = self._advance_log(offset, limits)  # a gap has moved the target
            offset = self._register(offset, log_range)
        offset = self._with_signals(start, offset, log_range)
        events = self._schema_events.of(log_range, self._schemas, left_out=offset.parked.keys())
        offset = self._without_refused(start, replace(offset, schema=events))
        rewritten = self._rewritten(offset, log_range) | self._passed_gaps(start)
        offset = self._identified(self._read_again(offset, rewritten))
        offset = self._accept_requests(offset, signals.in_order(waiting, self._resyncs))
        is_current = log_range is not None and not log_range.ddl_ahead
        offset = with_keys(offset, self._captured, is_current=is_current)
        self._offset = offset
        planned: dict[str, list[KeyRange]] = {}
        if self._has_rows_to_read(offset) and self._may_snapshot(offset, log_range):
            chunk_rows, splits = self._budget(limits)
            unfinished = offset.tables.keys() | _cursors(offset).keys()
            self._refresh(unfinished)
            schemas = self._tables()
            boundary = self._boundary_beside(self._source.locked(unfinished))
            try:
                offset, planned = advance(offset, schemas, boundary, splits=splits, chunk_rows=chunk_rows)
                self._prepare_next(offset, chunk_rows, splits)
            except SchemaMismatchError:
                if not self._catalog_has_news():
                    raise
                # else the next batch plans chunks
        if not start.is_new and not planned and log_range is None and offset == unchanged:
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
        lost = self._lost(start, end)
        if (
            start.log is not None
            and start.log != end.log
            and end.mode != "snapshot"
            and start.gaps == end.gaps
        ):
            splits.extend([] if lost else self._log_splits(start, end))
        splits.extend(self._replays(start, end))
        ranges = self._ranges(start, end)
        if lost:
            self._request_all(end)
            if not self._source.has_log(self._source.position(end.log)):
                ranges = {}  # they cannot be reconstructed, either
        for name in ranges.keys() & self._left_out(end):
            del ranges[name]
        if ranges:
            self._refresh(ranges)
            ranges = self._with_valid_keys(start, end, ranges)
            schemas = self._tables()
            page_rows = min(self._options.snapshot_chunk_rows, PAGE_ROWS)
            as_of = self._source.as_of(self._source.position(end.log))
            for name, table_ranges in ranges.items():
                if name not in schemas:
                    continue  # dropped since: its rows at P are lost; the log carries the DROP
                for r in table_ranges:
                    split = SnapshotSplit(
                        schemas[name], r.after, r.upto, as_of, page_rows, reread=name in end.again
                    )
                    splits.extend(self._source.divided(split, self._parallelism))
        return splits

    def commit(self, end: StreamOffset) -> None:
        """Confirm to the source that the sink has the batch that ends at `end` and all earlier ones."""
        if end.log is not None:
            self._source.confirm(self._source.position(end.log))
        if self._requests is not None and end.requests:
            self._requests.remove(end.requests)

    def head(self, offset: StreamOffset | None = None) -> StreamOffset:
        """The offset of a stream without lag."""
        current = self._offset if offset is None else offset
        if current.is_new or self._log is None:
            return current
        try:
            head = self._log.head()
        except ServerChangedError:
            return current  # the next batch looks up its position on the other server
        return replace(
            current, log=head.to_json(), tables={}, again={}, requests=(), schema=(), signals={}, answers=()
        )

    @property
    def complete_us(self) -> int | None:
        """The time up to which the stream is complete with the newest batch that is planned.

        It is the server's clock, in microseconds since 1970 UTC; None before it is known. Tables whose rows
        are still being read are not complete.
        """
        return self._freshness.complete_us

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
            self._freshness.forget()
            if self._target is not None:
                self._target = self._source.position(self._target.to_json())
            return plan()

    # ---- steps of latest ----

    def _check_source(self) -> None:
        if not self._checked:
            self._note_refused()

    def _begin(self) -> StreamOffset:
        mode = self._options.starting_position
        tables = self._tables()  # before the position, so that the log holds all their changes after it
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
        has_rows_to_read = self._has_rows_to_read(start) and not self._waits_for_log(start)
        self._freshness.look(position)
        log = self._follow(start)
        read_upto = log.read_upto()
        log_range = log.range_after(
            position,
            upto=self._target,
            max_bytes=limits.max_bytes,
            max_rows=limits.max_rows,
            for_rows=has_rows_to_read,
        )
        if log_range is None:
            if not has_rows_to_read:  # else it may have waited for a position to read rows at
                self._freshness.reached(read_upto)
            return start, None
        self._freshness.reached(log_range.end)
        quiet = not (log_range.has_changes or log_range.ddl_ahead or log_range.has_rewrites)
        quiet = quiet and not (has_rows_to_read or log_range.is_far or self._waits_for_log(start))
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
                if not offset.knows(str(table)) and not offset.forgot:
                    offset = offset.with_done(str(table), None)
        due = self._schemas_read_at is None or (self._clock() - self._schemas_read_at >= CATALOG_REFRESH_S)
        due = due and not self._waits_for_gaps()
        left: dict[str, str] = {}
        if log_range is not None:
            if self._refreshes(offset) and self._schema_events.truncates:
                left = {str(table): TRUNCATED for table in log_range.truncated}
            left |= dict.fromkeys(log_range.left, GONE)
            left = {name: id_ for name, id_ in left.items() if _has_rows(offset, name)}
        if left:
            offset = replace(offset, ids={**offset.ids, **left})
        self._offset = offset
        if due or left or (log_range is not None and log_range.alters_tables):
            self._read_catalog()
        return self._with_new_tables(offset)

    def _without_excluded(self, offset: StreamOffset) -> StreamOffset:
        """`offset` without the tables that `tables` no longer names.

        The stream skips what is logged of them from now on: if they are named again, they are read again. A
        table with an identity has a gap then (`_note_gaps`), which is an error if no table is read again.
        """
        if offset.mode == "initial":
            for name in offset.names():
                may_forget = name not in offset.ids or self._refreshes(offset)
                if may_forget and not self._options.captures(name):
                    offset = offset.without(name)
        return offset

    def _with_new_tables(self, offset: StreamOffset) -> StreamOffset:
        if offset.mode not in ("initial", "snapshot"):
            return offset
        if offset.mode == "snapshot" and not self._is_first(offset):
            return offset
        for name in self._schemas:
            if not offset.knows(name):
                offset = self._begin_table(offset, name)
        return offset

    def _begin_table(self, offset: StreamOffset, name: str) -> StreamOffset:
        """Begin to read a table that is new to the stream."""
        if offset.forgot:  # perhaps a dropped table's name: its target may hold rows
            return _reread(offset, name, self._captured[name].estimated_rows)
        return offset.with_table(name, TableProgress(estimated=self._captured[name].estimated_rows))

    def _rejoin(self, start: StreamOffset) -> StreamOffset:
        """Continue behind a part of the log that is lost: every table is read again."""
        assert start.log is not None
        self.close()
        self._read_catalog()  # before the position, as in `_begin`
        self._gaps.clear()
        self._gaps_end = None
        self._schema_events.forget()
        position = self._source.rejoin(start.log)
        offset = replace(start, log=position.to_json(), gaps=start.gaps + 1, schema=(), answers=())
        offset = after_a_gap(offset)
        # dropped in the lost part: if such a table returns, its target holds rows that no log deletes
        followed = offset.tables.keys() | offset.done.keys()
        for name in followed - self._captured.keys() - self._refused.keys():
            offset = offset.without(name)
        for name in self._schemas:
            if name in offset.parked:
                continue
            if offset.knows(name):
                offset = _reread(offset, name, self._captured[name].estimated_rows)
            else:
                offset = self._begin_table(offset, name)
        offset = self._identified(offset)
        self._plan = (start, offset, {})
        self._offset = offset
        self._advanced_at = self._clock()
        return offset

    def _identified(self, offset: StreamOffset) -> StreamOffset:
        """`offset` with the present identities of its tables."""
        found = self._source.identities()
        if not found or offset.mode == "snapshot":
            return offset
        names = [name for name in (*offset.tables, *offset.done) if name not in self._unpublished]
        ids = {name: found.get(name, GONE) for name in names}
        ids |= {"": found[""]} if "" in found else {}
        waiting = self._gaps.keys() - self._unpublished  # a restart must find these again
        ids |= dict.fromkeys(waiting & ids.keys(), GONE)
        kept = {*self._unpublished, *waiting, *([""] if waiting else [])}
        ids |= {name: id_ for name, id_ in offset.ids.items() if name in kept}
        if ids != offset.ids:
            offset = replace(offset, ids=ids)
            self._note_gaps(offset)  # from now on the source compares the log with these
        return offset

    def _waits_for_gaps(self) -> bool:
        """Whether tables are to be read again once the log is read up to where they were found."""
        return bool(self._gaps.keys() - self._unpublished)

    def _passed_gaps(self, start: StreamOffset) -> set[str]:
        """The tables with gaps, once a batch begins behind where they were found: no more are noted then."""
        end = self._gaps_end
        passed = start.log is not None and (
            end is None
            or not self._refreshes(start)  # an error
            or self._source.position(start.log).order >= end.order
        )
        if not passed or start.mode != "initial":
            return set()
        found = self._gaps.keys() - self._unpublished
        self._gaps = {name: why for name, why in self._gaps.items() if name not in found}
        return {name for name in found if start.knows(name)}

    def _note_gaps(self, offset: StreamOffset) -> None:
        """Note of which tables the log lacks changes; raise an error if they are not read again."""
        if offset.is_new or offset.mode == "snapshot":
            return
        followed = (*offset.tables, *offset.done)
        reading = [name for name, progress in offset.tables.items() if progress.cursor is not None]
        gaps = self._source.gaps({**dict.fromkeys(followed, ""), **offset.ids}, reading)
        if gaps and not self._refreshes(offset):
            raise TableGapError(
                f"changes of {', '.join(f'`{name}`' for name in sorted(gaps))} are missing from the log",
                "; ".join(f"`{name}`: {why}" for name, why in sorted(gaps.items())),
                "set onRewrite: refresh, with startingPosition initial, to read such tables again",
                sorted(gaps),
                code="TR-4106",
            )
        self._gaps.update(gaps)
        if offset.mode == "initial" and self._options.on_rewrite != "ignore":
            self._gaps.update(self._source.rewrites(offset.ids))

    def _refreshes(self, offset: StreamOffset) -> bool:
        """Whether tables are read again whose rows the log does not tell."""
        return offset.mode == "initial" and self._options.on_rewrite == "refresh"

    def _rewritten(self, offset: StreamOffset, log_range: LogRange | None) -> set[str]:
        """The known tables that the log, or a changed key, shows to be rewritten."""
        found: set[str] = set()
        for name, progress in {**offset.tables, **_cursors(offset)}.items():
            table = self._captured.get(name)
            if table is not None and (error := changed_key(progress, table)) is not None:
                if not self._refreshes(offset):
                    raise error
                found.add(name)
        if log_range is not None:
            found |= {str(table) for table in log_range.rewritten} - self._schema_events.kept(offset.schema)
            if not self._refreshes(offset) and self._schema_events.truncates:
                found |= {str(table) for table in log_range.truncated}
            # a name with two dots may be meant or not: a table that is read once more is harmless
            dropped = tuple(f"{database}." for database in log_range.dropped_databases)
            found |= {name for name in offset.names() if name.startswith(dropped)}
        known = found & set(offset.names())
        return known if offset.mode == "initial" else set()

    def _read_again(self, offset: StreamOffset, rewritten: set[str]) -> StreamOffset:
        """Begin to read `rewritten` tables again, by `onRewrite`; forget those that were dropped."""
        if rewritten and self._options.on_rewrite == "fail":
            raise SchemaMismatchError(
                f"rows of {', '.join(f'`{n}`' for n in sorted(rewritten))} changed without being logged",
                "a schema change rewrote them, or the table was missing from the log for a time; onRewrite "
                "is `fail`",
                "set onRewrite: refresh to read such tables again, or onRewrite: ignore to keep the old "
                "values in targets",
                code="TR-4409",
            )
        if self._options.on_rewrite == "refresh":
            for name in sorted(rewritten):
                if name in self._captured:
                    offset = _reread(offset, name, self._captured[name].estimated_rows)
                elif name in self._schema_events.emptied(offset.schema):
                    # read again without a row: targets delete all that they have
                    offset = offset.with_reread(name, RereadProgress(uuid.uuid4().hex[:12], done=True))
                else:  # else the offset would grow with every table that there ever was
                    offset = offset.without(name)
        return offset

    def _begun(self, offset: StreamOffset, start: StreamOffset) -> StreamOffset:
        """`offset` without what ended with the batch before, whose end is `start`.

        Tables of which targets have deleted all rows, as they were dropped, are forgotten.
        """
        ended = {name for name, reread in start.again.items() if reread.done}
        offset = replace(offset.without_rereads(ended), schema=(), answers=())
        applies = self._options.on_drop_table == "apply"
        for name in ended & offset.done.keys() if applies else ():
            if name not in self._tables():
                offset = offset.without(name)
        return offset

    def _note_resyncs(self, start: StreamOffset, waiting: Sequence[Request]) -> None:
        """Note up to where the log must be read before tables are read again that requests ask for.

        Rows may be gone without the log saying so. An older change of such a row must not be in a batch
        of the reading: it would count as present.
        """
        if start.log is None or start.mode == "snapshot":
            return
        # of those in the log, all that is older than the signal lies before this batch
        ids = {r.id for r in waiting if r.kind == "resync"} - start.signals.keys()
        at = self._source.position(start.log).order
        self._noted = {id_: end for id_, end in self._noted.items() if id_ in ids}
        if ids - self._noted.keys():
            end = self._source.log_end()
            self._noted |= dict.fromkeys(ids - self._noted.keys(), end)
            if self._target is not None:
                self._target = max(self._target, end, key=lambda position: position.order)
        self._resyncs = {id_: end for id_, end in self._noted.items() if end.order > at}

    def _accept_requests(self, offset: StreamOffset, waiting: Sequence[Request]) -> StreamOffset:
        """Begin what waiting requests ask for; tables are parked already."""
        postponed: set[str] = set()
        for request in waiting:
            if request.kind == "resync":
                for name in request.tables:
                    if name in self._tables() and name not in offset.parked:
                        by = request.id if request.signal is None else request.signal.id
                        offset = _reread(offset, name, self._captured[name].estimated_rows, by)
            elif request.kind == "resume":
                offset, is_possible = self._accept_resume(offset, request)
                postponed |= set() if is_possible else {request.id}
            if request.id not in postponed:
                offset = signals.answered(offset, request, self._signal_context())
        new = {request.id for request in waiting} - postponed
        offset = signals.without_accepted(offset, new)
        if self._requests is None or not new:
            return offset
        # an accepted request that no longer waits has taken effect for good
        accepted = new | set(offset.requests)
        return replace(offset, requests=tuple(r.id for r in self._requests.pending() if r.id in accepted))

    # ---- parked tables ----

    def _waiting(self, start: StreamOffset) -> Sequence[Request]:
        """The requests that the stream has not accepted."""
        pending = () if self._requests is None else self._requests.pending()
        found = [request for request in pending if request.id not in start.requests]
        found += signals.waiting_in(start)
        if all(request.kind != "signal" for request in found):
            return found
        self._offset = start
        return signals.resolved(found, start, self._signal_context())

    def _with_signals(
        self, start: StreamOffset, offset: StreamOffset, log_range: LogRange | None
    ) -> StreamOffset:
        """`offset` with the signals that the log has in the batch."""
        if log_range is None or not log_range.may_have_signals or self._signal_table is None:
            return offset
        assert start.log is not None
        found = self._signal_table.read(self._follow(start), start.log, log_range.end.to_json())
        return signals.with_signals(offset, found)

    def _signal_context(self) -> signals.Context:
        """What signals are resolved by."""
        return signals.Context(self._tables().keys(), self._options.dialect)

    def _without_refused(self, start: StreamOffset, offset: StreamOffset) -> StreamOffset:
        """`offset`, planned from `start`, with the tables parked that cannot be captured.

        Raises:
            TailraceError: there are too many of them, or no others.
        """
        new = {name: error for name, error in self._refused.items() if name not in offset.parked}
        if not new:
            return offset
        if not may_park(offset, new, self._captured, self._options.max_parked):
            raise next(iter(new.values()))
        for name, error in new.items():
            entry = parked_at(name, start, offset, Reason.of(error))
            offset = park(offset, name, replace(entry, log=entry.log or offset.log))
        return offset

    def _accept_resume(self, offset: StreamOffset, request: Request) -> tuple[StreamOffset, bool]:
        """Let parked tables be resumed; whether that is possible now, as no one holds locks on them."""
        asked = offset.parked.keys() & set(request.tables)
        if not asked:
            return offset, True
        self._refused.clear()
        self._check_again()
        self._read_catalog()
        if asked & self._unpublished:
            return offset, False
        for name in asked:
            if name in self._refused:
                reason = Reason.of(self._refused[name])
                offset = park(offset, name, replace(offset.parked[name], reason=reason))
            elif name not in self._captured:
                offset = offset.without(name)
        assert offset.log is not None
        reads_log = offset.mode != "snapshot"
        end = self._source.log_end() if reads_log else self._source.position(offset.log)
        if self._target is not None:
            self._target = max(self._target, end, key=lambda position: position.order)
        able = tuple(name for name in asked if name in offset.parked and name not in self._refused)
        return to_resume(offset, replace(request, tables=able), end.to_json()), True

    def _resumed(self, offset: StreamOffset) -> StreamOffset:
        """`offset` with the tables followed again whose time has come."""
        if not waits_to_resume(offset):
            return offset
        if self._schemas_read_at is None:
            self._read_catalog()
        assert offset.log is not None
        at = self._source.position(offset.log).order
        for name, entry in offset.parked.items():
            if entry.resume is None or self._source.position(entry.resume).order > at:
                continue
            if name in self._captured:
                offset = resume(offset, name, self._captured[name].estimated_rows)
        return offset

    def _waits_for_log(self, offset: StreamOffset) -> bool:
        """Whether something begins once the log is read up to a position that is known already."""
        return self._waits_for_gaps() or bool(self._resyncs) or waits_to_resume(offset)

    def _check_again(self) -> None:
        """Make the checks of the start once more, for tables: what is wrong with the server is said there."""
        with suppress(PreflightError):
            self._note_refused()

    def _note_refused(self) -> None:
        """Find out which tables cannot be captured, by the checks of the server."""
        self._refused.update(self._source.require())
        self._checked = True

    @staticmethod
    def _is_first(offset: StreamOffset) -> bool:
        return not offset.tables and not offset.done

    def _may_snapshot(self, offset: StreamOffset, log_range: LogRange | None) -> bool:
        if offset.mode == "snapshot":
            return True
        if self._waits_for_gaps() or (log_range is not None and log_range.ddl_ahead):
            return False
        assert offset.log is not None
        position = self._source.position(offset.log)
        if not self._source.shows(position):
            return False
        return self._log is None or self._target is not None or self._log.is_caught_up(position)

    def _with_valid_keys(
        self, start: StreamOffset, end: StreamOffset, ranges: dict[str, list[KeyRange]]
    ) -> dict[str, list[KeyRange]]:
        """The ranges whose tables still have the key that bounds them.

        A batch that is repeated cannot read the others. The schema change that took the key away lies behind
        the batch, and the stream reads the table again once it comes to it.

        Raises:
            KeyChangedError: a table's key is gone, and it is not read again.
        """
        valid = dict(ranges)
        for name in ranges.keys() & self._captured.keys():
            bounds = [progress_of(end, name)]
            if name not in end.again or _is_continued(start, end, name):
                bounds.append(progress_of(start, name))
            for bound in filter(None, bounds):
                error = changed_key(bound, self._captured[name])
                if error is not None and not self._refreshes(end):
                    raise error
                if error is not None:
                    valid.pop(name, None)
        return valid

    def _boundary_beside(self, locked: Mapping[str, str]) -> Boundary:
        """`Source.boundary` with prefetched answers, which know nothing of locks."""

        def boundary(table: TableSchema, after: Key | None, rows: int) -> Key | None:
            if str(table.id) in locked:
                raise TableLockedError(f"table `{table.id}` is locked", locked[str(table.id)], code="TR-4304")
            return self._boundary(table, after, rows)

        return boundary

    def _catalog_has_news(self) -> bool:
        """Whether the catalog, read again, shows why a table did not have the schema that it should have."""
        before = {name: (table.schema, table.keys) for name, table in self._captured.items()}
        self._read_catalog()
        return before != {name: (table.schema, table.keys) for name, table in self._captured.items()}

    def _has_rows_to_read(self, offset: StreamOffset) -> bool:
        """Whether rows of tables are still to be read."""
        if offset.paused:
            return False
        if self._schemas_read_at is None:
            self._read_catalog()
        unfinished = (name for name, reread in offset.again.items() if not reread.done)
        return bool(offset.tables) or any(name in self._captured for name in unfinished)

    def _prepare_next(self, offset: StreamOffset, chunk_rows: int, splits: int) -> None:
        """Look up the ends of the next batch's first chunks while the present batch is written."""
        schemas = self._tables()
        for name, progress in list({**offset.tables, **_cursors(offset)}.items())[:1]:
            if name in schemas:
                self._boundary.prepare(schemas[name], progress.cursor, chunk_rows, splits)

    def _budget(self, limits: Limits) -> tuple[int, int]:
        chunk_rows, splits = self._options.snapshot_chunk_rows, self._sizing.chunks()
        if limits.max_rows is not None:
            chunk_rows = min(chunk_rows, limits.max_rows)
            splits = max(1, min(splits, limits.max_rows // chunk_rows))
        return chunk_rows, splits

    # ---- steps of splits ----

    def _lost(self, start: StreamOffset, end: StreamOffset) -> bool:
        """Whether the log of a batch is gone that an earlier process has planned.

        Its changes are unknowable, and its offsets cannot change: it is delivered without them, each time.
        """
        if start.log is None or self._requests is None or not self._rejoins(end):
            return False
        planned_here = self._plan is not None and self._plan[:2] == (start, end)
        return not planned_here and not self._source.has_log(self._source.position(start.log))

    def _rejoins(self, offset: StreamOffset) -> bool:
        """Whether the stream goes on behind a part of the log that is lost."""
        return offset.mode == "initial" and self._options.on_position_lost == "refresh"

    def _request_all(self, end: StreamOffset) -> None:
        """Request that every table be read again, so that a crash behind the batch does not forget it."""
        assert self._requests is not None
        tables = tuple(sorted({*end.tables, *end.done}))
        waiting = (request for request in self._requests.pending() if request.id not in end.requests)
        if all((request.kind, request.tables) != ("resync", tables) for request in waiting):
            self._requests.add(tables)

    def _log_splits(self, start: StreamOffset, end: StreamOffset) -> list[LogSplit]:
        assert start.log is not None
        assert end.log is not None
        schemas = self._tables()
        whole = LogSplit(
            start=self._source.position(start.log).to_json(),
            end=self._source.position(end.log).to_json(),
            cursors={
                schemas[n].id: cursor_in(p, schemas[n])
                for n, p in start.tables.items()
                # nothing of a dropped table is emitted, everything of one that is read from its begin
                if p.cursor is not None and n in schemas and n not in end.again
            },
            finished=self._finished(start, end),
            keys={t.schema.id: key for t in self._captured.values() if (key := key_in_log(end, t))},
            left_out={t.schema.id: t.left_out for t in self._captured.values() if t.left_out},
            without=self._left_out(end) | replayed(start, end).keys(),
        )
        tasks = self._options.log_parallelism
        if self._options.partitioner == "forward":
            return self._follow(start).splits(whole, tasks)
        (split,) = self._follow(start).splits(whole, 1)
        if tasks == 1 or split.events is not None:
            return [split]
        return [replace(split, share=(number, tasks)) for number in range(tasks)]

    def _left_out(self, end: StreamOffset) -> frozenset[str]:
        """The tables of which the batch that ends at `end` holds nothing."""
        return left_out(end, () if self._requests is None else self._requests.pending())

    def _replays(self, start: StreamOffset, end: StreamOffset) -> list[LogSplit]:
        """The changes since it was parked of each table that is resumed with them."""
        assert end.log is not None
        found = []
        for name, log in replayed(start, end).items():
            if name in self._left_out(end):
                continue
            table = self._tables()[name].id if name in self._tables() else TableId.parse(name)
            captured = self._captured.get(name)
            key = () if captured is None else key_in_log(end, captured)
            try:
                start_log = self._source.position(log).to_json()
            except PositionLostError as error:
                raise not_replayable(table, error) from error
            found.append(
                LogSplit(
                    start_log,
                    self._source.position(end.log).to_json(),
                    finished=frozenset({name}),
                    keys={table: key} if key else {},
                    left_out={table: captured.left_out} if captured is not None else {},
                    without=self._left_out(end),
                    parked=table,
                )
            )
        return found

    @staticmethod
    def _finished(start: StreamOffset, end: StreamOffset) -> frozenset[str] | None:
        """Tables of which the batch emits all changes; None: all captured tables.

        A stream with snapshots follows a table from its registration on. A table that is read again is
        followed as a whole, even if its first snapshot was unfinished: the cursor may mean nothing now. A
        table that is created within the batch, or directly after it, is followed from its first row.
        """
        if end.mode != "initial":
            return None
        created = {n for n, rows in end.done.items() if rows is None}
        return frozenset(start.done) | created | end.again.keys()

    def _ranges(self, start: StreamOffset, end: StreamOffset) -> dict[str, list[KeyRange]]:
        if self._plan is not None and self._plan[:2] == (start, end):
            return dict(self._plan[2])
        ranges: dict[str, list[KeyRange]] = {}
        replays = replayed(start, end)
        for name, rows in end.done.items():
            # a first snapshot that ended because the table is read again has no last range
            if rows is not None and name not in start.done and name not in {**end.again, **replays}:
                before = start.tables.get(name, TableProgress())
                ranges[name] = [KeyRange(before.cursor, None)]
        for name, progress in end.tables.items():
            before = start.tables.get(name, TableProgress())
            if before.cursor != progress.cursor:
                ranges[name] = [KeyRange(before.cursor, progress.cursor)]
        for name, reread in end.again.items():
            cursor = start.again[name].progress.cursor if _is_continued(start, end, name) else None
            if reread.done:
                ranges[name] = [KeyRange(cursor, None)]
            elif cursor != reread.progress.cursor:
                ranges[name] = [KeyRange(cursor, reread.progress.cursor)]
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
        """The captured tables, with the keys under which the stream reads them."""
        if self._schemas_read_at is None:
            self._read_catalog()
        offset = self._offset
        if not (offset.tables or offset.again or offset.keys):
            return self._schemas
        return {name: schema_in(offset, table) for name, table in self._captured.items()}

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
        self._captured = {str(t.schema.id): t for t in found}
        self._schemas = {str(t.schema.id): t.schema for t in found}
        if self._options.max_parked:
            self._leave_out_refused()
        self._schemas_read_at = self._clock()
        self._note_gaps(self._offset)
        self._unpublished = set(map(str, self._source.publish(list(self._schemas.values()))))
        for name in self._unpublished:
            if not self._offset.knows(name):
                del self._schemas[name]  # new once it is in the log
                del self._captured[name]
        if self._waits_for_gaps():
            end = self._gaps_end = self._source.log_end()
            if self._target is not None:
                self._target = max(self._target, end, key=lambda position: position.order)

    def _leave_out_refused(self) -> None:
        """Find out which captured tables cannot be captured, and go on without them."""
        new = self._captured.keys() - self._checked_tables
        if new and self._checked_tables:
            self._check_again()
        refusals = self._source.refusals()
        self._checked_tables |= new
        found = self._captured.keys() | refusals.keys()
        self._refused = {name: error for name, error in self._refused.items() if name in found}
        self._refused.update(refusals)
        if may_park(self._offset, self._refused, self._captured, self._options.max_parked):
            for name in self._refused.keys() & self._captured.keys():
                del self._schemas[name]
                del self._captured[name]

    def _refresh(self, tables: Collection[str]) -> None:
        """Read the catalog again if it is outdated for one of these tables."""
        if self._schemas_read_at is None or self._source.altered(tables):
            self._read_catalog()


def _has_rows(offset: StreamOffset, name: str) -> bool:
    """Whether the stream may have emitted rows of a table."""
    return name in offset.done or (name in offset.tables and offset.tables[name].cursor is not None)


def _reread(offset: StreamOffset, name: str, estimated: int, by: str | None = None) -> StreamOffset:
    """`offset` with a table to be read again from its first row, whatever has been read of it.

    Args:
        offset: the stream's state.
        name: the table.
        estimated: its rows.
        by: who asks for it; that counts only where the target is right without it.
    """
    former = offset.again.get(name)
    if name not in offset.done or (former is not None and not former.done and former.by is None):
        by = None
    progress = TableProgress(estimated=estimated)
    return offset.with_reread(name, RereadProgress(uuid.uuid4().hex[:12], progress, by=by))


def _cursors(offset: StreamOffset) -> dict[str, TableProgress]:
    """The progress of the tables that are read again and not finished."""
    return {name: reread.progress for name, reread in offset.again.items() if not reread.done}


def _is_continued(start: StreamOffset, end: StreamOffset, name: str) -> bool:
    """Whether a batch continues a reading of a table that an earlier one has begun."""
    return name in start.again and start.again[name].id == end.again[name].id


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

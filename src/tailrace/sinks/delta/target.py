"""One target: writes its parts of a batch once, merges its pending changes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tailrace.config.sinks import OnIncompatibleType, ReaderFeatures, WriteMode
from tailrace.errors import SinkError, StateError
from tailrace.failpoints import failpoint
from tailrace.model.change import REREAD, SNAPSHOT
from tailrace.model.key import no_key
from tailrace.model.paths import file_name
from tailrace.model.schema_policy import FOLLOWING, Following
from tailrace.model.table import TableId, TableSchema
from tailrace.sinks.base import CellBatch, StreamId
from tailrace.sinks.delta.change_log import ReadRows
from tailrace.sinks.delta.checkpoints import Checkpoints
from tailrace.sinks.delta.columns import Former, TargetColumns
from tailrace.sinks.delta.merge import merge
from tailrace.sinks.delta.pending import PENDING_COLUMNS, Pending, changes_path
from tailrace.sinks.delta.rows import NewRows, StagedFiles
from tailrace.sinks.delta.seen import SeenKeys, of_shard
from tailrace.sinks.delta.shared import has_several_sources, joins, owner_of, source_property
from tailrace.sinks.delta.table import DeltaTable, TableDefinition, all_names, of_lease
from tailrace.sinks.delta.table_layout import TableLayout
from tailrace.sinks.delta.transaction import CommitMark, DeltaState
from tailrace.sinks.delta.upsert import are_whole, upsert
from tailrace.sinks.delta.versions import add_versions, have_rereads
from tailrace.sinks.paths import below, same_path_error
from tailrace.sinks.quarantine import refused_error, violation_reason
from tailrace.sinks.shared_targets import SourceOfTarget
from tailrace.sinks.tables.columns import (
    AddColumn,
    BecomeText,
    WidenColumn,
    held_names,
    incompatible,
    require_free,
    stored_schema,
    stored_type,
)
from tailrace.sinks.tables.former_columns import kept_columns
from tailrace.sinks.tables.parquet import DataFile, rolling
from tailrace.sinks.tables.rereads import Refresh
from tailrace.sinks.tables.retyped import retyping
from tailrace.sinks.tables.scratch import Scratch
from tailrace.sinks.tables.screening import Checks, RowRules, Whole, violations
from tailrace.sinks.tables.staging import Recipe
from tailrace.sinks.tables.targets import following, of_one_table
from tailrace.sinks.tables.text_form import texting
from tailrace.spark.cells import TableBatch, Unpack, spark_schema, unpacked
from tailrace.spark.checkpoint import is_local
from tailrace.spark.jvm import in_session, select_items
from tailrace.spark.sql import OwnSessions

_KEY = "tailrace.key"
#: The property with a target's name, of its table and of its table of changes.
TARGET = "tailrace.target"


@dataclass(frozen=True)
class Point:
    """A point in a stream: the end of a batch.

    Args:
        batch: the batch's number.
        end: the stream offset at its end.
    """

    batch: int
    end: object

    def mark(self, app: str, stream: StreamId, **metadata: str) -> CommitMark:
        """The mark of a commit of `stream` that brings a target up to this point."""
        lease = {"lease": stream.lease} if stream.lease else {}
        text = json.dumps({"batch": self.batch, "end": self.end, **lease, **metadata}, separators=(",", ":"))
        return CommitMark(app, self.batch, stream.query, text, stream.lease)


@dataclass(frozen=True)
class _Changes:
    """Changes to be merged.

    Args:
        files: gives the paths of their files, if tasks reach them by a path.
        rows: gives the changes as a DataFrame.
        columns: the source's columns.
        key: the key's columns.
        accepted: whether they are known to fulfil the table's CHECK constraints.
    """

    files: Callable[[], list[str]]
    rows: Callable[[], DataFrame]
    columns: pa.Schema
    key: Sequence[str]
    accepted: bool


@dataclass
class DeltaTarget:
    """One Delta table and its pending changes.

    Args:
        name: the target's name.
        root: the sink's path.
        own_root: the directory below which the stream keeps what belongs to its targets: the sink's path, if
            the pipeline has one source.
        scratch: for temporary files of merges.
        path: the table's path below `root`.
        layout: the layout of the table.
        stream: the stream it belongs to.
        sessions: sessions of its own, so that the settings of one commit do not reach another one.
        checkpoints: writes checkpoints of logs.
        cluster: whether a new table is clustered by its key.
        on_incompatible_type: what becomes of a column whose new type the table's cannot hold.
        features: which features of Delta the table may get.
        source: the stream's source, one of several; None: the pipeline has one.
        shard: the column of the key that tells this source's rows from others'; None: the table has none.
    """

    name: str
    root: str
    own_root: str
    scratch: Scratch
    path: str
    layout: TableLayout
    stream: StreamId
    sessions: OwnSessions
    checkpoints: Checkpoints
    cluster: bool = False
    on_incompatible_type: OnIncompatibleType = OnIncompatibleType.PARK
    features: ReaderFeatures = ReaderFeatures.COMPATIBLE
    source: SourceOfTarget | None = None
    shard: str | None = None
    #: Time that merges have taken since the sink reset it, seconds.
    merging_s: float = field(default=0.0, init=False)
    #: The source's columns that the table had last, None if tasks do not write its files.
    columns: pa.Schema | None = field(default=None, init=False)
    #: Whether the table had CHECK constraints last: its rows are read twice.
    has_checks: bool = field(default=False, init=False)
    #: The table's key, as its property has it.
    _key: list[str] = field(default_factory=list, init=False)
    #: How it follows the columns of the batch that is written, which ends here.
    _following: Following = field(default=FOLLOWING, init=False)
    _point: Point = field(default=Point(-1, None), init=False)
    #: How many merges in a row have taken much longer than their commits.
    _dear_merges: int = field(default=0, init=False)
    #: The batch up to which pending changes are merged, -1 before the first.
    _merged: int = field(default=-1, init=False)

    @property
    def session(self) -> SparkSession:
        """The present thread's session."""
        return self.sessions.current

    @cached_property
    def table(self) -> DeltaTable:
        """The table."""
        return DeltaTable(self.sessions, below(self.root, self.path), self.checkpoints)

    @cached_property
    def pending(self) -> Pending:
        """The pending changes."""
        properties = {
            "tailrace.stream": self.stream.query,
            "tailrace.mode": str(self.layout.mode),
            TARGET: self.name,
        }
        table = DeltaTable(self.sessions, changes_path(self.own_root, self.path), self.checkpoints)
        return Pending(table, properties, self.stream)

    @property
    def pending_batches(self) -> Mapping[int, int]:
        """Number of pending changes by batch; empty in a mode that appends."""
        return self.pending.batches if self.layout.merges else {}

    def version(self) -> int:
        """The version of the table, as it was last read or changed."""
        state = self.table.held()
        assert state is not None
        return state.version

    def recipe(self, kind: str, schema: TableSchema, columns: pa.Schema, directory: str) -> Recipe[DataFile]:
        """How tasks write rows of a schema that the table follows already.

        Args:
            kind: SNAPSHOT, LOG or REREAD.
            schema: the schema.
            columns: `columns` of this target.
            directory: the directory for the files.
        """
        unpack, fields = self._rows_of(kind, columns, schema)
        return Recipe(schema, unpack, partial(rolling, fields, directory))

    def prepare(self, batch: CellBatch, parts: Sequence[TableBatch], tables: Sequence[TableId]) -> None:
        """Create the table, or change it to fit, before tasks write its rows.

        Args:
            batch: the batch.
            parts: its parts for this target.
            tables: all tables of the target.
        """
        self._begin(batch)
        self._open(batch, tables, parts[0])
        self._follow_former(batch, parts, tables)
        for part in parts:
            with of_one_table([part.table]), following(part.table, tables):
                columns = self._follow(part)
        self.columns = columns if self.table.is_direct() else None

    def write(
        self,
        batch: CellBatch,
        parts: list[TableBatch],
        staged: MutableMapping[tuple[str, str], StagedFiles],
        tables: Sequence[TableId],
        *,
        merge_now: bool,
        may_merge: bool,
        compared: Collection[TableId] = (),
    ) -> None:
        """Write each part that is not in the table yet; changes may become pending.

        Args:
            batch: the batch.
            parts: its parts for this target.
            staged: files that are staged already, by table and kind, made by `recipe`; used ones are removed.
            tables: all tables of the target.
            merge_now: whether changes must be in the table at once.
            may_merge: whether they may be, if the table merges as fast as it sets changes aside.
            compared: tables that are read again and are followed by `reread`.

        Raises:
            SinkError: the table has no key, or cannot follow its source.
            StateError: the table belongs to another stream.
        """
        self._begin(batch)
        state = self._open(batch, tables, parts[0])
        # one may wait for a JVM that compiles
        merge_now = merge_now or (may_merge and self._dear_merges < 2)
        self._follow_former(batch, parts, tables)
        if self.on_incompatible_type is OnIncompatibleType.TEXT and len(parts) > 1:
            # before changes of the batch can be pending
            for part in parts:
                with of_one_table([part.table]), following(part.table, tables):
                    self._follow(part)
        for part in parts:
            # of several tables in a target, only this one goes wrong
            with of_one_table([part.table]), following(part.table, tables):
                self._write_part(batch, part, staged, state, merge_now=merge_now, compared=compared)
        self.table.make()  # unless it has rows
        self._drop_missed(batch, parts, tables)

    def alter(self, batch: CellBatch, tables: Sequence[TableId]) -> None:
        """Rename and drop columns by a batch that has no rows for the target.

        Args:
            batch: the batch.
            tables: all tables of the target.

        Raises:
            SinkError: something in the table needs one of the columns.
            StateError: the table belongs to another stream.
        """
        self._begin(batch)
        state = self.table.state()
        if state is not None:
            self._require_own(state)
            self._note(self.table.claim(state, self.stream))
            self._follow_former(batch, [], tables)
            self.columns = self._columns.held() if self.table.is_direct() else None

    def _begin(self, batch: CellBatch) -> None:
        self._following, self._point = batch.following, Point(batch.id, batch.end)

    def _write_part(
        self,
        batch: CellBatch,
        part: TableBatch,
        staged: MutableMapping[tuple[str, str], StagedFiles],
        state: DeltaState,
        *,
        merge_now: bool,
        compared: Collection[TableId],
    ) -> None:
        point = Point(batch.id, batch.end)
        app = f"tailrace/{self.stream.query}/{_in_setting(str(part.table))}/{part.kind}"
        mark = point.mark(app, self.stream, table=str(part.table), part=part.kind)
        is_merged = self.layout.merges and part.kind != SNAPSHOT
        if state.transactions.get(mark.app, -1) >= mark.version or (is_merged and self.pending.has(mark)):
            return
        columns = self._follow(part)
        self._require_accepted(batch, part, state, columns)
        if is_merged:  # changes are merged into a table that is made
            self.table.make()
        if part.kind == REREAD and part.table in compared and self._is_compared(part):
            return
        files = staged.pop((str(part.table), part.kind), None)
        rows = NewRows(
            lambda: in_session(part.cells_of(batch.frame), self.session),
            *self._rows_of(part.kind, columns, part.schemas[-1]),
            files if files is not None and files.columns == columns else None,
        )
        if not is_merged:
            self.table.append(rows, mark)
        elif self._merges_directly(part, point, merge_now=merge_now):
            self._merge(rows, columns, part, mark)
        else:
            self.pending.add(rows, part.changes, mark)
        self.columns = columns if self.table.is_direct() else None
        failpoint("sink.table")

    def rules(self) -> RowRules:
        """What the table demands of rows."""
        state = self.table.state()
        whole = _WHOLE[self.layout.mode]
        if state is None or not _conditions(state):
            return RowRules(self.name, whole)
        return RowRules(self.name, whole, self._checks(state, self.layout.columns(self.table.schema())))

    def _checks(self, state: DeltaState, columns: pa.Schema) -> Checks:
        unpack, fields = self.layout.snapshot(columns)
        unpack = self._fitting(unpack, columns, adds=True)
        return Checks(_conditions(state), unpack, fields, self.layout.merges)

    def _require_accepted(
        self, batch: CellBatch, part: TableBatch, state: DeltaState, columns: pa.Schema
    ) -> None:
        """Reject rows that violate a CHECK constraint: files that tasks write do not pass through Delta.

        Raises:
            SinkError: there are such rows.
        """
        if not _conditions(state):
            return
        cells = in_session(part.cells_of(batch.frame), self.session)
        found = violations(cells, self._checks(state, columns)).first()
        if found is not None:
            raise refused_error(self.name, "", violation_reason(found[-1]), f"table `{part.table}`")

    def _merges_directly(self, part: TableBatch, point: Point, *, merge_now: bool) -> bool:
        """Whether a part's changes go into the table at once; else they become pending.

        Raises:
            SinkError: another table of the target, with another key, has changes in the same batch. They are
                merged already, and changes of a batch that is merged cannot become pending.
        """
        is_merged = self._merged >= point.batch
        if (merge_now or is_merged) and not self.pending and is_local(self.root):
            return True
        if is_merged:
            raise SinkError(
                f"target `{self.name}` has changes of two keys in one batch",
                f"`{part.table}` has the key ({', '.join(part.schemas[-1].key)}), and another table of the"
                " target a different one",
                "give the tables the same key, or route them to targets of their own",
                code="TR-7002",
            )
        return False

    def reread(self, batch: CellBatch, parts: list[TableBatch], refresh: Refresh) -> None:
        """Follow a table that is read again, once its parts are written; at the end, delete other rows.

        Args:
            batch: the batch.
            parts: the table's parts of it, perhaps none.
            refresh: the table and its reading; the target exists.
        """
        reread, table, shard = refresh.reread, refresh.table, refresh.shard
        state, point = self.table.claim(self._state(), self.stream), Point(batch.id, batch.end)
        app = f"tailrace/{self.stream.query}/{_in_setting(str(table))}/{REREAD}/end"
        mark = point.mark(app, self.stream, table=str(table), part=f"end of {REREAD}")
        if state.transactions.get(mark.app, -1) >= mark.version:
            return
        columns = self.layout.columns(self.table.schema())
        read = [part for part in parts if part.kind != SNAPSHOT]
        key = self._key_of_reading(read, state, columns)
        if not key:
            return
        keys = pa.schema([columns.field(name) for name in key])
        where = (self.own_root, self.path, reread.id)
        seen, rows = SeenKeys(*where), ReadRows(*where)
        seen.add(batch.id, [in_session(p.cells_of(batch.frame), self.session) for p in read], keys)
        for part in read:
            if part.kind == REREAD and not self.layout.merges:
                cells = in_session(part.cells_of(batch.frame), self.session)
                rows.add(batch.id, unpacked(cells, *self._rows_of(REREAD, columns, part.schemas[-1])))
        failpoint("sink.seen")
        if reread.done:
            only = None if shard is None else of_shard(shard, refresh.name)
            marks = refresh.marks
            ts_ms = 0 if batch.end is None else int(batch.end["log"].get("ts_ms", 0))
            if self.layout.merges:
                self.merge_pending(point)
                mode = self.layout.mode
                seen.delete_others(self.table, mode, keys, mark, only=only, ts_ms=ts_ms, marks=marks)
            else:
                rows.correct(self.table, seen, columns, keys, mark, only=only, ts_ms=ts_ms, marks=marks)
            failpoint("sink.reread")
            seen.forget()
            rows.forget()

    def _is_compared(self, part: TableBatch) -> bool:
        """Whether the rows of a table that is read again are compared with those of the change log."""
        return not self.layout.merges and bool(part.schemas[-1].key)

    def _key_of_reading(self, read: Sequence[TableBatch], state: DeltaState, columns: pa.Schema) -> list[str]:
        """The key of a table that is read again; empty if it has none. A change log takes up a new one."""
        held = _key_in(state)
        if self.layout.merges or not read:
            return held
        key = held_names(columns, read[-1].schemas[-1].key)
        if key != held:
            self.table.set(_KEY, json.dumps(key))
        return key

    def merge_pending(self, point: Point) -> None:
        """Merge the pending changes.

        Args:
            point: the stream's present point: no written batch is later.
        """
        if not self.pending:
            return
        state = self.table.claim(self._state(), self.stream)
        mark = self._merge_mark(point)
        merged = state.transactions.get(mark.app, -1)
        if any(batch > merged for batch in self.pending.batches):
            started = time.monotonic()
            columns = self.layout.columns(self.table.schema())
            key = _key_in(state)
            changes = _Changes(
                lambda: self.pending.files(merged),
                lambda: self.pending.changes(merged),
                columns,
                key,
                accepted=not _conditions(state),  # one may have come while they waited
            )
            self._note_merge(started, self._apply(changes, mark))
            failpoint("sink.merged")
        self.pending.forget(mark)
        self._merged = max(self._merged, point.batch)

    def forget_pending(self, point: Point) -> None:
        """Forget the pending changes: the target is gone, and is filled anew."""
        self.pending.forget(self._merge_mark(point))

    def _merge_mark(self, point: Point) -> CommitMark:
        return point.mark(f"tailrace/{self.stream.query}/merge", self.stream, part="merge")

    # ---- the table -----------------------------------------------------------------------------------

    def _open(self, batch: CellBatch, tables: Sequence[TableId], part: TableBatch) -> DeltaState:
        """The table's state; creates the table if it does not exist."""
        state = self.table.state()
        if state is None or state.version < 0:  # planned, perhaps by a batch that failed
            batch.creates(self.name, tables)
        if state is None:
            self._create(part)
            state = self._state()
            self._note(state)
            return state
        self._require_own(state)
        if self.source is not None and joins(
            self.name, state, self.source, self.stream, self._shard_if_key(state)
        ):
            batch.creates(self.name, tables)
            self.table.set(source_property(self.source), self.stream.query)
            state = self._state()
        state = self.table.claim(state, self.stream)
        self._note(state)
        return state

    def _require_own(self, state: DeltaState) -> None:
        """Reject a table that is not this stream's.

        Raises:
            StateError: it is not.
        """
        held = state.properties
        owner = owner_of(self.source, self.stream)
        if held.get("tailrace.stream") != owner or held.get("tailrace.mode") != self.layout.mode:
            found = "a table that Tailrace did not make"
            if "tailrace.stream" in held:
                found = f"a table of stream {held['tailrace.stream']} in mode `{held.get('tailrace.mode')}`"
            raise StateError(
                f"target `{self.name}` at {self.table.path} is not this stream's",
                f"found {found}, needed one of stream {owner} in mode `{self.layout.mode}`",
                "use another sink path, continue with that stream's checkpoint, or delete the table",
                code="TR-6101",
            )
        if held.get(TARGET, self.name) != self.name:
            raise same_path_error(self.name, held[TARGET], self.table.path)

    def _shard_if_key(self, state: DeltaState) -> str | None:
        """The shard column, if it is in the table's key, or the table keeps changes rather than rows."""
        return self.shard if not self.layout.merges or self.shard in _key_in(state) else None

    def _note(self, state: DeltaState) -> None:
        self._key = _key_in(state)
        self.has_checks = bool(_conditions(state))
        self._merged = state.transactions.get(self._merge_mark(Point(0, None)).app, -1)

    def _state(self) -> DeltaState:
        state = self.table.state()
        if state is None:
            raise StateError(
                f"target `{self.name}` at `{self.table.path}` is gone",
                "the stream has written to it, but there is no Delta table now",
                "restore the table, or have it filled again: tailrace resync PIPELINE.YAML TABLE",
                code="TR-6102",
            )
        return state

    def _create(self, part: TableBatch) -> None:
        schema = part.schemas[0]
        if self.layout.merges and not schema.key:
            needs = f"mode {self.layout.mode} needs one to find the row of a change"
            raise no_key(part.table, needs, "use `mode: changelog`")
        require_free(schema, self._own, f"mode {self.layout.mode}")
        columns = stored_schema(schema)
        properties = {
            "tailrace.stream": owner_of(self.source, self.stream),
            "tailrace.pipeline": self.stream.pipeline,
            **of_lease(self.stream),
            **({} if self.source is None else {source_property(self.source): self.stream.query}),
            "tailrace.mode": str(self.layout.mode),
            TARGET: self.name,
            _KEY: json.dumps(list(schema.key)),
            "delta.enableDeletionVectors": str(self.layout.merges).lower(),
            **(_OFTEN_CHANGED if self.layout.merges and is_local(self.root) else {}),
        }
        key = schema.key if self.cluster else ()
        self.table.plan(TableDefinition(self.layout.fields(columns), properties, cluster_by=key))

    @property
    def _own(self) -> list[str]:
        """Names of columns that the table, or its pending changes, have in addition to the source's."""
        nothing = pa.schema([])
        pending = [*self.layout.changes(nothing).names, *PENDING_COLUMNS] if self.layout.merges else []
        return [*all_names(self.layout.fields(nothing)), *pending]

    @property
    def _columns(self) -> TargetColumns:
        return TargetColumns(self.name, self.table, self.layout, self.features, self.on_incompatible_type)

    def _follow_former(
        self, batch: CellBatch, parts: Sequence[TableBatch], tables: Sequence[TableId]
    ) -> None:
        """Rename and drop the columns that the source has renamed and dropped, before rows are written.

        Args:
            batch: the batch.
            parts: its parts for this target.
            tables: all tables of the target.
        """
        keeps = self.layout.keeps_history
        if not self._is_alone(tables):
            if not keeps:
                batch.keeps_columns(self.name, tables)
            return
        name = str(tables[0])
        if not any(event.changes for event in batch.column_events if event.table == name):
            return
        self.table.make()
        for schema in (schema for part in parts for schema in part.schemas):
            require_free(schema, self._own, f"mode {self.layout.mode}")
        changes = self._columns.former(batch, tables[0], self._key)
        if not keeps and kept_columns(batch.column_events, name, self._columns.held().names, changes):
            batch.lacks_columns(self.name, tables)
        self._alter(changes, self._columns.widened(parts, changes, self._following) if changes else [])

    def _drop_missed(self, batch: CellBatch, parts: Sequence[TableBatch], tables: Sequence[TableId]) -> None:
        """Drop columns that the source no longer has, of a table that is read again; its key is known."""
        if any(part.kind == REREAD for part in parts) and self._is_alone(tables):
            self._alter(self._columns.missed(batch, parts, tables[0], self._key), [])

    def _is_alone(self, tables: Sequence[TableId]) -> bool:
        """Whether all columns of the target are those of one table."""
        state = self.table.held()
        assert state is not None
        return len(tables) == 1 and self.shard is None and not has_several_sources(state)

    def _alter(self, changes: Sequence[Former], wider: Sequence[WidenColumn]) -> None:
        """Rename and drop columns, and widen others in the same commit, once nothing is pending."""
        mark = self._column_mark()
        if changes:
            if self.layout.merges and self.pending:  # they have the former columns
                last = max(self.pending.batches)
                self.merge_pending(self._point if last == self._point.batch else Point(last, None))
            self._columns.alter([*changes, *wider], mark)
            failpoint("sink.altered")
        if self.layout.merges:
            self.pending.lose(self._columns.held().names, self._own, mark)

    def _column_mark(self) -> CommitMark:
        return self._point.mark(f"tailrace/{self.stream.query}/columns", self.stream, part="columns")

    def _follow(self, part: TableBatch) -> pa.Schema:
        """Change the table to fit a part's schemas; the source's columns that it has then."""
        stored = self.table.schema()
        missing = self.layout.missing(stored)
        if missing:
            self.table.change(missing)
        held = self.layout.columns(stored)
        for schema in part.schemas:
            require_free(schema, self._own, f"mode {self.layout.mode}")
            changes = self._columns.needed(schema, held, self._following)
            if changes:
                self._change(changes)
                held = self._columns.held()
        key = held_names(held, part.schemas[-1].key)
        if self.layout.merges and key != self._key:
            if self.pending:  # pending changes are merged by the key under which they were logged
                self.merge_pending(Point(max(self.pending.batches), None))
            self.table.set(_KEY, json.dumps(key))
            self._key = key
        return held

    def _change(self, changes: Sequence[AddColumn | WidenColumn | BecomeText]) -> None:
        """Change columns; before one becomes text, pending changes are merged: they have its old type."""
        texts = [change.name for change in changes if isinstance(change, BecomeText)]
        others = [change for change in changes if not isinstance(change, BecomeText)]
        if others:
            self._columns.alter(others, self._column_mark())
        if not texts:
            return
        for name, condition in _conditions(self._state()).items():
            if _names_of(self.session, condition) & {column.lower() for column in texts}:
                found = f"its constraint `{name}` needs the column as it is"
                raise incompatible(texts[0], self.name, found, self.on_incompatible_type)
        if self.pending:
            self.merge_pending(Point(max(self.pending.batches), None))
        app = f"tailrace/{self.stream.query}/text/{_in_setting(','.join(texts))}"
        mark = self._point.mark(app, self.stream, part="text")
        try:
            self.table.become_text(texts, self.layout.within, mark)
        except AnalysisException as error:
            found = f"Delta cannot make it text: {error}"
            raise incompatible(texts[0], self.name, found, self.on_incompatible_type) from error
        failpoint("sink.text")

    # ---- writing -------------------------------------------------------------------------------------

    def _rows_of(self, kind: str, columns: pa.Schema, schema: TableSchema) -> tuple[Unpack, pa.Schema]:
        layout = self.layout
        unpack, fields = layout.snapshot(columns) if kind == SNAPSHOT else layout.log(columns, schema.key)
        return self._fitting(unpack, columns), fields

    def _fitting(self, unpack: Unpack, columns: pa.Schema, *, adds: bool | None = None) -> Unpack:
        """`unpack` for rows with types that the table's columns do not have."""
        match self.on_incompatible_type:
            case OnIncompatibleType.NEW_COLUMN:
                adds = self._following.adds if adds is None else adds
                return retyping(unpack, columns, stored_type, adds=adds)
            case OnIncompatibleType.TEXT:
                return texting(unpack, columns, stored_type)
        return unpack

    def _merge(self, rows: NewRows, columns: pa.Schema, part: TableBatch, mark: CommitMark) -> None:
        """Merge a batch's changes directly: nothing is pending.

        They are written to files first, as a merge reads them more than once.
        """
        started = time.monotonic()
        with self._scratch("changes") as directory:
            files = rows.into(directory)
            changes = _Changes(
                lambda: [f"{directory}/{file.name}" for file in files],
                lambda: self.session.read.schema(spark_schema(rows.fields)).parquet(directory),
                columns,
                held_names(columns, part.schemas[-1].key),
                accepted=True,
            )
            committing_s = self._apply(changes, mark)
        self._note_merge(started, committing_s)

    def _note_merge(self, started: float, committing_s: float) -> None:
        took_s = time.monotonic() - started
        self.merging_s += took_s
        # set aside, changes cost a commit for themselves, one to be merged and one to be forgotten
        self._dear_merges = 0 if took_s <= max(3 * committing_s, 0.5) else self._dear_merges + 1

    def _apply(self, changes: _Changes, mark: CommitMark) -> float:
        """Merge changes, in tasks where possible, else by MERGE.

        Returns:
            How long the commit took, seconds; 0 if that is not known.
        """
        key = changes.key
        if changes.accepted and self.table.allows_vectors():
            files = changes.files()
            run = self._by_tasks(files)
            if run is not None:
                with self._scratch("keys") as scratch:
                    return run(self.table, files, changes.columns, key=key, mark=mark, scratch=scratch)
        merge(self.table, self.layout.mode, changes.rows(), changes.columns, key=key, mark=mark)
        return 0.0

    def _by_tasks(self, files: Sequence[str]) -> Callable[..., float] | None:
        """What merges the changes in some files in tasks; None: only MERGE can."""
        if self.layout.mode is WriteMode.UPSERT:
            return upsert if are_whole(files) else None
        return None if have_rereads(files) else add_versions

    @contextmanager
    def _scratch(self, name: str) -> Iterator[str]:
        """A directory for the temporary files of a merge."""
        with self.scratch.directory(f"merging/{self.path}/{name}") as directory:
            Path(directory).mkdir(parents=True)
            yield directory


#: A small table may have a commit a second, and a checkpoint costs as much as 30; Delta's own interval is 10.
#: Readers read up to so many small files of the log.
_OFTEN_CHANGED = {"delta.checkpointInterval": "200"}
#: Which rows must have all of their columns.
_WHOLE = {WriteMode.UPSERT: Whole.NEW, WriteMode.SCD2: Whole.ALL, WriteMode.CHANGELOG: Whole.NONE}
_CONSTRAINT = "delta.constraints."


def _conditions(state: DeltaState) -> dict[str, str]:
    """The table's CHECK constraints, by name."""
    held = state.properties
    return {name.removeprefix(_CONSTRAINT): held[name] for name in held if name.startswith(_CONSTRAINT)}


def _names_of(session: SparkSession, condition: str) -> set[str]:
    """The columns that a condition names, in lower case; of a struct's field the field."""
    items = select_items(session, f"({condition}) AS held")
    return {name.rpartition(".")[2].strip("`") for item in items for name in item.columns}


def _key_in(state: DeltaState) -> list[str]:
    found: list[str] = json.loads(state.properties.get(_KEY, "[]"))
    return found


def _in_setting(name: str) -> str:
    """A name for use in a Spark setting, where Spark would expand `${env:NAME}`."""
    return f"={file_name(name)}" if "${" in name or name.startswith("=") else name

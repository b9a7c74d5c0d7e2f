"""The Iceberg sink: one commit per batch and target."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    ValidationException,
)
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    LessThanOrEqual,
    Reference,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from tailrace.config.sinks import IcebergSettings, OnIncompatibleType, WriteMode
from tailrace.errors import SinkError, StateError, TransientSinkError
from tailrace.failpoints import failpoint
from tailrace.model.change import REREAD, SNAPSHOT
from tailrace.model.key import no_key
from tailrace.model.table import TableId, TableSchema
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, Unit, Written
from tailrace.sinks.claims import Claims
from tailrace.sinks.iceberg.catalog import answered, open_catalog, table_name, tried_once
from tailrace.sinks.iceberg.change_log import correction_files, left_keys
from tailrace.sinks.iceberg.columns import (
    can_follow,
    held_columns,
    promotes,
    require_promotions,
    storable,
    storable_type,
    without_ids,
)
from tailrace.sinks.iceberg.compaction import compact
from tailrace.sinks.iceberg.files import FileTarget, described, write_cells
from tailrace.sinks.iceberg.maintenance import expire
from tailrace.sinks.iceberg.names import former_identifier, identifier, location
from tailrace.sinks.iceberg.rewrite import ROW, insert_files, kept_files, last_changes
from tailrace.sinks.iceberg.seen import SEEN, SeenFiles
from tailrace.sinks.iceberg.text_columns import become_text
from tailrace.sinks.lease import require_newest
from tailrace.sinks.paths import same_path_error, target_path
from tailrace.sinks.route import Router
from tailrace.sinks.single_pass import Schemas, SinglePass
from tailrace.sinks.tables.columns import (
    BecomeText,
    can_hold,
    follow,
    held_names,
    incompatible,
    kept_schema,
    require_free,
    stored_schema,
    stored_type,
)
from tailrace.sinks.tables.former_columns import (
    RenameColumn,
    former_columns,
    kept_columns,
    missed_columns,
    require_unneeded,
)
from tailrace.sinks.tables.rereads import Refresh, refreshes_by_target
from tailrace.sinks.tables.retyped import retyped_schema, retyping
from tailrace.sinks.tables.rows import UPSERT_FIELDS, last_rows, log_fields, log_rows, snapshot_rows
from tailrace.sinks.tables.screening import RowRules, Whole
from tailrace.sinks.tables.staging import Recipe, StagedBatch, stage
from tailrace.sinks.tables.targets import TargetPool, following, of_one_table
from tailrace.sinks.tables.text_form import texting
from tailrace.spark.cells import TableBatch, Unpack
from tailrace.spark.checkpoint import absolute, is_local

STREAM, _MODE, BATCH = "tailrace.stream", "tailrace.mode", "tailrace.batch"
#: The newest lease under which a table was written (`sinks.lease`).
_LEASE = "tailrace.lease"
_TARGET, _KEY = "tailrace.target", "tailrace.key"


class IcebergSink:
    """Writes each table to the Iceberg table named after its target.

    Args:
        settings: the sink's settings.
        router: names the targets.
    """

    def __init__(self, settings: IcebergSettings, router: Router) -> None:
        self._settings = settings
        self._root = absolute(settings.path)
        if is_local(self._root):
            self._root = f"file://{self._root}"
        self._router = router
        self._claims = Claims(router, self._target_names)
        self._pool = TargetPool(self._claims, settings.parallelism)
        self._single_pass = SinglePass()
        #: The last layout of each target's files.
        self._layouts: dict[str, _Layout] = {}
        self._catalog: Catalog | None = None
        # One commit at a time: a catalog in SQLite supports no more.
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        return Capabilities(
            Delivery.EXACTLY_ONCE,
            Order.BY_SEQ,
            Unit.TARGET,
            holds_rows=self._settings.mode is WriteMode.UPSERT,
            follows_schema=True,
        )

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`: readers see what is durable."""
        return 0

    @property
    def quarantine_root(self) -> str:
        """See `ChoosySink`."""
        return self._root

    def rules(self, batch: CellBatch) -> dict[str, RowRules]:
        """See `ChoosySink`."""
        whole = Whole.NEW if self._settings.mode is WriteMode.UPSERT else Whole.NONE
        tables = {part.table for part in batch.table_batches}
        return {str(table): RowRules(self._router.target(table), whole) for table in tables}

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        self._claims.add(tables)

    def _target_names(self, table: TableId) -> list[str]:
        target_path(self._router, table)  # rejects names that are too long for directories
        return [table_name(self._settings, self._router.target(table))]

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        with answered(self._settings):
            return self._write(batch)

    def _write(self, batch: CellBatch) -> list[Written]:
        catalog = self._catalog = self._catalog or open_catalog(self._settings, self._root)

        def commit(held: StagedBatch[_StagedFiles]) -> list[Written]:
            self._claims.add(part.table for part in held.table_batches)
            again = refreshes_by_target(batch, self._claims)
            altered = self._altered(batch)

            def write(name: str, parts: list[TableBatch]) -> None:
                refreshes_, tables = again.get(name, []), self._claims.of(name)
                target = _Target(
                    name,
                    self._settings,
                    self._root,
                    catalog,
                    batch,
                    held.files,
                    refreshes_,
                    self._lock,
                    tables,
                )
                layout = target.write(parts)
                if layout is not None:
                    self._layouts[name] = layout
                    target.maintain()

            written = self._pool.write(held.table_batches, write)
            others = (again.keys() | altered) - {w.target for w in written}
            self._pool.run([partial(write, name, []) for name in sorted(others)])
            return written

        return self._single_pass.write(
            batch,
            one_pass=partial(self._one_pass, batch),
            commit=commit,
            write_found=lambda: commit(StagedBatch.of(batch)),
        )

    @contextmanager
    def _one_pass(self, batch: CellBatch, schemas: Schemas) -> Iterator[StagedBatch[_StagedFiles]]:
        """Stage the rows of a batch that is expected to hold `schemas`."""
        layouts = {key: self._layouts[self._router.target(schema.id)] for key, schema in schemas.items()}
        recipes = {key: layouts[key].recipe(key[1], schema) for key, schema in schemas.items()}
        cells = batch.columns_once("cell")
        staged = stage(cells, recipes, lambda key, paths: _StagedFiles(layouts[key], paths))
        try:
            yield staged
        finally:
            for files in staged.files.values():
                for path in files.paths:
                    files.layout.data.io.delete(path)

    def _altered(self, batch: CellBatch) -> set[str]:
        """The targets of tables that have renamed or dropped columns; none in a mode that keeps all."""
        if self._settings.mode is not WriteMode.UPSERT:
            return set()
        tables = {event.table for event in batch.column_events if event.changes}
        return {self._router.target(table) for table in self._claims.tables if str(table) in tables}

    def close(self) -> None:
        """See `Sink.close`."""
        self._pool.close()
        if self._catalog is not None:
            self._catalog.close()


@dataclass(frozen=True)
class _Layout:
    """How a table's files are written.

    Args:
        mode: the table's mode.
        on_incompatible_type: what becomes of a column whose new type the table's cannot hold.
        adds: whether the table has every column of its source.
        columns: the source's columns.
        data: writes data files.
        changes: writes change files, for rewrites.
    """

    mode: WriteMode
    on_incompatible_type: OnIncompatibleType
    adds: bool
    columns: pa.Schema
    data: FileTarget
    changes: FileTarget

    def recipe(self, kind: str, schema: TableSchema) -> Recipe[str]:
        """How tasks write the rows of a schema that the table follows already."""
        if self.mode is WriteMode.CHANGELOG:
            return Recipe(schema, self._retyping(log_rows(self.columns)), self.data.rolling)
        if kind == SNAPSHOT:
            return Recipe(schema, self._retyping(snapshot_rows(self.columns)), self.data.rolling)
        return Recipe(schema, self._retyping(last_rows(self.columns, schema.key)), self.changes.rolling)

    def _retyping(self, unpack: Unpack) -> Unpack:
        match self.on_incompatible_type:
            case OnIncompatibleType.NEW_COLUMN:
                return retyping(unpack, self.columns, _stored, adds=self.adds)
            case OnIncompatibleType.TEXT:
                return texting(unpack, self.columns, _stored)
        return unpack

    def is_same(self, other: _Layout) -> bool:
        """Whether both write the same files, including field ids."""
        same = self.data.schema.equals(other.data.schema, check_metadata=True)
        return same and self.columns == other.columns and self.data.directory == other.data.directory


@dataclass(frozen=True)
class _StagedFiles:
    """Files that are not part of the table yet.

    Args:
        layout: how they are written.
        paths: their paths.
    """

    layout: _Layout
    paths: list[str]


@dataclass
class _Target:
    """One table, for one batch."""

    name: str
    settings: IcebergSettings
    root: str
    catalog: Catalog
    batch: CellBatch
    #: Files that are staged already, by table and kind; used ones are removed.
    staged: dict[tuple[str, str], _StagedFiles]
    #: Its tables that are read again.
    refreshes: Sequence[Refresh]
    lock: threading.Lock
    #: All tables that it holds.
    tables: Sequence[TableId]
    _identifier: tuple[str, ...] = ()
    _added: list[str] = field(default_factory=list)
    _removed: list[DataFile] = field(default_factory=list)

    @property
    def mode(self) -> WriteMode:
        """The table's mode."""
        return self.settings.mode

    def write(self, parts: list[TableBatch]) -> _Layout | None:
        """Write the batch, unless the table has it.

        Args:
            parts: the target's parts of the batch; none if only a reading of its tables ends.

        Returns:
            The layout of the table's files; None if there is no table and nothing to write.
        """
        with self.lock:
            table = self._open(parts)
        if table is None:
            return None
        if int(table.properties.get(BATCH, "-1")) >= self.batch.id:
            return self._layout(table, self._columns(table))
        with self.lock:
            self._follow_former_columns(table, parts)
        seen = SeenFiles(table, self.refreshes)
        if not parts and not seen.unseen():
            return self._layout(table, self._columns(table))
        with self.lock:
            columns = self._follow(table, parts)
        layout = self._layout(table, columns)
        changed: list[TableBatch] = []
        for part in parts:
            if part.kind != SNAPSHOT if self.mode is WriteMode.UPSERT else self._is_compared(part):
                changed.append(part)
            else:
                self._added += self._files(part, layout)
        scratch = list[str]()
        if self.mode is WriteMode.UPSERT:
            scratch = self._rewrite(table, layout, changed, seen)
        elif self.refreshes:
            self._correct(table, layout, parts, seen)
        self._commit(table, seen, self._key(columns, parts))
        for path in scratch:
            table.io.delete(path)
        failpoint("sink.table")
        if any(refresh.reread.done for refresh in self.refreshes):
            failpoint("sink.reread")
        seen.forget()
        return layout

    def _layout(self, table: Table, columns: pa.Schema) -> _Layout:
        return _Layout(
            self.mode,
            self.settings.on_incompatible_type,
            self.batch.following.adds,
            columns,
            FileTarget(table.io, f"{table.location()}/data", held_columns(table.schema())),
            FileTarget(table.io, f"{table.location()}/changes", pa.schema([*columns, *UPSERT_FIELDS])),
        )

    def _files(self, part: TableBatch, layout: _Layout) -> list[str]:
        """The files of a part, staged already or written now."""
        key = (str(part.table), part.kind)
        if key in self.staged and self.staged[key].layout.is_same(layout):
            return self.staged.pop(key).paths
        return write_cells(part.cells_of(self.batch.frame), layout.recipe(part.kind, part.schemas[-1]))

    def maintain(self) -> None:
        """Compact small files and expire old snapshots, if it is due."""
        settings, now = self.settings, time.time()
        if settings.optimize_interval is not None:
            with self.lock:
                table = self.catalog.load_table(self._identifier)
            self._require_lease(table)
            with _transient_conflicts(self.name):
                compact(self.batch.spark, table, settings.optimize_interval, now, self.lock)
        if settings.expire_interval is not None:
            with _transient_conflicts(self.name), self.lock:
                table = self.catalog.load_table(self._identifier)
                expire(table, settings.expire_interval, settings.snapshot_retention_hours, now)

    # ---- the table -----------------------------------------------------------------------------------

    def _open(self, parts: Sequence[TableBatch]) -> Table | None:
        """The table; one that does not exist is created for the first part, if there is one."""
        self._identifier = identifier(self.name)
        table = self._former() or self._loaded(self._identifier)
        if table is None:
            return self._create(self._identifier, parts[0]) if parts else None
        found = table.properties.get(STREAM)
        stream = self.batch.stream.query
        if found != stream or table.properties.get(_MODE) != self.mode:
            raise StateError(
                f"target `{self.name}` is not this stream's",
                f"found a table of stream {found or 'none'} in mode `{table.properties.get(_MODE)}`, "
                f"needed one of stream {stream} in mode `{self.mode}`",
                "use another catalog or path, continue with that stream's checkpoint, or drop the table",
                code="TR-6101",
            )
        other = table.properties.get(_TARGET, self.name)
        if other != self.name:
            raise same_path_error(self.name, other, table.location())
        self._require_lease(table)
        return table

    def _require_lease(self, table: Table) -> None:
        require_newest(self.name, int(table.properties.get(_LEASE, "0")), self.batch.stream.lease)

    def _former(self) -> Table | None:
        """This stream's table with a name from before names were escaped."""
        former = former_identifier(self.name)
        if former is None or former == self._identifier:
            return None
        table = self._loaded(former)
        if table is None or table.properties.get(STREAM) != self.batch.stream.query:
            return None
        self._identifier = former
        return table

    def _loaded(self, names: tuple[str, ...]) -> Table | None:
        try:
            return self.catalog.load_table(names)
        except NoSuchTableError:
            return None

    def _create(self, names: tuple[str, ...], part: TableBatch) -> Table:
        self.batch.creates(self.name, self.tables)
        schema = part.schemas[0]
        require_free(schema, self._own, f"mode {self.mode}")
        if self.mode is WriteMode.UPSERT and not schema.key:
            needs = "mode upsert needs one to find the row of a change"
            raise no_key(part.table, needs, "use `mode: changelog`")
        columns = storable(stored_schema(schema))
        self.catalog.create_namespace_if_not_exists(names[:-1])
        return self.catalog.create_table(
            names,
            columns if self.mode is WriteMode.UPSERT else log_fields(columns),
            location=location(self.root, names),
            properties={
                STREAM: self.batch.stream.query,
                _MODE: str(self.mode),
                "tailrace.pipeline": self.batch.stream.pipeline,
                _TARGET: self.name,
                **self._lease,
                "write.metadata.delete-after-commit.enabled": "true",
            },
        )

    @property
    def _lease(self) -> dict[str, str]:
        """The lease of the stream, as a property."""
        lease = self.batch.stream.lease
        return {_LEASE: str(lease)} if lease else {}

    @property
    def _own(self) -> list[str]:
        """Names of columns that the table, or its change files, have in addition to the source's."""
        if self.mode is WriteMode.UPSERT:
            return [*(field.name for field in UPSERT_FIELDS), ROW]
        return list(log_fields(pa.schema([])).names)

    def _follow(self, table: Table, parts: Sequence[TableBatch]) -> pa.Schema:
        """Change the table to fit the parts' schemas; the source's columns that it has then."""
        for part in parts:
            # of several tables in a target, only this one goes wrong
            with of_one_table([part.table]), following(part.table, self.tables):
                for schema in part.schemas:
                    self._follow_schema(table, schema)
        return self._columns(table)

    def _follow_schema(self, table: Table, schema: TableSchema) -> None:
        columns, policy = self._columns(table), self.settings.on_incompatible_type
        require_free(schema, self._own, f"mode {self.mode}")
        widens = self.batch.following.widens
        schema = kept_schema(self.name, schema, columns.names, self.batch.following)
        if policy is OnIncompatibleType.NEW_COLUMN:
            schema = retyped_schema(schema, columns, _stored, can_follow if widens else can_hold)
        stored = storable(stored_schema(schema))
        changes = follow(
            self.name, columns, stored, policy, widens=widens, key=schema.key, can_widen=promotes
        )
        require_promotions(self.name, changes, columns, policy)
        texts = [change.name for change in changes if isinstance(change, BecomeText)]
        if texts:
            self._become_text(table, texts)
        fields = [pa.field(c.name, c.type) for c in changes if not isinstance(c, BecomeText)]
        if fields:
            needed = pa.schema(fields)
            if self.mode is WriteMode.CHANGELOG:
                needed = needed.append(pa.field("_before", pa.struct(list(needed))))
            with table.update_schema() as update:
                update.union_by_name(needed)

    def _become_text(self, table: Table, names: Sequence[str]) -> None:
        """Make columns text, with their values as text."""
        if any(task.delete_files for task in table.scan().plan_files()):
            raise _has_delete_files(self.name, "a column becomes text, and all data files are written anew")
        paths: list[tuple[str, ...]] = [(name,) for name in names]
        if self.mode is WriteMode.CHANGELOG:
            paths += [("_before", name) for name in names]
        try:
            with _transient_conflicts(self.name):
                become_text(self.batch.spark, table, paths)
        except ValueError as error:
            found = f"Iceberg cannot make it text: {error}"
            raise incompatible(names[0], self.name, found, self.settings.on_incompatible_type) from error
        failpoint("sink.text")

    def _follow_former_columns(self, table: Table, parts: Sequence[TableBatch]) -> None:
        """Rename and drop the columns that the source has renamed and dropped."""
        if self.mode is not WriteMode.UPSERT:
            return  # a log of changes keeps them
        if len(self.tables) != 1:  # of which only one has changed
            self.batch.keeps_columns(self.name, self.tables)
            return
        held = self._columns(table).names
        name = str(self.tables[0])
        changes = former_columns(self.batch.column_events, name, held)
        if kept_columns(self.batch.column_events, name, held, changes):
            self.batch.lacks_columns(self.name, self.tables)
        if self.batch.drops_columns:
            old = {change.old for change in changes}
            changes += [change for change in missed_columns(parts, name, held) if change.old not in old]
        for change in changes:
            try:
                with table.update_schema(allow_incompatible_changes=True) as update:
                    if isinstance(change, RenameColumn):
                        update.rename_column(change.old, change.new)
                    else:
                        update.delete_column(change.old)
            except ValueError as error:
                require_unneeded(self.batch.policy, self.name, change.old, error, self.tables[0])

    def _columns(self, table: Table) -> pa.Schema:
        held = without_ids(held_columns(table.schema()))
        if self.mode is WriteMode.UPSERT:
            return held
        return pa.schema(list(held.field("_before").type))

    def _key(self, columns: pa.Schema, parts: Sequence[TableBatch]) -> list[str]:
        """The key by which a change log's rows are compared; empty if there is none, or no part."""
        if self.mode is WriteMode.UPSERT or not parts:
            return []
        return held_names(columns, parts[-1].schemas[-1].key)

    # ---- writing -------------------------------------------------------------------------------------

    def _is_compared(self, part: TableBatch) -> bool:
        """Whether the rows of a table that is read again are compared with those of the change log."""
        followed = any(refresh.table == part.table for refresh in self.refreshes)
        return part.kind == REREAD and followed and bool(part.schemas[-1].key)

    def _correct(self, table: Table, layout: _Layout, parts: Sequence[TableBatch], seen: SeenFiles) -> None:
        """Set the rows of tables that are read again aside; at the end add what the change log lacks."""
        io, columns = table.io, layout.columns
        known: list[str] = json.loads(table.properties.get(_KEY, "[]"))
        for refresh in self.refreshes:
            own = [part for part in parts if part.table == refresh.table and part.kind != SNAPSHOT]
            key = self._key(columns, own) or known
            if not key:
                continue
            fields = pa.schema([layout.data.schema.field(name) for name in key])
            target = FileTarget(io, f"{table.location()}/seen", fields)
            files, rows = list[str](), list[str]()
            for part in own:
                if part.kind == REREAD:
                    rows += self._files(part, layout)
                else:
                    files += left_keys(part, self.batch.frame, target)
            seen.note_files(refresh, key, files, rows)
        failpoint("sink.seen")
        ts_ms = 0 if self.batch.end is None else int(self.batch.end["log"].get("ts_ms", 0))
        held = [path for unseen in seen.unseen()[:1] for path in self._log_files(table)]
        for unseen in seen.unseen():
            if unseen.key:
                self._added += correction_files(
                    self.batch.spark, unseen, held, columns, layout.data, ts_ms=ts_ms
                )

    def _log_files(self, table: Table) -> list[str]:
        """The files of a change log, those of the batch included."""
        tasks = list(table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise _has_delete_files(self.name, "rows that are read again are compared with data files")
        return [*(task.file.file_path for task in tasks), *self._added]

    def _rewrite(self, table: Table, layout: _Layout, parts: list[TableBatch], seen: SeenFiles) -> list[str]:
        """Apply changes to the table's files, and delete what a reading has not seen; the temporary files."""
        columns, data, scratch = layout.columns, layout.data, layout.changes
        within: BooleanExpression = AlwaysTrue()
        changes, key = None, list[str]()
        used, partial_files = list[str](), list[str]()
        if parts:
            key = held_names(columns, parts[-1].schemas[-1].key)
            files = [path for part in parts for path in self._files(part, layout)]
            changes = last_changes(files, key, scratch)
            if pa.types.is_integer(columns.field(key[0]).type):
                first = Reference(key[0])
                within = And(
                    GreaterThanOrEqual(term=first, value=changes.low),
                    LessThanOrEqual(term=first, value=changes.high),
                )
            added, partial_files = insert_files(self.batch.spark, changes, data, scratch)
            self._added += added
            used = [*files, changes.keys, *partial_files]
            seen.note(changes.left)
        if self.refreshes:
            failpoint("sink.seen")
        unseen = seen.unseen()
        if changes is None and not unseen:
            return used
        tasks = {
            task.file.file_path: task
            for task in table.scan(row_filter=AlwaysTrue() if unseen else within).plan_files()
        }
        kept = kept_files(
            self.batch.spark, list(tasks), changes, partial_files, unseen=unseen, key=key, target=data
        )
        for path, new in kept.items():
            if tasks[path].delete_files:
                raise _has_delete_files(
                    self.name, "mode upsert rewrites data files, which would restore the deleted rows"
                )
            self._removed.append(tasks[path].file)
            self._added += new
        return used

    def _commit(self, table: Table, seen: SeenFiles, key: Sequence[str]) -> None:
        properties = {
            STREAM: self.batch.stream.query,
            BATCH: str(self.batch.id),
            "tailrace.end": json.dumps(self.batch.end, separators=(",", ":")),
            **self._lease,
        }
        metadata, readings = table.metadata, seen.write()
        added = [described(table.io, metadata, path) for path in self._added]
        with _transient_conflicts(self.name), self.lock, tried_once(table).transaction() as transaction:
            transaction.set_properties({BATCH: str(self.batch.id), **self._lease})
            if key and table.properties.get(_KEY) != json.dumps(key):
                transaction.set_properties({_KEY: json.dumps(key)})
            if readings is not None:
                transaction.set_properties({SEEN: readings})
            elif SEEN in table.properties:
                transaction.remove_properties(SEEN)
            update = transaction.update_snapshot(snapshot_properties=properties)
            # a snapshot in any case: it makes the catalog refuse the commit if another one came first
            with update.overwrite() if self._removed else update.merge_append() as snapshot:
                for file in added:
                    snapshot.append_data_file(file)
                for file in self._removed:
                    snapshot.delete_data_file(file)


def _has_delete_files(target: str, why: str) -> SinkError:
    return SinkError(
        f"target `{target}` has delete files, which another engine has written",
        why,
        "apply them with that engine (rewrite_data_files with delete-file-threshold 1), then start again",
        code="TR-7203",
    )


def _stored(type_: pa.DataType) -> pa.DataType:
    """The type of values of the canonical type `type_` in a table."""
    return storable_type(stored_type(type_))


@contextmanager
def _transient_conflicts(name: str) -> Iterator[None]:
    """Raise TransientSinkError if another writer commits first."""
    try:
        yield
    except (CommitFailedException, CommitStateUnknownException, ValidationException) as error:
        raise TransientSinkError(
            f"target `{name}` was not committed", f"{type(error).__name__}: {error}", code="TR-7204"
        ) from error

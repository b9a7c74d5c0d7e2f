"""The Delta sink: writes targets in parallel, merges in rounds, maintains tables while no batch comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tailrace.config.sinks import DeltaSettings
from tailrace.model.change import SNAPSHOT
from tailrace.model.table import TableId
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, StreamId, Unit, Written
from tailrace.sinks.claims import Claims
from tailrace.sinks.delta.batches import NAME, Batches
from tailrace.sinks.delta.checkpoints import Checkpoints
from tailrace.sinks.delta.conflict import retried
from tailrace.sinks.delta.maintenance import Maintenance
from tailrace.sinks.delta.pending import changed_paths, changes_path
from tailrace.sinks.delta.registration import Registration, registered_name
from tailrace.sinks.delta.rows import StagedFiles
from tailrace.sinks.delta.schedule import Schedule
from tailrace.sinks.delta.shared import own_root, owner_of, source_property
from tailrace.sinks.delta.table_layout import TableLayout
from tailrace.sinks.delta.target import TARGET, DeltaTarget, Point
from tailrace.sinks.delta.transaction import delta_state
from tailrace.sinks.paths import below, path_in_use, target_path
from tailrace.sinks.route import Router
from tailrace.sinks.shared_targets import SourceOfTarget
from tailrace.sinks.single_pass import Schemas, SinglePass
from tailrace.sinks.tables.rereads import Refresh, refreshes
from tailrace.sinks.tables.scratch import Scratch
from tailrace.sinks.tables.screening import RowRules
from tailrace.sinks.tables.staging import StagedBatch, stage
from tailrace.sinks.tables.targets import TargetPool, by_target, of_one_table
from tailrace.sinks.written_tables import WrittenTables
from tailrace.spark.cells import TableBatch
from tailrace.spark.checkpoint import Directory, absolute, is_local
from tailrace.spark.sql import OwnSessions

#: From this many tables on, all of a batch are written by one Spark job.
_MANY = 4
#: How often the background thread looks for work, seconds.
_LOOK_S = 0.25
#: Delta writes a version's checksum file as Spark does a checkpoint's. The default, by FileContext, starts a
#: process for each name that it renames; this renames alike. For tables only: it takes no umask from a
#: session's settings, and the files of a stream's checkpoint are private by one.
_OF_LOCAL_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}


class DeltaSink:
    """Writes each table to the Delta table `path/<target>`; `model.paths` escapes the target's name.

    Args:
        settings: the sink's settings.
        router: names the targets.
        source: the stream's source, one of several; None: the pipeline has one.
        lease: the lease under which changes are merged when no batch has come; 0: none.
    """

    def __init__(
        self, settings: DeltaSettings, router: Router, source: SourceOfTarget | None = None, lease: int = 0
    ) -> None:
        self._lease = lease
        self._settings = settings
        self._path = absolute(settings.path)
        self._source = source
        self._own_root = own_root(self._path, "" if source is None else source.name)
        self._scratch = Scratch(f"{self._own_root}/_tailrace/staging")
        self._layout = TableLayout(settings.mode)
        self._claims = Claims(router, self._locations)
        self._registration = None if settings.catalog is None else Registration(settings.catalog)
        self._pool = TargetPool(self._claims, settings.parallelism)
        #: Parked tables: what is pending of them stays so.
        self._left_out: frozenset[str] = frozenset()
        self._schedule = Schedule(settings.merge_interval)
        self._maintenance = Maintenance(settings)
        self._router = router
        self._single_pass = SinglePass()
        self._tables: _Tables | None = None
        self._written_tables: WrittenTables | None = None
        #: The last batch failed.
        self._failed = False
        # Held by a batch, a round of merges, or the maintenance of a table: of any of several sources.
        self._lock = threading.Lock() if source is None else source.shared.write_lock(source.sink)
        self._closing = threading.Event()
        self._background: threading.Thread | None = None
        self._background_failure: Exception | None = None

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        return Capabilities(
            Delivery.EXACTLY_ONCE,
            Order.BY_SEQ,
            Unit.TARGET,
            holds_rows=self._layout.merges,
            follows_schema=True,
        )

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`."""
        return 0 if self._tables is None else self._tables.pending_rows

    @property
    def quarantine_root(self) -> str:
        """See `ChoosySink`."""
        return self._own_root

    def rules(self, batch: CellBatch) -> dict[str, RowRules]:
        """See `ChoosySink`."""
        with self._lock:
            if self._tables is None:
                self._tables = self._open(batch.spark, batch.stream)
            targets = {part.table: self._tables.of(part.table) for part in batch.table_batches}
            return {str(table): target.rules() for table, target in targets.items()}

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        self._claims.add(tables)

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        if self._background_failure is not None:
            self._failed = True
            self._background, failure, self._background_failure = None, self._background_failure, None
            raise failure
        with self._lock:
            self._failed = True
            written = self._write(batch)
            self._failed = False
        if self._background is None:
            self._background = threading.Thread(target=self._run_in_background, name="delta-sink")
            self._background.start()
        return written

    def close(self) -> None:
        """See `Sink.close`. Pending changes are merged first, unless the last batch failed."""
        self._closing.set()
        if self._background is not None:
            self._background.join()
        try:
            if not self._failed:
                self._finish()
        except (Py4JError, ConnectionError) as error:
            # If Spark's JVM has ended, the next run merges.
            if isinstance(error, Py4JJavaError):
                raise
        finally:
            self._pool.close()
            self._scratch.close()

    def _locations(self, table: TableId) -> list[str]:
        found = [target_path(self._router, table)]
        if self._settings.catalog is not None:
            # Spark's own catalog treats names that differ by case as one
            names = registered_name(self._settings.catalog, self._router.target(table))
            found.append(f"table {'.'.join(names).lower()}")
        return found

    # ---- a batch -------------------------------------------------------------------------------------

    def _write(self, batch: CellBatch) -> list[Written]:
        if self._tables is None:
            self._tables = self._open(batch.spark, batch.stream)
        tables, self._written_tables = self._tables, batch.written_tables
        self._left_out = batch.left_out
        written, merge_now = self._single_pass.write(
            batch,
            one_pass=partial(self._one_pass, batch, tables),
            commit=partial(self._commit, batch, tables),
            write_found=partial(self._write_found, batch, tables),
        )
        if self._registration is not None:
            for target in {w.target: tables.of(w.table) for w in written}.values():
                with of_one_table(self._claims.of(target.name)):
                    self._registration.add(batch.spark, target.name, target.table.path)
        point = Point(batch.id, batch.end)
        touched = {w.target for w in written} | self._altered(batch, tables)
        if merge_now:
            touched |= self._merge(tables, point)
        else:
            tables.merging_s()  # of those that merged by themselves: the schedule is for others
        self._schedule.batch(time.monotonic())
        versions, pending = tables.versions(touched), tables.pending()
        retried(NAME, lambda: tables.batches.add(batch.id, batch.end, versions, pending))
        return written

    @contextmanager
    def _one_pass(
        self, batch: CellBatch, tables: _Tables, schemas: Schemas
    ) -> Iterator[StagedBatch[StagedFiles] | None]:
        """Stage the rows of a batch that is expected to hold `schemas`; None where tasks cannot."""
        if batch.rereads or batch.column_events:  # their keys are noted besides, their tables altered
            yield None
            return
        columns: dict[tuple[str, str], pa.Schema] = {}
        for key, schema in schemas.items():
            target = tables.of(schema.id)
            if target.columns is None or target.has_checks:
                yield None
                return
            columns[key] = target.columns
        with self._scratch.directory("staged") as directory:
            recipes = {
                key: tables.of(s.id).recipe(key[1], s, columns[key], directory) for key, s in schemas.items()
            }
            cells = batch.columns_once("cell")
            yield stage(cells, recipes, lambda key, files: StagedFiles(directory, files, columns[key]))

    def _write_found(self, batch: CellBatch, tables: _Tables) -> tuple[list[Written], bool]:
        """Write a batch by what it holds: many tables in one pass, few with a Spark job for each."""
        found = batch.table_batches
        if len(found) < _MANY or any(len(part.schemas) > 1 for part in found):
            return self._commit(batch, tables, StagedBatch.of(batch))
        work = by_target(found, self._claims)

        def prepare(name: str, parts: list[TableBatch]) -> None:
            target = tables.of(parts[0].table)
            with of_one_table(part.table for part in parts):
                retried(name, lambda: target.prepare(batch, parts, self._claims.of(name)))

        self._pool.run([partial(prepare, name, parts) for name, parts in work.items()])
        schemas = {(str(part.table), part.kind): part.schemas[0] for part in found}
        with self._one_pass(batch, tables, schemas) as staged:
            held = staged if staged is not None and staged.is_complete else StagedBatch.of(batch)
            return self._commit(batch, tables, held)

    def _commit(
        self, batch: CellBatch, tables: _Tables, held: StagedBatch[StagedFiles]
    ) -> tuple[list[Written], bool]:
        """Write a batch to its targets; also gives whether its changes were merged at once."""
        changes = sum(part.changes for part in held.table_batches if part.kind != SNAPSHOT)
        merge_now = self._schedule.is_due(time.monotonic(), tables.pending_rows + changes)

        by_target(held.table_batches, self._claims)  # claims them
        again = refreshes(batch, self._claims)
        compared = {refresh.table for refresh in again}

        def write(name: str, parts: list[TableBatch]) -> None:
            target, of_target = tables.of(parts[0].table), self._claims.of(name)
            files = held.files
            retried(
                name,
                lambda: target.write(
                    batch,
                    parts,
                    files,
                    of_target,
                    merge_now=merge_now,
                    may_merge=self._schedule.adapts,
                    compared=compared,
                ),
            )

        written = self._pool.write(held.table_batches, write)
        others = self._altered(batch, tables) - {w.target for w in written}
        self._pool.run([partial(self._alter, batch, tables, name) for name in sorted(others)])
        self._pool.run([partial(self._reread, batch, tables, refresh) for refresh in again])
        return written, merge_now

    def _altered(self, batch: CellBatch, tables: _Tables) -> set[str]:
        """The targets that exist of tables that have renamed or dropped columns."""
        events = {event.table for event in batch.column_events if event.changes}
        found = [tables.of(table) for table in self._claims.tables if str(table) in events]
        return {target.name for target in found if target.table.state() is not None}

    def _alter(self, batch: CellBatch, tables: _Tables, name: str) -> None:
        """Rename and drop columns of a target for which the batch has no rows."""
        of_target = self._claims.of(name)
        with of_one_table(of_target):
            retried(name, lambda: tables.targets[name].alter(batch, of_target))

    def _reread(self, batch: CellBatch, tables: _Tables, refresh: Refresh) -> None:
        """Follow a table that is read again."""
        target = tables.of(refresh.table)
        if target.table.state() is None:
            return
        parts = [part for part in batch.table_batches if part.table == refresh.table]
        retried(target.name, lambda: target.reread(batch, parts, refresh))

    def _merge(self, tables: _Tables, point: Point) -> set[str]:
        """Merge all pending changes; the names of the merged targets."""
        names = {name for name in tables.pending() if not self._is_left_out(name)}
        names -= self._forget_gone(tables, names, point)

        def merge(name: str) -> None:
            with of_one_table(self._claims.of(name)):
                retried(name, partial(tables.targets[name].merge_pending, point))

        self._pool.run([partial(merge, name) for name in names])
        took_s = tables.merging_s()
        if took_s:
            self._schedule.merged(time.monotonic(), took_s)
        return names

    def _is_left_out(self, name: str) -> bool:
        """Whether all tables of a target are parked: nothing is to be done with it."""
        router = self._claims.router
        is_affected = any(router.target(TableId.parse(table)) == name for table in self._left_out)
        return is_affected and {str(table) for table in self._claims.of(name)} <= self._left_out

    def _forget_gone(self, tables: _Tables, names: Iterable[str], point: Point) -> set[str]:
        """Forget pending changes of those targets that were dropped, if their tables are read again."""
        noted = self._written_tables
        if noted is None:
            return set()
        gone = set()
        for name in names:
            target, number = tables.targets[name], point.batch + 1
            # the next batch may create the target: it then makes the same request
            if target.table.state() is None and noted.read_again(number, name, self._claims.of(name)):
                target.forget_pending(point)
                gone.add(name)
        return gone

    # ---- in the background -------------------------------------------------------------------------

    def _run_in_background(self) -> None:
        """Merge when the stream is idle, write checkpoints, maintain tables, until the sink is closed."""
        # A program may end without closing its sink. (A thread of an executor would prevent it: Python waits
        # for those while the main thread still counts as alive.)
        try:
            while not self._closing.wait(_LOOK_S) and threading.main_thread().is_alive():
                tables = self._tables
                assert tables is not None
                with self._lock:
                    if self._may_merge_when_idle(tables):
                        self._merge_without_batch(tables)
                tables.checkpoints.write()
                self._maintain(tables)
        except Exception as error:  # noqa: BLE001 - raised where the next batch is written
            self._background_failure = error

    def _may_merge_when_idle(self, tables: _Tables) -> bool:
        return (
            not self._failed and bool(tables.pending()) and self._schedule.is_due_when_idle(time.monotonic())
        )

    def _merge_without_batch(self, tables: _Tables) -> None:
        touched = self._merge(tables, tables.point())
        if touched or not tables.batches.current:
            tables.renew(touched)

    def _maintain(self, tables: _Tables) -> None:
        for name, target in sorted(tables.targets.items()) if self._maintenance else ():
            with self._lock:
                if not self._failed and retried(name, partial(self._maintenance.run, target.table)):
                    tables.renew([name])

    def _finish(self) -> None:
        """Merge, write checkpoints and maintain before the sink is closed."""
        tables = self._tables
        if tables is None:
            stream = self._former_stream()
            if stream is None:
                return
            tables = self._open(SparkSession.active(), stream)
        with self._lock:
            self._merge_without_batch(tables)
        tables.checkpoints.write()
        self._maintain(tables)

    # ---- the tables ----------------------------------------------------------------------------------

    def _open(self, session: SparkSession, stream: StreamId) -> _Tables:
        """The stream's tables; those with pending changes are opened."""
        sessions = OwnSessions(session, _OF_LOCAL_FILES if is_local(self._path) else {})
        checkpoints = Checkpoints(sessions)
        batches = retried(NAME, lambda: Batches(sessions, self._own_root, stream, checkpoints))
        if is_local(self._path):  # it has the stream's newest lease: `Batches` has refused others
            self._scratch.begin(stream.lease)
        tables = _Tables(
            self._settings,
            self._layout,
            self._path,
            self._router,
            sessions,
            stream,
            batches,
            checkpoints,
            self._own_root,
            self._scratch,
            self._source,
        )
        for path in self._paths_with_changes():
            tables.open_at(path)
        if not tables.pending() and not batches.current:
            tables.renew(tables.targets)
        return tables

    def _paths_with_changes(self) -> list[str]:
        return list(changed_paths(self._own_root)) if self._layout.merges else []

    def _former_stream(self) -> StreamId | None:
        """The stream of tables that an earlier run may not have merged, if this run had no batch."""
        for path in self._paths_with_changes():
            state = delta_state(SparkSession.active(), below(self._path, path))
            if state is not None and state.properties.get("tailrace.mode") == self._layout.mode:
                held = state.properties
                own = "tailrace.stream" if self._source is None else source_property(self._source)
                pipeline = held.get("tailrace.pipeline", "")
                return StreamId(pipeline, held[own], self._lease) if own in held else None
        return None


@dataclass
class _Tables:
    """The tables that a stream has written so far."""

    settings: DeltaSettings
    layout: TableLayout
    path: str
    router: Router
    sessions: OwnSessions
    stream: StreamId
    batches: Batches
    checkpoints: Checkpoints
    own_root: str
    scratch: Scratch
    source: SourceOfTarget | None
    targets: dict[str, DeltaTarget] = field(default_factory=dict)

    def of(self, table: TableId) -> DeltaTarget:
        """The target of a table."""
        name = self.router.target(table)
        if name not in self.targets:
            path = path_in_use(target_path(self.router, table), name, self._is_ours)
            self._add(name, path)
        target = self.targets[name]
        target.shard = self.router.shard_column(table)  # it may have been opened by its path
        return target

    def open_at(self, path: str) -> None:
        """Open the target at `path`, for which an earlier run left pending changes."""
        state = delta_state(self.sessions.current, changes_path(self.own_root, path))
        self._add(state.properties.get(TARGET, path) if state is not None else path, path)

    def _add(self, name: str, path: str) -> None:
        cluster = self.settings.cluster_by_key
        policy = self.settings.on_incompatible_type
        self.targets[name] = DeltaTarget(
            name,
            self.path,
            self.own_root,
            self.scratch,
            path,
            self.layout,
            self.stream,
            self.sessions,
            self.checkpoints,
            cluster,
            policy,
            self.settings.reader_features,
            self.source,
        )

    def _is_ours(self, path: str) -> bool:
        """Whether a table of the stream is at `path`."""
        if not Directory(f"{below(self.path, path)}/_delta_log").names():
            return False
        state = delta_state(self.sessions.current, below(self.path, path))
        return state is not None and state.properties.get("tailrace.stream") == owner_of(
            self.source, self.stream
        )

    def point(self) -> Point:
        """The stream's present point."""
        pending = [batch for target in self.targets.values() for batch in target.pending_batches]
        return Point(max([self.batches.batch or 0, *pending]), self.batches.end)

    def pending(self) -> dict[str, int]:
        """The first batch with pending changes, for each target that has any."""
        return {name: min(t.pending_batches) for name, t in list(self.targets.items()) if t.pending_batches}

    @property
    def pending_rows(self) -> int:
        return sum(sum(t.pending_batches.values()) for t in list(self.targets.values()))

    def versions(self, names: Iterable[str]) -> dict[str, int]:
        return {name: self.targets[name].version() for name in names}

    def renew(self, names: Iterable[str]) -> None:
        """Record what targets show now without a new batch."""
        versions, pending = self.versions(names), self.pending()
        retried(NAME, lambda: self.batches.renew(versions, pending))

    def merging_s(self) -> float:
        """The duration of the last round of merges, seconds; starts the next one at 0."""
        took = [target.merging_s for target in self.targets.values()]
        for target in self.targets.values():
            target.merging_s = 0.0
        return max([sum(took) / self.settings.parallelism, *took], default=0.0)

"""Tables of a database kept equal to the source's, exactly once: MySQL, MariaDB, PostgreSQL.

The driver creates and alters tables, and begins and finishes batches; Spark's tasks write the rows, each
with its own connection. There are two commit modes.

`transaction: parts`. A batch is divided into units (`ledger`). Each is a transaction of its own, with a mark:

    driver   create or alter tables; begin: the batch's number, the attempt's epoch        commit
    tasks      a unit's rows, its mark                                                     commit, each
    driver   finish: the targets have the batch                                            commit

A reader of the target sees a batch arrive in parts; no key ever goes back to an older state.
A small batch like those before it is read, begun and written by one task (`one_pass`).

`transaction: whole-batch`. A reader sees a batch appear at once, in all tables: every state of the target is
one that the source had. Rows are staged in tables of their own first, so they are written twice:

    tasks      a unit's rows into new staging tables                                       commit, each
    driver   merge all of them into their targets; the batch's number                      commit
             drop the staging tables; those of an attempt that died, in the next attempt

A table that is read again has its keys noted meanwhile (`seen`). The last step of the batch that ends the
reading deletes the target's other rows, in the transaction that records the batch.

The sink creates no foreign keys and no triggers: units of a batch commit in any order. Tables routed to one
target are merged by key: of two source rows with the same key, the target holds the one that changed last.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from tailrace.config.sinks import (
    ExistingTables,
    MySqlSettings,
    PostgresSettings,
    ReplicaTransaction,
)
from tailrace.errors import SinkError, StateError, TransientSinkError
from tailrace.extras import require
from tailrace.failpoints import failpoint
from tailrace.model.change import LOG
from tailrace.model.table import TableId, TableSchema
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, StreamId, Unit, Written
from tailrace.sinks.claims import Claims
from tailrace.sinks.quarantine import refused_error
from tailrace.sinks.replica.dialect import (
    Dialect,
    RefusalError,
    RowOperation,
    TableName,
    WriteSession,
    follow_former,
)
from tailrace.sinks.replica.faithful import require_faithful
from tailrace.sinks.replica.ledger import Entry, Ledger
from tailrace.sinks.replica.mysql import MySqlDialect
from tailrace.sinks.replica.one_pass import ReplicaPass, run_pass
from tailrace.sinks.replica.own_source import OwnSource
from tailrace.sinks.replica.plan import BatchPlan, Work
from tailrace.sinks.replica.rekey import has_other_key, rekeyed, renamed_columns
from tailrace.sinks.replica.seen import Reading, keys_prefix, keys_tables, readings_of
from tailrace.sinks.replica.target_schema import TargetSchema, schema_for
from tailrace.sinks.replica.tasks import StagingTable, TableStaging, TaskInput, UnitResult
from tailrace.sinks.replica.text_columns import become_text
from tailrace.sinks.replica.unit_writer import BatchAttempt, TargetTable, staging_prefix
from tailrace.sinks.route import Router
from tailrace.sinks.single_pass import Schemas, SinglePass
from tailrace.sinks.tables.former_columns import (
    former_columns,
    kept_columns,
    missed_columns,
    require_unneeded,
)
from tailrace.sinks.tables.targets import add_targets_without_rows, by_target, of_one_table, written
from tailrace.spark.cells import TableBatch

_log = logging.getLogger(__name__)

#: Most targets that one pass may be expected to write.
_MOST_EXPECTED = 32
#: Errors by which servers reject to rename or drop a column that something else needs.
_REJECTED = ("TR-3012", "TR-5002")


class ReplicaSink:
    """Keeps tables of a database equal to the source's.

    Args:
        settings: the sink's settings.
        router: names the targets.
        source: the source's dialect.
        own_source: the source; None: it is certain to be on another server.
    """

    def __init__(
        self,
        settings: MySqlSettings | PostgresSettings,
        router: Router,
        source: str = "mysql",
        own_source: OwnSource | None = None,
    ) -> None:
        self._settings = settings
        self._own_source = own_source
        self._source = source
        self._router = router
        self._dialect: Dialect | None = None
        self._session: WriteSession | None = None
        self._schemas: dict[str, TargetSchema] = {}
        self._claims = Claims(router, lambda table: [router.target(table)])
        self._single_pass = SinglePass()
        #: Whether the last batch was of the kind that one pass writes.
        self._was_small = False
        #: The tables of keys that exist, while there is a session.
        self._keys_tables: set[str] = set()

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        unit = Unit.BATCH if self._is_whole else Unit.TASK
        return Capabilities(Delivery.EXACTLY_ONCE, Order.BY_SEQ, unit, holds_rows=True, follows_schema=True)

    @property
    def _is_whole(self) -> bool:
        return self._settings.transaction is ReplicaTransaction.WHOLE_BATCH

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`: readers see what is durable."""
        return 0

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`. How the server compares names is unknown until it is connected."""
        listed = list(tables)
        if self._own_source is not None:
            self._own_source.require_apart(self._router, listed)
        self._claims.add(listed)

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        try:
            try:
                return self._write_once(batch)
            except SinkError:
                known = sorted(self._schemas)
                self.close()
                if not self._is_one_gone(known, batch.stream):
                    raise
                return self._write_once(batch)  # which looks what exists
        except BaseException:
            self.close()  # the session may be in a transaction, or broken
            raise

    def _write_once(self, batch: CellBatch) -> list[Written]:
        return self._single_pass.write(
            batch,
            one_pass=partial(self._one_pass, batch),
            commit=partial(self._commit_pass, batch),
            write_found=partial(self._write_found, batch),
        )

    def _is_one_gone(self, targets: Iterable[str], stream: StreamId) -> bool:
        """Whether a target that was there has been dropped."""
        dialect, session = self._open(stream)
        return any(not session.columns(dialect.table_name(name)) for name in targets)

    def close(self) -> None:
        """See `Sink.close`."""
        session, self._session = self._session, None
        self._schemas = {}
        if session is not None:
            session.close()

    @contextmanager
    def _one_pass(self, batch: CellBatch, schemas: Schemas) -> Iterator[ReplicaPass | None]:
        """Write a batch that is expected to be small and to hold changes of `schemas`; None if it may not."""
        if batch.rereads or batch.column_events:  # their keys are noted besides, their tables altered
            yield None
            return
        logged = {str(schema.id): schema for (_, kind), schema in schemas.items() if kind == LOG}
        routes = {table: self._claims.router.target(schema.id) for table, schema in logged.items()}
        attempt = None
        if self._was_small and 0 < len(set(routes.values())) <= _MOST_EXPECTED:
            attempt = self._attempt_as_expected(batch, logged, routes)
        if attempt is None:
            yield None
            return
        staging = TableStaging(batch.stream.query, dry_run=False) if self._is_whole else None
        task_input = TaskInput(attempt, routes, {}, staging)
        yield run_pass(batch.columns_once("cell"), task_input, logged, self._settings.parallelism)

    def _attempt_as_expected(
        self, batch: CellBatch, schemas: Mapping[str, TableSchema], routes: Mapping[str, str]
    ) -> BatchAttempt | None:
        """An attempt at a batch whose targets are as the last one has left them, else None."""
        dialect, session = self._open(batch.stream)
        ledger = Ledger(dialect)
        entries = ledger.entries(session, set(routes.values()))
        for table, name in routes.items():
            entry = entries.get(name)
            if entry is None or entry.stream != batch.stream.query or entry.done >= batch.id:
                return None
            entry.require_owner(batch.stream)
            on_type = self._settings.on_incompatible_type
            needed = schema_for(name, [schemas[table]], entry.schema, batch.following, on_type)
            if not self._schemas.get(name) == entry.schema == needed:
                return None
        if self._is_whole:
            self._drop_staging_tables(session, ledger, batch.stream.query)
        epoch = uuid.uuid4().hex
        ledger.set_epoch(session, entries, epoch, lease=batch.stream.lease)
        tables = {name: TargetTable(dialect.table_name(name), self._schemas[name]) for name in entries}
        settings = self._settings
        policy, most = settings.on_refused_row, settings.max_quarantined
        lease = batch.stream.lease
        return BatchAttempt(dialect, tables, batch.id, epoch, frozenset(), policy, most, lease=lease)

    def _commit_pass(self, batch: CellBatch, done: ReplicaPass) -> list[Written]:
        """Finish a batch that one pass has written."""
        work = by_target(done.table_batches, self._claims)
        _raise_first(done.results, {str(p.table): name for name, parts in work.items() for p in parts})
        dialect, session = self._open(batch.stream)
        ledger = Ledger(dialect)
        if not self._is_whole:
            _finish(session, ledger, batch, done.attempt)
            _note_quarantined(batch, done.results)
        elif work:
            try:
                self._merge_staged(session, ledger, batch, done.attempt, done.results)
            except _MergeRefusedError:
                session.run("ROLLBACK")
                return self._write_found(batch)  # which finds the row
            failpoint("sink.table")
            self._drop_staging_tables(session, ledger, batch.stream.query)
        return written(work)

    def _write_found(self, batch: CellBatch) -> list[Written]:
        """Write a batch by what it holds."""
        work = by_target(batch.table_batches, self._claims)
        readings = readings_of(batch, self._claims)
        read = [name for name, of_target in readings.items() if any(r.done for r in of_target)]
        add_targets_without_rows(work, batch, self._claims, read)
        if work:
            self._write(batch, work, readings)
        return written(work)

    def _write(self, batch: CellBatch, work: Work, readings: Mapping[str, Sequence[Reading]]) -> None:
        dialect, session = self._open(batch.stream)
        ledger = Ledger(dialect)
        entries = ledger.entries(session, work)
        for name, entry in entries.items():
            if entry.stream != batch.stream.query:
                raise _not_ours(name, f"a table of stream {entry.stream}", batch.stream)
            entry.require_owner(batch.stream)
        todo = {
            name: parts
            for name, parts in work.items()
            if (entries[name].done < batch.id if name in entries else parts)
        }
        self._drop_old_keys(session, ledger, batch, {name: name not in todo for name in work}, readings)
        if not todo:
            return
        for name, parts in todo.items():
            with of_one_table({part.table for part in parts} or self._claims.of(name)):
                self._prepare_table(session, ledger, parts, entries.get(name), name=name, batch=batch)
        tables = {name: TargetTable(dialect.table_name(name), self._schemas[name]) for name in todo}
        readings = {name: of_target for name, of_target in readings.items() if name in todo}
        self._create_keys(session, ledger, tables, readings)
        plan = BatchPlan(
            batch,
            todo,
            self._settings.parallelism,
            lambda name: session.has_unique_values(tables[name].name),
        )
        self._was_small = plan.is_small
        epoch, lease = uuid.uuid4().hex, batch.stream.lease
        replayed = ledger.begin(session, batch.id, epoch, plan.layouts, plan.units, lease=lease)
        policy, most = self._settings.on_refused_row, self._settings.max_quarantined
        attempt = BatchAttempt(dialect, tables, batch.id, epoch, replayed, policy, most, readings, lease)
        if self._is_whole:
            self._write_whole(session, ledger, plan, attempt)
        else:
            results = plan.write(TaskInput(attempt, plan.routes, plan.buckets, None))
            _raise_first(results, plan.routes)
            _finish(session, ledger, batch, attempt)
            _note_quarantined(batch, results)
        self._drop_old_keys(session, ledger, batch, dict.fromkeys(todo, True), readings)

    def _write_whole(
        self,
        session: WriteSession,
        ledger: Ledger,
        plan: BatchPlan,
        attempt: BatchAttempt,
    ) -> None:
        """Stage all rows, then merge them in one transaction."""
        stream, routes = plan.batch.stream.query, plan.routes
        for dry_run in (False, True):
            self._drop_staging_tables(session, ledger, stream)
            results = plan.write(TaskInput(attempt, routes, plan.buckets, TableStaging(stream, dry_run)))
            _raise_first(results, routes)
            try:
                self._merge_staged(session, ledger, plan.batch, attempt, results)
                break
            except _MergeRefusedError as refused:
                # a constraint: only a dry run by the tasks finds the row
                session.run("ROLLBACK")
                if dry_run:
                    reason, column = refused.refusal.reason, refused.refusal.column
                    with of_one_table(t for t, target in routes.items() if target == refused.target):
                        raise refused_error(
                            refused.target, column, reason, f"batch {attempt.batch}"
                        ) from refused
        failpoint("sink.table")
        self._drop_staging_tables(session, ledger, stream)

    def _merge_staged(
        self,
        session: WriteSession,
        ledger: Ledger,
        batch: CellBatch,
        attempt: BatchAttempt,
        results: Iterable[UnitResult],
    ) -> None:
        """Merge all staged rows into their targets, in one transaction."""
        session.run("BEGIN")
        for name in attempt.tables:
            ledger.lock_epoch(session, name, attempt.epoch)
        for result in results:
            table = attempt.tables[result.target]
            for staged in result.staged:
                try:
                    _merge(session, ledger.own_table(staged.name), staged, table)
                    _merge_keys(session, ledger, staged, table, attempt.readings.get(result.target, ()))
                except RefusalError as refusal:
                    raise _MergeRefusedError(result.target, refusal) from refusal
            ledger.add_quarantined(session, result.refused)
        for name in attempt.readings:
            _delete_others(session, ledger, attempt, name)
        ledger.finish(session, batch.id, attempt.tables, _position(batch), attempt.epoch)
        session.run("COMMIT")
        _note_quarantined(batch, results)
        if attempt.readings:
            failpoint("sink.reread")

    def _drop_staging_tables(self, session: WriteSession, ledger: Ledger, stream: str) -> None:
        for name in ledger.own_tables(session, staging_prefix(stream)):
            session.run(f"DROP TABLE {ledger.dialect.name(ledger.own_table(name))}")

    # ---- tables that are read again --------------------------------------------------------------------

    def _create_keys(
        self,
        session: WriteSession,
        ledger: Ledger,
        tables: Mapping[str, TargetTable],
        readings: Mapping[str, Sequence[Reading]],
    ) -> None:
        """Create the tables of keys that do not exist.

        Raises:
            StateError: one was dropped.
        """
        for reading in (reading for of_target in readings.values() for reading in of_target):
            name, table = reading.keys_table, tables[reading.target]
            is_noted = ledger.has_keys(session, reading.target, name)
            if name not in self._keys_tables:
                if is_noted:
                    raise _keys_gone(ledger, reading)
                session.create_keys(ledger.own_table(name), table.name, table.schema.key)
                self._keys_tables.add(name)
            if not is_noted:
                ledger.note_keys(session, reading.target, name)

    def _drop_old_keys(
        self,
        session: WriteSession,
        ledger: Ledger,
        batch: CellBatch,
        targets: Mapping[str, bool],
        readings: Mapping[str, Sequence[Reading]],
    ) -> None:
        """Drop the keys of readings that have ended, or that others have replaced.

        Args:
            session: a session outside a transaction.
            ledger: the ledger.
            batch: the batch.
            targets: targets, and whether they have the batch.
            readings: by target: its tables that are read again.
        """
        if batch.end is None or not self._keys_tables:
            return
        for name, has_batch in targets.items():
            kept = {r.keys_table for r in readings.get(name, ()) if not (r.done and has_batch)}
            prefix = keys_prefix(batch.stream.query, name)
            old = {table for table in self._keys_tables if table.startswith(prefix)} - kept
            for table in sorted(old):
                ledger.forget_keys(session, name, table)
                session.run(f"DROP TABLE {ledger.dialect.name(ledger.own_table(table))}")
                self._keys_tables.discard(table)

    # ---- tables --------------------------------------------------------------------------------------

    def _open(self, stream: StreamId) -> tuple[Dialect, WriteSession]:
        if self._dialect is None:
            self._dialect = open_dialect(self._settings, self._source)
            if isinstance(self._dialect, MySqlDialect) and not self._dialect.reads_files:
                _log.warning(
                    "the target has local_infile=OFF: pipeline %s writes by INSERT, which is slower;"
                    " SET PERSIST local_infile = ON ends it",
                    stream.pipeline,
                )
            dialect, router, known = self._dialect, self._router, self._claims.tables
            self._claims = Claims(
                router, lambda table: [dialect.folded_name(dialect.table_name(router.target(table)))]
            )
            self._claims.add(known)
        if self._session is None:
            self._session = self._dialect.connect()
            ledger = Ledger(self._dialect)
            ledger.create(self._session)
            self._keys_tables = keys_tables(self._session, ledger)
        return self._dialect, self._session

    def _prepare_table(
        self,
        session: WriteSession,
        ledger: Ledger,
        parts: list[TableBatch],
        entry: Entry | None,
        *,
        name: str,
        batch: CellBatch,
    ) -> None:
        """Create a table, or alter it to hold the rows of the batch.

        Raises:
            StateError: the table belongs to another stream, or was dropped.
        """
        dialect, current = ledger.dialect, None
        if entry is not None:
            current = self._without_former_columns(session, ledger, entry, batch, parts)
        schemas = (schema for part in parts for schema in part.schemas)
        on_type = self._settings.on_incompatible_type
        needed = schema_for(name, schemas, current, batch.following, on_type)
        if self._schemas.get(name) == needed == current:
            return
        table = dialect.table_name(name)
        existing = session.columns(table)
        if current is None:
            if existing:
                self._adopt(session, dialect, needed, existing, batch.stream)
            batch.creates(name, self._claims.of(name))
            ledger.claim(session, name, batch.stream, needed)
            current = needed
        elif not (existing or entry is None or entry.begun < 0 or batch.creates(name, self._claims.of(name))):
            raise StateError(
                f"target `{name}` is gone",
                f"the stream has written it up to batch {entry.done}, and will not write those rows again",
                f"restore the table; or have it created and filled again: DELETE FROM {ledger.targets}"
                f" WHERE target = {dialect.literal(name)}; then: tailrace resync PIPELINE.YAML TABLE",
                code="TR-6102",
            )
        held = current
        if existing:
            shared = any(self._claims.share(part.table) for part in parts)
            held = become_text(session, dialect, table, current, needed, shared=shared)
        if existing and has_other_key(needed.key, current.key):
            self._require_own_key(parts, current, needed)
            self._rekey(session, ledger, held, needed, existing=existing, batch=batch, parts=parts)
            statements = []
        elif existing:
            statements = dialect.alter(table, held, needed, existing)
            prefix = keys_prefix(batch.stream.query, name)
            for keys in sorted(k for k in self._keys_tables if k.startswith(prefix)):
                statements += dialect.alter(
                    ledger.own_table(keys), current.of_keys, needed.of_keys, needed.key
                )
        else:
            statements = dialect.create(table, needed)
        for statement in statements:
            session.run(statement)
        if existing:
            require_faithful(session, dialect, needed)
        if needed != current:
            ledger.store_schema(session, needed)
        self._schemas[name] = needed

    def _require_own_key(
        self, parts: Iterable[TableBatch], current: TargetSchema, needed: TargetSchema
    ) -> None:
        """Refuse another key of a target that several tables share: theirs may be the old one.

        Raises:
            SinkError: they share it.
        """
        for part in parts:
            if self._claims.share(part.table):
                raise SinkError(
                    f"target `{current.target}` cannot follow its source: the key has changed",
                    f"the target's key is ({', '.join(current.key)}), that of `{part.table}`"
                    f" ({', '.join(needed.key)}), and other tables have the target, too",
                    "start a pipeline with a new target and checkpoint",
                    code="TR-7002",
                )

    def _rekey(
        self,
        session: WriteSession,
        ledger: Ledger,
        current: TargetSchema,
        needed: TargetSchema,
        *,
        existing: list[str],
        batch: CellBatch,
        parts: Iterable[TableBatch],
    ) -> None:
        """Give a table the key that its source has now; keys noted under the old one are forgotten.

        Raises:
            SinkError: the server refuses it.
        """
        dialect, name = ledger.dialect, current.target
        prefix = keys_prefix(batch.stream.query, name)
        for keys in sorted(k for k in self._keys_tables if k.startswith(prefix)):
            ledger.forget_keys(session, name, keys)
            session.run(f"DROP TABLE {dialect.name(ledger.own_table(keys))}")
            self._keys_tables.discard(keys)
        table = dialect.table_name(name)
        if not has_other_key(session.key(table), needed.key):  # done before a crash
            return
        renamed = renamed_columns(batch.schema_events, (str(part.table) for part in parts))
        try:
            session.run("BEGIN")  # PostgreSQL; elsewhere each ALTER TABLE commits
            for statement in rekeyed(dialect, table, current, needed, existing=existing, renamed=renamed):
                session.run(statement)
            session.run("COMMIT")
        except TransientSinkError:
            raise
        except (SinkError, RefusalError) as error:
            reason = error.reason if isinstance(error, RefusalError) else error.detail or error.message
            raise SinkError(
                f"target `{name}` cannot follow its source: the key has changed",
                f"the target's key is ({', '.join(current.key)}), the source's ({', '.join(needed.key)}),"
                f" and the server refuses the change: {reason}",
                "drop what depends on the target's key (foreign keys of others), or drop the target and read"
                " the table again: tailrace resync PIPELINE.YAML TABLE",
                code="TR-7002",
            ) from error
        failpoint("sink.rekeyed")

    def _without_former_columns(
        self,
        session: WriteSession,
        ledger: Ledger,
        entry: Entry,
        batch: CellBatch,
        parts: Sequence[TableBatch],
    ) -> TargetSchema:
        """Rename and drop the columns that the source has renamed and dropped; the target's schema then."""
        schema, dialect = entry.schema, ledger.dialect
        tables = self._claims.of(entry.target)
        if len(tables) != 1:  # of which only one has changed
            batch.keeps_columns(entry.target, tables)
            return schema
        names = [column.name for column in schema.columns]
        changes = former_columns(batch.column_events, str(tables[0]), names, schema.key)
        if kept_columns(batch.column_events, str(tables[0]), names, changes):
            batch.lacks_columns(entry.target, tables)
        old = {change.old for change in changes}
        missed = missed_columns(parts, str(tables[0]), names, schema.key) if batch.drops_columns else []
        changes += [change for change in missed if change.old not in old]
        table = dialect.table_name(entry.target)
        for change in changes:
            present = {name.lower() for name in session.columns(table)}
            if change.old.lower() in present:  # else an earlier attempt has made it
                try:
                    session.run(follow_former(dialect, table, change))
                except SinkError as error:
                    if error.code not in _REJECTED:
                        raise
                    require_unneeded(batch.policy, entry.target, change.old, error, tables[0])
                    continue
            schema = schema.after(change)
        if schema != entry.schema:
            ledger.store_schema(session, schema)
        return schema

    def _adopt(
        self,
        session: WriteSession,
        dialect: Dialect,
        needed: TargetSchema,
        existing: list[str],
        stream: StreamId,
    ) -> None:
        """Accept a table that exists already, for a new target.

        Raises:
            StateError: `existing-tables` forbids it, or its columns or key differ.
        """
        if self._settings.existing_tables is ExistingTables.REFUSE:
            raise _not_ours(needed.target, "a table that Tailrace did not make", stream)
        key = session.key(dialect.table_name(needed.target))
        same_columns = {name.lower() for name in existing} == {c.name.lower() for c in needed.columns}
        if same_columns and [k.lower() for k in key] == [k.lower() for k in needed.key]:
            require_faithful(session, dialect, needed)
            return
        listed = ", ".join(c.name for c in needed.columns)
        raise StateError(
            f"target `{needed.target}` cannot be adopted",
            f"it has the columns ({', '.join(existing)}) with the key ({', '.join(key)}), needed are"
            f" ({listed}) with the key ({', '.join(needed.key)})",
            "alter it, route the source's table to another name, or drop it",
            code="TR-6104",
        )


def _merge(session: WriteSession, name: TableName, staged: StagingTable, table: TargetTable) -> None:
    """Merge a staging table; snapshot rows replace existing rows."""
    if staged.operation is not RowOperation.INSERT:
        session.merge(name, staged.operation, table.name, table.schema.without(staged.absent))
        return
    session.run("SAVEPOINT tailrace")
    try:
        session.merge(name, RowOperation.INSERT, table.name, table.schema)
    except RefusalError as refusal:
        if not refusal.is_duplicate:
            raise
        session.run("ROLLBACK TO SAVEPOINT tailrace")
        session.merge(name, RowOperation.UPSERT, table.name, table.schema)


def _merge_keys(
    session: WriteSession,
    ledger: Ledger,
    staged: StagingTable,
    table: TargetTable,
    readings: Sequence[Reading],
) -> None:
    """Merge the keys of the rows of a staging table into the tables of keys."""
    if staged.operation is RowOperation.DELETE:
        return
    source, schema = ledger.own_table(staged.name), table.schema.of_keys
    for reading in readings:
        keys = ledger.own_table(reading.keys_table)
        session.merge(source, RowOperation.UPSERT, keys, schema, reading.only)


def _delete_others(session: WriteSession, ledger: Ledger, attempt: BatchAttempt, name: str) -> None:
    """Delete, or mark, the rows of a target that its tables no longer have, if their reading ends."""
    failpoint("sink.seen")
    table = attempt.tables[name]
    for reading in attempt.readings.get(name, ()):
        if not reading.done:
            continue
        keys = ledger.own_table(reading.keys_table)
        try:
            session.keep_keys(keys, table.name, table.schema.key, reading.only, reading.marks)
        except RefusalError as refusal:
            where = f"table `{reading.table}`, which no longer has it"
            raise refused_error(name, refusal.column, refusal.reason, where) from refusal


def open_dialect(settings: MySqlSettings | PostgresSettings, source: str) -> Dialect:
    """The dialect of the server in `settings`, for rows from a source of dialect `source`.

    Raises:
        ConfigError: the URL names no database, or an extra is missing.
        TransientSinkError: the server does not answer.
        SinkError: the server rejects the user.
    """
    if isinstance(settings, MySqlSettings):
        return MySqlDialect.open(settings)
    require(settings.extra, f"sink `{settings.type}`")
    from tailrace.sinks.replica.postgres import PostgresDialect  # noqa: PLC0415 - an extra

    return PostgresDialect.open(settings, source)


class _MergeRefusedError(Exception):
    """A target rejects staged rows."""

    def __init__(self, target: str, refusal: RefusalError) -> None:
        super().__init__(target, refusal)
        self.target = target
        self.refusal = refusal


def _finish(session: WriteSession, ledger: Ledger, batch: CellBatch, attempt: BatchAttempt) -> None:
    """Record that targets have a batch, one by one."""
    for name in attempt.tables:
        if name not in attempt.readings:
            ledger.finish(session, batch.id, [name], _position(batch), attempt.epoch)
        else:
            session.run("BEGIN")
            ledger.lock_epoch(session, name, attempt.epoch)
            _delete_others(session, ledger, attempt, name)
            ledger.finish(session, batch.id, [name], _position(batch), attempt.epoch)
            session.run("COMMIT")
            failpoint("sink.reread")
        failpoint("sink.table")


def _position(batch: CellBatch) -> str | None:
    return None if batch.end is None else json.dumps(batch.end, separators=(",", ":"))


def _note_quarantined(batch: CellBatch, results: Iterable[UnitResult]) -> None:
    for result in results:
        for table, count in result.quarantined.items():
            batch.quarantined[batch.sink, table] += count
            _log.warning("batch %d: %d rows of table %s refused, now in quarantine", batch.id, count, table)


def _raise_first(results: Iterable[UnitResult], routes: Mapping[str, str]) -> None:
    """Raise the first error of `results`, with its table if its target has one in the batch."""
    for result in results:
        if result.error is not None:
            with of_one_table(table for table, target in routes.items() if target == result.target):
                raise result.error


def _keys_gone(ledger: Ledger, reading: Reading) -> StateError:
    literal = ledger.dialect.literal
    return StateError(
        f"the keys of target `{reading.target}` are gone",
        f"table `{reading.table}` is being read again, and `{reading.keys_table}`, which holds the keys found"
        " so far, was dropped: rows of all other keys would be deleted at the end",
        f"request another reading: tailrace resync PIPELINE.YAML {reading.table}; then"
        f" DELETE FROM {ledger.units} WHERE target = {literal(reading.target)}"
        f" AND unit = {literal(reading.keys_table)}",
        code="TR-6106",
    )


def _not_ours(name: str, found: str, stream: StreamId) -> StateError:
    return StateError(
        f"target `{name}` is not this stream's",
        f"found {found}, this one is {stream.query}",
        "route the table to another name, continue with that stream's checkpoint, set"
        " `existing-tables: adopt`, or drop the table",
        code="TR-6101",
    )

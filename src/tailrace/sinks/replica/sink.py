"""Tables of a database kept equal to the source's, exactly once: MySQL, MariaDB, PostgreSQL.

The driver makes and alters tables, and begins and ends batches; the rows are written by Spark's tasks, each
with a connection of its own. There are two ways of committing them.

`transaction: parts`. A batch falls into units (`ledger`), each a transaction of its own, with its mark:

    driver   tables as they must be; begin: the batch's number, the run's epoch            commit
    tasks      a unit's rows, its mark                                                     commit, each
    driver   end: targets have the batch                                                   commit

A reader of the target sees a batch come in, key by key never older than it was.

`transaction: whole-batch`. A reader sees a batch at once, in all tables: each state of the target is one that
the source had. Rows wait in tables of their own in the meantime, so they are written twice:

    tasks      a unit's rows into new tables                                               commit, each
    driver   all of them into their targets, and the batch's number                        commit
             the tables are dropped, or those of a run that died, by the next run

No foreign keys and no triggers are made: units of a batch are committed in any order. Tables routed to one
target are merged by key: of two source rows with the same key, the target holds the one that changed last.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable

from tailrace.config.sinks import (
    ExistingTables,
    MySqlSettings,
    PostgresSettings,
    ReplicaTransaction,
)
from tailrace.errors import StateError
from tailrace.extras import require
from tailrace.failpoints import failpoint
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, StreamId, Unit, Written
from tailrace.sinks.replica.dialect import Dialect, RefusalError, RowOperation, TableName, WriteSession
from tailrace.sinks.replica.ledger import Entry, Ledger
from tailrace.sinks.replica.mysql import MySqlDialect
from tailrace.sinks.replica.plan import BatchPlan, Work
from tailrace.sinks.replica.target_schema import TargetSchema, shape_of
from tailrace.sinks.replica.tasks import Job, Outcome, StagingTable, TableStaging
from tailrace.sinks.replica.unit import Run, Table, refused_error, staged_prefix
from tailrace.sinks.route import Router
from tailrace.sinks.tables.targets import by_target, written
from tailrace.spark.cells import TableBatch

_log = logging.getLogger(__name__)


class ReplicaSink:
    """Keeps tables of a database equal to the source's.

    Args:
        settings: where and how.
        router: names the targets.
        source: the source's dialect.
    """

    def __init__(
        self, settings: MySqlSettings | PostgresSettings, router: Router, source: str = "mysql"
    ) -> None:
        self._settings = settings
        self._source = source
        self._router = router
        self._dialect: Dialect | None = None
        self._session: WriteSession | None = None
        self._shapes: dict[str, TargetSchema] = {}

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        unit = Unit.BATCH if self._is_whole else Unit.TASK
        return Capabilities(Delivery.EXACTLY_ONCE, Order.BY_SEQ, unit, holds_rows=True, follows_schema=True)

    @property
    def _is_whole(self) -> bool:
        return self._settings.transaction is ReplicaTransaction.WHOLE_BATCH

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        work = by_target(batch.parts, self._router)
        if work:
            try:
                self._write(batch, work)
            except BaseException:
                self.close()  # the session may be in a transaction, or gone
                raise
        return written(work)

    def close(self) -> None:
        """See `Sink.close`."""
        session, self._session = self._session, None
        self._shapes = {}
        if session is not None:
            session.close()

    def _write(self, batch: CellBatch, work: Work) -> None:
        dialect, session = self._open(batch.stream)
        ledger = Ledger(dialect)
        entries = ledger.entries(session, work)
        for name, entry in entries.items():
            if entry.stream != batch.stream.query:
                raise _not_ours(name, f"a table of stream {entry.stream}", batch.stream)
        todo = {n: parts for n, parts in work.items() if n not in entries or entries[n].done < batch.id}
        if not todo:
            return
        for name, parts in todo.items():
            self._follow(session, ledger, parts, entries.get(name), name=name, stream=batch.stream)
        tables = {name: Table(dialect.place(name), self._shapes[name]) for name in todo}
        plan = BatchPlan(batch, todo, self._settings.parallelism)
        epoch = uuid.uuid4().hex
        again = ledger.begin(session, batch.id, epoch, plan.layouts, plan.units)
        run = Run(dialect, tables, batch.id, epoch, again, self._settings.on_refused_row)
        position = None if batch.end is None else json.dumps(batch.end, separators=(",", ":"))
        if self._is_whole:
            self._write_whole(session, ledger, plan, run, position)
            return
        _raise_first(plan.write(Job(run, plan.routes, plan.buckets, None)))
        for name in todo:
            ledger.finish(session, batch.id, [name], position)
            failpoint("sink.table")

    def _write_whole(
        self, session: WriteSession, ledger: Ledger, plan: BatchPlan, run: Run, position: str | None
    ) -> None:
        stream, routes = plan.batch.stream.query, plan.routes
        for rehearse in (False, True):
            self._drop_staged(session, ledger, stream)
            job = Job(run, routes, plan.buckets, TableStaging(stream, rehearse))
            outcomes = plan.write(job)
            _raise_first(outcomes)
            try:
                self._bring_in(session, ledger, run, outcomes, position)
                break
            except _MergeRefusedError as refused:
                # a constraint: only the tasks' rehearsal can tell which row it is
                session.run("ROLLBACK")
                if rehearse:
                    reason, column = refused.refusal.reason, refused.refusal.column
                    raise refused_error(refused.target, column, reason, f"batch {run.batch}") from refused
        failpoint("sink.table")
        self._drop_staged(session, ledger, stream)

    def _bring_in(
        self,
        session: WriteSession,
        ledger: Ledger,
        run: Run,
        outcomes: Iterable[Outcome],
        position: str | None,
    ) -> None:
        """All rows that wait into their targets, in one transaction."""
        session.run("BEGIN")
        for name in run.tables:
            ledger.hold(session, name, run.epoch)
        for outcome in outcomes:
            table = run.tables[outcome.target]
            for staged in outcome.staged:
                try:
                    _merge(session, ledger.staged(staged.name), staged, table)
                except RefusalError as refusal:
                    raise _MergeRefusedError(outcome.target, refusal) from refusal
            ledger.set_aside(session, outcome.refused)
        ledger.finish(session, run.batch, run.tables, position)
        session.run("COMMIT")

    def _drop_staged(self, session: WriteSession, ledger: Ledger, stream: str) -> None:
        dialect = ledger.dialect
        found = session.run(
            "SELECT table_name FROM information_schema.tables"
            f" WHERE table_schema = {dialect.literal(dialect.notes)}"
            f" AND table_name LIKE {dialect.literal(staged_prefix(stream) + '%')}"
        )
        for (name,) in found:
            session.run(f"DROP TABLE {dialect.name(ledger.staged(str(name)))}")

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
        if self._session is None:
            self._session = self._dialect.connect()
            Ledger(self._dialect).create(self._session)
        return self._dialect, self._session

    def _follow(
        self,
        session: WriteSession,
        ledger: Ledger,
        parts: list[TableBatch],
        entry: Entry | None,
        *,
        name: str,
        stream: StreamId,
    ) -> None:
        """Let a table hold rows of all shapes that are to come, and make it if it is not there.

        Raises:
            StateError: the table is somebody else's, or is gone.
        """
        dialect, held = ledger.dialect, None if entry is None else entry.shape
        wanted = shape_of(name, (shape for part in parts for shape in part.shapes), held)
        if self._shapes.get(name) == wanted == held:
            return
        place = dialect.place(name)
        there = session.columns(place)
        if held is None:
            if there:
                self._adopt(session, dialect, wanted, there, stream)
            ledger.own(session, name, stream, wanted)
            held = wanted
        elif not there and entry is not None and entry.begun >= 0:
            raise StateError(
                f"target `{name}` is gone",
                f"the stream has written it up to batch {entry.done}, and does not bring those rows again",
                "begin a new stream: a new checkpoint, and DELETE FROM "
                f"{ledger.targets} WHERE target = {dialect.literal(name)}",
            )
        statements = dialect.alter(place, held, wanted, there) if there else dialect.create(place, wanted)
        for statement in statements:
            session.run(statement)
        if wanted != held:
            ledger.reshape(session, wanted)
        self._shapes[name] = wanted

    def _adopt(
        self,
        session: WriteSession,
        dialect: Dialect,
        wanted: TargetSchema,
        there: list[str],
        stream: StreamId,
    ) -> None:
        """Take a table that is there.

        Raises:
            StateError: it is not to be taken, or has other columns or another key.
        """
        if self._settings.existing_tables is ExistingTables.REFUSE:
            raise _not_ours(wanted.target, "a table that Tailrace did not make", stream)
        key = session.key(dialect.place(wanted.target))
        columns = {name.lower() for name in there} == {c.name.lower() for c in wanted.columns}
        if columns and [k.lower() for k in key] == [k.lower() for k in wanted.key]:
            return
        listed = ", ".join(c.name for c in wanted.columns)
        raise StateError(
            f"target `{wanted.target}` cannot be adopted",
            f"it has the columns ({', '.join(there)}) with the key ({', '.join(key)}), needed are"
            f" ({listed}) with the key ({', '.join(wanted.key)})",
            "alter it, route the source's table to another name, or drop it",
        )


def _merge(session: WriteSession, name: TableName, staged: StagingTable, table: Table) -> None:
    """Bring rows in; those of a snapshot that are there already are replaced."""
    if staged.verb is not RowOperation.INSERT:
        session.merge(name, staged.verb, table.place, table.shape.without(staged.lacking))
        return
    session.run("SAVEPOINT tailrace")
    try:
        session.merge(name, RowOperation.INSERT, table.place, table.shape)
    except RefusalError as refusal:
        if not refusal.is_duplicate:
            raise
        session.run("ROLLBACK TO SAVEPOINT tailrace")
        session.merge(name, RowOperation.UPSERT, table.place, table.shape)


def open_dialect(settings: MySqlSettings | PostgresSettings, source: str) -> Dialect:
    """The dialect of the server that `settings` name, for rows of a source of dialect `source`.

    Raises:
        ConfigError: they name no database, or an extra is missing.
        TransientSinkError: nobody answers.
        SinkError: the server refuses the user.
    """
    if isinstance(settings, MySqlSettings):
        return MySqlDialect.open(settings)
    require(settings.extra, f"sink `{settings.type}`")
    from tailrace.sinks.replica.postgres import PostgresDialect  # noqa: PLC0415 - an extra

    return PostgresDialect.open(settings, source)


class _MergeRefusedError(Exception):
    """A target refuses rows that wait for it."""

    def __init__(self, target: str, refusal: RefusalError) -> None:
        super().__init__(target, refusal)
        self.target = target
        self.refusal = refusal


def _raise_first(outcomes: Iterable[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def _not_ours(name: str, found: str, stream: StreamId) -> StateError:
    return StateError(
        f"target `{name}` is not this stream's",
        f"found {found}, this one is {stream.query}",
        "route the table to another name, go on with that stream's checkpoint, set `existing-tables: adopt`,"
        " or drop the table",
    )

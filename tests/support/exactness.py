"""A busy table of any source, followed batch by batch, and checks of the sum of its batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from tailrace.config.options import SourceOptions
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import TransientSourceError
from tailrace.model.change import ChangeBatch
from tailrace.sources import registry
from tests.support import engine, postgres, workload
from tests.support.databases import named_rows
from tests.support.engine import Engine, State, changes_of, rows_of, whole_log
from tests.support.wait import wait_until
from tests.support.workload import Subject

ROWS = 900

#: A batch that was read: start, end, its snapshot part and its log part.
Read = tuple[StreamOffset, StreamOffset, list[ChangeBatch], list[ChangeBatch]]


class BusyTable:
    """A table of MySQL or MariaDB.

    Args:
        server: a dev server.
        database: where it is created.
        subject: its definition.
        writers: creates the writers, as `workload.Writers`.
    """

    #: Whether the log may be read again from a batch on that is committed.
    has_whole_log = True

    def __init__(self, server, database: str, subject: Subject, writers: Any = workload.Writers) -> None:
        self.server, self.database, self.subject = server, database, subject.on(server)
        self.name = f"{database}.{subject.name}"
        self.writers = writers

    def fill(self, rows: int = ROWS) -> None:
        workload.fill(self.server, self.name, self.subject, rows)

    def options(self, **given: Any) -> SourceOptions:
        return engine.options_for(self.server, self.name, **given)

    def writing(self, **given: Any) -> workload.Writers:
        return self.writers(self.server, self.name, self.subject, **{"keys": 2 * ROWS, **given})

    def now(self) -> State:
        return now(self.server, self.name, self.subject.key)

    def apply(self, state: State, changes: list[Any]) -> None:
        """Apply log changes to `state`; each must fit the present rows."""
        engine.apply(state, changes, self.subject.key)


class PostgresTable(BusyTable):
    """A table of PostgreSQL.

    Args:
        server: a dev server.
        database: where it is created.
        subject: its definition.
        identity: its replica identity.
    """

    #: The slot has gone on.
    has_whole_log = False

    def __init__(self, server, database: str, subject: Subject, identity: str = "FULL") -> None:
        super().__init__(server, database, subject, postgres.Writers)
        self.name = f"public.{subject.name}"
        self.identity = identity

    def fill(self, rows: int = ROWS) -> None:
        postgres.fill(self.server, self.database, self.subject, rows, identity=self.identity)

    def options(self, **given: Any) -> SourceOptions:
        return postgres.options_for(self.server, self.database, self.name, **given)

    def writing(self, **given: Any) -> workload.Writers:
        return self.writers(self.server, self.database, self.subject, **{"keys": 2 * ROWS, **given})

    def now(self) -> State:
        return postgres.now(self.server, self.database, self.subject)

    def apply(self, state: State, changes: list[Any]) -> None:
        if self.identity == "FULL":
            super().apply(state, changes)
        else:
            postgres.apply_partly(state, changes, self.subject.key)


def now(server, table: str, key: tuple[str, ...]) -> State:
    """The rows of a table of MySQL or MariaDB."""
    with server.connect() as connection, connection.cursor() as cursor:
        rows = named_rows(cursor, f"SELECT * FROM {table}")
    return {tuple(r[k] for k in key): r for r in rows}


def no_fault(_: Any) -> AbstractContextManager[None]:
    return nullcontext()


def wrong_batches(
    table: BusyTable,
    *,
    chunk_rows: int = 100,
    min_batches: int = 20,
    fault: Callable[[Any], AbstractContextManager[None]] = no_fault,
    session: Any = registry.session,
    least: int = 0,
) -> int:
    """Snapshot and follow a table that is written to while its server is disturbed.

    Args:
        table: the table.
        chunk_rows: rows of a chunk.
        min_batches: least number of batches.
        fault: disturbs the server while it is written to.
        session: makes the tasks' sessions.
        least: least number of batches with rows, and with changes.

    Returns:
        The number of batches whose rows were not those at P(n). With a session other than the source's own
        it ends at the first batch that does not fit at all.
    """
    table.fill()
    options = table.options(snapshotChunkRows=chunk_rows)
    seen: list[Read] = []
    with Engine(options, session=session) as stream:
        with table.writing() as writers, fault(table.server):
            while stream.offset.is_new or stream.offset.tables or len(seen) < min_batches:
                batch = wait_until(stream.next, 120, "a batch")
                seen.append((*batch, *_read(stream, batch)))
            writers.stop()
        follow_to_end(stream, seen)
    assert len(seen) > 3
    assert sum(bool(snapshot) for *_, snapshot, _ in seen) >= least
    assert sum(bool(log) for *_, log in seen) >= least
    return _count_wrong(table, seen, options, strict=session is registry.session)


def follow_to_end(stream: Engine, seen: list[Read]) -> None:
    """Read batches until the stream has everything that is committed now."""
    stream.plan.hold()
    while (batch := stream.next()) is not None:
        seen.append((*batch, *stream.read(*batch)))


def _read(stream: Engine, batch: tuple[StreamOffset, StreamOffset]) -> tuple[Any, Any]:
    """The batch's parts, read again, as Spark does after losing a task."""
    while True:
        with suppress(TransientSourceError):
            return stream.read(*batch)


def _count_wrong(table: BusyTable, seen: list[Read], options: SourceOptions, *, strict: bool) -> int:
    key = table.subject.key
    wrong = 0
    truth: State = {}
    target: State = {}
    emitted: list[str] = []
    for number, (start, end, snapshot, log) in enumerate(seen):
        if table.has_whole_log and number == 0:
            truth = _state_at(table, options, end.log, seen[-1][1].log)
        elif table.has_whole_log:
            table.apply(truth, whole_log(options, start.log, end.log))
        changes = changes_of(log)
        emitted += [seq for *_, seq in changes]
        rows = {tuple(r[k] for k in key): r for r in rows_of(snapshot)}
        assert len(rows) == len(rows_of(snapshot)), "a key came twice in one batch"
        try:
            # what is there must be just what the log says it changes: rows as of another moment do not fit
            table.apply(target, changes)
            assert not rows.keys() & target.keys(), "a key was read twice"
        except AssertionError:
            if strict:
                raise
            return wrong + 1
        target.update(rows)
        if table.has_whole_log:
            wrong += not all(truth.get(k) == r for k, r in rows.items())
            wrong += not end.tables and target != truth
    assert len(set(emitted)) == len(emitted), "a change came twice"
    if strict:
        assert target == table.now()
    return wrong


def _state_at(table: BusyTable, options: SourceOptions, position: Any, end: Any) -> State:
    """The table at `position`: the present rows with the later log undone, last change first."""
    key = table.subject.key
    state = table.now()
    for op, before, after, _ in reversed(whole_log(options, position, end)):
        if op in ("u", "c"):
            del state[tuple(after[k] for k in key)]
        if op in ("u", "d"):
            state[tuple(before[k] for k in key)] = before
    return state

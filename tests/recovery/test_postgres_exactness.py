"""Every batch over PostgreSQL is exact under load: snapshot rows are those at P(n), changes come once."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import closing, contextmanager, suppress

import pytest

from tailrace.devservers import start_postgres
from tailrace.errors import TransientSourceError
from tests.support.databases import named_rows
from tests.support.engine import Engine, changes_of, rows_of
from tests.support.postgres import SUBJECTS, Writers, fill, options_for

ROWS = 900


@contextmanager
def nothing(_):
    yield


def run(server, database, subject, *, identity, chunk_rows=40, min_batches=12, disturb=nothing):
    """Snapshot and follow a busy table while it is disturbed; the batches as (start, end, snapshot, log)."""
    fill(server, database, subject, ROWS, identity=identity)
    options = options_for(server, database, f"public.{subject.name}", snapshotChunkRows=chunk_rows)
    seen = []
    with Engine(options) as engine:
        with Writers(server, database, subject, keys=2 * ROWS) as writers, disturb(server):
            deadline = time.monotonic() + 120
            while engine.offset.is_new or engine.offset.tables or len(seen) < min_batches:
                assert time.monotonic() < deadline
                batch = engine.next()
                if batch is not None:
                    seen.append((*batch, *read(engine, batch)))
            writers.stop()
        follow_to_end(server, engine, seen)
    return seen


def read(engine, batch):
    """The batch's parts, read again as Spark does when a task was lost."""
    while True:
        with suppress(TransientSourceError):
            return engine.read(*batch)


def follow_to_end(server, engine, seen):
    """Read batches until the stream holds all that is committed by now."""
    engine.plan.hold()
    while (batch := engine.next()) is not None:
        seen.append((*batch, *engine.read(*batch)))


def now(server, database, subject):
    with closing(server.connect(database=database)) as connection, closing(connection.cursor()) as cursor:
        id_ = "id::text, v, pad" if subject.name == "numerics" else "*"
        rows = named_rows(cursor, f"SELECT {id_} FROM {subject.name}")
    return {tuple(row[k] for k in subject.key): row for row in rows}


def apply(state, changes, key):
    """Apply log changes; each must fit what is there, as far as the log says what was there."""
    for op, before, after, _ in changes:
        if op == "d" or (op == "u" and before is not None):
            found = state.pop(tuple(before[k] for k in key), None)
            assert found is not None, f"{op} of a key that is not there: {before}"
            assert all(found[n] == v for n, v in before.items() if v is not None or n in key)
        elif op == "u":
            assert tuple(after[k] for k in key) in state, f"update of a key that is not there: {after}"
        if op != "d":
            new = tuple(after[k] for k in key)
            assert op == "u" or new not in state, f"create of a key that is there: {after}"
            state[new] = after


@contextmanager
def repeatedly(act, pause_s):
    """Do something again and again, on a thread of its own."""
    stopping = threading.Event()

    def loop():
        while not stopping.wait(pause_s):
            act()

    thread = threading.Thread(target=loop)
    thread.start()
    yield
    stopping.set()
    thread.join()


@contextmanager
def late_standby(server):
    """Commits are in the log and not visible, each for up to a third of a second: no standby answers."""
    late = iter(itertools.cycle(("nobody", "")))

    def switch(to=None):
        server.execute(
            f"ALTER SYSTEM SET synchronous_standby_names = '{next(late) if to is None else to}'",
            "SELECT pg_reload_conf()",
        )

    with repeatedly(switch, 0.15):
        yield
    switch("")


@contextmanager
def lost_connections(server):
    """All of the stream's connections are ended, four times."""
    left = iter(range(4))

    def end_all():
        if next(left, None) is not None:
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tailrace'"
            )

    with repeatedly(end_all, 1.0):
        yield


def assert_exact(seen, server, database, subject):
    target, emitted = {}, []
    for _, _, snapshot, log in seen:
        changes = changes_of(log)
        emitted += [seq for *_, seq in changes]
        # what is there must be just what the log says it changes: rows as of another moment would not fit
        apply(target, changes, subject.key)
        rows = {tuple(row[k] for k in subject.key): row for row in rows_of(snapshot)}
        assert len(rows) == len(rows_of(snapshot)), "a key came twice in one batch"
        assert not rows.keys() & target.keys(), "a key was read twice"
        target.update(rows)
    assert len(set(emitted)) == len(emitted), "a change came twice"
    assert target == now(server, database, subject)
    assert sum(bool(snapshot) for *_, snapshot, _ in seen) > 3
    assert sum(bool(log) for *_, log in seen) > 3


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.name)
def test_every_batch_is_exact_while_six_writers_write(postgres, postgres_database, subject, identity):
    seen = run(postgres, postgres_database, subject, identity=identity)
    assert_exact(seen, postgres, postgres_database, subject)


@pytest.mark.parametrize("disturb", [late_standby, lost_connections])
def test_every_batch_is_exact_while_the_server_is_disturbed(postgres, postgres_database, disturb):
    seen = run(postgres, postgres_database, SUBJECTS[0], identity="FULL", disturb=disturb, min_batches=20)
    assert_exact(seen, postgres, postgres_database, SUBJECTS[0])


@pytest.mark.slow
@pytest.mark.parametrize("version", ["15", "16"])
def test_every_batch_is_exact_on_older_servers(version):
    with start_postgres(version) as server:
        server.execute("CREATE DATABASE older")
        seen = run(server, "older", SUBJECTS[2], identity="FULL", disturb=lost_connections)
        assert_exact(seen, server, "older", SUBJECTS[2])

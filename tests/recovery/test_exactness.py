"""Every batch is exact under load: snapshot rows are those at P(n), changes come once, replays are equal.

Over MySQL and MariaDB; what only one of them has is tested in `test_mariadb_exactness` and below.
"""

from __future__ import annotations

import time

import pytest

from tailrace.sources import registry
from tests.support.databases import fresh_database, group_commit_delay, named_rows
from tests.support.engine import Engine, apply, changes_of, multiset, options_for, rows_of, whole_log
from tests.support.logged import end_of_log
from tests.support.workload import SUBJECTS, Writers, fill

ROWS = 900


class Blind:
    """A session that does not wait for binlogged transactions to become visible."""

    def __init__(self, options):
        self._session = registry.session(options)

    def __getattr__(self, name):
        return getattr(self._session, name)

    def wait_visible(self, position):
        pass


@pytest.fixture(params=["mysql", "mariadb"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def place(server):
    """A fresh database of the server."""
    with fresh_database(server) as name:
        yield name


def verify_run(
    mysql, database, subject, *, chunk_rows, min_batches, session=registry.session, writers=Writers
):
    """Snapshot and follow a busy table; returns the number of batches whose rows were not those at P(n)."""
    table = f"{database}.{subject.name}"
    fill(mysql, table, subject, ROWS)
    options = options_for(mysql, table, snapshotChunkRows=chunk_rows)
    wrong = 0
    with Engine(options, session=session) as engine:
        start_of_all = None
        truth, target, seen = {}, {}, []
        with writers(mysql, table, subject, keys=2 * ROWS) as busy:
            batches = 0
            deadline = time.monotonic() + 120
            while engine.offset.is_new or engine.offset.tables or batches < min_batches:
                assert time.monotonic() < deadline
                batch = engine.next()
                if batch is None:
                    time.sleep(0.01)
                    continue
                batches += 1
                snapshot, log = engine.read(*batch)
                seen.append((*batch, snapshot, log))
            busy.stop()
        while (batch := engine.next()) is not None or not caught_up(mysql, engine):
            if batch is not None:
                seen.append((*batch, *engine.read(*batch)))
        key = subject.key
        emitted = []
        for start, end, snapshot, log in seen:
            if start_of_all is None:
                # the table at P(0): the state now, undone by the whole log after P(0)
                start_of_all = end.log
                truth = state_at(mysql, table, key, options=options, position=end.log, end=seen[-1][1].log)
            else:
                apply(truth, whole_log(options, start.log, end.log), key)
            changes = changes_of(log)
            emitted += changes
            rows = {tuple(r[k] for k in key): r for r in rows_of(snapshot)}
            assert len(rows) == len(rows_of(snapshot)), "a key came twice in one batch"
            try:
                apply(target, changes, key)
                assert not rows.keys() & target.keys(), "a key was read twice"
            except AssertionError:
                if session is registry.session:
                    raise
                return wrong + 1
            target.update(rows)
            if not all(truth.get(k) == r for k, r in rows.items()):
                wrong += 1
            if not end.tables and target != truth:
                wrong += 1
        seqs = [s for *_, s in emitted]
        assert len(set(seqs)) == len(seqs), "a change came twice"
        if session is registry.session:
            assert target == now(mysql, table, key)
            assert len(seen) > 3
    return wrong


def caught_up(mysql, engine):
    end = end_of_log(mysql)
    return (engine.offset.log["file"], engine.offset.log["pos"]) == (end.file, end.pos)


def now(mysql, table, key):
    with mysql.connect() as connection, connection.cursor() as cursor:
        rows = named_rows(cursor, f"SELECT * FROM {table}")
    return {tuple(r[k] for k in key): r for r in rows}


def state_at(mysql, table, key, *, options, position, end):
    """The table at `position`: what it is now, with the log since then undone, last change first."""
    state = now(mysql, table, key)
    for op, before, after, _ in reversed(whole_log(options, position, end)):
        if op in ("u", "c"):
            del state[tuple(after[k] for k in key)]
        if op in ("u", "d"):
            state[tuple(before[k] for k in key)] = before
    return state


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.name)
def test_every_batch_is_exact_while_eight_writers_write(server, place, subject):
    with group_commit_delay(server, 20_000):
        assert verify_run(server, place, subject.on(server), chunk_rows=100, min_batches=20) == 0


@pytest.mark.parametrize(
    ("server", "delay_us", "sync"),
    [("mysql", 1_000_000, 0), ("mysql", 1_000_000, 1), ("mariadb", 200_000, 0)],
    indirect=["server"],
)
def test_every_batch_is_exact_with_a_long_group_commit_delay(server, place, delay_us, sync):
    with group_commit_delay(server, delay_us, sync=sync):
        assert verify_run(server, place, SUBJECTS[0], chunk_rows=200, min_batches=6) == 0


def test_without_the_wait_for_visibility_batches_are_wrong(mysql, database):
    """The test of the test: it must see what the wait prevents."""
    with group_commit_delay(mysql, 1_000_000):
        assert verify_run(mysql, database, SUBJECTS[0], chunk_rows=100, min_batches=6, session=Blind) > 0


def test_batch_read_twice_with_writes_between_gives_the_same_rows(server, place):
    subject = SUBJECTS[0]
    table = f"{place}.{subject.name}"
    fill(server, table, subject, ROWS)
    options = options_for(server, table, snapshotChunkRows=150)
    with Engine(options) as engine, Writers(server, table, subject, count=4, keys=2 * ROWS):
        batches = []
        while engine.offset.is_new or engine.offset.tables:
            batch = engine.next()
            if batch is not None:
                batches.append((batch, multiset([b for part in engine.read(*batch) for b in part])))
        time.sleep(0.5)  # writes between: the point of the test, not a wait for something
        for batch, first in batches:
            with Engine(options) as other:  # a new process knows nothing but the offsets
                assert multiset([b for part in other.read(*batch) for b in part]) == first


def test_at_least_once_ends_in_the_right_state_though_rows_may_come_again(server, place):
    subject = SUBJECTS[0]
    table = f"{place}.{subject.name}"
    fill(server, table, subject, ROWS)
    options = options_for(server, table, snapshotChunkRows=150, delivery="at-least-once")
    target = {}
    with Engine(options) as engine:
        with Writers(server, table, subject, count=4, keys=2 * ROWS):
            while engine.offset.is_new or engine.offset.tables:
                follow(engine, target)
        while not caught_up(server, engine):
            follow(engine, target)
    assert target == now(server, table, subject.key)


def follow(engine, target):
    """Apply the next batch, if there is one, as a keyed sink does: log first, then rows."""
    batch = engine.next()
    if batch is None:
        return
    snapshot, log = engine.read(*batch)
    for op, before, after, _ in changes_of(log):
        if op == "d":
            target.pop((before["id"],), None)
        else:
            target[after["id"],] = after
    target.update({(r["id"],): r for r in rows_of(snapshot)})

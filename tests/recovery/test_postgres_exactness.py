"""Every batch over PostgreSQL is exact under load: snapshot rows are those at P(n), changes come once."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from tests.support.engine import Engine, changes_of, rows_of
from tests.support.postgres import SUBJECTS, Writers, fill, options_for

ROWS = 900


def run(server, database, subject, *, identity, chunk_rows=40, min_batches=12):
    """Snapshot and follow a busy table; the batches as (start, end, snapshot, log)."""
    fill(server, database, subject, ROWS, identity=identity)
    options = options_for(server, database, f"public.{subject.name}", snapshotChunkRows=chunk_rows)
    seen = []
    with Engine(options) as engine:
        with Writers(server, database, subject, keys=2 * ROWS) as writers:
            deadline = time.monotonic() + 120
            while engine.offset.is_new or engine.offset.tables or len(seen) < min_batches:
                assert time.monotonic() < deadline
                batch = engine.next()
                if batch is not None:
                    seen.append((*batch, *engine.read(*batch)))
            writers.stop()
        follow_to_end(server, engine, seen)
    return seen


def follow_to_end(server, engine, seen):
    """Read batches until the stream holds all that is committed by now."""
    engine.plan.hold()
    while (batch := engine.next()) is not None:
        seen.append((*batch, *engine.read(*batch)))


def now(server, database, subject):
    with closing(server.connect(database=database)) as connection, closing(connection.cursor()) as cursor:
        id_ = "id::text, v, pad" if subject.name == "numerics" else "*"
        cursor.execute(f"SELECT {id_} FROM {subject.name}")
        names = [d[0] for d in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
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


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.name)
def test_every_batch_is_exact_while_six_writers_write(postgres, postgres_database, subject, identity):
    seen = run(postgres, postgres_database, subject, identity=identity)
    target, emitted = {}, []
    for _, _, snapshot, log in seen:
        changes = changes_of(log)
        emitted += [seq for *_, seq in changes]
        # what is there must be just what the log says it changes: rows as of any other moment would not fit
        apply(target, changes, subject.key)
        rows = {tuple(row[k] for k in subject.key): row for row in rows_of(snapshot)}
        assert len(rows) == len(rows_of(snapshot)), "a key came twice in one batch"
        assert not rows.keys() & target.keys(), "a key was read twice"
        target.update(rows)
    assert len(set(emitted)) == len(emitted), "a change came twice"
    assert target == now(postgres, postgres_database, subject)
    assert sum(bool(snapshot) for *_, snapshot, _ in seen) > 3
    assert sum(bool(log) for *_, log in seen) > 3

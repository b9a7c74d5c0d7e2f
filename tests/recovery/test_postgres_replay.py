"""A batch that is read again after a crash: its exported snapshot is gone."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pytest

from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import PositionLostError
from tailrace.model.split import SnapshotSplit
from tailrace.reader.snapshot import read_snapshot
from tailrace.sources import registry
from tailrace.sources.postgres.snapshot import blocks
from tests.support.engine import Engine, changes_of, multiset, rows_of
from tests.support.exactness import follow_to_end
from tests.support.postgres import SUBJECTS, fill, now, options_for

NUMBERS = SUBJECTS[0]
ROWS = 200


@pytest.fixture(autouse=True)
def _no_batch_reads_under_the_snapshot_of_the_last(monkeypatch):
    monkeypatch.setattr("tailrace.sources.postgres.source.SNAPSHOT_AGE_S", 0)


def planned(postgres, database, identity):
    """A stream that has read one batch, and has planned and read the next: its parts, and where they are."""
    fill(postgres, database, NUMBERS, ROWS, identity=identity)
    options = options_for(postgres, database, "public.numbers", snapshotChunkRows=30)
    with Engine(options) as engine:
        first = engine.read(*engine.next())
        postgres.execute("UPDATE numbers SET v = 1 WHERE id = 0", database=database)
        batch = engine.next()
        return options, first, batch, engine.read(*batch)


def write_between(postgres, database):
    """Changes of keys that the planned batch reads: the chunks with ids 120 to 238 and from 240."""
    postgres.execute(
        "UPDATE numbers SET v = v + 5, pad = 'newer' WHERE id IN (124, 126)",
        "DELETE FROM numbers WHERE id IN (128, 130)",
        "INSERT INTO numbers VALUES (129, 7, 'new'), (131, 7, 'new')",
        "UPDATE numbers SET id = 133 WHERE id = 132",
        "UPDATE numbers SET id = 1001 WHERE id = 134",
        "DELETE FROM numbers WHERE id = 131",
        "INSERT INTO numbers VALUES (128, 8, 'again')",
        database=database,
    )


def test_replay_is_identical_with_replica_identity_full(postgres, postgres_database):
    options, _, batch, (snapshot, log) = planned(postgres, postgres_database, "FULL")
    assert snapshot
    assert log
    write_between(postgres, postgres_database)
    with Engine(options) as other:
        assert multiset([b for part in other.read(*batch) for b in part]) == multiset([*snapshot, *log])


def test_replay_without_whole_images_loses_nothing_and_ends_in_the_right_state(postgres, postgres_database):
    options, first, batch, (snapshot, log) = planned(postgres, postgres_database, "DEFAULT")
    write_between(postgres, postgres_database)
    with Engine(options) as other:
        replayed, replayed_log = other.read(*batch)
        other.offset = StreamOffset.from_json(batch[1].to_json())
        seen = [(None, None, *first), (None, None, replayed, replayed_log)]
        follow_to_end(other, seen)
    assert multiset(replayed_log) == multiset(log)
    before = {row["id"]: row for row in rows_of(snapshot)}
    after = {row["id"]: row for row in rows_of(replayed)}
    # what was updated is newer, and comes again as an update; what was deleted or moved away is left out;
    # what was inserted does not come twice
    assert {id_ for id_, row in after.items() if before.get(id_) != row} == {124, 126, 128}
    assert before.keys() - after.keys() == {130, 132, 134}
    assert not after.keys() - before.keys()
    assert upserted(seen) == now(postgres, postgres_database, NUMBERS)


def upserted(seen):
    """What a keyed target holds: log first, then rows."""
    state = {}
    for _, _, snapshot, log in seen:
        for op, before, after, _ in changes_of(log):
            if op == "d":
                state.pop((before["id"],), None)
            else:
                state[after["id"],] = after
        state.update({(row["id"],): row for row in rows_of(snapshot)})
    return state


@pytest.mark.parametrize("partitioned", [False, True])
def test_table_without_a_key_is_read_by_its_blocks_and_by_one_task_when_the_batch_comes_again(
    postgres, postgres_database, monkeypatch, partitioned
):
    monkeypatch.setattr(blocks, "LEAST_BLOCKS", 8)
    split_up = " PARTITION BY RANGE (id)" if partitioned else ""
    postgres.execute(
        f"CREATE TABLE heap (id int, pad text){split_up}",
        *(
            f"CREATE TABLE heap_{n} PARTITION OF heap FOR VALUES FROM ({n * 300}) TO ({n * 700 + 300})"
            for n in range(2 if partitioned else 0)
        ),
        "ALTER TABLE heap REPLICA IDENTITY FULL",
        *(f"ALTER TABLE heap_{n} REPLICA IDENTITY FULL" for n in range(2 if partitioned else 0)),
        "INSERT INTO heap SELECT n / 2, repeat('x', 900) FROM generate_series(0, 999) n",
        "DELETE FROM heap WHERE id BETWEEN 100 AND 150",
        database=postgres_database,
    )
    before = dict(postgres.execute("SELECT id, count(*) FROM heap GROUP BY id", database=postgres_database))
    options = options_for(postgres, postgres_database, "public.heap")
    with Engine(options, parallelism=4) as engine:
        batch = engine.next()
        while not engine.plan.splits(*batch):
            batch = engine.next()
        postgres.execute(
            "UPDATE heap SET pad = 'newer' WHERE id IN (7, 299, 480)",
            "DELETE FROM heap WHERE id BETWEEN 310 AND 330",
            "INSERT INTO heap SELECT n, 'new' FROM generate_series(1, 400) n",
            database=postgres_database,
        )
        splits = [s for s in engine.plan.splits(*batch) if isinstance(s, SnapshotSplit)]
        assert len(splits) == 4
        snapshot, _ = engine.read(*batch)
    rows = rows_of(snapshot)
    assert Counter(row["id"] for row in rows) == before
    assert {len(row["pad"]) for row in rows} == {900}
    with Engine(options, parallelism=4) as other:
        (split,) = (s for s in other.plan.splits(*batch) if isinstance(s, SnapshotSplit))
        assert split.blocks is None
        assert multiset(other.read(*batch)[0]) == multiset(snapshot)


def test_log_of_a_batch_is_read_again_by_a_copy_of_the_slot(postgres, postgres_database, monkeypatch):
    options, _, batch, (_, log) = planned(postgres, postgres_database, "FULL")
    monkeypatch.setattr("tailrace.sources.postgres.replication.follower.WalFollower.events", lambda *_: None)
    with Engine(options) as other:
        assert multiset(other.read(*batch)[1]) == multiset(log)


def test_slot_is_confirmed_up_to_the_last_batch_and_no_further(postgres, postgres_database):
    options, _, batch, _ = planned(postgres, postgres_database, "FULL")
    query = f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{options.slot}'"
    postgres.execute("INSERT INTO numbers VALUES (5001, 1, '')", database=postgres_database)
    with Engine(options) as engine:
        engine.offset = batch[1]
        seen = []
        follow_to_end(engine, seen)
        last = engine.offset.log["lsn"]
        assert engine.plan.head().log["held_bytes"] > 0
        engine.plan.commit(engine.offset)
        postgres.wait_until(query, lambda confirmed: confirmed == last)


@pytest.mark.parametrize("what", ["dropped", "made anew"])
def test_stream_stops_when_its_slot_does_not_hold_what_it_needs(postgres, postgres_database, what):
    options, _, batch, _ = planned(postgres, postgres_database, "DEFAULT")
    postgres.wait_until(
        f"SELECT active FROM pg_replication_slots WHERE slot_name = '{options.slot}'", lambda on: not on
    )
    postgres.execute(f"SELECT pg_drop_replication_slot('{options.slot}')")
    if what == "made anew":
        postgres.execute("INSERT INTO numbers VALUES (7001, 1, '')", database=postgres_database)
        postgres.execute(
            f"SELECT pg_create_logical_replication_slot('{options.slot}', 'pgoutput')",
            database=postgres_database,
        )
    said = "does not exist" if what == "dropped" else "it was made anew"
    with Engine(options) as engine:
        engine.offset = batch[1]
        engine.plan.hold()
        with pytest.raises(PositionLostError, match=said):
            follow_to_end(engine, [])


def test_stream_of_a_snapshot_alone_goes_on_after_a_restart(postgres, postgres_database):
    fill(postgres, postgres_database, NUMBERS, 60)
    options = options_for(
        postgres, postgres_database, "public.numbers", startingPosition="snapshot", snapshotChunkRows=20
    )
    with Engine(options, parallelism=1) as engine:
        batch = engine.next()
    postgres.execute("UPDATE numbers SET v = 7", database=postgres_database)
    with Engine(options, parallelism=1) as again:
        rows = rows_of(again.read(*batch)[0])
        again.offset = batch[1]
        while (more := again.next()) is not None:
            rows += rows_of(again.read(*more)[0])
    assert sorted(row["id"] for row in rows) == list(range(0, 120, 2))
    assert {row["v"] for row in rows} == {7}


def test_rows_as_of_a_batch_can_be_read_beside_a_stream_that_has_gone_on(postgres, postgres_database):
    fill(postgres, postgres_database, NUMBERS, 50, identity="FULL")
    options = options_for(postgres, postgres_database, "public.numbers")
    with Engine(options) as engine, closing(registry.source(options)) as beside:
        follow_to_end(engine, [])
        beside.keep_log()
        at = beside.position(engine.offset.log)
        query = "SELECT id, v, pad FROM numbers ORDER BY id"
        expected = postgres.execute(query, database=postgres_database)
        postgres.execute(
            "UPDATE numbers SET v = v + 1 WHERE id < 30",
            "DELETE FROM numbers WHERE id > 80",
            "INSERT INTO numbers VALUES (1, 1, '')",
            database=postgres_database,
        )
        follow_to_end(engine, [])
        engine.plan.commit(engine.offset)
        confirmed = f"SELECT confirmed_flush_lsn > '{at}' FROM pg_replication_slots"
        postgres.wait_until(f"{confirmed} WHERE slot_name = '{options.slot}'", bool)
        (table,) = beside.tables()
        split = SnapshotSplit(table.schema, None, None, beside.as_of(at), 1000)
        with closing(registry.session(options)) as session:
            rows = rows_of(list(read_snapshot(session.located(split), session, exact=True)))
        assert sorted(list(row.values()) for row in rows) == expected

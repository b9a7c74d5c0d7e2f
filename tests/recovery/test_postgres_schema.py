"""Tables that change while a PostgreSQL stream runs: shapes, new tables, partitions, tables without a key."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import PositionLostError, PreflightError, TransientSourceError
from tests.support.engine import Engine, changes_of, rows_of
from tests.support.exactness import follow_to_end
from tests.support.postgres import options_for
from tests.support.rereading import Target


@pytest.fixture
def run(postgres, postgres_database):
    def execute(*statements):
        return postgres.execute(*statements, database=postgres_database)

    return execute


def stream(postgres, database, tables="public.*", **given):
    return Engine(options_for(postgres, database, tables, **given))


def read_all(postgres, engine):
    seen = []
    follow_to_end(engine, seen)
    engine.read_beyond()
    rows = [row for _, _, snapshot, _ in seen for row in rows_of(snapshot)]
    return rows, [change for *_, log in seen for change in changes_of(log)], seen


def test_no_batch_holds_two_shapes_of_a_table(postgres, postgres_database, run):
    run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 1)")
    with stream(postgres, postgres_database) as engine:
        read_all(postgres, engine)
        run(
            "INSERT INTO t VALUES (2, 2)",
            "ALTER TABLE t ADD b text",
            "INSERT INTO t VALUES (3, 3, 'x')",
            "ALTER TABLE t ALTER a TYPE bigint, DROP b",
            "INSERT INTO t VALUES (4, 4)",
        )
        _, changes, seen = read_all(postgres, engine)
    assert [after for _, _, after, _ in changes] == [
        {"id": 2, "a": 2},
        {"id": 3, "a": 3, "b": "x"},
        {"id": 4, "a": 4},
    ]
    for *_, log in seen:
        assert len({batch.table.fingerprint for batch in log}) <= 1


def test_table_that_appears_is_snapshotted_and_followed_without_a_gap(postgres, postgres_database, run):
    run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    with stream(postgres, postgres_database) as engine:
        read_all(postgres, engine)
        run("CREATE TABLE b (id int PRIMARY KEY)", "INSERT INTO b VALUES (1), (2)")
        # a transaction that is under way when the table is published is in the log by halves
        with closing(postgres.connect(database=postgres_database, autocommit=False)) as other:
            cursor = other.cursor()
            cursor.execute("INSERT INTO b VALUES (3)")
            engine.plan._captured._read_at = -1e9
            assert "public.b" in next_end(engine).tables
            cursor.execute("INSERT INTO b VALUES (4)")
            for _ in range(3):  # the log goes on meanwhile
                run(f"INSERT INTO a VALUES ({10 + _})")
                batch = engine.next()
                assert batch is None or not rows_of(engine.read(*batch)[0])
            other.commit()
        rows, changes, _ = read_all(postgres, engine)
        run("INSERT INTO b VALUES (5)")
        _, later, _ = read_all(postgres, engine)
    assert sorted(row["id"] for row in rows) == [1, 2, 3, 4]
    assert [after for op, _, after, _ in later] == [{"id": 5}]
    assert all(op == "c" for op, *_ in changes)


def next_end(engine):
    while True:
        batch = engine.next()
        if batch is not None:
            engine.read(*batch)
            return batch[1]


def test_long_transaction_delays_the_snapshot_and_not_the_log(postgres, postgres_database, run):
    run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE other (id int)")
    run("INSERT INTO a SELECT generate_series(1, 20)")
    with stream(postgres, postgres_database, "public.a", snapshotChunkRows=1) as engine:
        engine.read(*engine.next())  # makes slot and first snapshot, reads two rows
        with closing(postgres.connect(database=postgres_database, autocommit=False)) as long:
            long.cursor().execute("INSERT INTO other VALUES (1)")
            engine.plan._source._snapshots.discard()
            run("UPDATE a SET id = 0 WHERE id = 1")
            logged = []
            while len(logged) < 2:
                batch = engine.next()
                if batch is not None:
                    snapshot, log = engine.read(*batch)
                    assert not snapshot
                    logged += changes_of(log)
            assert [op for op, *_ in logged] == ["d", "c"]
            long.commit()
        rows, _, _ = read_all(postgres, engine)
    assert sorted(row["id"] for row in rows) == list(range(3, 21))


def test_table_without_a_key_is_read_whole_and_followed(postgres, postgres_database, run):
    run(
        "CREATE TABLE t (a int, b text)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT n / 2, 'x' FROM generate_series(1, 1000) n",
    )
    with stream(postgres, postgres_database, snapshotChunkRows=100) as engine:
        rows, _, _ = read_all(postgres, engine)
        run("DELETE FROM t WHERE a = 7", "UPDATE t SET b = 'y' WHERE a = 8")
        _, changes, _ = read_all(postgres, engine)
    assert len(rows) == 1000
    assert [(op, before, after) for op, before, after, _ in changes] == [
        *[("d", {"a": 7, "b": "x"}, None)] * 2,
        *[("u", {"a": 8, "b": "x"}, {"a": 8, "b": "y"})] * 2,
    ]


def test_table_without_replica_identity_is_refused_before_it_is_published(postgres, postgres_database, run):
    run("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)")
    with (
        stream(postgres, postgres_database) as engine,
        pytest.raises(PreflightError, match=r'ALTER TABLE "public"."t" REPLICA IDENTITY FULL'),
    ):
        engine.next()
    run("UPDATE t SET a = 2")  # its writers never noticed


def test_partitioned_table_is_one_table_under_its_own_name(postgres, postgres_database, run):
    run(
        "CREATE TABLE t (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
        "CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE t_high PARTITION OF t FOR VALUES FROM (100) TO (1000)",
        "INSERT INTO t SELECT n, 0 FROM generate_series(50, 149) n",
    )
    with stream(postgres, postgres_database, snapshotChunkRows=20) as engine:
        rows, _, seen = read_all(postgres, engine)
        run("UPDATE t SET id = 150 WHERE id = 60", "INSERT INTO t VALUES (1, 1)")
        _, changes, _ = read_all(postgres, engine)
    assert sorted(row["id"] for row in rows) == list(range(50, 150))
    assert {str(b.table.id) for _, _, snapshot, log in seen for b in (*snapshot, *log)} == {"public.t"}
    assert [op for op, *_ in changes] == ["d", "c", "c"]


@pytest.mark.parametrize("how", ["ALTER TABLE t ALTER v TYPE bigint", "TRUNCATE t"])
def test_rows_of_a_table_that_is_rewritten_under_a_snapshot_are_never_missing(
    postgres, postgres_database, run, how
):
    run(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t SELECT n, 0 FROM generate_series(1, 99) n",
    )
    with stream(postgres, postgres_database) as engine:
        batch = engine.next()
        run(how)
        with pytest.raises(TransientSourceError, match="was rewritten while its snapshot was read"):
            engine.read(*batch)
    with stream(postgres, postgres_database) as engine:
        snapshot, _ = engine.read(*batch)
        # as of the new snapshot: what TRUNCATE took away is not to be had any more
        assert len(rows_of(snapshot)) == (99 if "ALTER" in how else 0)


def test_table_made_anew_under_its_name_stops_the_stream(postgres, postgres_database, run):
    run(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
    )
    with stream(postgres, postgres_database, onRewrite="ignore") as engine:
        read_all(postgres, engine)
        run("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)")
        engine.plan._captured._read_at = -1e9
        with pytest.raises(PositionLostError, match=r"changes of `public\.t` are missing"):
            read_all(postgres, engine)


def test_unchanged_toast_is_named_as_absent_and_never_null(postgres, postgres_database, run):
    run(
        "CREATE TABLE t (id int PRIMARY KEY, v int, big text)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO t VALUES (1, 1, repeat('x', 100000))",
    )
    with stream(postgres, postgres_database) as engine:
        rows, _, _ = read_all(postgres, engine)
        run("UPDATE t SET v = 2")
        _, _, seen = read_all(postgres, engine)
    assert len(rows[0]["big"]) == 100_000
    (batch,) = [b for *_, log in seen for b in log]
    assert batch.absent_after == ("big",)


def test_transaction_larger_than_what_is_held_is_read_by_its_task(
    postgres, postgres_database, run, monkeypatch
):
    monkeypatch.setattr("tailrace.sources.postgres.replication.follower.HELD_BYTES", 1 << 20)
    run("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    with stream(postgres, postgres_database) as engine:
        read_all(postgres, engine)
        thread = threading.Thread(
            target=run, args=("INSERT INTO t SELECT n, repeat('x', 300) FROM generate_series(1, 20000) n",)
        )
        thread.start()
        thread.join()
        run("INSERT INTO t VALUES (0, '')")
        _, changes, _ = read_all(postgres, engine)
    assert sorted(after["id"] for _, _, after, _ in changes) == list(range(20_001))


@pytest.mark.parametrize("batches", [None, 3], ids=["followed", "in its snapshot"])
def test_table_that_is_taken_out_of_the_pattern_and_in_again_is_complete(
    postgres, postgres_database, run, batches
):
    run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY, v int)")
    run("INSERT INTO b SELECT n, n FROM generate_series(1, 9) n")
    with stream(postgres, postgres_database, "public.[ab]", snapshotChunkRows=2) as engine:
        target = Target(engine, "public.b")
        if batches is None:
            target.drain_all()
        else:
            for _ in range(batches):
                target.step()
        offset = engine.offset
    for tables, statements in (
        (
            "public.a",
            ["DELETE FROM b WHERE id = 1", "UPDATE b SET v = 0 WHERE id > 7", "INSERT INTO a VALUES (1)"],
        ),
        ("public.[ab]", ["INSERT INTO b VALUES (10, 10)"]),
    ):
        run(*statements)
        with stream(postgres, postgres_database, tables, snapshotChunkRows=2) as engine:
            engine.offset, target.engine = StreamOffset.from_json(offset.to_json()), engine
            target.drain_all()
            target.drain_all()
            offset = engine.offset
    target.equals(postgres, database=postgres_database)

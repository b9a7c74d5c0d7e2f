"""Locks, open transactions and limits on a PostgreSQL server: the wait names its cause, others continue."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from contextlib import closing, contextmanager

import pytest

from tailrace.enumerator import captured_tables
from tailrace.errors import SourceError, TransientSourceError
from tailrace.sources import registry
from tailrace.sources.postgres import starting
from tailrace.sources.postgres.replication import waiting
from tailrace.sources.postgres.waits import locks
from tests.recovery.test_postgres_schema import read_all, stream
from tests.support.engine import rows_of
from tests.support.postgres import options_for


@pytest.fixture
def run(postgres, postgres_database):
    def execute(*statements):
        return postgres.execute(*statements, database=postgres_database)

    execute("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 20)")
    return execute


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(waiting, "SAY_AFTER_S", 0.2)
    monkeypatch.setattr(starting, "START_WAIT_S", 1.5)
    monkeypatch.setattr(locks, "QUERY_WAIT_S", 0.2)


@contextmanager
def transaction(postgres, database, *statements):
    """An open transaction; yields its process and connection."""
    with closing(postgres.connect(database=database, autocommit=False)) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.execute("SELECT pg_backend_pid()")
        yield cursor.fetchall()[0][0], connection
        connection.rollback()


def slots(run, database):
    return run(f"SELECT slot_name FROM pg_replication_slots WHERE database = '{database}'")


def test_start_beside_an_open_transaction_says_who_it_waits_for_and_leaves_nothing_behind(
    postgres, postgres_database, run, caplog
):
    caplog.set_level(logging.WARNING)
    with transaction(postgres, postgres_database, "INSERT INTO a VALUES (99)") as (pid, other):
        with (
            stream(postgres, postgres_database) as engine,
            pytest.raises(TransientSourceError, match="creating replication slot") as raised,
        ):
            engine.next()
        assert f"process {pid}," in raised.value.detail
        assert f"pg_terminate_backend({pid})" in raised.value.hint
        assert f"process {pid}," in caplog.text
        assert not slots(run, postgres_database)
        other.commit()
    with stream(postgres, postgres_database) as engine:
        rows, _, _ = read_all(postgres, engine)
    assert len(rows) == 21


def test_start_beside_a_prepared_transaction_names_it():
    from tailrace_dev.servers import start_postgres

    with start_postgres("18", options={"max_prepared_transactions": "5"}) as server:
        server.execute("CREATE TABLE a (id int PRIMARY KEY)")
        with transaction(server, "postgres", "INSERT INTO a VALUES (1)") as (_, other):
            other.cursor().execute("PREPARE TRANSACTION 'it''s lost'")
        with (
            stream(server, "postgres") as engine,
            pytest.raises(TransientSourceError, match="creating replication slot") as raised,
        ):
            engine.next()
        assert "prepared transaction `it's lost` of user postgres" in raised.value.detail
        assert "ROLLBACK PREPARED 'it''s lost'" in raised.value.hint
        server.execute("COMMIT PREPARED 'it''s lost'")


def test_snapshot_beside_an_open_transaction_says_who_it_waits_for_and_ends_with_the_stream(
    postgres, postgres_database, run
):
    with (
        stream(postgres, postgres_database, startingPosition="snapshot") as engine,
        transaction(postgres, postgres_database, "INSERT INTO a VALUES (99)") as (pid, _),
    ):
        with pytest.raises(TransientSourceError, match="exporting a snapshot waits") as raised:
            engine.next()
        assert f"process {pid}," in raised.value.detail
        engine.plan.close()
        until(lambda: not slots(run, postgres_database))


def until(met):
    deadline = time.monotonic() + 10
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_half_made_slot_of_a_process_that_was_killed_blocks_neither_run_nor_drop(
    postgres, postgres_database, run, monkeypatch
):
    monkeypatch.setattr(starting, "START_WAIT_S", 600)
    engine = stream(postgres, postgres_database, retryTimeoutMs=5000)

    def start():
        with contextlib.suppress(TransientSourceError):
            engine.next()

    def refuse(*_, **__):
        raise ConnectionResetError

    with transaction(postgres, postgres_database, "INSERT INTO a VALUES (99)"):
        thread = threading.Thread(target=start)
        made = []
        connect = starting.connect

        def remembered(*given, **named):
            made.append(connect(*given, **named))
            return made[-1]

        monkeypatch.setattr(starting, "connect", remembered)
        thread.start()
        until(lambda: slots(run, postgres_database))
        made[-1].break_off()  # as the system does with a killed process
        until(lambda: len(made) > 1)  # the stream tries again, with a slot of its own
        made[-1].break_off()
        engine.plan.close()
        monkeypatch.setattr(starting, "connect", refuse)
        options = engine.options
        until(lambda: not slots(run, postgres_database))
    thread.join(30)
    assert not thread.is_alive()
    monkeypatch.setattr(starting, "connect", connect)
    with stream(postgres, postgres_database) as engine:
        read_all(postgres, engine)
    assert f"dropped replication slot {options.slot}" in registry.drop(options)


def test_new_table_that_is_locked_waits_and_the_others_go_on(
    postgres, postgres_database, run, monkeypatch, caplog
):
    monkeypatch.setattr(captured_tables, "CATALOG_REFRESH_S", 0)
    with stream(postgres, postgres_database) as engine:
        read_all(postgres, engine)
        run("CREATE TABLE b (id int PRIMARY KEY)", "CREATE TABLE c (id int PRIMARY KEY)")
        run("INSERT INTO b VALUES (1)", "INSERT INTO c VALUES (2)", "INSERT INTO a VALUES (21)")
        with transaction(
            postgres,
            postgres_database,
            "LOCK TABLE b IN SHARE UPDATE EXCLUSIVE MODE",  # as VACUUM does
        ) as (pid, _):
            rows, changes, _ = read_all(postgres, engine)
            assert rows == [{"id": 2}]
            assert [after for _, _, after, _ in changes] == [{"id": 21}]
            assert "`public`.`b` waits to be added" in caplog.text
            assert f"process {pid} (ShareUpdateExclusiveLock" in caplog.text
        rows, _, _ = read_all(postgres, engine)
        assert rows == [{"id": 1}]


def test_table_that_is_locked_while_its_snapshot_is_read_names_who_locks_it(postgres, postgres_database, run):
    with stream(postgres, postgres_database, lockTimeoutMs=500) as engine:
        batch = engine.next()
        with transaction(postgres, postgres_database, "LOCK TABLE a IN ACCESS EXCLUSIVE MODE") as (pid, _):
            with pytest.raises(TransientSourceError, match=r"table `public\.a` is locked") as raised:
                engine.read(*batch)
            assert f"process {pid} (AccessExclusiveLock" in raised.value.detail
        assert len(rows_of(engine.read(*batch)[0])) == 20


def test_snapshot_of_a_locked_table_waits_and_the_others_go_on(postgres, postgres_database, run):
    run("CREATE TABLE b (id int PRIMARY KEY)", "INSERT INTO b SELECT generate_series(1, 20)")
    with stream(postgres, postgres_database, snapshotChunkRows=5) as engine:
        engine.read(*engine.next())
        with transaction(postgres, postgres_database, "LOCK TABLE a IN ACCESS EXCLUSIVE MODE"):
            rows = []
            while "public.b" not in engine.offset.done:
                batch = engine.next()
                if batch is not None:
                    rows += rows_of(engine.read(*batch)[0])
            assert sorted(row["id"] for row in rows) == list(range(1, 21))
        read_all(postgres, engine)
        assert engine.offset.done.keys() == {"public.a", "public.b"}


def test_limit_of_transactions_does_not_end_reading(postgres, postgres_database, run):
    run("INSERT INTO a SELECT generate_series(21, 30000)")
    postgres.execute(f"ALTER DATABASE {postgres_database} SET transaction_timeout = '300ms'")
    with stream(postgres, postgres_database) as engine:
        batch = engine.next()
        time.sleep(0.5)
        assert engine.plan._source._snapshots.current() is not None
        assert len(rows_of(engine.read(*batch)[0])) == 30000


def test_timeout_of_walsenders_does_not_break_the_stream(postgres, postgres_database, run):
    postgres.execute("ALTER SYSTEM SET wal_sender_timeout = '1s'", "SELECT pg_reload_conf()")
    try:
        with stream(postgres, postgres_database) as engine:
            read_all(postgres, engine)
            engine.next()
            until(lambda: engine.plan._log._follower._stream is not None)
            first = engine.plan._log._follower._stream
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                engine.next()
                time.sleep(0.1)
            assert engine.plan._log._follower._stream is first
    finally:
        postgres.execute("ALTER SYSTEM RESET wal_sender_timeout", "SELECT pg_reload_conf()")


def test_slots_in_use_pass(postgres, postgres_database, run):
    with stream(postgres, postgres_database) as engine:
        engine.read(*engine.next())
        ((most,),) = run("SELECT current_setting('max_replication_slots')::int")
        ((used,),) = run("SELECT count(*)::int FROM pg_replication_slots")
        names = [f"used_{postgres_database}_{n}" for n in range(most - used)]
        try:
            for name in names:
                run(f"SELECT pg_create_physical_replication_slot('{name}')")
            options = options_for(postgres, postgres_database, "public.*", retryTimeoutMs=500)
            with closing(registry.source(options)) as source:
                with pytest.raises(TransientSourceError, match="all replication slots") as raised:
                    source.keep_log()
                assert "max_replication_slots" in raised.value.hint
        finally:
            for name in names:
                run(f"SELECT pg_drop_replication_slot('{name}')")


UNPUBLISHABLE = {
    "unlogged": ["CREATE UNLOGGED TABLE bad (id int PRIMARY KEY)"],
    "no key": ["CREATE TABLE bad (id int)"],
    "foreign owner": ["CREATE TABLE bad (id int PRIMARY KEY)", "GRANT SELECT ON bad TO PUBLIC"],
    "partition without a key": [
        "CREATE TABLE root (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE bad PARTITION OF root FOR VALUES FROM (0) TO (9)",
    ],
}


@pytest.mark.parametrize("how", UNPUBLISHABLE)
def test_table_that_cannot_be_published_is_named(postgres, postgres_database, run, how):
    role = f"owner_{postgres_database}"
    postgres.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{postgres.password}'")
    run(f"GRANT CREATE ON DATABASE {postgres_database} TO {role}", f"ALTER TABLE a OWNER TO {role}")
    try:
        with stream(postgres, postgres_database, user=role) as engine:
            read_all(postgres, engine)
            run(*UNPUBLISHABLE[how])
            engine.plan._captured._read_at = None
            with pytest.raises(SourceError, match=r"public[`\".]+(bad|root)|foreign|extend") as raised:
                read_all(postgres, engine)
            assert "bad" in str(raised.value)
    finally:
        run(f"REASSIGN OWNED BY {role} TO CURRENT_USER", f"DROP OWNED BY {role}", f"DROP ROLE {role}")

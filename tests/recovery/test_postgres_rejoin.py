"""Streams that have lost their slot: with `onPositionLost=refresh` they read every table again."""

from __future__ import annotations

import pytest

from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import PositionLostError, PreflightError
from tests.recovery.test_postgres_schema import stream
from tests.support.replication import postgres_of
from tests.support.rereading import Target

ROWS = 30


def filled(server, database):
    def run(*statements):
        return server.execute(*statements, database=database)

    run(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        f"INSERT INTO t SELECT n, 'old' FROM generate_series(1, {ROWS}) n",
    )
    return run


def drop_slot(server, database, run):
    # the server notices a moment later that the stream's connection is closed
    free = f"SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'slot_{database}'"
    server.wait_until(free, bool, database=database)
    run(f"SELECT pg_drop_replication_slot('slot_{database}')")


def invalidate_slot(server, database, run):
    run("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    status = f"SELECT wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = 'slot_{database}'"
    for _ in range(20):
        run("SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000))", "SELECT pg_switch_wal()")
        run("CHECKPOINT")
        if run(status)[0][0]:
            break
    run("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
    server.wait_until(status, bool, database=database)


def change(run):
    run(
        "UPDATE t SET v = 'new' WHERE id % 3 = 0",
        "DELETE FROM t WHERE id % 3 = 1",
        "INSERT INTO t VALUES (99)",
    )


def check_rejoin(server, database, run, lose, chunk):
    """Lose the slot of a stream that has stopped, and continue its offset."""
    given = {"tables": "public.t", "snapshotChunkRows": chunk}
    with stream(server, database, **given) as engine:
        target = Target(engine, "public.t")
        if chunk < ROWS:
            assert target.step()
            assert engine.offset.tables["public.t"].cursor
        else:
            target.drain_all()
        offset = engine.offset
    change(run)
    lose(server, database, run)
    with stream(server, database, **given) as engine:
        engine.offset = StreamOffset.from_json(offset.to_json())
        with pytest.raises((PositionLostError, PreflightError), match="slot"):
            Target(engine, "public.t").drain_all()
    with stream(server, database, **given, onPositionLost="refresh") as engine:
        engine.offset = StreamOffset.from_json(offset.to_json())
        target.engine = engine
        target.drain_all()
        target.equals(server, database=database)
        assert engine.offset.gaps == 1
        assert engine.offset.log["lsn"] > offset.log["lsn"]
        run("INSERT INTO t VALUES (100)", "DELETE FROM t WHERE id = 99")
        target.drain_all()
        target.equals(server, database=database)
        offset = engine.offset
    run("INSERT INTO t VALUES (101)")
    with stream(server, database, **given) as engine:  # an ordinary stream again
        engine.offset = StreamOffset.from_json(offset.to_json())
        target.engine = engine
        target.drain_all()
        target.equals(server, database=database)
        assert engine.offset.gaps == 1


@pytest.mark.parametrize("chunk", [1000, 5])
def test_stream_whose_slot_was_dropped_reads_its_tables_again(postgres, postgres_database, chunk):
    run = filled(postgres, postgres_database)
    check_rejoin(postgres, postgres_database, run, drop_slot, chunk)


def test_stream_whose_slot_was_dropped_while_it_ran_reads_its_tables_again(postgres, postgres_database):
    run = filled(postgres, postgres_database)
    with stream(postgres, postgres_database, "public.t", onPositionLost="refresh") as engine:
        target = Target(engine, "public.t")
        target.drain_all()
        engine.plan.close()
        postgres.wait_until(
            f"SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'slot_{postgres_database}'", bool
        )
        drop_slot(postgres, postgres_database, run)
        change(run)
        target.drain_all()
        target.equals(postgres, database=postgres_database)
        assert engine.offset.gaps == 1


def test_stream_whose_slot_was_invalidated_reads_its_tables_again():
    with postgres_of("18") as server:
        server.execute("CREATE DATABASE lost")
        check_rejoin(server, "lost", filled(server, "lost"), invalidate_slot, 1000)

"""How long real servers keep the log that a stream needs, and heartbeats that move an idle stream on."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from tailrace.config.options import SourceOptions
from tailrace.sources import registry
from tests.support import postgres as postgres_support
from tests.support.engine import Engine, options_for
from tests.support.wait import wait_until


@pytest.mark.parametrize("product", ["mysql", "mariadb"])
def test_binary_log_is_kept_by_its_age(request: pytest.FixtureRequest, product: str) -> None:
    server = request.getfixturevalue(product)
    name = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")
    server.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)", f"INSERT INTO {name}.t VALUES (1)")
    with Engine(options_for(server, rf"{name}\.t")) as engine:
        wait_until(lambda: engine.next() is None and bool(engine.offset.done), 30, "the snapshot")
        assert engine.offset.log is not None
        ((before,),) = server.execute("SELECT @@GLOBAL.binlog_expire_logs_seconds")
        server.execute("SET GLOBAL binlog_expire_logs_seconds = 7200")
        try:
            with closing(registry.source(engine.options)) as source:
                position = source.position(engine.offset.log)
                found = source.log_retention(position)
                assert found is not None
                assert found.left_s == 7200  # the file that is being written is never removed
                assert float(found.limits["binlog_expire_logs_seconds"]) == 7200
                server.execute("FLUSH BINARY LOGS", f"INSERT INTO {name}.t VALUES (2)")
                later = source.log_retention(position)
                assert later is not None
                assert later.written > found.written
                assert later.held_bytes > found.held_bytes
                assert later.left_s is None or 7000 < later.left_s <= 7200
        finally:
            server.execute(f"SET GLOBAL binlog_expire_logs_seconds = {before}")


def test_slot_is_kept_up_to_the_size_that_the_server_allows(postgres: Any, postgres_database: str) -> None:
    postgres.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=postgres_database)
    options = postgres_support.options_for(postgres, postgres_database, r"public\.t", slotName="kept")
    with Engine(options) as engine:
        wait_until(lambda: engine.next() is None and bool(engine.offset.done), 30, "the snapshot")
        assert engine.offset.log is not None
        with closing(registry.source(options)) as source:
            position = source.position(engine.offset.log)
            found = source.log_retention(position)
            assert found is not None
            assert found.left_bytes is None
            assert found.seconds(1.0) is None
            postgres.execute(
                "ALTER SYSTEM SET max_slot_wal_keep_size = '1GB'", "SELECT pg_reload_conf()::text"
            )
            try:
                wait_until(
                    lambda: (source.log_retention(position) or found).left_bytes is not None, 30, "1GB"
                )
                limited = source.log_retention(position)
                assert limited is not None
                assert limited.limits == {"max_slot_wal_keep_size": "1GB", "wal_status": "reserved"}
                assert limited.left_bytes is not None
                assert (limited.seconds(1.0) or 0) > 500_000_000
            finally:
                postgres.execute("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()::text")


def test_slot_without_a_reader_is_kept_for_the_time_that_the_server_allows(
    postgres: Any, postgres_database: str
) -> None:
    postgres.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=postgres_database)
    options = postgres_support.options_for(postgres, postgres_database, r"public\.t", slotName="idle")
    with Engine(options) as engine:
        wait_until(lambda: engine.next() is None and bool(engine.offset.done), 30, "the snapshot")
    assert engine.offset.log is not None
    postgres.execute("ALTER SYSTEM SET idle_replication_slot_timeout = '1h'", "SELECT pg_reload_conf()::text")
    try:
        with closing(registry.source(options)) as source:
            position = source.position(engine.offset.log)
            wait_until(lambda: (source.log_retention(position).seconds(None) or 0) > 0, 30, "the limit")  # type: ignore[union-attr]
            found = source.log_retention(position)
            assert found is not None
            assert found.left_s is not None
            assert 3500 < found.left_s <= 3600
    finally:
        postgres.execute("ALTER SYSTEM RESET idle_replication_slot_timeout", "SELECT pg_reload_conf()::text")


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("product", ["mysql", "mariadb", "postgres"])
def test_heartbeat_moves_an_idle_stream_on(request: pytest.FixtureRequest, product: str) -> None:
    server = request.getfixturevalue(product)
    options: SourceOptions
    if product == "postgres":
        name = request.getfixturevalue("postgres_database")
        server.execute(
            "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE beat (at TIMESTAMPTZ)", database=name
        )
        beat = {"heartbeat.interval.ms": 100, "heartbeat.action.query": "INSERT INTO beat VALUES (now())"}
        options = postgres_support.options_for(server, name, r"public\.t", **beat)
    else:
        name = request.getfixturevalue("database" if product == "mysql" else "mariadb_database")
        server.execute(
            f"CREATE TABLE {name}.t (id INT PRIMARY KEY)", f"CREATE TABLE {name}.beat (at DATETIME)"
        )
        beat = {
            "heartbeat.interval.ms": 100,
            "heartbeat.action.query": f"INSERT INTO {name}.beat VALUES (now())",
        }
        options = options_for(server, rf"{name}\.t", **beat)
    with Engine(options) as engine:
        wait_until(lambda: engine.next() is None and bool(engine.offset.done), 30, "the snapshot")
        assert engine.offset.log is not None
        before = engine.offset.log

        def moved() -> bool:
            engine.next()
            return engine.offset.log != before

        wait_until(moved, 60, "the position to move on")

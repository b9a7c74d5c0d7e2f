"""Helpers of tests for servers of any product."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tailrace_dev.servers import MariaDbServer, MySqlServer, PostgresServer


@contextmanager
def fresh_database(server: MySqlServer | MariaDbServer) -> Iterator[str]:
    """The name of a new, empty database, dropped at the end."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    server.execute(f"CREATE DATABASE `{name}`")
    try:
        yield name
    finally:
        server.execute(f"DROP DATABASE IF EXISTS `{name}`")


@contextmanager
def left_as_found(server: MySqlServer | MariaDbServer | PostgresServer) -> Iterator[None]:
    """Fail if the tests leave databases or users behind, which would make others fail in some orders only."""
    if isinstance(server, PostgresServer):
        queries = "SELECT datname FROM pg_database", "SELECT rolname FROM pg_roles"
    else:
        queries = "SHOW DATABASES", "SELECT DISTINCT user FROM mysql.user"
    before = [server.execute(query) for query in queries]
    yield
    left = [
        row[0]
        for query, were in zip(queries, before, strict=True)
        for row in server.execute(query)
        if row not in were
    ]
    assert not left, f"tests left on the shared {server.product} server: {left}"


@contextmanager
def global_variable(server: MySqlServer | MariaDbServer, name: str, value: str) -> Iterator[None]:
    """Set a global variable, to a value written as in SQL, and restore it at the end."""
    ((before,),) = server.execute(f"SELECT @@global.{name}")
    server.execute(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        server.execute(f"SET GLOBAL {name} = {before!r}")


@contextmanager
def group_commit_delay(
    server: MySqlServer | MariaDbServer, delay_us: int, *, sync: int = 0
) -> Iterator[None]:
    """Delay group commits.

    Args:
        server: the server.
        delay_us: how long, microseconds.
        sync: MySQL's `sync_binlog`. With 0 replicas see a transaction before the delay and SELECTs after it;
            with 1 the log's status counts it before the delay, and replicas see it after that.
    """
    if server.product == "mariadb":
        delay, other = ("binlog_commit_wait_usec", delay_us), ("binlog_commit_wait_count", 1000)
    else:
        delay, other = ("binlog_group_commit_sync_delay", delay_us), ("sync_binlog", sync)
    with global_variable(server, delay[0], str(delay[1])), global_variable(server, other[0], str(other[1])):
        yield


@contextmanager
def unacknowledged(server: MySqlServer) -> Iterator[None]:
    """Commits of MySQL are in the log and unseen by SELECTs until the end: they wait for a replica."""
    server.execute("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
    try:
        server.execute("SET GLOBAL rpl_semi_sync_source_timeout = 600000")
        server.execute("SET GLOBAL rpl_semi_sync_source_enabled = ON")
        try:
            yield
        finally:
            server.execute("SET GLOBAL rpl_semi_sync_source_enabled = OFF")
    finally:
        server.execute("UNINSTALL PLUGIN rpl_semi_sync_source")


def named_rows(cursor, sql: str) -> list[dict[str, Any]]:
    """The rows of a SELECT, their values by the columns' names."""
    cursor.execute(sql)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

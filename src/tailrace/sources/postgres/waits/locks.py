"""Statements that wait for locks on tables: for a limited time, and with the names of those who hold them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pg8000.exceptions import DatabaseError

from tailrace.errors import TableLockedError
from tailrace.model.table import TableId
from tailrace.sources.postgres.connection import LOCK_TIMEOUT, Connection, sqlstate
from tailrace.sources.postgres.protocol.literal import string, table_name

T = TypeVar("T")

#: Most seconds for which planning waits for a lock on a table: other tables wait meanwhile.
QUERY_WAIT_S = 1.0
_HOLDERS_QUERY = """\
SELECT l.pid, l.mode::text, coalesce(a.usename::text, ''), coalesce(a.application_name, ''),
       coalesce(a.state, ''), coalesce(extract(epoch FROM now() - a.xact_start), 0)::int8,
       (SELECT string_agg(p.gid, ', ') FROM pg_catalog.pg_prepared_xacts p
        WHERE l.virtualtransaction = '-1/' || p.transaction::text)
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND l.relation = {table}::regclass AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
ORDER BY l.pid
"""


def lock(
    connection: Connection, statement: str, tables: Sequence[TableId], seconds: float | None = None
) -> None:
    """Execute a statement that takes locks on tables.

    Args:
        connection: keeps its own limit afterwards.
        statement: the statement.
        tables: the tables.
        seconds: most seconds for which it waits for a lock; None: as long as `lockTimeoutMs` says.

    Raises:
        TableLockedError: others hold a lock for longer.

    Raises pg8000's errors.
    """
    limit_waits(connection, seconds)
    try:
        connection.wait_for(statement)
    except DatabaseError as error:
        if sqlstate(error) != LOCK_TIMEOUT:
            raise
        raise locked(connection, tables) from error
    connection.rows("RESET lock_timeout")


def within_limit(connection: Connection, table: TableId, query: Callable[[], T]) -> T:
    """The result of a query of one table, which must not wait for a lock on it for long.

    Raises:
        TableLockedError: others hold a lock for longer.

    Raises pg8000's errors.
    """
    limit_waits(connection, QUERY_WAIT_S)
    try:
        result = query()
    except DatabaseError as error:
        if sqlstate(error) != LOCK_TIMEOUT:
            raise
        raise locked(connection, (table,)) from error
    connection.rows("RESET lock_timeout")
    return result


def against_readers(connection: Connection, oids: list[int]) -> list[tuple[int, int | None]]:
    """Tables that cannot be read now, and the process that locks each or waits for that lock.

    Raises pg8000's errors.
    """
    rows = connection.rows(
        "SELECT relation::int8, min(pid) FROM pg_catalog.pg_locks WHERE locktype = 'relation' "
        "AND mode = 'AccessExclusiveLock' AND relation = ANY ($1) "
        "AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) "
        "GROUP BY relation",
        oids,
    )
    return [(oid, pid) for oid, pid in rows]


def limit_waits(connection: Connection, most_s: float | None) -> None:
    """Let the next statements wait for a lock as long as `lockTimeoutMs` says, or `most_s` if that is less.

    Raises pg8000's errors.
    """
    limit_s = connection.lock_timeout_s if most_s is None else min(connection.lock_timeout_s, most_s)
    connection.rows(f"SET lock_timeout = {max(1, int(limit_s * 1000))}")


def locked(connection: Connection, tables: Sequence[TableId]) -> TableLockedError:
    """The error when a lock on one of these tables was not granted; rolls the transaction back, if any."""
    connection.rows("ROLLBACK")
    connection.rows("RESET lock_timeout")
    for table in tables:
        found = connection.rows(_HOLDERS_QUERY.format(table=string(table_name(table))))
        if found:
            break
    else:
        table, found = tables[0], []
    holders = [_described(row) for row in found]
    pids = [row[0] for row in found if row[0] is not None]
    return TableLockedError(
        f"table `{table}` is locked",
        f"by {', '.join(holders)}" if holders else "by a transaction that has ended meanwhile",
        "wait for its end, or end it: " + " ".join(f"SELECT pg_terminate_backend({pid});" for pid in pids)
        if pids
        else None,
        code="TR-4304",
    )


def _described(row: list[Any]) -> str:
    pid, mode, user, application, state, seconds, gid = row
    if pid is None:
        return f"prepared transaction `{gid}` ({mode})"
    program = f", {application}" if application else ""
    return f"process {pid} ({mode}, user {user}{program}, {state}, for {seconds} s)"

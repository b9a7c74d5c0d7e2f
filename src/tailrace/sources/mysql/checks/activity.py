"""How busy a server of MySQL or MariaDB is, for the limits of reading tables (`snapshotMax…`)."""

from __future__ import annotations

from typing import Any

import pymysql

from tailrace.model.table import TableId
from tailrace.sources.base import Activity
from tailrace.sources.mysql.connection import is_mariadb, translate
from tailrace.sources.mysql.protocol.driver import BoundedConnection

_DOING = "asking how busy the server is"
_LAG_COLUMNS = ("Seconds_Behind_Source", "Seconds_Behind_Master")


def activity(connection: BoundedConnection, *, with_lag: bool) -> Activity:
    """The sessions that run a statement; with `with_lag` also how far the server is behind its own source.

    Raises:
        SourceError: the user may not see the state of replication.
        TransientSourceError: the server does not answer.
    """
    try:
        ((_, running),) = _rows(connection, "SHOW GLOBAL STATUS LIKE 'Threads_running'")
        lag = _lag(connection) if with_lag else None
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, _DOING) from error
    return Activity(int(running), lag)


def row_bytes(connection: BoundedConnection, table: TableId) -> int | None:
    """The storage engine's mean size of a row; None if it has none."""
    sql = "SELECT AVG_ROW_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql, (table.database, table.table))
            found = cursor.fetchall()
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, f"reading the size of {table}") from error
    return int(found[0][0] or 0) or None if found else None


def _lag(connection: BoundedConnection) -> float | None:
    """The longest lag of all channels, seconds; None if the server is no replica, or applies nothing."""
    if is_mariadb(connection):
        statement = "SHOW ALL SLAVES STATUS"
    else:
        ((version,),) = _rows(connection, "SELECT VERSION()")
        numbers = tuple(int(part) for part in str(version).split("-")[0].split("."))
        statement = "SHOW REPLICA STATUS" if numbers >= (8, 0, 22) else "SHOW SLAVE STATUS"
    with connection.cursor() as cursor:
        cursor.execute(statement)
        names = [column[0] for column in cursor.description or ()]
        rows = cursor.fetchall()
    at = [names.index(name) for name in _LAG_COLUMNS if name in names]
    lags = [float(row[at[0]]) for row in rows if at and row[at[0]] is not None]
    return max(lags, default=None)


def _rows(connection: BoundedConnection, statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()

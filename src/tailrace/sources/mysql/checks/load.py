"""What others do on a server of MySQL or MariaDB, so that reading tables does not slow them down.

With the privilege PROCESS every session shows in the list of processes. Without it only those of the same
user do: then what `Threads_running` counts beyond them belongs to others, or is a replica that reads the log.
The server says how many replicas there are; if it does not, nothing is known.

Sessions of Tailrace have its user and no default database.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pymysql

from tailrace.config.options import SourceOptions
from tailrace.errors import SourceError, TransientSourceError
from tailrace.sources.mysql.connection import ReconnectingConnection, is_mariadb, translate
from tailrace.sources.mysql.protocol.driver import BoundedConnection

_DOING = "asking what others do on the server"
#: A server that answers later is a busy one; the next look may tell more.
_TIMEOUT_MS = 3_000
#: Sessions that run a statement. Those that wait for a lock of a table, or sleep, use nothing.
_RUNS = (
    "COMMAND IN ('Query', 'Execute', 'Fetch') AND ID <> CONNECTION_ID() AND COALESCE(STATE, '') NOT IN "
    "('User sleep', 'User lock') AND COALESCE(STATE, '') NOT LIKE 'Waiting for %%lock'"
)
_OURS = "USER = %s AND DB IS NULL"
#: Of others, all that are not idle, and whether another user's session shows.
_SESSIONS = (
    f"SELECT COALESCE(SUM({_RUNS} AND USER <> 'system user' AND NOT ({_OURS})), 0), "
    "COALESCE(SUM(COMMAND <> 'Sleep'), 0), COALESCE(MAX(USER <> %s), 0), COUNT(*) "
    "FROM information_schema.PROCESSLIST"
)
_COUNTS = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_running', 'Threads_connected')"


class MySqlLoadWatch:
    """See `sources.base.LoadWatch`.

    Args:
        options: the server that rows are read from.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._user = options.user
        self._options = replace(
            options,
            connect_timeout_ms=min(options.connect_timeout_ms, _TIMEOUT_MS),
            query_timeout_ms=min(options.query_timeout_ms, _TIMEOUT_MS),
            retry_timeout_ms=0,
        )
        self._connection = ReconnectingConnection(self._options, "watching the load")

    def others(self) -> float | None:
        """See `LoadWatch`."""
        return self._connection.run(self._others, _DOING)

    def _others(self, connection: BoundedConnection) -> float | None:
        try:
            ((others, visible, sees_others, sessions),) = _rows(connection, _SESSIONS, self._user, self._user)
            if sees_others:
                return float(others)
            counts = {name: int(value) for name, value in _rows(connection, _COUNTS)}
            if counts["Threads_connected"] <= int(sessions):
                return float(others)  # there are no others
            replicas = _replicas(connection)
        except (pymysql.err.MySQLError, OSError) as error:
            raise translate(error, _DOING) from error
        if replicas is None:
            return None
        return float(others) + max(0, counts["Threads_running"] - int(visible) - replicas)

    def close(self) -> None:
        """See `LoadWatch`."""
        self._connection.close()


def _replicas(connection: BoundedConnection) -> int | None:
    """The replicas that read the log, by the server; None: the user may not know."""
    statement = "SHOW SLAVE HOSTS"
    if not is_mariadb(connection):
        ((version,),) = _rows(connection, "SELECT VERSION()")
        numbers = tuple(int(part) for part in str(version).split("-")[0].split("."))
        statement = "SHOW REPLICAS" if numbers >= (8, 0, 22) else statement
    try:
        return len(_rows(connection, statement))
    except pymysql.err.MySQLError as error:
        translated = translate(error, _DOING)
        if isinstance(translated, SourceError) and not isinstance(translated, TransientSourceError):
            return None
        raise


def _rows(connection: BoundedConnection, statement: str, *values: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return cursor.fetchall()

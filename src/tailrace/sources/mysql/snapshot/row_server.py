"""Rows of tables from a replica (option `snapshotUrl`), while the log comes from the server of the stream.

    wait on the replica for the GTIDs up to P ─▶ SELECT there ─▶ E = its executed GTIDs
    ─▶ wait on the server until it has executed E ─▶ H = the end of its log ─▶ rewind by (P, H] of its log

The rewind needs that the SELECT saw everything up to P, and nothing but what lies in the log up to H. The
first wait shows the one. The other holds because H is read after the SELECT: the replica has its transactions
from the server's log. What lies between P and H it may have applied in any part and order, since the rewind
reconstructs each row that changed there. A transaction of the replica's own is not in the server's log, and
cannot be rewound. The second wait finds it, whenever it was made: the server never executes it.

The replica's table must have the columns that were planned with: where it has others, as a schema change has
not come there, the rows are read from the server. So they are when the replica is lost or too late for the
batch: its rows may not stop the stream. New batches then have no rows until the replica is back
(`Source.rows_held`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pymysql

from tailrace.config.options import SourceOptions
from tailrace.errors import SourceError, TransientSourceError
from tailrace.sources.mysql.connection import ReconnectingConnection, one, translate
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.protocol.driver import BoundedConnection

_log = logging.getLogger(__name__)
T = TypeVar("T")

#: How long a batch waits for the replica to have its position; then its rows are read from the server.
BATCH_WAIT_S = 60.0
#: How long the server may take to execute what a replica has: with semi-synchronous replication it is later.
_SOURCE_WAIT_S = 60.0
#: How long a lost replica is tried again.
_RETRY_MS = 3_000


class RowServer:
    """A replica that rows are read from.

    Args:
        options: the stream's options, with `snapshotUrl`.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = row_server_options(options)
        self._connection = ReconnectingConnection(self._options, "rows")

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"{self._options.host}:{self._options.port}"

    def shows(self, position: MySqlPosition) -> bool:
        """Wait until the replica shows all transactions up to `position`; False: it is lost, or too late."""
        try:
            return self.run(
                lambda c: _has_executed(c, position.gtids, BATCH_WAIT_S), "waiting for the replica"
            )
        except TransientSourceError as error:
            _log.warning("rows are not read from the replica: %s", error.message)
            return False

    def run(self, operation: Callable[[BoundedConnection], T], doing: str) -> T:
        """Run something on the replica.

        Raises:
            TransientSourceError: it is lost.
        """
        return self._connection.run(operation, doing)

    def close(self) -> None:
        """Drop the connection."""
        self._connection.close()


def row_server_options(options: SourceOptions) -> SourceOptions:
    """The options of a connection to the replica."""
    assert options.snapshot_url is not None
    host, port = options.snapshot_url
    return replace(options, host=host, port=port, retry_timeout_ms=min(options.retry_timeout_ms, _RETRY_MS))


def executed(connection: BoundedConnection) -> str:
    """The GTIDs that a server has executed. Raises as `translate`."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT REPLACE(@@global.gtid_executed, '\\n', '')")
            return str(one(cursor)[0])
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "asking for the executed GTIDs") from error


def require_executed(connection: BoundedConnection, gtids: str, options: SourceOptions) -> None:
    """Return once the server of the stream has executed what the replica had.

    Raises:
        SourceError: it does not: the replica has transactions of its own.
    """
    if not _has_executed(connection, gtids, _SOURCE_WAIT_S):
        host, port = options.snapshot_url or ("", 0)
        raise SourceError(
            f"the server of snapshotUrl, `{host}:{port}`, has transactions that the source does not have",
            "somebody has written to the replica: its rows cannot be read as of a position of the log",
            "make the replica read-only (SET PERSIST super_read_only = ON) and rebuild it, or leave out "
            "snapshotUrl",
            code="TR-4143",
        )


def _has_executed(connection: BoundedConnection, gtids: str, timeout_s: float) -> bool:
    """Whether a server has executed these GTIDs within some seconds."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (gtids, timeout_s))
            return not one(cursor)[0]
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "waiting for GTIDs") from error

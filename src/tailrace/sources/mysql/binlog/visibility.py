"""Waiting until a logged transaction is visible to a SELECT.

A transaction is in the binary log before it is committed in the engine: for up to
`binlog_group_commit_sync_delay`, and with lossless semi-synchronous replication for as long as a replica
takes to answer. A SELECT in between does not see it, though `SHOW BINARY LOG STATUS` counts it. Rows
"as of P" are only right if every transaction up to P is visible first. Four barriers show that:

    GTID         WAIT_FOR_EXECUTED_GTID_SET(every GTID in the log up to P): a GTID enters the executed set
                 when its transaction has become visible
    LOG_STATUS   performance_schema.log_status has reached P: reading it stops commits for a moment, so
                 its position has nothing pending below it
    SNAPSHOT     MariaDB: a transaction started WITH CONSISTENT SNAPSHOT reports the log position that it sees
                 (binlog_snapshot_position); every later SELECT sees at least that
    HEARTBEAT    a transaction of our own, logged after P, is committed: commits happen in log order
                 (binlog_order_commits), so all before it are committed too

All but the first miss XA transactions, which both products commit in the engine outside of that order: the
driver waits for those (`xa_visibility.py`).

Without any of them a snapshot cannot be exact, and `wait_visible` refuses.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from enum import StrEnum

import pymysql
from pymysql.constants import ER

from tailrace.config.options import SourceOptions
from tailrace.errors import PreflightError, TransientSourceError
from tailrace.sources import network
from tailrace.sources.mysql.binlog.logfiles import end_of_log, log_name, no_log
from tailrace.sources.mysql.connection import is_mariadb, one, server_facts, translate
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot.literal import identifier

_SHORTEST_POLL_S, _LONGEST_POLL_S = 0.002, 0.1
#: Rows of the heartbeat table: tasks that wait at the same time rarely write the same row.
_HEARTBEAT_ROWS = 64
_NOT_ALLOWED = frozenset(
    {
        ER.SPECIFIC_ACCESS_DENIED_ERROR,
        ER.TABLEACCESS_DENIED_ERROR,
        ER.DBACCESS_DENIED_ERROR,
        ER.NO_SUCH_TABLE,
        ER.BAD_DB_ERROR,
    }
)


class Barrier(StrEnum):
    """How to find out that a position is visible."""

    GTID = "gtid"
    LOG_STATUS = "log_status"
    SNAPSHOT = "snapshot"
    HEARTBEAT = "heartbeat"
    NONE = "none"


def barrier_kind(connection: BoundedConnection, options: SourceOptions) -> Barrier:
    """The best barrier that this server and user allow.

    Raises:
        TransientSourceError: the connection is lost.
        SourceError: the server does not answer as expected.
    """
    if is_mariadb(connection):
        return Barrier.SNAPSHOT
    if server_facts(connection).gtid_mode:
        return Barrier.GTID
    if log_status(connection) is not None:
        return Barrier.LOG_STATUS
    if options.heartbeat_table and _commits_in_order(connection):
        return Barrier.HEARTBEAT
    return Barrier.NONE


def wait_visible(
    connection: BoundedConnection,
    options: SourceOptions,
    position: MySqlPosition,
    timeout_s: float,
) -> None:
    """Return when every transaction up to `position` is visible to a SELECT of this server.

    Args:
        connection: to the server that will be read.
        options: which heartbeat table may be written.
        position: a position in this server's log.
        timeout_s: seconds to wait at most.

    Raises:
        TransientSourceError: it is not visible yet after `timeout_s`.
        PreflightError: the server has no barrier.
        SourceError: the server refuses.
    """
    # a position that carries GTIDs shows that they work: no query before each SELECT
    by_gtid = position.gtids and not is_mariadb(connection)
    kind = Barrier.GTID if by_gtid else barrier_kind(connection, options)
    try:
        match kind:
            case Barrier.GTID:
                _wait_for_gtids(connection, position, timeout_s)
            case Barrier.LOG_STATUS:
                _wait_until(lambda: log_status(connection), position, timeout_s)
            case Barrier.SNAPSHOT:
                _wait_until(lambda: snapshot_position(connection), position, timeout_s)
            case Barrier.HEARTBEAT:
                _write_heartbeat(connection, str(options.heartbeat_table))
            case Barrier.NONE:
                raise _no_barrier(options)
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, f"waiting for `{position}` to become visible") from error


def high_watermark(connection: BoundedConnection) -> tuple[str, int]:
    """File and offset of the log's end, read after a SELECT: all it saw lies below.

    Raises:
        SourceError: the server does not report it.
        TransientSourceError: the connection is lost.
    """
    return end_of_log(connection)


@network.sensible("the log's end")
def log_status(connection: BoundedConnection) -> tuple[str, int, str] | None:
    """(file, offset, executed GTIDs) with nothing pending below them; None where the user may not read them.

    Raises:
        TransientSourceError: the connection is lost.
        SourceError: the server refuses for a reason other than privileges.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT local FROM performance_schema.log_status")
            row = cursor.fetchone()
    except (pymysql.err.MySQLError, OSError) as error:
        if isinstance(error, pymysql.err.MySQLError) and error.args[:1] and error.args[0] in _NOT_ALLOWED:
            return None
        raise translate(error, "reading performance_schema.log_status") from error
    if row is None:
        return None
    found = json.loads(row[0])
    if "binary_log_file" not in found:
        return None
    return (
        log_name(found["binary_log_file"]),
        int(found["binary_log_position"]),
        str(found.get("gtid_executed", "")).replace("\n", ""),
    )


@network.sensible("the log's end")
def snapshot_position(connection: BoundedConnection) -> tuple[str, int]:
    """File and offset of the log that a snapshot taken now shows. MariaDB only.

    Raises:
        PreflightError: the server writes no binary log.
        TransientSourceError: the connection is lost.
        SourceError: the server refuses.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
            found = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
            cursor.execute("ROLLBACK")
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "asking which position of the log is visible") from error
    if not found.get("binlog_snapshot_file"):
        raise no_log()
    return log_name(found["binlog_snapshot_file"]), int(found["binlog_snapshot_position"])


def _late(position: MySqlPosition, timeout_s: float) -> TransientSourceError:
    return TransientSourceError(
        f"the transactions up to `{position}` are not visible yet",
        f"waited {timeout_s:g} s; they are in the binary log, but not committed",
        "look at binlog_group_commit_sync_delay and at semi-synchronous replicas that do not answer",
        code="TR-4301",
    )


@network.sensible("its GTIDs")
def _wait_for_gtids(connection: BoundedConnection, position: MySqlPosition, timeout_s: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (position.gtids, timeout_s))
        if one(cursor)[0]:
            raise _late(position, timeout_s)


def _wait_until(
    visible: Callable[[], tuple[str, int, *tuple[str, ...]] | None], position: MySqlPosition, timeout_s: float
) -> None:
    """Poll until the `visible` position (a file, an offset) has reached `position`."""

    def is_reached() -> bool:
        found = visible()
        if not found:
            return False
        return MySqlPosition(found[0], found[1]).order >= (0, position.file_number, position.pos)

    if not poll(is_reached, timeout_s):
        raise _late(position, timeout_s)


def poll(is_done: Callable[[], bool], timeout_s: float) -> bool:
    """Poll at growing intervals until `is_done` or the timeout; return whether it is done."""
    deadline, pause = time.monotonic() + timeout_s, _SHORTEST_POLL_S
    while not is_done():
        if time.monotonic() + pause > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_POLL_S)
    return True


def _write_heartbeat(connection: BoundedConnection, table: str) -> None:
    name = ".".join(identifier(part) for part in table.split(".", 1))
    with connection.cursor() as cursor:
        # an update that changes nothing is not logged: then it is no barrier
        while not cursor.execute(
            f"INSERT INTO {name} (id, ts) VALUES (CONNECTION_ID() %% %s, NOW(6)) "
            "ON DUPLICATE KEY UPDATE ts = NOW(6)",
            (_HEARTBEAT_ROWS,),
        ):
            time.sleep(_SHORTEST_POLL_S)


def _commits_in_order(connection: BoundedConnection) -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL VARIABLES LIKE 'binlog_order_commits'")
            row = cursor.fetchone()
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "asking for binlog_order_commits") from error
    return row is None or str(row[1]).upper() == "ON"  # MariaDB has no such setting and keeps order


def _no_barrier(options: SourceOptions) -> PreflightError:
    user = f"'{options.user}'@'%'"
    return PreflightError(
        "the server has no way to tell when a logged transaction becomes visible",
        "gtid_mode is not ON, performance_schema.log_status may not be read, and "
        + (
            "binlog_order_commits is OFF"
            if options.heartbeat_table
            else "the option heartbeatTable is not set"
        ),
        "turn on GTIDs (enforce_gtid_consistency = ON, then gtid_mode step by step to ON); "
        f"or GRANT BACKUP_ADMIN ON *.* TO {user}; GRANT SELECT ON performance_schema.log_status TO {user}; "
        "or CREATE TABLE tailrace.heartbeat (id INT PRIMARY KEY, ts TIMESTAMP(6) NOT NULL); "
        f"GRANT INSERT, UPDATE ON tailrace.heartbeat TO {user}; with heartbeatTable = tailrace.heartbeat "
        "and SET PERSIST binlog_order_commits = ON",
        code="TR-2109",
    )

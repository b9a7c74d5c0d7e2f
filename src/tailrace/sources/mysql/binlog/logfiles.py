"""The server's binary log files: their list, the log's end, the error for an offset it does not have."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pymysql

from tailrace.errors import PositionLostError, PreflightError, SourceError
from tailrace.sources import network
from tailrace.sources.mysql.connection import is_mariadb, server_facts, translate
from tailrace.sources.mysql.protocol.driver import BoundedConnection


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the binary log.

    Args:
        name: e.g. `binlog.000003`.
        size: its bytes now.
    """

    name: str
    size: int


@network.sensible("its log files")
def binary_logs(connection: BoundedConnection) -> list[LogFile]:
    """The files the server still has, oldest first.

    Raises:
        SourceError: the server has no binary log, or the user lacks REPLICATION CLIENT.
        TransientSourceError: the connection is lost.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            return [LogFile(log_name(row[0]), int(row[1])) for row in cursor.fetchall()]
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "listing the binary log files") from error


@network.sensible("the log's end")
def end_of_log(connection: BoundedConnection) -> tuple[str, int]:
    """File and offset of the log's end now, binlogged transactions that are not yet visible included.

    Raises:
        PreflightError: the server writes no binary log.
        SourceError: the user lacks REPLICATION CLIENT.
        TransientSourceError: the connection is lost.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute(server_facts(connection).log_status_sql)
            row = cursor.fetchone()
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "asking for the end of the binary log") from error
    if row is None:
        raise no_log()
    return log_name(row[0]), int(row[1])


def log_name(value: object) -> str:
    """A log file's name, as the server says it. Raises ValueError: it is none."""
    name = str(value)
    if not re.fullmatch(r".+\.[0-9]{1,18}", name):
        raise ValueError("no name of a log file")
    return name


def no_log() -> PreflightError:
    """The error for a server without a binary log."""
    return PreflightError(
        "the server writes no binary log",
        "log_bin is OFF",
        "start the server with log_bin = binlog",
        code="TR-2101",
    )


def position_lost(connection: BoundedConnection, file: str, pos: int, found: str) -> SourceError:
    """The error for an offset that the server does not serve; says what the server has instead.

    Args:
        connection: to the server.
        file: log file.
        pos: offset in it.
        found: the server's message.

    Returns:
        PositionLostError when the server does not have the offset, else SourceError; to be raised.
    """
    logs = binary_logs(connection)
    with connection.cursor() as cursor:
        purged = ""
        if server_facts(connection).gtid_mode:
            cursor.execute("SELECT @@global.gtid_purged")
            row = cursor.fetchone()
            text = str(row[0]).replace("\n", "") if row else ""
            purged = f"; purged GTIDs are `{text}`" if text else ""
    sizes = {log.name: log.size for log in logs}
    oldest = f"the oldest file the server has is `{logs[0].name}`" if logs else "the server has no files"
    keep = "GLOBAL" if is_mariadb(connection) else "PERSIST"
    hint = (
        "set onPositionLost: refresh to read every table again, into the same targets; "
        f"to keep logs longer: SET {keep} binlog_expire_logs_seconds = 604800"
    )
    if file not in sizes:
        return PositionLostError(
            f"the binary log no longer holds `{file}:{pos}`", f"{oldest}{purged}", hint, code="TR-4101"
        )
    if pos > sizes[file]:
        return PositionLostError(
            f"the binary log `{file}` ends before offset {pos}",
            f"it has {sizes[file]} bytes: the server lost the end of its log, or is another one",
            hint,
            code="TR-4102",
        )
    return SourceError(f"the server cannot send the binary log from `{file}:{pos}`", found, code="TR-4103")

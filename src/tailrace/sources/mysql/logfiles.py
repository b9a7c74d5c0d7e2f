"""The server's binary log files: which there are, and where the log ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pymysql

from tailrace.errors import PreflightError
from tailrace.sources.mysql.connection import server_facts, translate


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the binary log.

    Args:
        name: e.g. `binlog.000003`.
        size: its bytes now.
    """

    name: str
    size: int


def binary_logs(connection: pymysql.Connection[Any]) -> list[LogFile]:
    """The files the server still has, oldest first.

    Raises:
        SourceError: the server has no binary log, or the user lacks REPLICATION CLIENT.
        TransientSourceError: the connection is lost.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            return [LogFile(str(row[0]), int(row[1])) for row in cursor.fetchall()]
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "listing the binary log files") from error


def end_of_log(connection: pymysql.Connection[Any]) -> tuple[str, int]:
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
        raise PreflightError(
            "the server writes no binary log", "log_bin is OFF", "start the server with log_bin = binlog"
        )
    return str(row[0]), int(row[1])

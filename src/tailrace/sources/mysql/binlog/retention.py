"""How long the server keeps its binary log.

A file is removed when its last event is older than `binlog_expire_logs_seconds`, at the next rotation or
start of the server; on MariaDB and Percona Server also when all files together exceed a size. The file that
is being written is never removed.

A server does not say when a file was written last. The stream knows when the last transaction before its
position was committed, and the position's file was written at that time or later: so the time that is left
is at least what is said here.
"""

from __future__ import annotations

from dataclasses import dataclass

import pymysql

from tailrace.config.options import SourceOptions
from tailrace.sources import network
from tailrace.sources.base import LogRetention
from tailrace.sources.mysql.binlog.archived import all_logs
from tailrace.sources.mysql.binlog.logfiles import binary_logs
from tailrace.sources.mysql.connection import translate
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.protocol.driver import BoundedConnection

_DAY_S = 86_400
#: Settings that limit the size of all files together: MariaDB's, Percona Server's.
_SIZES = ("max_binlog_total_size", "binlog_space_limit")
_NAMES = ("binlog_expire_logs_seconds", "expire_logs_days", "binlog_expire_logs_auto_purge", *_SIZES)


@dataclass(frozen=True)
class _Limit:
    """A setting that limits how long files are kept."""

    name: str
    value: str
    size: int


@network.sensible("how long it keeps its log")
def retention(connection: BoundedConnection, position: MySqlPosition, options: SourceOptions) -> LogRetention:
    """How long the server keeps the log from `position` on; what an archive has is kept without a limit."""
    files = binary_logs(connection)
    settings, now_s = _settings(connection)
    names = [file.name for file in files]
    written = sum(file.size for file in files)
    age, size = _age(settings), _size(settings)
    limits = {limit.name: limit.value for limit in (age, size) if limit is not None}
    if position.file not in names:
        if position.file in {file.name for file in all_logs(options, connection)}:
            return LogRetention(0, None, None, written, {})
        return LogRetention(0, 0, 0.0, written, limits)
    at = names.index(position.file)
    held = max(sum(file.size for file in files[at:]) - position.pos, 0)
    left_s = None
    if age is not None and position.file == names[-1]:
        left_s = float(age.size)
    elif age is not None and position.ts_ms:
        left_s = max(position.ts_ms / 1000 + age.size - now_s, 0.0)
    left = None if size is None else max(size.size - held, 0)
    return LogRetention(held, left, left_s, written, limits)


def _settings(connection: BoundedConnection) -> tuple[dict[str, str], float]:
    """The settings by name, and the server's clock in seconds since 1970 UTC."""
    listed = ", ".join(f"'{name}'" for name in _NAMES)
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")
            settings = {str(row[0]).lower(): str(row[1]) for row in cursor.fetchall()}
            cursor.execute("SELECT TIMESTAMPDIFF(SECOND, '1970-01-01', UTC_TIMESTAMP())")
            ((now_s,),) = cursor.fetchall()
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "asking how long the log is kept") from error
    return settings, float(now_s)


def _age(settings: dict[str, str]) -> _Limit | None:
    """The limit of a file's age, in seconds."""
    if settings.get("binlog_expire_logs_auto_purge", "ON").upper() != "ON":
        return None
    for name, unit_s in (("binlog_expire_logs_seconds", 1), ("expire_logs_days", _DAY_S)):
        value = settings.get(name, "0")
        if float(value):
            return _Limit(name, value, int(float(value) * unit_s))
    return None


def _size(settings: dict[str, str]) -> _Limit | None:
    """The limit of the size of all files together, in bytes."""
    for name in _SIZES:
        if int(settings.get(name, "0")):
            return _Limit(name, settings[name], int(settings[name]))
    return None

"""Connections to MySQL and MariaDB: TLS, session set-up, errors told apart, retries, what server it is.

Every connection of Tailrace is made by `connect`: each reads under the same session: UTC, an empty
SQL mode, utf8mb4, autocommit (a SELECT is its own snapshot), never READ UNCOMMITTED, and no time limit
that a server set for impatient applications.

Errors are told apart by number, never by text. `translate` is the one place that does so:

    lost, refused, shutting down, too many connections, deadlock   TransientSourceError
    no such table, database or column                              SchemaMismatchError
    wrong password, missing privilege, bad certificate, the rest   SourceError, with what to do

The server's text is shown only for numbers whose text is known to quote no values (a syntax error quotes
the statement, and with it keys).
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pymysql
from pymysql.constants import CR
from pymysql.constants import ER as _ER

from tailrace.config.options import SourceOptions
from tailrace.errors import (
    SchemaMismatchError,
    ServerChangedError,
    SourceError,
    TailraceError,
    TransientSourceError,
)
from tailrace.printable import shortened
from tailrace.sources import network
from tailrace.sources.mysql.protocol.driver import BoundedConnection

T = TypeVar("T")
B = TypeVar("B", bound=BoundedConnection)

#: What a MariaDB server's identity begins with, where MySQL has a uuid.
MARIADB = "mariadb"

#: What the capturing user needs. Named in hints.
GRANTS = (
    "GRANT SELECT ON <database>.* TO <user>; GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO <user>"
)

#: A reader may rest for long between two packets: Spark decides when it reads on.
_SESSION_TIMEOUT_S = 86_400

_PACKET_TOO_LARGE = 1153
#: No room on the disk; for a table.
_DISK_FULL = (1021, 1114)
#: Passes, mostly without anybody mending anything. Numbers without a name in PyMySQL: 3169 session killed,
#: 4031 idle for too long, 1927 MariaDB's "connection was killed", 3024 and 1969 (MariaDB) time limit.
_TRANSIENT = frozenset(
    {
        CR.CR_CONNECTION_ERROR,
        CR.CR_CONN_HOST_ERROR,
        CR.CR_UNKNOWN_HOST,
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        CR.CR_SERVER_HANDSHAKE_ERR,
        2055,  # lost connection, with the system's error
        _ER.CON_COUNT_ERROR,
        _ER.SERVER_SHUTDOWN,
        _ER.NORMAL_SHUTDOWN,
        _ER.TOO_MANY_USER_CONNECTIONS,
        _ER.USER_LIMIT_REACHED,
        _ER.ABORTING_CONNECTION,
        _ER.NEW_ABORTING_CONNECTION,
        _ER.NET_READ_ERROR,
        _ER.NET_READ_INTERRUPTED,
        _ER.NET_ERROR_ON_WRITE,
        _ER.NET_WRITE_INTERRUPTED,
        _ER.LOCK_WAIT_TIMEOUT,
        _ER.LOCK_DEADLOCK,
        _ER.QUERY_INTERRUPTED,
        *_DISK_FULL,
        1412,  # table definition has changed, please retry transaction
        1615,  # prepared statement needs to be re-prepared
        1927,
        1969,
        3024,
        3169,
        4031,
    }
)
#: The table is not what it was: a DDL came between.
_CHANGED_SHAPE = frozenset({_ER.NO_SUCH_TABLE, _ER.BAD_DB_ERROR, _ER.BAD_FIELD_ERROR})
_DENIED = frozenset({_ER.ACCESS_DENIED_ERROR, 1698})
_MISSING_PRIVILEGE = frozenset(
    {
        _ER.DBACCESS_DENIED_ERROR,
        _ER.TABLEACCESS_DENIED_ERROR,
        _ER.COLUMNACCESS_DENIED_ERROR,
        _ER.SPECIFIC_ACCESS_DENIED_ERROR,
    }
)
#: Definite errors that name an object or a setting, and no value.
_TEXT_IS_SAFE = (
    frozenset(
        {
            _ER.UNKNOWN_SYSTEM_VARIABLE,
            _ER.HOST_IS_BLOCKED,
            _ER.HOST_NOT_PRIVILEGED,
            _ER.MASTER_FATAL_ERROR_READING_BINLOG,
            _ER.UNKNOWN_COM_ERROR,
            _ER.NO_BINARY_LOGGING,
            _ER.OUT_OF_RESOURCES,
            CR.CR_SSL_CONNECTION_ERROR,
            CR.CR_VERSION_ERROR,
            CR.CR_AUTH_PLUGIN_CANNOT_LOAD,
        }
    )
    | _TRANSIENT
    | _CHANGED_SHAPE
    | _DENIED
    | _MISSING_PRIVILEGE
)


def connect(options: SourceOptions, *, purpose: str) -> BoundedConnection:
    """A new connection with the session every reader expects.

    Args:
        options: server, user and TLS; a password given as a reference is resolved here.
        purpose: what it is for, as in "reading the catalog": named in errors.

    Returns:
        An open connection in autocommit mode, its cursors buffered, its rows tuples.

    Raises:
        TransientSourceError: nobody answers, or the server takes no more connections.
        SourceError: the server refuses the user, or TLS cannot be had as demanded.
        DecodeError: what answers breaks the protocol.
        ConfigError: the password, a key or a TLS file is not where it should be.
    """
    doing = f"connecting to `{options.host}:{options.port}` as `{options.user}` for {purpose}"
    return log_in(BoundedConnection(options, doing, _set_up, sql_mode=""))


def log_in(connection: B) -> B:
    """`connection`, signed on.

    Raises:
        TransientSourceError: nobody answers, or the server takes no more connections.
        SourceError: the server refuses the user, TLS cannot be had as demanded, the server is none, or wants
            the password in a form that is not safe.
        DecodeError: the server breaks the protocol.
    """
    try:
        connection.connect()
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, connection.doing) from error
    return connection


def raw_socket(connection: BoundedConnection) -> socket.socket:
    """The connection's socket (TLS or plain), for those who speak the protocol on it themselves.

    Between two commands nothing of the server's answer is left in the driver's own read buffer, as the
    server speaks only when asked: bytes may be read from the socket directly until the answer has ended. It
    has no time limit.

    Raises:
        TransientSourceError: the connection is closed.
    """
    found: socket.socket | None = connection.socket
    if found is None:
        raise TransientSourceError("the connection to the server is closed")
    found.settimeout(None)
    return found


def wake(connection: BoundedConnection) -> None:
    """End what another thread waits for on this connection."""
    found: socket.socket | None = connection.socket
    if found is not None:
        with contextlib.suppress(OSError):  # it is closed already
            found.shutdown(socket.SHUT_RDWR)


def break_off(connection: BoundedConnection) -> None:
    """Close a connection at once, whatever the server is sending."""
    connection.break_off()


def reconnect(connection: BoundedConnection) -> None:
    """Break a connection off, whatever the server is sending, and make it anew.

    For a result that is not wanted to its end: the server notices and ends the statement.

    Raises:
        TransientSourceError: the server cannot be reached any more; the connection stays closed.
        SourceError: the server refuses the user by now.
    """
    connection.break_off()
    try:
        connection.connect()
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "connecting to the server again") from error


def _set_up(connection: BoundedConnection) -> None:
    # MariaDB calls it so, in seconds; MySQL in milliseconds
    limit = "max_statement_time" if is_mariadb(connection) else "max_execution_time"
    with connection.cursor() as cursor:
        cursor.execute(
            "SET SESSION time_zone = '+00:00', "
            f"net_write_timeout = {_SESSION_TIMEOUT_S}, net_read_timeout = {_SESSION_TIMEOUT_S}, "
            f"wait_timeout = {_SESSION_TIMEOUT_S}, {limit} = 0"
        )
        # the variable of it has another name in MariaDB before 11.1
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def is_mariadb(connection: BoundedConnection) -> bool:
    """Whether MariaDB is at the other end, by its greeting."""
    return "mariadb" in str(connection.server_version).lower()


def translate(error: Exception, doing: str) -> TailraceError:
    """The error of ours that `error` means.

    Args:
        error: from PyMySQL or from a socket; one of ours is given back as it is.
        doing: what was being done, as in "reading table `a`.`b`".

    Returns:
        TransientSourceError when another try may succeed, SchemaMismatchError when a DDL took the table
        or a column away, else SourceError; to be raised by the caller.
    """
    if isinstance(error, TailraceError):
        return error
    cause = getattr(error, "original_exception", error)
    if isinstance(cause, OSError):
        return network.socket_failure(cause, doing)
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = shortened(str(error.args[1])) if len(error.args) > 1 else ""
    if isinstance(error, pymysql.err.InterfaceError):  # PyMySQL's word for a closed connection
        return TransientSourceError(f"{doing} failed: the connection is closed")
    detail = f"server error {number}" if number else type(error).__name__
    if number in _TEXT_IS_SAFE and text:
        detail += f": {text}"
    if number in _TRANSIENT:
        return TransientSourceError(f"{doing} failed: {_why_transient(number)}", detail)
    if number in _CHANGED_SHAPE:
        return SchemaMismatchError(f"{doing} failed: the table is not what it was", detail)
    if number in _DENIED:
        return SourceError(
            f"{doing} failed: the server refuses the user or the password",
            detail,
            f"check user and password; the user needs: {GRANTS}",
        )
    if number in _MISSING_PRIVILEGE:
        return SourceError(f"{doing} failed: a privilege is missing", detail, _missing(text))
    if number == CR.CR_SSL_CONNECTION_ERROR:
        return SourceError(
            f"{doing} failed: the server offers no TLS",
            detail,
            "give the server a certificate, or set tlsMode to preferred or disabled",
        )
    if number == _PACKET_TOO_LARGE:
        return too_long(doing, detail)
    if number == _ER.HOST_IS_BLOCKED:
        return SourceError(
            f"{doing} failed: the server blocks this host",
            detail,
            "TRUNCATE TABLE performance_schema.host_cache",
        )
    return SourceError(f"{doing} failed", detail)


def too_long(doing: str, detail: str) -> SourceError:
    """That a statement is longer than the server takes."""
    return SourceError(
        f"{doing} failed: the server takes no statement as long as this one",
        detail,
        "SET PERSIST max_allowed_packet = 67108864; -- MariaDB: SET GLOBAL, and in my.cnf",
    )


def _why_transient(number: int) -> str:
    if number in (_ER.CON_COUNT_ERROR, _ER.TOO_MANY_USER_CONNECTIONS, _ER.USER_LIMIT_REACHED):
        return "the server takes no more connections"
    if number in (_ER.SERVER_SHUTDOWN, _ER.NORMAL_SHUTDOWN):
        return "the server is shutting down"
    if number in (_ER.LOCK_WAIT_TIMEOUT, _ER.LOCK_DEADLOCK, 1412, 1615, 3024, 1969):
        return "the statement did not get through"
    if number in _DISK_FULL:
        return "the server's disk is full"
    return "the connection was lost"


def _missing(text: str) -> str:
    """The statement that grants what is missing, from the server's text where that names it."""
    if needed := re.search(r"\(at least one of\) the ([A-Z_, ]+?) privilege", text):
        return f"GRANT {needed[1].split(' OR ')[-1].split(',')[-1].strip()} ON *.* TO <user>"
    if denied := re.match(r"([A-Z][A-Z ,]*?) command denied to user .* for (?:table|column) ", text):
        return f"GRANT {denied[1]} ON <database>.* TO <user>"
    return GRANTS


def retrying(
    options: SourceOptions,
    operation: Callable[[], T],
    doing: str,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """What `operation` returns, tried again for `options.retry_timeout_ms`: see `network.retrying`."""
    return network.retrying(
        operation,
        options.retry_timeout_ms,
        lambda error: translate(error, doing),
        (pymysql.err.MySQLError,),
        sleep=sleep,
        clock=clock,
    )


class ReconnectingConnection(network.Reconnecting[BoundedConnection]):
    """One connection, made when it is first needed and made anew when it was lost.

    Args:
        options: the server.
        purpose: what it is for.
    """

    def __init__(self, options: SourceOptions, purpose: str) -> None:
        super().__init__(options, lambda: connect(options, purpose=purpose), lambda c: c.open, retrying)


@dataclass(frozen=True)
class Server:
    """What the server is.

    Args:
        version: e.g. (9, 7, 4).
        flavor: "mysql" or "mariadb".
        server_uuid: MySQL's. MariaDB has none: "mariadb:", its server_id, by which replicas know servers
            apart, and `server_uid`, a hash of its machine and port.
        gtid_mode: whether every transaction has a MySQL GTID (MariaDB's GTIDs are another thing: False).
        log_status_sql: the statement that tells the end of the binary log: columns File, Position...
    """

    version: tuple[int, int, int]
    flavor: str
    server_uuid: str
    gtid_mode: bool
    log_status_sql: str

    @property
    def executed_gtids_sql(self) -> str:
        """The statement that tells every GTID the server has in its log, purged ones included."""
        name = "gtid_binlog_pos" if self.flavor == MARIADB else "gtid_executed"
        return f"SELECT @@global.{name}"


def server_changed(options: SourceOptions, wanted: str, found: str) -> ServerChangedError:
    """What to raise when the server `found` answers where `wanted` did (both `server_uuid`)."""
    return ServerChangedError(
        f"another server answers at `{options.host}:{options.port}`",
        f"the position belongs to the server `{wanted}`, found `{found}`",
        "try again: the stream goes on by GTID",
    )


@network.sensible("what it is")
def server_facts(connection: BoundedConnection) -> Server:
    """What the server at the other end is.

    Raises:
        TransientSourceError: the connection is lost.
        SourceError: the server says no version.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT VERSION()")
            text = str(one(cursor)[0])
            flavor = MARIADB if "mariadb" in text.lower() else "mysql"
            uuid, gtid_mode = "", "OFF"
            if flavor == "mysql":
                cursor.execute("SELECT @@global.server_uuid, @@global.gtid_mode")
                uuid, gtid_mode = (str(v) for v in one(cursor))
            else:
                uuid = _mariadb_identity(cursor)
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "asking the server what it is") from error
    version = parse_version(text)
    renamed = flavor == "mysql" and version >= (8, 2, 0)  # the old name is gone in 8.4
    return Server(
        version,
        flavor,
        uuid,
        gtid_mode.upper() == "ON",
        "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS",
    )


def _mariadb_identity(cursor: Any) -> str:
    """What tells a MariaDB server from others that have answered, or may answer, at its address."""
    cursor.execute(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_id', 'server_uid', 'hostname', 'port')"
    )
    found = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    # server_uid came with 10.6.19
    machine = found.get("server_uid") or f"{found['hostname']}:{found['port']}"
    return f"{MARIADB}:{found['server_id']}:{machine}"


def one(cursor: Any) -> tuple[Any, ...]:
    """The next row of a cursor whose statement always gives one. Raises SourceError if it did not."""
    row: tuple[Any, ...] | None = cursor.fetchone()
    if row is None:
        raise SourceError("the server gave no row where it always gives one")
    return row


def parse_version(text: str) -> tuple[int, int, int]:
    """(major, minor, patch) of what VERSION() says, e.g. `8.4.3`, `5.5.5-10.6.12-MariaDB-log`."""
    match = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)", text)
    if match is None:
        raise SourceError("the server's version is not understood", f"VERSION() is `{text}`")
    return int(match[1]), int(match[2]), int(match[3])

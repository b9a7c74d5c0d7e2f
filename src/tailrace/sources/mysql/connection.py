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

import re
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pymysql
from pymysql.constants import CR
from pymysql.constants import ER as _ER

from tailrace.config.options import SourceOptions, TlsOptions
from tailrace.errors import (
    SchemaMismatchError,
    ServerChangedError,
    SourceError,
    TailraceError,
    TransientSourceError,
)
from tailrace.sources import network

T = TypeVar("T")

#: What a MariaDB server's identity begins with, where MySQL has a uuid.
MARIADB = "mariadb"

#: What the capturing user needs. Named in hints.
GRANTS = (
    "GRANT SELECT ON <database>.* TO <user>; GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO <user>"
)

#: A reader may rest for long between two packets: Spark decides when it reads on.
_SESSION_TIMEOUT_S = 86_400

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


def connect(options: SourceOptions, *, purpose: str) -> pymysql.Connection[Any]:
    """A new connection with the session every reader expects.

    Args:
        options: server, user and TLS; a password given as a reference is resolved here.
        purpose: what it is for, as in "reading the catalog": named in errors.

    Returns:
        An open connection in autocommit mode, its cursors buffered, its rows tuples.

    Raises:
        TransientSourceError: nobody answers, or the server takes no more connections.
        SourceError: the server refuses the user, or TLS cannot be had as demanded.
        ConfigError: the password or a TLS file is not where it should be.
    """
    doing = f"connecting to `{options.host}:{options.port}` as `{options.user}` for {purpose}"
    context = tls_context(options.tls)
    password = options.password.resolve()
    try:
        try:
            connection = _open(options, password, context)
        except pymysql.err.OperationalError as error:
            if options.tls.mode != "preferred" or error.args[0] != CR.CR_SSL_CONNECTION_ERROR:
                raise
            connection = _open(options, password, None)
        if options.tls.mode not in ("disabled", "preferred") and not is_encrypted(connection):
            connection.close()
            raise pymysql.err.OperationalError(CR.CR_SSL_CONNECTION_ERROR, "TLS is not supported")
        _set_up(connection)
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, doing) from error
    return connection


def is_encrypted(connection: pymysql.Connection[Any]) -> bool:
    """Whether the connection runs over TLS."""
    return isinstance(raw_socket(connection), ssl.SSLSocket)


def raw_socket(connection: pymysql.Connection[Any]) -> socket.socket:
    """The connection's socket (TLS or plain), for those who speak the protocol on it themselves.

    Between two commands nothing of the server's answer is left in PyMySQL's own read buffer, as the
    server speaks only when asked: bytes may be read from the socket directly until the answer has ended.

    Raises:
        TransientSourceError: the connection is closed.
    """
    found: socket.socket | None = connection._sock  # type: ignore[attr-defined]  # noqa: SLF001
    if found is None:
        raise TransientSourceError("the connection to the server is closed")
    return found


def _open(options: SourceOptions, password: str, context: ssl.SSLContext | None) -> pymysql.Connection[Any]:
    return pymysql.connect(
        host=options.host,
        port=options.port,
        user=options.user,
        password=password.encode(),  # bytes: else PyMySQL encodes latin1
        charset="utf8mb4",
        sql_mode="",
        autocommit=True,
        connect_timeout=max(1, -(-options.connect_timeout_ms // 1000)),
        program_name="tailrace",
        ssl=context,
        ssl_disabled=context is None,
    )


def break_off(connection: pymysql.Connection[Any]) -> None:
    """Close a connection at once, whatever the server is sending."""
    connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001


def reconnect(connection: pymysql.Connection[Any]) -> None:
    """Break a connection off, whatever the server is sending, and make it anew.

    For a result that is not wanted to its end: the server notices and ends the statement.

    Raises:
        TransientSourceError: the server cannot be reached any more; the connection stays closed.
        SourceError: the server refuses the user by now.
    """
    try:
        break_off(connection)
        connection.connect()
        _set_up(connection)
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "connecting to the server again") from error


def keep_alive(connection: pymysql.Connection[Any]) -> None:
    """A server that vanished without a word is noticed after two minutes instead of two hours."""
    network.keep_alive(raw_socket(connection))


def _set_up(connection: pymysql.Connection[Any]) -> None:
    keep_alive(connection)
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


def is_mariadb(connection: pymysql.Connection[Any]) -> bool:
    """Whether MariaDB is at the other end, by its greeting."""
    return "mariadb" in str(connection.server_version).lower()  # type: ignore[attr-defined]


def tls_context(tls: TlsOptions) -> ssl.SSLContext | None:
    """What `tls` asks for, None for no TLS. Raises ConfigError if a file cannot be read."""
    # PyMySQL does the same: certificates that MySQL makes for itself are not strict X.509
    return network.tls_context(tls, strict_x509=False)


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
    text = str(error.args[1]) if len(error.args) > 1 else ""
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
    if number == _ER.HOST_IS_BLOCKED:
        return SourceError(
            f"{doing} failed: the server blocks this host",
            detail,
            "TRUNCATE TABLE performance_schema.host_cache",
        )
    return SourceError(f"{doing} failed", detail)


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
    if needed := re.search(r"\(at least one of\) the (.+?) privilege", text):
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


class ReconnectingConnection(network.Reconnecting["pymysql.Connection[Any]"]):
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


def server_facts(connection: pymysql.Connection[Any]) -> Server:
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

"""Connections to MySQL and MariaDB: session set-up, classes of errors, retries, facts about the server.

`connect` makes every connection of Tailrace, all with the same session settings: UTC, an empty SQL mode,
utf8mb4, autocommit (a SELECT is its own snapshot), never READ UNCOMMITTED, and the time limits of the options
instead of those that a server sets for interactive applications.

The limit for locks is set by `waiting_briefly` alone, around statements that use tables: MariaDB leaves a
table out of `information_schema` if it cannot lock it in time, as if it were dropped.

Errors are classified by number, never by text, and only in `translate`:

    lost, refused, shutting down, too many connections, deadlock   TransientSourceError
    no such table, database or column                              SchemaMismatchError
    wrong password, missing privilege, bad certificate, the rest   SourceError, with what to do

The server's text is shown only for numbers whose text is known to quote no values (a syntax error quotes
the statement, and with it keys).
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
from collections.abc import Iterator
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
    TableLockedError,
    TailraceError,
    TransientSourceError,
)
from tailrace.printable import shortened
from tailrace.sources import network
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.tokens import explained

B = TypeVar("B", bound=BoundedConnection)

#: Begins a MariaDB server's identity; MySQL has a uuid.
MARIADB = "mariadb"

#: The capturing user's privileges, for hints.
GRANTS = (
    "GRANT SELECT ON <database>.* TO <user>; GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO <user>"
)

#: A reader may pause for long between two packets: Spark decides when it continues.
_SESSION_TIMEOUT_S = 86_400

#: The servers' own maxima: of `max_execution_time` and `max_statement_time`.
_LONGEST_EXECUTION_MS, _LONGEST_STATEMENT_S = 4_294_967_295, 31_536_000

_PACKET_TOO_LARGE = 1153
#: Time limit of a statement: MySQL, MariaDB.
_TOO_SLOW = frozenset({3024, 1969})
_SHUTDOWN = "the server is shutting down"
#: Transient errors and their reasons. Numbers without a name in PyMySQL: 2055 lost connection, with the
#: system's error; 1412 table definition has changed; 1615 prepared statement needs to be re-prepared; 3169
#: session killed; 4031 idle for too long; 1927 MariaDB's "connection was killed".
_TRANSIENT = {
    CR.CR_CONNECTION_ERROR: network.LOST,
    CR.CR_CONN_HOST_ERROR: network.LOST,
    CR.CR_UNKNOWN_HOST: network.LOST,
    CR.CR_SERVER_GONE_ERROR: network.LOST,
    CR.CR_SERVER_LOST: network.LOST,
    CR.CR_SERVER_HANDSHAKE_ERR: network.LOST,
    2055: network.LOST,
    _ER.ABORTING_CONNECTION: network.LOST,
    _ER.NEW_ABORTING_CONNECTION: network.LOST,
    _ER.NET_READ_ERROR: network.LOST,
    _ER.NET_READ_INTERRUPTED: network.LOST,
    _ER.NET_ERROR_ON_WRITE: network.LOST,
    _ER.NET_WRITE_INTERRUPTED: network.LOST,
    _ER.QUERY_INTERRUPTED: network.LOST,
    1927: network.LOST,
    3169: network.LOST,
    4031: network.LOST,
    _ER.CON_COUNT_ERROR: network.NO_ROOM,
    _ER.TOO_MANY_USER_CONNECTIONS: network.NO_ROOM,
    _ER.USER_LIMIT_REACHED: network.NO_ROOM,
    _ER.SERVER_SHUTDOWN: _SHUTDOWN,
    _ER.NORMAL_SHUTDOWN: _SHUTDOWN,
    _ER.LOCK_DEADLOCK: network.INTERRUPTED,
    1412: network.INTERRUPTED,
    1615: network.INTERRUPTED,
    1021: network.NO_DISK,
    1114: network.NO_DISK,  # for a table
}
#: The table's definition changed: a DDL intervened.
_CHANGED_TABLE = frozenset({_ER.NO_SUCH_TABLE, _ER.BAD_DB_ERROR, _ER.BAD_FIELD_ERROR})
_DENIED = frozenset({_ER.ACCESS_DENIED_ERROR, 1698})
_MISSING_PRIVILEGE = frozenset(
    {
        _ER.DBACCESS_DENIED_ERROR,
        _ER.TABLEACCESS_DENIED_ERROR,
        _ER.COLUMNACCESS_DENIED_ERROR,
        _ER.SPECIFIC_ACCESS_DENIED_ERROR,
    }
)
#: Definite errors whose text names an object or a setting, and no value.
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
    | _TRANSIENT.keys()
    | _TOO_SLOW
    | {_ER.LOCK_WAIT_TIMEOUT}
    | _CHANGED_TABLE
    | _DENIED
    | _MISSING_PRIVILEGE
)


def connect(options: SourceOptions, *, purpose: str) -> BoundedConnection:
    """Open a connection with the session settings that every reader expects.

    Args:
        options: server, user, TLS and time limits; a password given as a reference is resolved here.
        purpose: what the connection is for, as in "reading the catalog"; named in errors.

    Returns:
        An open connection in autocommit mode, its cursors buffered, its rows tuples.

    Raises:
        TransientSourceError: there is no answer, or the server accepts no more connections.
        SourceError: the server refuses the user, or TLS is not available as required.
        DecodeError: the server violates the protocol.
        ConfigError: the password, a key or a TLS file cannot be read.
    """
    doing = f"connecting to {options.address} as `{options.user}` for {purpose}"
    return log_in(BoundedConnection(options, doing, _set_up, sql_mode=""))


def log_in(connection: B) -> B:
    """Connect and log in; returns `connection`.

    Raises:
        TransientSourceError: there is no answer, or the server accepts no more connections.
        SourceError: the server refuses the user, TLS is not available as required, the other side is no such
            server, or it requests the password in an unsafe form.
        DecodeError: the server violates the protocol.
    """
    try:
        connection.connect()
    except (pymysql.err.MySQLError, OSError) as error:
        raise explained(translate(error, connection.doing), connection.options) from error
    return connection


def raw_socket(connection: BoundedConnection) -> socket.socket:
    """The connection's socket (TLS or plain), for callers that speak the protocol on it themselves.

    Between two commands the driver's own read buffer is empty, as the server sends only answers: bytes may be
    read from the socket directly until the answer has ended. The socket has no time limit.

    Raises:
        TransientSourceError: the connection is closed.
    """
    found: socket.socket | None = connection.socket
    if found is None:
        raise TransientSourceError("the connection to the server is closed", code="TR-3001")
    found.settimeout(None)
    return found


def wake(connection: BoundedConnection) -> None:
    """Interrupt another thread that waits on this connection."""
    found: socket.socket | None = connection.socket
    if found is not None:
        with contextlib.suppress(OSError):  # already closed
            found.shutdown(socket.SHUT_RDWR)


def break_off(connection: BoundedConnection) -> None:
    """Close a connection at once, even while the server is sending."""
    connection.break_off()


def reconnect(connection: BoundedConnection) -> None:
    """Close a connection at once, even while the server is sending, and open it again.

    For a result that is not read to its end: the server notices and ends the statement.

    Raises:
        TransientSourceError: the server can no longer be reached; the connection stays closed.
        SourceError: the server now refuses the user.
    """
    connection.break_off()
    try:
        connection.connect()
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "connecting to the server again") from error


def _set_up(connection: BoundedConnection) -> None:
    with connection.cursor() as cursor:
        try:
            for statement in connection.options.database_initial_statements:
                cursor.execute(statement)
        except pymysql.err.MySQLError as error:
            raise translate(error, "running database.initial.statements") from error
    limit = _statement_limit(connection, connection.options.query_timeout_ms)
    with connection.cursor() as cursor:
        cursor.execute(
            "SET SESSION time_zone = '+00:00', "
            f"net_write_timeout = {_SESSION_TIMEOUT_S}, net_read_timeout = {_SESSION_TIMEOUT_S}, "
            f"wait_timeout = {_SESSION_TIMEOUT_S}, lock_wait_timeout = {_SESSION_TIMEOUT_S}, {limit}"
        )
        # a statement, as the variable has another name in MariaDB before 11.1
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")


@contextlib.contextmanager
def waiting_briefly(
    connection: BoundedConnection, most_s: float | None = None, *, rows: bool = False
) -> Iterator[None]:
    """Let the statements within wait for locks as long as `lockTimeoutMs` says, or `most_s` if that is less.

    After any error but TableLockedError the connection keeps the limits: its owner closes it.

    Args:
        connection: idle.
        most_s: seconds.
        rows: whether they read rows of tables, and `snapshotQueryTimeoutMs` is their time limit.

    Raises PyMySQL's errors.
    """
    options = connection.options
    limit_s = options.lock_timeout_ms / 1000
    seconds = math.ceil(limit_s if most_s is None else min(limit_s, most_s))
    limit_ms = (options.snapshot_query_timeout_ms or 0) if rows else options.query_timeout_ms
    _limit(connection, seconds, str(seconds), limit_ms)
    try:
        yield
    except TableLockedError:
        _limit(connection, _SESSION_TIMEOUT_S, "DEFAULT", options.query_timeout_ms)
        raise
    _limit(connection, _SESSION_TIMEOUT_S, "DEFAULT", options.query_timeout_ms)


def _limit(connection: BoundedConnection, lock_s: int, row_lock_s: str, statement_ms: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SET SESSION lock_wait_timeout = {lock_s}, innodb_lock_wait_timeout = {row_lock_s}, "
            + _statement_limit(connection, statement_ms)
        )


def _statement_limit(connection: BoundedConnection, limit_ms: int) -> str:
    """The assignment that limits the time of statements (MySQL: of SELECTs); 0: no limit."""
    if is_mariadb(connection):
        return f"max_statement_time = {min(limit_ms / 1000, _LONGEST_STATEMENT_S)}"
    return f"max_execution_time = {min(limit_ms, _LONGEST_EXECUTION_MS)}"


def is_mariadb(connection: BoundedConnection) -> bool:
    """Whether the server is MariaDB, by its greeting."""
    return "mariadb" in str(connection.server_version).lower()


def translate(error: Exception, doing: str) -> TailraceError:
    """The error of ours that corresponds to `error`.

    Args:
        error: from PyMySQL or from a socket; one of ours is returned as it is.
        doing: what was being done, as in "reading table `a`.`b`".

    Returns:
        TransientSourceError when another try may succeed, SchemaMismatchError when a DDL removed the table
        or a column, else SourceError; the caller raises it.
    """
    if isinstance(error, TailraceError):
        return error
    cause = getattr(error, "original_exception", error)
    if isinstance(cause, OSError):
        return network.socket_failure(cause, doing)
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = shortened(str(error.args[1])) if len(error.args) > 1 else ""
    if isinstance(error, pymysql.err.InterfaceError):  # PyMySQL's error for a closed connection
        return TransientSourceError(f"{doing} failed: the connection is closed", code="TR-3001")
    detail = f"server error {number}" if number else type(error).__name__
    if number in _TEXT_IS_SAFE and text:
        detail += f": {text}"
    if number in _TRANSIENT:
        reason = _TRANSIENT[number]
        return TransientSourceError(
            f"{doing} failed: {reason}", detail, code="TR-3001" if reason == network.LOST else "TR-3004"
        )
    if number == _ER.LOCK_WAIT_TIMEOUT:
        return TableLockedError(
            f"{doing} failed: a lock was not granted in time",
            detail,
            "wait for the end of the schema change or LOCK TABLES that holds it, or end it: SHOW FULL "
            "PROCESSLIST; KILL <id>; or raise lockTimeoutMs",
            code="TR-4304",
        )
    if number in _TOO_SLOW:
        return network.too_slow(doing, detail)
    if number in _CHANGED_TABLE:
        return SchemaMismatchError(f"{doing} failed: the table's definition changed", detail, code="TR-5002")
    if number in _DENIED:
        return SourceError(
            f"{doing} failed: the server refuses the user or the password",
            detail,
            f"check user and password; the user needs: {GRANTS}",
            code="TR-3101",
        )
    if number in _MISSING_PRIVILEGE:
        return SourceError(f"{doing} failed: a privilege is missing", detail, _missing(text), code="TR-3102")
    if number == CR.CR_SSL_CONNECTION_ERROR:
        return SourceError(
            f"{doing} failed: the server offers no TLS",
            detail,
            "give the server a certificate, or set tlsMode to preferred or disabled",
            code="TR-3006",
        )
    if number == _PACKET_TOO_LARGE:
        return too_long(doing, detail)
    if number == _ER.HOST_IS_BLOCKED:
        return SourceError(
            f"{doing} failed: the server blocks this host",
            detail,
            "TRUNCATE TABLE performance_schema.host_cache",
            code="TR-3014",
        )
    return SourceError(f"{doing} failed", detail, code="TR-3012")


def too_long(doing: str, detail: str) -> SourceError:
    """The error for a statement that is longer than the server accepts."""
    return SourceError(
        f"{doing} failed: the statement is longer than the server accepts",
        detail,
        "SET PERSIST max_allowed_packet = 67108864; -- MariaDB: SET GLOBAL, and in my.cnf",
        code="TR-3011",
    )


def _missing(text: str) -> str:
    """The statement that grants the missing privilege, from the server's text where that names it."""
    if needed := re.search(r"\(at least one of\) the ([A-Z_, ]+?) privilege", text):
        return f"GRANT {needed[1].split(' OR ')[-1].split(',')[-1].strip()} ON *.* TO <user>"
    if denied := re.match(r"([A-Z][A-Z ,]*?) command denied to user .* for (?:table|column) ", text):
        return f"GRANT {denied[1]} ON <database>.* TO <user>"
    return GRANTS


retrying = network.Retrying(translate, (pymysql.err.MySQLError,))


class ReconnectingConnection(network.Reconnecting[BoundedConnection]):
    """One connection, opened at first use and reopened when it was lost.

    Args:
        options: the server.
        purpose: what the connection is for.
    """

    def __init__(self, options: SourceOptions, purpose: str) -> None:
        super().__init__(options, lambda: connect(options, purpose=purpose), retrying)


@dataclass(frozen=True)
class Server:
    """Facts about a server.

    Args:
        version: e.g. (9, 7, 4).
        flavor: "mysql" or "mariadb".
        server_uuid: MySQL's. MariaDB has none, so: "mariadb:", its server_id, by which replicas distinguish
            servers, and `server_uid`, a hash of its machine and port.
        gtid_mode: whether every transaction has a MySQL GTID (MariaDB's GTIDs are different: False).
        log_status_sql: the statement that shows the end of the binary log: columns File, Position...
    """

    version: tuple[int, int, int]
    flavor: str
    server_uuid: str
    gtid_mode: bool
    log_status_sql: str

    @property
    def executed_gtids_sql(self) -> str:
        """The statement that returns every GTID of the server's log, purged ones included."""
        name = "gtid_binlog_pos" if self.flavor == MARIADB else "gtid_executed"
        return f"SELECT @@global.{name}"


def server_changed(options: SourceOptions, expected: str, found: str) -> ServerChangedError:
    """The error to raise when the server `found` answers instead of `expected` (both `server_uuid`)."""
    return ServerChangedError(
        f"another server answers at `{options.host}:{options.port}`",
        f"the position belongs to the server `{expected}`, found `{found}`",
        "try again: the stream continues by GTID",
        code="TR-4104",
    )


@network.sensible("what it is")
def server_facts(connection: BoundedConnection) -> Server:
    """Query the facts about a server.

    Raises:
        TransientSourceError: the connection is lost.
        SourceError: the server's version is not understood.
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
    renamed = flavor == "mysql" and version >= (8, 2, 0)  # 8.4 removed the old name
    return Server(
        version,
        flavor,
        uuid,
        gtid_mode.upper() == "ON",
        "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS",
    )


@network.sensible("the case of its names")
def folds_names(connection: BoundedConnection) -> bool:
    """Whether the server stores the names of tables in lower case, whatever statements say.

    Raises:
        TransientSourceError: the connection is lost.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@global.lower_case_table_names")
            return int(one(cursor)[0]) == 1
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "asking for the case of names") from error


def _mariadb_identity(cursor: Any) -> str:
    """What distinguishes a MariaDB server from others that have answered, or may answer, at its address."""
    cursor.execute(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_id', 'server_uid', 'hostname', 'port')"
    )
    found = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    # server_uid exists since 10.6.19
    machine = found.get("server_uid") or f"{found['hostname']}:{found['port']}"
    return f"{MARIADB}:{found['server_id']}:{machine}"


def one(cursor: Any) -> tuple[Any, ...]:
    """The next row of a cursor whose statement always returns one. Raises SourceError if it did not."""
    row: tuple[Any, ...] | None = cursor.fetchone()
    if row is None:
        raise SourceError(
            "the server returned no row for a statement that always returns one", code="TR-3016"
        )
    return row


def parse_version(text: str) -> tuple[int, int, int]:
    """(major, minor, patch) of the result of VERSION(), e.g. `8.4.3`, `5.5.5-10.6.12-MariaDB-log`."""
    match = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)", text)
    if match is None:
        raise SourceError("the server's version is not understood", f"VERSION() is `{text}`", code="TR-3015")
    return int(match[1]), int(match[2]), int(match[3])

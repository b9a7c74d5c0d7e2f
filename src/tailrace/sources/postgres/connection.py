"""Connections to PostgreSQL: TLS, session set-up, classes of errors, retries.

pg8000 (see `protocol.driver`) logs in and runs queries; rows in bulk and the log are read from its socket
directly. `connect` makes every connection of Tailrace, replication connections included, all with the same
settings (`types.SESSION_SETTINGS`) and the time limits of the options instead of those that a server sets for
interactive applications.

Errors are classified by SQLSTATE, never by text, and only in `translate`:

    lost, refused, shutting down, too many connections, slot in use   TransientSourceError
    no such table or column                                           SchemaMismatchError
    wrong password, missing privilege, bad certificate, the rest      SourceError, with what to do

The server's text is shown only for states whose text is known to quote no values.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import RouteOptions, SourceOptions
from tailrace.errors import (
    DecodeError,
    SchemaMismatchError,
    SourceError,
    TableLockedError,
    TailraceError,
    TransientSourceError,
)
from tailrace.printable import shortened
from tailrace.sources import network
from tailrace.sources.bounds import LOGIN_BYTES, LOGIN_PACKET, Deadline
from tailrace.sources.postgres.protocol.driver import BoundedCore, no_server
from tailrace.sources.postgres.wire.types import SESSION_SETTINGS
from tailrace.sources.route import connected
from tailrace.sources.tokens import explained, login_secret

#: The message that requests TLS, before all others. Source: PostgreSQL manual, "Message Formats".
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_LENGTH = struct.Struct("!i")
#: Precedes the process and its key in a request to cancel.
_CANCEL_REQUEST = struct.pack("!i", 80877102)
_CANCEL_S = 2.0
_SETTINGS = (
    "-c statement_timeout={} -c lock_timeout={} -c idle_in_transaction_session_timeout=0 "
    "-c idle_session_timeout=0 -c default_transaction_read_only=off "
    "-c default_transaction_isolation=read\\ committed -c wal_sender_timeout=60s"
)
#: A row that a policy hides is an error, and not missing.
_NO_HIDDEN_ROWS = " -c row_security=off"
#: The server's own maximum of a time limit, in milliseconds.
_LONGEST_MS = 2_147_483_647
#: The first version with a limit for whole transactions, which older ones refuse to hear of.
_TRANSACTION_TIMEOUT = 17

#: The server has no free replication slot.
_NO_SLOT = "53400"
_SHUTDOWN = "the server is shutting down or starting"
#: Classes and states of transient errors, with the reason; the first that fits counts.
_TRANSIENT = {
    "53300": network.NO_ROOM,
    "53100": network.NO_DISK,
    _NO_SLOT: "all replication slots of the server are in use",
    "55006": "another process uses it",
    "57P01": _SHUTDOWN,
    "57P02": _SHUTDOWN,
    "57P03": _SHUTDOWN,
    "40": network.INTERRUPTED,
    "08": network.LOST,
    "57P": network.LOST,
    "25P03": network.LOST,
    "72000": network.LOST,
}
_HINTS = {
    _NO_SLOT: "SELECT slot_name, active FROM pg_replication_slots; -- drop those that nobody needs, or "
    "increase max_replication_slots (SHOW max_replication_slots), which needs a restart of the server",
}
#: The table's definition changed.
_CHANGED_TABLE = frozenset({"42P01", "42703", "3F000"})
#: A lock was not granted in time; a statement was cancelled or took too long.
LOCK_TIMEOUT, _TOO_SLOW = "55P03", "57014"
_DENIED = frozenset({"28000", "28P01"})
_MISSING_PRIVILEGE = "42501"
#: A text that is not valid, or has no counterpart in UTF-8.
_NOT_TEXT = frozenset({"22021", "22P05"})
_READ_ONLY = "25006"
#: Classes and states whose text names an object or a setting, and no value.
_TEXT_IS_SAFE = (*_TRANSIENT, *_CHANGED_TABLE, *_DENIED, _MISSING_PRIVILEGE, _TOO_SLOW)
_TEXT_IS_SAFE += (
    "3D000",
    "42704",
    "42710",
    "42P17",
    "53",
    "54",
    "55",
    "58",
    "0A000",
    "22023",
    "42601",
    "25006",
)


@dataclass(frozen=True)
class ResultColumn:
    """A column of a query's result.

    Args:
        name: its name.
        table: oid of the table that it is a column of, 0: of none.
        number: its number there.
        type: oid of its type.
        modifier: the type's modifier.
    """

    name: str
    table: int
    number: int
    type: int
    modifier: int


class Connection:
    """A logged-in session; used by one thread at a time.

    Args:
        core: pg8000's connection.
        sock: its socket, TLS or plain.
        options: the server, the way to it, and time limits.

    Attributes:
        timeout_s: the time limit of an answer.
        lock_timeout_s: how long statements wait for a lock on a table, as far as they are limited.
    """

    def __init__(self, core: BoundedCore, sock: socket.socket, options: SourceOptions) -> None:
        self._core = core
        self._options = options
        self.timeout_s = options.query_timeout_ms / 1000
        self.lock_timeout_s = options.lock_timeout_ms / 1000
        self._deadline = Deadline(self.timeout_s)
        self.socket = sock
        self.is_open = True

    def rows(self, sql: str, *values: Any) -> list[list[Any]]:
        """The rows of a statement with `$1`... for `values`; a replication connection accepts no values.

        Raises pg8000's errors and ours. After any error but the server's own the connection is closed.
        """
        if values:
            return self._run(lambda: self._core.execute_unnamed(sql, values), self.timeout_s)
        return self._run(lambda: self._core.execute_simple(sql), self.timeout_s)

    def wait_for(self, sql: str) -> list[list[Any]]:
        """As `rows`, without a time limit: for a statement that waits for locks. Raises the same."""
        return self._run(lambda: self._core.execute_simple(sql), None)

    def copy_in(self, sql: str, pieces: Iterable[memoryview]) -> None:
        """Send `pieces` to a COPY ... FROM STDIN. Raises as `rows`."""
        failures: list[BaseException] = []

        def recorded() -> Iterator[memoryview]:
            try:
                yield from pieces
            except BaseException as error:
                failures.append(error)
                raise

        try:
            self._run(
                lambda: self._core.execute_unnamed(sql, stream=recorded()), self.timeout_s, copies_in=True
            )
        except DecodeError:
            if failures:  # the error of `pieces`, not the server's
                raise failures[0] from None
            raise

    def limit_whole(self, seconds: float) -> None:
        """Limit the time of all further answers together."""
        self._core.whole = Deadline(seconds)

    def _run(
        self, run: Callable[[], Any], seconds: float | None, *, copies_in: bool = False
    ) -> list[list[Any]]:
        try:
            rows: list[list[Any]] | None = self._core.execute(run, seconds, copies_in=copies_in).rows
        except DatabaseError:
            raise
        except BaseException:
            self.break_off()
            raise
        finally:
            if self.is_open:
                self.socket.settimeout(None)  # for callers that read from it themselves
        return rows or []

    def value(self, sql: str, *values: Any) -> Any:
        """The first column of the first row, None without a row."""
        found = self.rows(sql, *values)
        return found[0][0] if found else None

    def columns(self, sql: str) -> list[ResultColumn]:
        """The columns of a query's result. Raises as `rows`."""
        described: list[ResultColumn] = []

        def run() -> Any:
            context = self._core.execute_simple(sql)
            described.extend(
                ResultColumn(
                    c["name"], c["table_oid"], c["column_attrnum"], c["type_oid"], c["type_modifier"]
                )
                for c in context.columns or ()
            )
            return context

        self._run(run, self.timeout_s)
        return described

    @property
    def pid(self) -> int:
        """The process of the server that serves it."""
        return self._core.pid

    def take_as_text(self, oid: int) -> None:
        """Return values of a type as the text that the server sends."""
        self._core.register_in_adapter(oid, str)

    def begin_copy(self, sql: str) -> None:
        """Send a statement or command whose answer is a stream of bytes; the caller reads it from `socket`.

        Raises pg8000's errors.
        """
        body = sql.encode() + b"\0"
        self._deadline = Deadline(self.timeout_s)
        self.socket.settimeout(self._deadline.left())
        self.socket.sendall(b"Q" + _LENGTH.pack(len(body) + 4) + body)
        while True:
            kind, payload = self._message()
            if kind in b"HW":
                self.socket.settimeout(None)
                return
            if kind == b"E":
                self.end_copy(b"")
                raise DatabaseError(error_fields(payload))
            if kind not in b"NSA":
                self.break_off()
                raise DecodeError(
                    "the server does not start the stream", f"a message of type {kind!r}", code="TR-3017"
                )

    def end_copy(self, rest: bytes) -> None:
        """Read the answer to its end; the connection is then free for other use.

        Args:
            rest: the bytes already received, beginning with the message that ended the stream.

        Raises pg8000's errors, including the server's reason for ending the stream.
        """
        failure: DatabaseError | None = None
        left = LOGIN_BYTES
        self._deadline = Deadline(self.timeout_s)
        while True:
            kind, payload = self._message(rest)
            rest = rest[5 + len(payload) :]
            left -= 5 + len(payload)
            if kind == b"E":
                failure = DatabaseError(error_fields(payload))
            if kind == b"Z":
                self.socket.settimeout(None)
                break
            if kind not in b"cCENSA" or left < 0:
                self.break_off()
                raise DecodeError(
                    "the server does not end the stream", f"a message of type {kind!r}", code="TR-3017"
                )
        if failure is not None:
            raise failure

    def _message(self, held: bytes = b"") -> tuple[bytes, bytes]:
        """Type and payload of the next message; `held`: bytes already received, its beginning or more."""
        head = held[:5]
        head += self._exactly(5 - len(head))
        size = _LENGTH.unpack_from(head, 1)[0] - 4
        if not 0 <= size <= LOGIN_PACKET:
            self.break_off()
            raise DecodeError(
                "the server sent something that is not a message",
                f"type {head[:1]!r}, length {size + 4}, where a stream begins or ends",
                code="TR-3017",
            )
        payload = held[5 : 5 + size]
        return head[:1], payload + self._exactly(size - len(payload))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                self.socket.settimeout(self._deadline.left())
                piece = self.socket.recv(size - len(data))
            except OSError:
                self.break_off()
                raise
            if not piece:
                self.break_off()
                raise InterfaceError("the server has closed the connection")
            data += piece
        return bytes(data)

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection runs over TLS."""
        return isinstance(self.socket, ssl.SSLSocket)

    @property
    def version(self) -> int:
        """The server's major version, e.g. 16."""
        found = self.parameter("server_version")
        match = re.match(r"\d{1,4}", found)
        if match is None:
            raise SourceError(
                "the server's version is not understood", f"server_version is {found[:100]!a}", code="TR-3015"
            )
        return int(match[0])

    def parameter(self, name: str) -> str:
        """A parameter that the server reported, "" if it did not."""
        return str(self._core.parameter_statuses.get(name, ""))

    def close(self) -> None:
        """Close the connection, in order if that is still possible."""
        if self.is_open:
            self.is_open = False
            try:
                self._core.close()
            except (InterfaceError, OSError, ValueError):
                self.socket.close()

    def cancel(self) -> None:
        """Ask the server to cancel what it executes for this connection; another thread may wait for it."""
        request = _CANCEL_REQUEST + self._core.cancel_key
        options = self._options
        if options.route == RouteOptions():  # a name may have several addresses
            host, port, *_ = self.socket.getpeername()
            options = replace(options, host=host, port=port)
        deadline = Deadline(_CANCEL_S if options.route == RouteOptions() else self.timeout_s)
        # it is a request: the server may have executed it already
        with (
            contextlib.suppress(OSError, SourceError),
            connected(options, deadline, "cancelling a statement") as sock,
            sock,
        ):
            sock.settimeout(_CANCEL_S)
            sock.sendall(_LENGTH.pack(4 + len(request)) + request)
            sock.recv(1)  # the server closes once it has sent the signal

    def break_off(self) -> None:
        """Close the connection at once, even while the server is sending; interrupts its reader."""
        if self.is_open:
            self.is_open = False
            with contextlib.suppress(OSError):  # it may already be lost
                self.socket.shutdown(socket.SHUT_RDWR)
            self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    options: SourceOptions,
    *,
    purpose: str,
    replication: bool = False,
    rows: bool = False,
    writes: bool = False,
) -> Connection:
    """Open a connection with the session settings that every reader expects.

    Args:
        options: server, database, user, TLS and time limits; a password given as a reference is resolved
            here.
        purpose: what the connection is for, as in "reading the catalog"; named in errors.
        replication: whether to open a replication connection, which accepts replication commands, and SQL
            without parameters. It waits for locks and transactions without a limit: a slot is made when
            those that write have ended.
        rows: whether it reads rows of tables, for which another time limit holds.
        writes: whether it writes to a sink: the server sets no time limits, and policies may hide rows; else
            a query fails that would not see all.

    Raises:
        TransientSourceError: there is no answer, or the server accepts no more connections.
        SourceError: the server refuses the user, TLS is not available as required, the other side is not
            PostgreSQL, or it requests the password in an unsafe form.
        DecodeError: the server violates the protocol.
        ConfigError: the password or a TLS file cannot be read.
    """
    doing = f"connecting to {options.address} as `{options.user}` for {purpose}"
    context = network.tls_context(options.tls)
    password = login_secret(options, doing)
    deadline = Deadline(options.connect_timeout_ms / 1000)
    limits = (0, 0) if replication or writes else _limits_ms(options, rows=rows)
    sock: socket.socket | None = None
    try:
        with connected(options, deadline, doing) as plain:
            sock = _encrypted(plain, options, context, doing, deadline)
            core = BoundedCore(
                options,
                doing,
                password,
                sock,
                deadline,
                replication="database" if replication else None,
                startup_params={
                    **SESSION_SETTINGS,
                    "options": _SETTINGS.format(*limits) + ("" if writes else _NO_HIDDEN_ROWS),
                },
            )
        sock.settimeout(None)
        connection = Connection(core, sock, options)
        if connection.version >= _TRANSACTION_TIMEOUT:
            connection.rows("SET transaction_timeout = 0")
        for statement in () if replication or writes else options.database_initial_statements:
            doing = "running database.initial.statements"
            connection.rows(statement)
    except (DatabaseError, InterfaceError, OSError) as error:
        if sock is not None:
            sock.close()
        raise explained(translate(error, doing), options) from error
    except BaseException:
        if sock is not None:
            sock.close()
        raise
    return connection


def _limits_ms(options: SourceOptions, *, rows: bool) -> tuple[int, int]:
    """The time limits of a statement and of waiting for a lock; 0: none."""
    statement = (options.snapshot_query_timeout_ms or 0) if rows else options.query_timeout_ms
    return min(statement, _LONGEST_MS), min(options.lock_timeout_ms, _LONGEST_MS)


def _encrypted(
    sock: socket.socket,
    options: SourceOptions,
    context: ssl.SSLContext | None,
    doing: str,
    deadline: Deadline,
) -> socket.socket:
    """The connected socket with TLS, as far as that is wanted and offered."""
    network.keep_alive(sock)
    if context is None:
        return sock
    sock.settimeout(deadline.left())
    sock.sendall(_SSL_REQUEST)
    answer = sock.recv(1)
    if answer == b"S":
        if select.select([sock], [], [], 0)[0]:  # they would pass for bytes received over TLS
            raise no_server(doing, "bytes before the start of TLS")
        sock.settimeout(deadline.left())
        return network.begin_tls(sock, context, options.host, doing)
    if not answer:
        raise InterfaceError("the server closed the connection instead of starting TLS")
    if answer == b"E":
        raise InterfaceError("the server refused the connection before TLS")
    if answer != b"N":
        raise no_server(doing, f"it answered {answer!r} to a request for TLS")
    if options.tls.mode == "preferred":
        return sock
    raise SourceError(
        f"{doing} failed: the server offers no TLS",
        None,
        "give the server a certificate (ssl = on), or set tlsMode to preferred or disabled",
        code="TR-3006",
    )


def error_fields(payload: bytes) -> dict[str, str]:
    """The fields of an ErrorResponse, in pg8000's form."""
    return {f[:1].decode("latin1"): f[1:].decode("utf-8", "replace") for f in payload.split(b"\0") if f}


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of an error of pg8000, or of the cause of one of ours; "" for others."""
    if isinstance(error, TailraceError) and error.__cause__ is not None:
        return sqlstate(error.__cause__)
    fields = error.args[0] if isinstance(error, DatabaseError) and error.args else None
    return str(fields.get("C", "")) if isinstance(fields, dict) else ""


def translate(error: Exception, doing: str) -> TailraceError:
    """The error of ours that corresponds to `error`.

    Args:
        error: from pg8000 or from a socket; one of ours is returned as it is.
        doing: what was being done, as in "reading the table".

    Returns:
        TransientSourceError when another try may succeed, SchemaMismatchError when a DDL removed the table
        or a column, else SourceError; the caller raises it.
    """
    if isinstance(error, TailraceError):
        return error
    if isinstance(error, OSError):
        return network.socket_failure(error, doing)
    if not isinstance(error, DatabaseError):
        return TransientSourceError(f"{doing} failed: {network.LOST}", shortened(str(error)), code="TR-3001")
    return _server_error(error, doing)


def _server_error(error: DatabaseError, doing: str) -> TailraceError:
    state = sqlstate(error)
    detail = f"SQLSTATE {state}"
    if state.startswith(_TEXT_IS_SAFE):
        detail += f": {shortened(str(error.args[0].get('M', '')))}"
    for begin, reason in _TRANSIENT.items():
        if state.startswith(begin):
            return TransientSourceError(
                f"{doing} failed: {reason}",
                detail,
                _HINTS.get(state),
                code="TR-2202" if state == _NO_SLOT else "TR-3001" if reason == network.LOST else "TR-3004",
            )
    if state == LOCK_TIMEOUT:
        return TableLockedError(
            f"{doing} failed: a lock was not granted in time",
            detail,
            "wait for the end of the transaction that holds it, or end it: SELECT pid, "
            "pg_blocking_pids(pid), query FROM pg_stat_activity WHERE wait_event_type = 'Lock'; or raise "
            "lockTimeoutMs",
            code="TR-4304",
        )
    if state == _TOO_SLOW:
        return network.too_slow(doing, detail)
    if state in _CHANGED_TABLE:
        return SchemaMismatchError(f"{doing} failed: the table's definition changed", detail, code="TR-5002")
    if state in _DENIED:
        return SourceError(
            f"{doing} failed: the server refuses the user, the password or the host",
            detail,
            "check user and password, and that pg_hba.conf admits this host",
            code="TR-3101",
        )
    if state == _MISSING_PRIVILEGE and "row-level security" in str(error.args[0].get("M", "")):
        return SourceError(
            f"{doing} failed: row-level security hides rows from this user",
            detail,
            "ALTER ROLE ... BYPASSRLS; -- for this user; or ALTER TABLE ... DISABLE ROW LEVEL SECURITY;",
            code="TR-2211",
        )
    if state in _NOT_TEXT:
        return SourceError(
            f"{doing} failed: a text is not valid in the encoding of the database",
            f"{detail}: values must be convertible to UTF-8; a database with encoding SQL_ASCII holds any "
            "bytes",
            "find such values and correct them, or move the tables to a database with encoding UTF8",
            code="TR-5203",
        )
    if state == _READ_ONLY:
        return SourceError(
            f"{doing} failed: the server is a standby, or read-only",
            detail,
            "create the publication on the primary, for all captured tables; `tailrace check` shows the "
            "statement; or name the primary in url",
            code="TR-2221",
        )
    if state == _MISSING_PRIVILEGE:
        return SourceError(
            f"{doing} failed: a privilege is missing",
            detail,
            "`tailrace check` shows the statement to run",
            code="TR-3102",
        )
    if state == "3D000":
        return SourceError(
            f"{doing} failed", detail, "name the database in url: postgresql://HOST/DATABASE", code="TR-3013"
        )
    return SourceError(f"{doing} failed", detail, code="TR-3012")


retrying = network.Retrying(translate, (DatabaseError, InterfaceError))


class ReconnectingConnection(network.Reconnecting[Connection]):
    """One connection, opened at first use and reopened when it was lost.

    Args:
        options: the server.
        purpose: what the connection is for.
    """

    def __init__(self, options: SourceOptions, purpose: str) -> None:
        super().__init__(options, lambda: connect(options, purpose=purpose), retrying)

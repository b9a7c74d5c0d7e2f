"""Connections to Oracle: TLS, session set-up, classes of errors, retries.

python-oracledb in thin mode, which speaks Oracle's protocol itself and needs no client library. Every session
has the formats of `wire.types.SESSION_FORMATS`, so that moments and numbers have one form in results and in
SQL_REDO. Numbers are fetched as text: as floats they would lose digits.

Errors are classified by their ORA number, never by text, and only in `translate`. The server's text is not
shown: some errors quote values.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import oracledb

from tailrace.config.options import SourceOptions
from tailrace.errors import SchemaMismatchError, SourceError, TailraceError, TransientSourceError
from tailrace.sources import network
from tailrace.sources.oracle.wire.types import SESSION_FORMATS
from tailrace.sources.tokens import login_secret

T = TypeVar("T")

#: Errors that another try may not meet, with the reason.
_LOST = frozenset([3113, 3114, 3135, 1012, 28, 12170, 12537, 12541, 12547, 12560, 12571, 25408])
_STARTING = frozenset([1033, 1034, 1089, 1090, 1092, 12514, 12528])
_NO_ROOM = frozenset([18, 20, 12516, 12519, 12520])
_INTERRUPTED = frozenset([60, 4068, 8177])
_TOO_SLOW = frozenset([1013, 3136])
_DENIED = frozenset([1005, 1017, 1045, 28000, 28001])
_MISSING_PRIVILEGE = frozenset([1031, 41900])
#: The table is gone, or has other columns.
CHANGED_TABLE = frozenset([942, 904, 4043])
#: Rows as of an SCN cannot be had: the undo is gone; the SCN is too old, or not one; the table was altered.
_TOO_OLD, ALTERED_SINCE = frozenset([1555, 8181, 8180, 22924]), 1466
#: LogMiner misses a file, or finds another one in its place.
_NO_REDO = frozenset([1284, 1291, 1292, 308, 310, 334, 16319])
_FETCHED = 5_000
#: Errors of python-oracledb: no connection, for the reason that is its cause; the listener refuses; it does
#: not know the service, or the SID.
_NOT_CONNECTED, _REFUSED, _NO_SERVICE = "DPY-6005", ("DPY-6000",), ("DPY-6001", "DPY-6003")
_OF_LISTENER = re.compile(r"ORA-(\d{5})")
_UNKNOWN_SERVICE = 12514


class Connection:
    """A logged-in session; used by one thread at a time.

    Args:
        raw: oracledb's connection.
        is_encrypted: whether it runs over TLS.
        timeout_s: the time limit of an answer; None: none.
    """

    def __init__(self, raw: Any, *, is_encrypted: bool = False, timeout_s: float | None = None) -> None:
        self._raw = raw
        self.is_encrypted = is_encrypted
        self.is_open = True
        raw.call_timeout = 0 if timeout_s is None else max(1, int(timeout_s * 1000))

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query with `:1`, `:2`... for `values`. Raises oracledb's errors."""
        return list(self.each(sql, values))

    def each(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, fetched as they are used. Raises oracledb's errors."""
        with self._raw.cursor() as cursor:
            cursor.arraysize = cursor.prefetchrows = _FETCHED
            cursor.execute(sql, list(values))
            yield from cursor

    def run(self, sql: str, values: Mapping[str, Any] | None = None) -> None:
        """Run a statement that returns nothing. Raises oracledb's errors."""
        with self._raw.cursor() as cursor:
            cursor.execute(sql, dict(values or {}))

    def set_formats(self) -> None:
        """Set how the session writes moments and numbers. Raises oracledb's errors."""
        settings = " ".join(f"{name} = '{value}'" for name, value in SESSION_FORMATS.items())
        self.run(f"ALTER SESSION SET {settings}")

    def commit(self) -> None:
        """Commit what `run` has written."""
        self._raw.commit()

    def limit_whole(self, seconds: float) -> None:
        """Limit the time of each further answer."""
        self._raw.call_timeout = max(1, int(seconds * 1000))

    def close(self) -> None:
        """Close the session."""
        if self.is_open:
            self.is_open = False
            with contextlib.suppress(oracledb.Error):  # the server has closed it
                self._raw.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_raw(options: SourceOptions, password: str) -> tuple[Any, bool]:
    """Oracledb's connection, and whether it runs over TLS. Raises oracledb's errors."""
    encrypted = options.tls.mode not in ("disabled", "preferred")  # a listener's port has one or the other
    raw = oracledb.connect(
        user=options.user,
        password=password,
        host=options.host,
        port=options.port,
        service_name=options.database,
        protocol="tcps" if encrypted else "tcp",
        ssl_context=network.tls_context(options.tls) if encrypted else None,
        ssl_server_dn_match=options.tls.mode == "verify-identity",
        tcp_connect_timeout=options.connect_timeout_ms / 1000,
        retry_count=0,
        program="tailrace",
    )
    return raw, encrypted


def connect(options: SourceOptions, *, purpose: str, rows: bool = False) -> Connection:
    """Open a session with the settings that every reader expects.

    Args:
        options: server, service, user, TLS and time limits.
        purpose: what it is for, as in "reading the catalog"; named in errors.
        rows: whether it reads rows of tables, or of the log, for which another time limit holds.

    Raises:
        TransientSourceError: there is no answer, or the server accepts no more sessions.
        SourceError: the server refuses the user.
        ConfigError: the password or a TLS file cannot be read.
    """
    doing = f"connecting to {options.address} as `{options.user}` for {purpose}"
    password = login_secret(options, doing)
    limit_ms = options.snapshot_query_timeout_ms if rows else options.query_timeout_ms
    try:
        raw, encrypted = _within(
            options.connect_timeout_ms / 1000,
            lambda: open_raw(options, password),
            lambda made: made[0].close(),
        )
        raw.outputtypehandler = _exact_numbers
        connection = Connection(
            raw, is_encrypted=encrypted, timeout_s=None if limit_ms is None else limit_ms / 1000
        )
        connection.set_formats()
    except (oracledb.Error, OSError) as error:
        raise translate(error, doing) from error
    return connection


def _within(seconds: float, make: Callable[[], T], discard: Callable[[T], None]) -> T:
    """What `make` returns, within a time: python-oracledb limits that of TCP, and not that of logging in.

    Args:
        seconds: the time.
        make: cannot be cancelled: its thread is abandoned when the time is over.
        discard: gets what it returns then.

    Raises:
        TimeoutError: the time is over.
    """
    lock, found, is_late = threading.Lock(), queue.SimpleQueue[T | BaseException](), threading.Event()

    def run() -> None:
        try:
            made = make()
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            found.put(error)
            return
        with lock:
            if not is_late.is_set():
                found.put(made)
                return
        discard(made)

    threading.Thread(target=run, name="tailrace-oracle-login", daemon=True).start()
    try:
        result = found.get(timeout=seconds)
    except queue.Empty:
        with lock:
            is_late.set()
        if found.empty():
            raise TimeoutError(f"no session within {seconds} s") from None
        result = found.get()
    if isinstance(result, BaseException):
        raise result
    return result


def _exact_numbers(cursor: Any, metadata: Any) -> Any:
    if metadata.type_code is oracledb.DB_TYPE_NUMBER:
        return cursor.var(oracledb.DB_TYPE_VARCHAR, size=160, arraysize=cursor.arraysize)
    return None


def ora_number(error: BaseException) -> int:
    """The number of an ORA error, or of the cause of one of ours; 0 for others."""
    if isinstance(error, TailraceError) and error.__cause__ is not None:
        return ora_number(error.__cause__)
    first = error.args[0] if isinstance(error, oracledb.Error) and error.args else None
    return int(getattr(first, "code", 0) or 0)


def translate(error: Exception, doing: str) -> TailraceError:
    """The error of ours that corresponds to `error`; one of ours is returned as it is.

    Args:
        error: from oracledb or from a socket.
        doing: what was being done, as in "reading the table".
    """
    if isinstance(error, TailraceError):
        return error
    if isinstance(error, OSError):
        return network.socket_failure(error, doing)
    number = ora_number(error)
    full_code = str(getattr(error.args[0] if error.args else None, "full_code", ""))
    if full_code == _NOT_CONNECTED and isinstance(error.__cause__, oracledb.Error | OSError):
        return translate(error.__cause__, doing)
    # the listener's refusals have the numbers of Oracle's client in their text
    listener = _OF_LISTENER.search(str(error.args[0])) if full_code in _REFUSED else None
    number = int(listener[1]) if listener else number
    if full_code in _NO_SERVICE:
        number = _UNKNOWN_SERVICE
    detail = f"ORA-{number:05d}" if number else full_code or type(error).__name__
    if number in _LOST or full_code in ("DPY-4011", _NOT_CONNECTED, "DPY-1001"):
        return TransientSourceError(f"{doing} failed: {network.LOST}", full_code or detail, code="TR-3001")
    if number in _STARTING:
        return TransientSourceError(
            f"{doing} failed: the database is starting or stopping, or does not offer the service",
            detail,
            "the path of url is the service: oracle://HOST[:PORT]/SERVICE; `lsnrctl services` lists them",
            code="TR-3004",
        )
    if number in _NO_ROOM | _INTERRUPTED:
        reason = network.NO_ROOM if number in _NO_ROOM else network.INTERRUPTED
        return TransientSourceError(f"{doing} failed: {reason}", detail, code="TR-3004")
    if number in _TOO_SLOW or full_code == "DPY-4024":
        return network.too_slow(doing, full_code or detail)
    if number in _DENIED:
        return SourceError(
            f"{doing} failed: the server refuses the user, the password or the host",
            detail,
            "check user and password, and that the account is open and may CREATE SESSION",
            code="TR-3101",
        )
    if number in _MISSING_PRIVILEGE:
        return SourceError(
            f"{doing} failed: a privilege is missing",
            detail,
            "`tailrace check` shows the statement to run",
            code="TR-3102",
        )
    if number in CHANGED_TABLE:
        return SchemaMismatchError(
            f"{doing} failed: the table's definition changed, or the user may not read it",
            detail,
            code="TR-5002",
        )
    if number in _TOO_OLD or number == ALTERED_SINCE:
        return _too_old(doing, number, detail)
    if number in _NO_REDO:
        return TransientSourceError(
            f"{doing} failed: a redo log file was missing, or was written over while it was read",
            detail,
            "another try reads the archived log in its place; if this persists, archived logs were removed",
            code="TR-4616",
        )
    return SourceError(f"{doing} failed", full_code or detail, code="TR-4620")


def _too_old(doing: str, number: int, detail: str) -> TailraceError:
    if number == ALTERED_SINCE:
        return SchemaMismatchError(
            f"{doing} failed: the table was altered since the position that its rows are read as of",
            f"{detail}: a flashback query does not reach behind a schema change",
            "if it was created or altered a moment ago, the next try reads as of a later position; else "
            "read the table again",
            code="TR-4619",
        )
    return SourceError(
        f"{doing} failed: the undo of the position that rows are read as of is gone",
        f"{detail}: the database keeps undo for UNDO_RETENTION seconds, and only if there is room",
        "ALTER SYSTEM SET UNDO_RETENTION = 10800; ALTER TABLESPACE undotbs1 RETENTION GUARANTEE; then start "
        "a new stream. A smaller snapshotChunkRows makes batches end sooner",
        code="TR-4618",
    )


retrying = network.Retrying(translate, (oracledb.Error,))


class ReconnectingConnection(network.Reconnecting[Connection]):
    """One session, opened at first use and reopened when it was lost.

    Args:
        options: the server.
        purpose: see `connect`.
        rows: see `connect`.
    """

    def __init__(self, options: SourceOptions, purpose: str, *, rows: bool = False) -> None:
        super().__init__(options, lambda: connect(options, purpose=purpose, rows=rows), retrying)

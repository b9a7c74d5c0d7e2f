"""The database of the control plane: opened by URL, with one clock for all servers.

    sqlite:////var/lib/tailrace/tailrace.db      one file, WAL mode: one host
    postgresql://user@host/tailrace              any number of servers
    mysql://user@host/tailrace                   likewise; MariaDB too

The password is not part of the URL: it is a reference (`config.secret`). Servers' clocks may differ, so no
statement uses one: `now_us` is an SQL expression, and leases are compared with it in the statement that takes
them.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, BigInteger, Connection, Engine, create_engine, event, make_url, select
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from tailrace.config.secret import Secret, has_credentials
from tailrace.control.metadata.migrations import upgrade
from tailrace.errors import ConfigError, StateError, TransientControlError
from tailrace.private import make_private_directory, write_private

_R = TypeVar("_R")

#: What connects to each database.
_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+pg8000",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
#: How long SQLite waits for another process's write, milliseconds.
_BUSY_MS = 10_000
#: How long connecting, and an answer, may take, seconds: below the time of a lease.
_CONNECT_S = 5
_ANSWER_S = 8
#: How long a transaction may wait for its client, and for a lock, seconds. A process that is stopped in the
#: midst of one (SIGSTOP, a host that hangs) holds the row of its subscription: nobody could take over.
_IDLE_S = 5
_LOCK_S = 4
#: Classes and conditions of PostgreSQL's errors after which a statement may succeed later: no connection, few
#: resources, the server stops, a lock or a transaction took too long.
_TRANSIENT_STATES = ("08", "53", "57P", "57014", "55P03", "25P03", "40")
#: Numbers of MySQL's: too many connections, lock wait, deadlock, shutdown, idle for too long, read-only.
_TRANSIENT_NUMBERS = frozenset({1040, 1041, 1053, 1203, 1205, 1213, 1290, 1836, 3024, 3572, 4031})
#: Their conditions of a key that is there already.
_DUPLICATE_STATE, _DUPLICATE_NUMBER = "23505", 1062
#: Those of its client begin here: the server cannot be reached, or is gone.
_CLIENT_ERRORS = 2000
#: Marks transactions that only read: they wait for no writer in SQLite.
_READS = "tailrace_reads"


class now_us(FunctionElement[int]):  # noqa: N801 - reads as SQL
    """The database's clock, microseconds since 1970 UTC."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_us, "sqlite")
def _now_sqlite(*_: Any, **__: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000"


@compiles(now_us, "postgresql")
def _now_postgresql(*_: Any, **__: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"


@compiles(now_us, "mysql")
@compiles(now_us, "mariadb")
def _now_mysql(*_: Any, **__: Any) -> str:
    return "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"


class ControlDatabase:
    """The database of the control plane.

    Args:
        url: see the module; parameters behind `?` are the driver's.
        password: the password; None: the server asks for none.
        connections: as many at most.

    Raises:
        ConfigError: the URL is wrong, or names a database that cannot be used.
    """

    def __init__(self, url: str, password: Secret | None = None, *, connections: int = 8) -> None:
        self.url = url
        self.password = password
        self._engine = _engine(_parsed(url), password, connections)

    @property
    def is_one_host(self) -> bool:
        """Whether only servers on one machine can share it."""
        return self._engine.dialect.name == "sqlite"

    def prepare(self) -> None:
        """Create the tables, or bring them to this version.

        Raises:
            StateError: a newer version of Tailrace has been here.
            TransientControlError: the database does not answer.
        """
        with _explained():
            upgrade(self._engine)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction: committed at the end, rolled back by an exception.

        Raises:
            TransientControlError: the database does not answer, or a statement met another's lock.
        """
        with _explained(), self._engine.begin() as connection:
            yield connection

    def read(self, work: Callable[[Connection], _R]) -> _R:
        """The result of `work`, which only reads, in a transaction of its own."""
        with _explained(), self._engine.execution_options(**{_READS: True}).begin() as connection:
            return work(connection)

    def now_us(self) -> int:
        """The database's clock, microseconds since 1970 UTC."""
        return self.read(lambda connection: int(connection.execute(select(now_us())).scalar_one()))

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


@contextmanager
def _explained() -> Iterator[None]:
    """Errors of the driver as ours; their text never holds a password."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:  # pg8000 passes on those of its socket
        cause = getattr(error, "orig", None) or error
        if _is_duplicate(cause):
            raise TransientControlError(
                "another server has written the same at the same moment",
                f"{type(cause).__name__}: {_text(cause)}",
                "try again: what it has written is found then",
                code="TR-8408",
            ) from error
        if isinstance(error, OSError) or _is_transient(error):
            raise TransientControlError(
                "the database of the control plane does not answer",
                f"{type(cause).__name__}: {_text(cause)}",
                "pipelines whose lease ends are stopped, and go on once it answers",
                code="TR-8401",
            ) from error
        if isinstance(error, DBAPIError):
            raise StateError(
                "the database of the control plane refuses a statement",
                f"{type(cause).__name__}: {_text(cause)}",
                "see that its user may create, alter, read and write tables",
                code="TR-8402",
            ) from error
        raise


def _is_transient(error: SQLAlchemyError) -> bool:
    """Whether the same statement may succeed later: no connection, or a lock that another one holds."""
    if isinstance(error, PoolTimeoutError):  # of the pool
        return True
    if not isinstance(error, DBAPIError):
        return False
    args = error.orig.args if error.orig is not None else ()
    first = args[0] if args else None
    if isinstance(first, Mapping):  # pg8000: fields of the server's message
        return str(first.get("C", "")).startswith(_TRANSIENT_STATES)
    if isinstance(first, int):  # PyMySQL
        return first in _TRANSIENT_NUMBERS or first >= _CLIENT_ERRORS
    return error.connection_invalidated or isinstance(error, InterfaceError | OperationalError)


def _is_duplicate(cause: BaseException) -> bool:
    """Whether a row with the same key was written after this transaction had looked for one.

    SQLite's transactions that write wait for each other before they look.
    """
    first = cause.args[0] if cause.args else None
    return first == _DUPLICATE_NUMBER or (isinstance(first, Mapping) and first.get("C") == _DUPLICATE_STATE)


def _text(cause: BaseException) -> str:
    first = cause.args[0] if cause.args else None
    return str(first.get("M", "")) if isinstance(first, Mapping) else str(cause)


def _parsed(text: str) -> URL:
    if has_credentials(text):
        raise ConfigError(
            "the URL of the control plane's database holds a password",
            "an address is printed in messages and logs",
            "give it by --database-password '${env:NAME}' or '${file:PATH}'",
            code="TR-8403",
        )
    try:
        url = make_url(text)
    except ArgumentError:
        raise _wrong_url("a value that is not a URL") from None
    if url.drivername not in _DRIVERS:
        raise _wrong_url(f"a URL of `{url.drivername}`")
    if url.drivername == "sqlite":
        if not url.database or url.database == ":memory:":
            raise _wrong_url("no file")
    elif not (url.host and url.database):
        raise _wrong_url("no host or no database")
    return url.set(drivername=_DRIVERS[url.drivername])


def _wrong_url(found: str) -> ConfigError:
    return ConfigError(
        "the URL of the control plane's database is wrong",
        f"found {found}",
        "needed: sqlite:////PATH/TO/FILE, postgresql://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE",
        code="TR-8404",
    )


def _engine(url: URL, password: Secret | None, connections: int) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _sqlite(url)
    if password is not None:
        url = url.set(password=password.resolve("the password of the control plane's database"))
    # it logs a traceback for each broken connection that cannot be closed; whoever used it gets an error
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    engine = create_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=_ANSWER_S,
        pool_pre_ping=True,
        connect_args=_connect_args(url),
        hide_parameters=True,
        isolation_level="READ COMMITTED",
    )
    is_postgresql = url.get_backend_name() == "postgresql"
    if is_postgresql:
        event.listen(engine, "do_connect", _by_tcp)

    @event.listens_for(engine, "connect")
    def _(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        if is_postgresql:
            cursor.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_S}s'")
            cursor.execute(f"SET lock_timeout = '{_LOCK_S}s'")
            connection.commit()
        else:
            # `now_us` reads local time; a connection that is idle in the pool is opened again
            cursor.execute(
                f"SET time_zone = '+00:00', innodb_lock_wait_timeout = {_LOCK_S}, wait_timeout = {_IDLE_S}"
            )
        cursor.close()

    return engine


def _by_tcp(dialect: Any, _record: Any, args: list[Any], given: dict[str, Any]) -> Any:
    """Connect by a socket of ours: pg8000 (1.31) leaves its own open where nothing answers in time."""
    if "unix_sock" in given:
        return None  # as the driver does
    with ExitStack() as unless_connected:
        found = socket.create_connection((given["host"], given.get("port", 5432)), _ANSWER_S)
        unless_connected.callback(found.close)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection = dialect.loaded_dbapi.Connection(*args, **given, sock=found)
        unless_connected.pop_all()
    return connection


def _connect_args(url: URL) -> Mapping[str, object]:
    if url.get_backend_name() == "postgresql":
        return {"timeout": _ANSWER_S}
    return {
        "charset": "utf8mb4",
        "connect_timeout": _CONNECT_S,
        "read_timeout": _ANSWER_S,
        "write_timeout": _ANSWER_S,
    }


def _sqlite(url: URL) -> Engine:
    assert url.database is not None
    path = Path(url.database).absolute()
    try:
        if not path.exists():  # specs and tokens' digests are nobody else's business
            make_private_directory(path.parent)
            write_private(path, "")
    except OSError as error:
        raise ConfigError(
            f"file `{path}` of the control plane cannot be created", error.strerror, code="TR-8404"
        ) from None
    engine = create_engine(
        url.set(database=str(path)),
        connect_args={"timeout": _BUSY_MS / 1000, "check_same_thread": False},
        hide_parameters=True,
    )

    @event.listens_for(engine, "connect")
    def _(connection: Any, _: Any) -> None:
        # the driver's own BEGIN comes late, and in the weaker form
        connection.isolation_level = None
        for setting in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {setting}")

    @event.listens_for(engine, "begin")
    def _(connection: Connection) -> None:
        # a transaction that begins to write after others did would fail instead of waiting
        reads = connection.get_execution_options().get(_READS, False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine

"""Connections to any database: TLS, keep-alive, the errors of sockets, retries."""

from __future__ import annotations

import ipaddress
import queue
import random
import socket
import ssl
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from tailrace.config.options import SourceOptions, TlsOptions
from tailrace.errors import ConfigError, DecodeError, SourceError, TailraceError, TransientSourceError
from tailrace.sources.bounds import Deadline

T = TypeVar("T")


class Closable(Protocol):
    """A connection of any protocol."""

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used."""

    def close(self) -> None:
        """Close the connection."""


C = TypeVar("C", bound=Closable)

#: Errors of TLS for a lost connection.
_TLS_LOST = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError)
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 10.0


def tls_context(tls: TlsOptions, *, strict_x509: bool = True) -> ssl.SSLContext | None:
    """The TLS settings of a connection; None without TLS.

    Args:
        tls: the mode and the files.
        strict_x509: False also accepts certificates that violate RFC 5280, where Python would check them.

    Raises:
        ConfigError: a file cannot be read.
    """
    if tls.mode == "disabled":
        return None
    try:
        verified = tls.mode in ("verify-ca", "verify-identity")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if tls.ca:
            context.load_verify_locations(tls.ca)
        elif verified:  # reading the system's authorities takes longer than everything else of a connection
            context.load_default_certs()
        if not strict_x509:
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = tls.mode == "verify-identity"
        context.verify_mode = ssl.CERT_REQUIRED if verified else ssl.CERT_NONE
        if tls.cert:
            context.load_cert_chain(tls.cert, tls.key)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            "the TLS files cannot be read",
            f"tlsCa `{tls.ca}`, tlsCert `{tls.cert}`, tlsKey `{tls.key}`: {error.strerror or error}",
            "name PEM files that every executor can read",
            code="TR-1102",
        ) from error
    return context


def open_socket(host: str, port: int, deadline: Deadline) -> socket.socket:
    """Connect to the first of the host's addresses that answers.

    Raises:
        OSError: none answers, the name is unknown, or the time is over.
    """
    failure: OSError | None = None
    for family, kind, protocol, _, address in _addresses(host, port, deadline):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(deadline.left())
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            failure = failure or error
            continue
        return sock
    raise failure or OSError(f"`{host}` has no address")


def _addresses(host: str, port: int, deadline: Deadline) -> list[Any]:
    """The results of `getaddrinfo`, by a deadline; the system's own limit may be minutes."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found: queue.SimpleQueue[list[Any] | OSError | TailraceError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found.put(list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
        except UnicodeError:  # from the encoding of host names
            found.put(socket.gaierror(socket.EAI_NONAME, "not a host name"))
        except (OSError, TailraceError) as error:  # `config.host_guard` refuses addresses
            found.put(error)

    # a look-up cannot be cancelled: its thread is abandoned
    threading.Thread(target=look_up, name="tailrace-look-up", daemon=True).start()
    try:
        result = found.get(timeout=deadline.left())
    except queue.Empty:
        raise TimeoutError(f"the name `{host}` was not resolved in time") from None
    if isinstance(result, OSError | TailraceError):
        raise result
    return result


def begin_tls(sock: socket.socket, context: ssl.SSLContext, host: str, doing: str) -> ssl.SSLSocket:
    """Start TLS over a connected socket, within its timeout.

    Args:
        sock: connected; the returned socket wraps it.
        context: the TLS settings.
        host: the server's name.
        doing: what is being done, for errors.

    Raises:
        SourceError: the two sides have no TLS version or cipher in common. Plain text is never tried instead:
            a man in the middle could force that.
        OSError: the connection is lost, or the certificate is not trusted.
    """
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except (ssl.SSLCertVerificationError, *_TLS_LOST):
        raise
    except ssl.SSLError as error:
        raise SourceError(
            f"{doing} failed: no TLS connection is possible",
            error.reason or str(error),
            "enable a TLS version that both server and client support, or set tlsMode to disabled",
            code="TR-3007",
        ) from error


def keep_alive(sock: socket.socket) -> None:
    """Detect an unresponsive peer after two minutes, whether or not anything is sent to it.

    The system's default is two hours, or a quarter of an hour for sent data to be acknowledged. The socket of
    a tunnel leads to a program of this machine, which does the same (`sources.ssh`).
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    settings = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6, "TCP_USER_TIMEOUT": 120_000}
    for name, value in settings.items():
        if hasattr(socket, name):  # not every system has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def socket_failure(error: OSError, doing: str) -> SourceError:
    """The error of ours for a socket's error; the caller raises it.

    Args:
        error: the system's, or one of TLS.
        doing: what was being done, as in "reading table `a`.`b`".

    Returns:
        SourceError for a certificate that is not trusted, else TransientSourceError.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return SourceError(
            f"{doing} failed: the server's certificate is not trusted",
            error.verify_message,
            "set tlsCa to the authority that signed it, or tlsMode to what the server can prove",
            code="TR-3008",
        )
    if isinstance(error, TimeoutError):
        return TransientSourceError(
            f"{doing} failed: no answer in time",
            str(error),
            "check that a database of this kind listens at this host and port and is not overloaded; if it "
            "only needs longer, raise connectTimeoutMs or queryTimeoutMs",
            code="TR-3002",
        )
    unknown = isinstance(error, socket.gaierror)
    return TransientSourceError(
        f"{doing} failed: {'the host is unknown' if unknown else 'no connection'}",
        str(error.strerror or error),
        "check that the server runs and that its host and port can be reached from here",
        code="TR-3003",
    )


@contextmanager
def sensible(asked: str) -> Iterator[None]:
    """Raise a DecodeError where a server's answer lacks something or has an unexpected form.

    Args:
        asked: the subject of the query, as in "the catalog".

    Raises:
        DecodeError: from the error that parsing the answer raised.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, struct.error) as error:
        raise DecodeError(
            f"the server's answer about {asked} has an unexpected form",
            f"{type(error).__name__} while parsing it",
            "check what answers at this host and port; from a server of this kind it is a bug of Tailrace: "
            "the traceback is in the log file",
            code="TR-3016",
        ) from error


def too_slow(doing: str, detail: str) -> TransientSourceError:
    """The error for a statement that the server has ended at its time limit; the caller raises it.

    Args:
        doing: what was being done, as in "reading table `a`.`b`".
        detail: the server's error.
    """
    return TransientSourceError(
        f"{doing} failed: the server ended the statement",
        f"{detail}; it does so at the time limit, or when another session asks for it",
        "find out what it waits for, or lower snapshotChunkRows; or raise snapshotQueryTimeoutMs (rows of "
        "tables) or queryTimeoutMs (the rest)",
        code="TR-3018",
    )


#: Reasons of transient errors, for messages.
LOST = "the connection was lost"
NO_ROOM = "the server accepts no more connections"
NO_DISK = "the server's disk is full"
INTERRUPTED = "the server did not complete the statement"


#: How long an operation is tried again before anybody hears of it, seconds.
_TOLD_AFTER_S = 1.0


_listeners: list[Callable[[SourceOptions, str, TailraceError | None], None]] = []


def tell_retries(tell: Callable[[SourceOptions, str, TailraceError | None], None]) -> None:
    """Let `tell` know what this process tries again for longer than a moment.

    Args:
        tell: gets the options of the stream, a name of the operation, and the error of each attempt that
            failed; None: the operation is over.
    """
    _listeners[:] = [tell]


def retried(options: SourceOptions, operation: str, error: TailraceError | None) -> None:
    """An operation is tried again, or is over; see `tell_retries`."""
    for tell in _listeners:
        tell(options, operation, error)


class Retrying:
    """Retries of what fails transiently: a database's own rules over one loop.

    Args:
        translate: the error of ours for one of the driver, given what was being done.
        driver_errors: what the database's driver raises, besides OSError.
    """

    def __init__(
        self,
        translate: Callable[[Exception, str], TailraceError],
        driver_errors: tuple[type[Exception], ...],
    ) -> None:
        self._translate = translate
        self._expected: tuple[type[Exception], ...] = (TailraceError, OSError, *driver_errors)

    def __call__(
        self,
        options: SourceOptions,
        operation: Callable[[], T],
        doing: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> T:
        """Call `operation` until it succeeds, for `options.retry_timeout_ms` at most.

        Waits 0.1 s, 0.2 s, ... up to 10 s between tries, each shortened by up to half at random so that the
        tasks of a cluster do not return all at once.

        Args:
            options: how long to retry, from the first try to the last.
            operation: makes its own connection, anew in every try.
            doing: what is being done, for errors.
            sleep: waits so many seconds.
            clock: seconds of a monotonic clock.

        Returns:
            The result of `operation`.

        Raises:
            TransientSourceError: it still fails when the time is over; the last error.
            TailraceError: any other failure, at once.
        """
        begun = clock()
        deadline = begun + options.retry_timeout_ms / 1000
        delay, told_as = _FIRST_DELAY_S, ""
        try:
            while True:
                try:
                    return operation()
                except self._expected as error:
                    failure = self._translate(error, doing)
                    pause = delay * random.uniform(0.5, 1)  # noqa: S311
                    if not failure.retryable or clock() + pause > deadline:
                        if failure is error:
                            raise
                        raise failure from error
                if clock() - begun >= _TOLD_AFTER_S:
                    told_as = told_as or uuid.uuid4().hex
                    retried(options, told_as, failure)
                sleep(pause)
                delay = min(2 * delay, _LONGEST_DELAY_S)
        finally:
            if told_as:
                retried(options, told_as, None)


class Reconnecting(Generic[C]):
    """One connection, opened at first use and reopened when it was lost.

    Args:
        options: how long to retry.
        connect: opens a connection.
        retrying: the database's rules.
    """

    def __init__(self, options: SourceOptions, connect: Callable[[], C], retrying: Retrying) -> None:
        self._options = options
        self._connect = connect
        self._retrying = retrying
        self._connection: C | None = None

    def run(self, operation: Callable[[C], T], doing: str) -> T:
        """The result of `operation`, retried as `Retrying` does."""

        def attempt() -> T:
            if self._connection is None or not self._connection.is_open:
                self._connection = self._connect()
            try:
                return operation(self._connection)
            except BaseException:
                self.close()
                raise

        return self._retrying(self._options, attempt, doing)

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.is_open:
            connection.close()

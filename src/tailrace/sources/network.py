"""What connections to every database share: TLS, keep-alive, what a socket's failure means, retries."""

from __future__ import annotations

import ipaddress
import queue
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from tailrace.config.options import SourceOptions, TlsOptions
from tailrace.errors import ConfigError, DecodeError, SourceError, TailraceError, TransientSourceError
from tailrace.sources.bounds import Deadline

T = TypeVar("T")


class Closing(Protocol):
    """A connection, whatever it speaks."""

    def close(self) -> None:
        """End it."""


class Retrying(Protocol):
    """A database's own `retrying`."""

    def __call__(self, options: SourceOptions, operation: Callable[[], T], doing: str) -> T:
        """What `operation` returns, tried again for `options.retry_timeout_ms`."""


C = TypeVar("C", bound=Closing)

#: What TLS calls a connection that was lost.
_TLS_LOST = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError)
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 10.0


def tls_context(tls: TlsOptions, *, strict_x509: bool = True) -> ssl.SSLContext | None:
    """What `tls` asks for, None for no TLS.

    Args:
        tls: the mode and the files.
        strict_x509: False takes certificates that break rules of RFC 5280 too, where Python would check them.

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
        elif verified:  # reading the system's authorities takes longer than the rest of a connection
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
            "give PEM files that every executor can read",
        ) from error
    return context


def open_socket(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A connection to the first of the host's addresses that answers.

    Raises:
        OSError: none does, the name is unknown, or the time is over.
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
    """What `getaddrinfo` finds in time; the system's own limit may be minutes."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found: queue.SimpleQueue[list[Any] | OSError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found.put(list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
        except UnicodeError:  # of the encoding for host names
            found.put(socket.gaierror(socket.EAI_NONAME, "not a host name"))
        except OSError as error:
            found.put(error)

    # nothing ends a look-up: its thread is left behind
    threading.Thread(target=look_up, name="tailrace-look-up", daemon=True).start()
    try:
        result = found.get(timeout=deadline.left())
    except queue.Empty:
        raise TimeoutError(f"the name `{host}` was not resolved in time") from None
    if isinstance(result, OSError):
        raise result
    return result


def begin_tls(sock: socket.socket, context: ssl.SSLContext, host: str, doing: str) -> ssl.SSLSocket:
    """TLS over a connected socket, within its timeout.

    Args:
        sock: connected; it is part of what is returned.
        context: what is demanded.
        host: the server's name.
        doing: what is being done, for errors.

    Raises:
        SourceError: the two sides cannot agree. Plain text is never tried instead: whoever stands between
            could bring that about.
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
            "let server and client have a version of TLS in common; tlsMode disabled does without",
        ) from error


def keep_alive(sock: socket.socket) -> None:
    """A peer that vanished without a word is noticed after two minutes, whether or not it is sent anything.

    Left alone, a system waits for two hours, or for a quarter of one for what it has sent to be acknowledged.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    settings = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6, "TCP_USER_TIMEOUT": 120_000}
    for name, value in settings.items():
        if hasattr(socket, name):  # not on every system
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def socket_failure(error: OSError, doing: str) -> SourceError:
    """The error of ours that a socket's error means; to be raised by the caller.

    Args:
        error: the system's, or that of TLS.
        doing: what was being done, as in "reading table `a`.`b`".

    Returns:
        SourceError for a certificate that is not trusted, else TransientSourceError.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return SourceError(
            f"{doing} failed: the server's certificate is not trusted",
            error.verify_message,
            "set tlsCa to the authority that signed it, or tlsMode to what the server can prove",
        )
    if isinstance(error, TimeoutError):
        return TransientSourceError(
            f"{doing} failed: no answer in time",
            str(error),
            "check that a database of this kind listens at this host and port, and that it is not overloaded",
        )
    unknown = isinstance(error, socket.gaierror)
    return TransientSourceError(
        f"{doing} failed: {'the host is unknown' if unknown else 'no connection'}",
        str(error.strerror or error),
        "check that the server runs and that host and port can be reached from here",
    )


@contextmanager
def sensible(asked: str) -> Iterator[None]:
    """What a server's answer lacks, or has in another form than it always has, as a DecodeError.

    Args:
        asked: what was asked for, as in "the catalog".

    Raises:
        DecodeError: from the error that taking the answer apart gave.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, struct.error) as error:
        raise DecodeError(
            f"the server's answer about {asked} is not of the form that it always has",
            f"{type(error).__name__} while it was taken apart",
            "check what answers at this host and port; from a server of this kind it is a bug of Tailrace: "
            "the log file has the trace",
        ) from error


def retrying(
    operation: Callable[[], T],
    timeout_ms: int,
    translated: Callable[[Exception], TailraceError],
    driver_errors: tuple[type[Exception], ...],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """What `operation` returns, tried again while it fails in a way that passes.

    Waits 0.1 s, 0.2 s, ... up to 10 s between tries, each shortened by up to half at random so that the
    tasks of a cluster do not return all at once.

    Args:
        operation: makes its own connection; it is called anew for every try.
        timeout_ms: bounds the time from the first try to the last.
        translated: the error of ours that a failure of `operation` means.
        driver_errors: what the database's driver raises, beside OSError.
        sleep: waits so many seconds.
        clock: seconds of a clock that never goes back.

    Raises:
        TransientSourceError: it still fails when the time is over; the last error.
        TailraceError: any other failure, at once.
    """
    expected: tuple[type[Exception], ...] = (TailraceError, OSError, *driver_errors)
    deadline = clock() + timeout_ms / 1000
    delay = _FIRST_DELAY_S
    while True:
        try:
            return operation()
        except expected as error:
            failure = translated(error)
            pause = delay * random.uniform(0.5, 1)  # noqa: S311
            if not failure.retryable or clock() + pause > deadline:
                if failure is error:
                    raise
                raise failure from error
        sleep(pause)
        delay = min(2 * delay, _LONGEST_DELAY_S)


class Reconnecting(Generic[C]):
    """One connection, made when it is first needed and made anew when it was lost.

    Args:
        options: how long is tried.
        connect: makes one.
        is_open: whether one can still be used.
        retrying: the database's.
    """

    def __init__(
        self,
        options: SourceOptions,
        connect: Callable[[], C],
        is_open: Callable[[C], bool],
        retrying: Retrying,
    ) -> None:
        self._options = options
        self._connect = connect
        self._is_open = is_open
        self._retrying = retrying
        self._connection: C | None = None

    def run(self, operation: Callable[[C], T], doing: str) -> T:
        """What `operation` returns, tried again as `retrying` does."""

        def attempt() -> T:
            if self._connection is None or not self._is_open(self._connection):
                self._connection = self._connect()
            try:
                return operation(self._connection)
            except BaseException:
                self.close()
                raise

        return self._retrying(self._options, attempt, doing)

    def close(self) -> None:
        """Drop the connection."""
        connection, self._connection = self._connection, None
        if connection is not None and self._is_open(connection):
            connection.close()

"""pg8000, bounded: the one place that touches what it keeps to itself.

pg8000 trusts the server: it reads whatever length is announced, waits for each byte anew, looks a message's
letter up in a dictionary, sends the password in any form that it is asked for, and does not mind a server
that ends SCRAM before it has proved that it knows the password. `BoundedCore` gives it a `Messages` in place
of a file to read from, which knows where one message ends and the next begins, and answers requests for the
password itself:

    SCRAM     on any connection; over TLS bound to the certificate. The server's proof is required.
    MD5       on any connection, as a scramble of the server's challenge
    cleartext over TLS, or where that is allowed

Source: PostgreSQL manual, "Message Flow", "Message Formats", "SASL Authentication".
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import md5
from typing import Any

import scramp
from pg8000.core import CoreConnection
from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, DecodeError, SourceError, TailraceError
from tailrace.sources.bounds import LOGIN_BYTES, LOGIN_PACKET, ROW_COST, VALUE_COST, Deadline

_HEAD = struct.Struct("!ci")
_INT = struct.Struct("!i")
_RECEIVE_BYTES = 64 << 10
#: Types of messages in a log-in, in answers, and in those to COPY ... FROM STDIN.
_OF_LOGIN = b"RSKZEN"
_OF_ANSWERS = b"NSZTEIDC123sntA"
_OF_COPY_IN = _OF_ANSWERS + b"G"


class Messages:
    """What pg8000 reads from and writes to: whole messages, within limits.

    Args:
        sock: TLS or plain.
        options: the limits.
        doing: what is being done, for errors.
        deadline: of the log-in.

    Attributes:
        deadline: of what is read and written now; None: there is none.
        room: bytes that it may still take.
        kinds: types of messages that may come.
        columns: of the rows that come.
    """

    def __init__(self, sock: socket.socket, options: SourceOptions, doing: str, deadline: Deadline) -> None:
        self._sock = sock
        self._options = options
        self._doing = doing
        self._ahead = bytearray()
        self._out = bytearray()
        self._payload: int | None = None
        self._failed = False
        self.logged_in = False
        self.kinds = _OF_LOGIN
        self.deadline: Deadline | None = deadline
        self.room = LOGIN_BYTES
        self.columns = 0

    def makefile(self, mode: str) -> Messages:  # noqa: ARG002 - as a socket has it
        """Itself, as pg8000 asks a socket for a file."""
        return self

    def read(self, size: int) -> bytes:
        """The next message's head or its payload, in turn.

        Raises:
            DecodeError: what comes is no message.
            SourceError: it is larger than allowed, or no PostgreSQL answers.
            OSError: the connection is lost, or the time is over.
        """
        try:
            if self._payload is None:
                head = self._take(_HEAD.size)
                self._payload = self._require_head(head)
                return head
            if size != self._payload:
                raise DecodeError("the messages of the server are out of step")
            self._payload = None
            return self._take(size)
        except BaseException:
            self._failed = True
            raise

    def _require_head(self, head: bytes) -> int:
        """The payload's size that a head announces."""
        kind, length = _HEAD.unpack(head)
        size: int = length - 4
        found = f"a message of type {kind!r} with length {length}"
        if not self.logged_in:
            if kind not in self.kinds or not 0 <= size <= LOGIN_PACKET:
                raise no_server(self._doing, f"{found} in the log-in")
        elif kind not in self.kinds or size < 0:
            raise DecodeError("what the server sent is no message of an answer", f"found {found}")
        self.room -= size + ROW_COST + VALUE_COST * self.columns
        if self.room < 0:
            if not self.logged_in:
                raise no_server(self._doing, f"more than {LOGIN_BYTES} bytes in the log-in")
            raise SourceError(
                "the server's answer to a question is too large",
                f"it takes more than {self._options.max_answer_bytes} bytes of memory",
                "if the server is to be trusted, set maxAnswerBytes higher",
            )
        return size

    def _take(self, size: int) -> bytes:
        ahead = self._ahead
        while len(ahead) < size:
            self._sock.settimeout(None if self.deadline is None else self.deadline.left())
            try:
                piece = self._sock.recv(max(_RECEIVE_BYTES, min(size - len(ahead), 1 << 20)))
            except TimeoutError:
                assert self.deadline is not None
                self.deadline.left()  # says so in its words
                raise
            if not piece:
                raise InterfaceError("the server has closed the connection")
            ahead += piece
        data = bytes(ahead[:size])
        del ahead[:size]
        return data

    def write(self, data: bytes | bytearray) -> None:
        """Have `data` sent by the next `flush`."""
        self._out += data

    def flush(self) -> None:
        """Send what was written; nothing on a connection that has failed."""
        data, self._out = self._out, bytearray()
        if data and not self._failed:
            self._sock.settimeout(None if self.deadline is None else self.deadline.left())
            self._sock.sendall(data)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


class BoundedCore(CoreConnection):  # type: ignore[misc]
    """pg8000's connection that takes no more than `options` allow, whatever the server does.

    Args:
        options: server, user, rules of the password, limits.
        doing: what is being done, for errors.
        sock: connected, TLS or plain.
        deadline: of the log-in.
        given: of pg8000.

    Raises pg8000's errors, OSError and ours, as everything here does.
    """

    def __init__(
        self, options: SourceOptions, doing: str, sock: socket.socket, deadline: Deadline, **given: Any
    ) -> None:
        self._options, self._doing, self._tls = options, doing, sock
        self._scram: scramp.ScramClient | None = None
        self._is_proved = False
        self.whole: Deadline | None = None
        self.messages = Messages(sock, options, doing, deadline)
        if any("\0" in name for name in (options.user, options.database)):
            raise ConfigError("the name of the user or the database holds a NUL character")
        with self._understood(f"{doing} failed: the log-in"):
            super().__init__(
                options.user,
                database=options.database,
                sock=self.messages,
                ssl_context=False,
                application_name="tailrace",
                **given,
            )
        self.messages.logged_in = True

    def execute(self, run: Callable[[], Any], seconds: float | None, *, copies_in: bool = False) -> Any:
        """What `run` returns, a call of this object's `execute_...`.

        Args:
            run: the call.
            seconds: how long it may take; None: as long as it likes.
            copies_in: whether it is a COPY ... FROM STDIN.
        """
        limit = seconds if seconds is not None or self.whole is None else self.whole.seconds
        self.messages.deadline = None if limit is None else Deadline(limit, self.whole)
        self.messages.room = self._options.max_answer_bytes
        self.messages.columns = 0
        self.messages.kinds = _OF_COPY_IN if copies_in else _OF_ANSWERS
        with self._understood("the server's answer"):
            return run()

    @contextmanager
    def _understood(self, what: str) -> Iterator[None]:
        """What is malformed as a DecodeError."""
        try:
            yield
        except (DatabaseError, InterfaceError, OSError, TailraceError):
            raise
        except Exception as error:
            raise DecodeError(f"{what} is malformed", f"{type(error).__name__} while it was read") from error

    def handle_ROW_DESCRIPTION(self, data: bytes, context: Any) -> None:  # noqa: N802, D102
        super().handle_ROW_DESCRIPTION(data, context)
        self.messages.columns = len(context.columns)

    def handle_NOTICE_RESPONSE(self, data: bytes, context: Any) -> None:  # noqa: ARG002, N802, D102
        return  # nobody reads them

    def handle_NOTIFICATION_RESPONSE(self, data: bytes, context: Any) -> None:  # noqa: ARG002, N802, D102
        return

    # ---- the password ----

    def handle_AUTHENTICATION_REQUEST(self, data: bytes, context: Any) -> None:  # noqa: ARG002, N802
        """Answer a request for the password, as far as the password stays safe."""
        (code,) = _INT.unpack_from(data)
        password = self._options.password.resolve()
        try:
            match code:
                case 0:  # all is well
                    self._require_proof()
                case 3:  # cleartext
                    self._require_encrypted(password)
                    self._answer(password.encode() + b"\0")
                case 5:  # MD5
                    if len(data) != 8:
                        raise DecodeError(f"{self._doing} failed: the server's challenge is none")
                    self._answer(_md5(password, self._options.user, data[4:]) + b"\0")
                case 10:  # SASL, its continuation and its end
                    self._begin_scram(data, password)
                case 11 if self._scram is not None:
                    self._scram.set_server_first(data[4:].decode())
                    self._answer(self._scram.get_client_final().encode())
                case 12 if self._scram is not None:
                    self._scram.set_server_final(data[4:].decode())
                    self._is_proved = True
                case _:
                    raise SourceError(
                        f"{self._doing} failed: the server wants an authentication that is not supported",
                        f"number {code} of the protocol",
                        "let pg_hba.conf ask this user for scram-sha-256",
                    )
        except scramp.ScramException as error:
            raise DecodeError(f"{self._doing} failed: SCRAM failed", str(error)) from error

    def _begin_scram(self, data: bytes, password: str) -> None:
        if self._scram is not None:
            raise DecodeError(f"{self._doing} failed: the server begins SCRAM twice")
        mechanisms = [m.decode("ascii") for m in data[4:].split(b"\0") if m]
        binding = ("tls-server-end-point", self._tls) if isinstance(self._tls, ssl.SSLSocket) else None
        self._scram = scramp.ScramClient(mechanisms, self._options.user, password, channel_binding=binding)
        first = self._scram.get_client_first().encode()
        self._answer(self._scram.mechanism_name.encode() + b"\0" + _INT.pack(len(first)) + first)

    def _require_proof(self) -> None:
        if self._scram is not None and not self._is_proved:
            raise SourceError(
                f"{self._doing} failed: the server did not prove that it knows the password",
                "it ended SCRAM before its own signature: the server is hostile, or somebody stands between",
                "find out what answers there; tlsMode verify-identity with tlsCa lets nobody stand between",
            )

    def _require_encrypted(self, password: str) -> None:
        encrypted = isinstance(self._tls, ssl.SSLSocket)
        if password and not encrypted and not self._options.allow_cleartext_password:
            raise SourceError(
                f"{self._doing} failed: the server wants the password in clear text, over a connection"
                " without TLS",
                "authentication method `password`; the password was not sent",
                "use TLS: give the server a certificate (ssl = on) and set tlsMode to required or, safer,"
                " verify-ca; or let pg_hba.conf ask for scram-sha-256; or set allowCleartextPassword to true",
            )

    def _answer(self, data: bytes) -> None:
        self.messages.write(_HEAD.pack(b"p", len(data) + 4) + data)
        self.messages.flush()


def no_server(doing: str, found: str) -> SourceError:
    """That something else than PostgreSQL answers."""
    return SourceError(
        f"{doing} failed: what answers there is no PostgreSQL server", found, "check host and port"
    )


def _md5(password: str, user: str, challenge: bytes) -> bytes:
    inner = md5(password.encode() + user.encode()).hexdigest()  # noqa: S324 - as the protocol has it
    return b"md5" + md5(inner.encode() + challenge).hexdigest().encode()  # noqa: S324

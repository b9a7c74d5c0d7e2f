"""pg8000 with limits: the only module that uses its private members.

pg8000 trusts the server: it reads whatever length is announced, waits anew for each byte, looks up a
message's letter in a dictionary, sends the password in any form that the server requests, and accepts a
server that ends SCRAM before it has proved that it knows the password. `BoundedCore` replaces the file that
pg8000 reads from by `Messages`, which knows where one message ends and the next begins, and answers requests
for the password itself:

    SCRAM     on any connection; over TLS bound to the certificate. The server's proof is required.
    MD5       on any connection, as a scramble of the server's challenge
    cleartext over TLS, or where allowed

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
#: Types of messages in a log-in, in answers, and in answers to COPY ... FROM STDIN.
_OF_LOGIN = b"RSKZEN"
_OF_ANSWERS = b"NSZTEIDC123sntA"
_OF_COPY_IN = _OF_ANSWERS + b"G"


class Messages:
    """The file that pg8000 reads from and writes to: whole messages, within limits.

    Args:
        sock: TLS or plain.
        options: the limits.
        doing: what is being done, for errors.
        deadline: of the log-in.

    Attributes:
        deadline: of the current exchange; None: there is none.
        room: bytes of memory that the answer may still use.
        kinds: types of messages that are allowed now.
        columns: number of columns of the current rows.
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

    def makefile(self, mode: str) -> Messages:  # noqa: ARG002 - a socket's signature
        """This object: pg8000 asks a socket for a file."""
        return self

    def read(self, size: int) -> bytes:
        """The next message's head or its payload, in turn.

        Raises:
            DecodeError: the server sent something that is not a message.
            SourceError: the message is larger than allowed, or the other side is not PostgreSQL.
            OSError: the connection is lost, or the time is over.
        """
        try:
            if self._payload is None:
                head = self._take(_HEAD.size)
                self._payload = self._require_head(head)
                return head
            if size != self._payload:
                raise DecodeError("the server's messages are out of sequence", code="TR-3017")
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
            raise DecodeError(
                "the server sent a message that is not part of an answer", f"found {found}", code="TR-3017"
            )
        self.room -= size + ROW_COST + VALUE_COST * self.columns
        if self.room < 0:
            if not self.logged_in:
                raise no_server(self._doing, f"more than {LOGIN_BYTES} bytes in the log-in")
            raise SourceError(
                "the server's answer to a query is too large",
                f"it takes more than {self._options.max_answer_bytes} bytes of memory",
                "if you trust the server, increase maxAnswerBytes",
                code="TR-3009",
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
                self.deadline.left()  # raises with the deadline's message
                raise
            if not piece:
                raise InterfaceError("the server has closed the connection")
            ahead += piece
        data = bytes(ahead[:size])
        del ahead[:size]
        return data

    def write(self, data: bytes | bytearray) -> None:
        """Queue `data` for the next `flush`."""
        self._out += data

    def flush(self) -> None:
        """Send the queued bytes; none on a connection that has failed."""
        data, self._out = self._out, bytearray()
        if data and not self._failed:
            self._sock.settimeout(None if self.deadline is None else self.deadline.left())
            self._sock.sendall(data)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


class BoundedCore(CoreConnection):  # type: ignore[misc]
    """pg8000's connection, which uses no more time and memory than `options` allow, whatever the server does.

    Args:
        options: server, user, rules for the password, limits.
        doing: what is being done, for errors.
        password: the password or token.
        sock: connected, TLS or plain.
        deadline: of the log-in.
        given: further arguments of pg8000.

    Raises pg8000's errors, OSError and ours, as do its methods.
    """

    def __init__(
        self,
        options: SourceOptions,
        doing: str,
        password: str,
        sock: socket.socket,
        deadline: Deadline,
        **given: Any,
    ) -> None:
        self._options, self._doing, self._tls = options, doing, sock
        self._password = password
        self._scram: scramp.ScramClient | None = None
        self._is_proved = False
        self.whole: Deadline | None = None
        self.messages = Messages(sock, options, doing, deadline)
        if any("\0" in name for name in (options.user, options.database)):
            raise ConfigError("the name of the user or the database holds a NUL character", code="TR-1103")
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

    @property
    def pid(self) -> int:
        """The process of the server that serves the connection; 0: it did not say."""
        return int.from_bytes(self.cancel_key[:4], "big")

    @property
    def cancel_key(self) -> bytes:
        """What a request to cancel names the connection by: process and secret."""
        return bytes(self._backend_key_data or b"")

    def execute(self, run: Callable[[], Any], seconds: float | None, *, copies_in: bool = False) -> Any:
        """Call one of this object's `execute_...` methods within the limits.

        Args:
            run: makes the call.
            seconds: its time limit; None: no limit.
            copies_in: whether it is a COPY ... FROM STDIN.

        Returns:
            The result of `run`.
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
        """Turn errors about malformed messages into a DecodeError."""
        try:
            yield
        except (DatabaseError, InterfaceError, OSError, TailraceError):
            raise
        except Exception as error:
            raise DecodeError(
                f"{what} is malformed", f"{type(error).__name__} while reading it", code="TR-3017"
            ) from error

    def handle_ROW_DESCRIPTION(self, data: bytes, context: Any) -> None:  # noqa: N802, D102
        super().handle_ROW_DESCRIPTION(data, context)
        self.messages.columns = len(context.columns)

    def handle_NOTICE_RESPONSE(self, data: bytes, context: Any) -> None:  # noqa: ARG002, N802, D102
        return  # notices are not used

    def handle_NOTIFICATION_RESPONSE(self, data: bytes, context: Any) -> None:  # noqa: ARG002, N802, D102
        return

    # ---- the password ----

    def handle_AUTHENTICATION_REQUEST(self, data: bytes, context: Any) -> None:  # noqa: ARG002, N802
        """Answer a request for the password, as far as the password stays safe."""
        (code,) = _INT.unpack_from(data)
        password = self._password
        try:
            match code:
                case 0:  # success
                    self._require_proof()
                case 3:  # cleartext
                    self._require_encrypted(password)
                    self._answer(password.encode() + b"\0")
                case 5:  # MD5
                    if len(data) != 8:
                        raise DecodeError(
                            f"{self._doing} failed: the server's challenge is malformed", code="TR-3108"
                        )
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
                        f"{self._doing} failed: the server requests an unsupported authentication method",
                        f"method {code} of the protocol",
                        "configure scram-sha-256 for this user in pg_hba.conf",
                        code="TR-3104",
                    )
        except scramp.ScramException as error:
            raise DecodeError(f"{self._doing} failed: SCRAM failed", str(error), code="TR-3108") from error

    def _begin_scram(self, data: bytes, password: str) -> None:
        if self._scram is not None:
            raise DecodeError(f"{self._doing} failed: the server starts SCRAM twice", code="TR-3108")
        mechanisms = [m.decode("ascii") for m in data[4:].split(b"\0") if m]
        binding = ("tls-server-end-point", self._tls) if isinstance(self._tls, ssl.SSLSocket) else None
        self._scram = scramp.ScramClient(mechanisms, self._options.user, password, channel_binding=binding)
        first = self._scram.get_client_first().encode()
        self._answer(self._scram.mechanism_name.encode() + b"\0" + _INT.pack(len(first)) + first)

    def _require_proof(self) -> None:
        if self._scram is not None and not self._is_proved:
            raise SourceError(
                f"{self._doing} failed: the server did not prove that it knows the password",
                "it ended SCRAM without its own signature: it is hostile, or there is a man in the middle",
                "find out what answers there; tlsMode verify-identity with tlsCa excludes a man in the"
                " middle",
                code="TR-3106",
            )

    def _require_encrypted(self, password: str) -> None:
        encrypted = isinstance(self._tls, ssl.SSLSocket)
        if password and not encrypted and not self._options.allow_cleartext_password:
            raise SourceError(
                f"{self._doing} failed: the server requests the password in clear text, over a connection"
                " without TLS",
                "authentication method `password`; the password was not sent",
                "use TLS: give the server a certificate (ssl = on) and set tlsMode to required or, safer,"
                " verify-ca; or request scram-sha-256 in pg_hba.conf; or set allowCleartextPassword to true",
                code="TR-3103",
            )

    def _answer(self, data: bytes) -> None:
        self.messages.write(_HEAD.pack(b"p", len(data) + 4) + data)
        self.messages.flush()


def no_server(doing: str, found: str) -> SourceError:
    """The error for a program that is not PostgreSQL."""
    return SourceError(
        f"{doing} failed: there is no PostgreSQL server at this address",
        found,
        "check host and port",
        code="TR-3005",
    )


def _md5(password: str, user: str, challenge: bytes) -> bytes:
    inner = md5(password.encode() + user.encode()).hexdigest()  # noqa: S324 - the protocol's
    return b"md5" + md5(inner.encode() + challenge).hexdigest().encode()  # noqa: S324

"""PyMySQL with limits: the only module that uses its private members.

PyMySQL trusts the server: it reads whatever length is announced, waits anew for each byte, and sends any file
and the password in any form that the server requests. `BoundedConnection` replaces the functions that read
bytes and packets (`_read_bytes` below `_read_packet`), which all of PyMySQL uses, and the answers to requests
for the password (`login`). So:

* a log-in and an answer each have one deadline, and a limit on memory (`sources.bounds`);
* requests for a local file are refused, except for the stream that `offering` names;
* what PyMySQL raises for malformed packets (IndexError, struct.error, ...) becomes a DecodeError.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.charset import charset_by_name
from pymysql.connections import MAX_PACKET_LEN, Connection, _lenenc_int
from pymysql.constants import CLIENT, CR
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, DecodeError, SourceError, TailraceError
from tailrace.sources import network
from tailrace.sources.bounds import LOGIN_BYTES, LOGIN_PACKET, ROW_COST, VALUE_COST, Deadline
from tailrace.sources.mysql.protocol.login import METHODS, first_answer
from tailrace.sources.route import connected
from tailrace.sources.tokens import login_secret

_RECEIVE_BYTES = 64 << 10
_utf8: Any = charset_by_name("utf8mb4")
_LOCAL_INFILE = 0xFB
_PROTOCOL = 10


#: PyMySQL's stubs omit most of what is used here.
_Connection: Any = Connection


class BoundedConnection(_Connection):  # type: ignore[misc]
    """A connection that uses no more time and memory than `options` allow, whatever the server does.

    Args:
        options: server, user, TLS, rules for the password, limits.
        doing: what is being done, for errors.
        set_up: sends the statements that are part of every log-in.
        loads: whether LOAD DATA LOCAL may be used, by `offering`.
        given: further arguments of PyMySQL.

    Raises:
        ConfigError: a TLS file cannot be read.
    """

    _sock: Any
    _next_seq_id: int

    def __init__(
        self,
        options: SourceOptions,
        doing: str,
        set_up: Callable[[BoundedConnection], None],
        *,
        loads: bool = False,
        **given: Any,
    ) -> None:
        if "\0" in options.user:
            raise ConfigError("the user's name holds a NUL character", code="TR-1103")
        self.options = options
        self.doing = doing
        self._whole: Deadline | None = None
        self._set_up = set_up
        self._logged_in = False
        self._offered: bytes | None = None
        self._ahead = bytearray()
        self._deadline = Deadline(options.connect_timeout_ms / 1000)
        self._room = self._columns = 0
        self._is_first = False
        # certificates that MySQL generates itself are not strict X.509
        self._context = network.tls_context(options.tls, strict_x509=False)
        super().__init__(
            host=options.host,
            port=options.port,
            user=options.user,
            charset="utf8mb4",
            autocommit=True,
            program_name="tailrace",
            ssl_disabled=True,  # `_request_authentication` starts it
            client_flag=CLIENT.LOCAL_FILES if loads else 0,
            defer_connect=True,
            **given,
        )

    # ---- public ----

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection runs over TLS."""
        return isinstance(self._sock, ssl.SSLSocket)

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used."""
        return bool(self.open)

    @property
    def socket(self) -> Any:
        """The socket, None when the connection is closed."""
        return self._sock

    def limit_whole(self, seconds: float) -> None:
        """Limit the time of all further answers together."""
        self._whole = Deadline(seconds)

    def command(self, number: int, data: bytes) -> None:
        """Send a command."""
        self._execute_command(number, data)

    def next_packet(self) -> Any:
        """The next packet of an answer. Raises the server's error."""
        return self._read_packet()

    def read_ok(self) -> None:
        """Read an answer that only reports success. Raises the server's error."""
        self._read_ok_packet()

    def exchange(self, data: bytes) -> Any:
        """Send a packet of the log-in; returns the server's answer."""
        self.write_packet(data)
        return self._read_packet()

    def break_off(self) -> None:
        """Close the connection at once, even while the server is sending."""
        self._force_close()

    def asked_for_file(self, payload: bytes) -> SourceError:
        """The error for a request for a file, `payload`, where none was offered."""
        return SourceError(
            f"the server at `{self.options.host}:{self.options.port}` asked for a file of this machine,"
            " which was not sent",
            f"a request of LOAD DATA LOCAL for {ascii(payload[1:200])[1:]}, where none was offered: the"
            " server is hostile, or there is a man in the middle",
            "find out what answers there; tlsMode verify-identity with tlsCa excludes a man in the middle",
            code="TR-3010",
        )

    @contextmanager
    def offering(self, name: bytes) -> Iterator[None]:
        """Allow the server to request the local file `name`, which the caller then sends."""
        self._offered = name
        try:
            yield
        finally:
            self._offered = None

    # ---- log-in ----

    def connect(self, sock: Any = None) -> None:  # noqa: ARG002 - PyMySQL's signature
        """Connect, log in and set the session up; also again.

        Raises PyMySQL's errors and ours.
        """
        # now: a token of a cloud is valid for some minutes; bytes: PyMySQL would encode a text as latin1
        self.password = login_secret(self.options, self.doing).encode()
        self._deadline = Deadline(self.options.connect_timeout_ms / 1000, self._whole)
        self._room = LOGIN_BYTES
        self._logged_in = False
        self._auth_plugin_name, self.salt = "", b""
        self._ahead.clear()
        with self._understood("the log-in"):
            with connected(self.options, self._deadline, self.doing) as connected_socket:
                super().connect(connected_socket)
                try:
                    network.keep_alive(self._sock)
                    self._set_up(self)
                except BaseException:
                    self._force_close()
                    raise
            self._logged_in = True

    def _get_server_information(self) -> None:
        super()._get_server_information()
        if self.protocol_version != _PROTOCOL:
            raise self._no_server(f"its greeting has version {self.protocol_version}")

    def _request_authentication(self) -> None:
        """Start TLS and log in. Replaces PyMySQL's, which sends the password on any request."""
        offers_tls = bool(self.server_capabilities & CLIENT.SSL)
        if self._context is not None and not offers_tls and self.options.tls.mode != "preferred":
            raise pymysql.err.OperationalError(CR.CR_SSL_CONNECTION_ERROR, "TLS is not supported")
        # without TLS, `login`'s rules apply; a failure of TLS is an error
        context = self._context if offers_tls else None
        flags = self.client_flag | (CLIENT.SSL if context else 0)
        head = struct.pack("<IIB23x", flags, MAX_PACKET_LEN, _utf8.id)
        if context is not None:
            if self._ahead:  # they would pass for bytes received over TLS
                raise self._no_server("bytes before the start of TLS")
            self.write_packet(head)
            self._sock = network.begin_tls(self._sock, context, self.options.host, self.doing)
        method = self._auth_plugin_name
        answer = first_answer(self, method)
        data = head + self.options.user.encode() + b"\0" + _lenenc_int(len(answer)) + answer
        if self.server_capabilities & CLIENT.PLUGIN_AUTH:
            data += (method if method in METHODS else "").encode() + b"\0"
        if self.server_capabilities & CLIENT.CONNECT_ATTRS:
            texts = [text.encode() for pair in self._connect_attrs.items() for text in pair]
            attributes = b"".join(_lenenc_int(len(text)) + text for text in texts)
            data += _lenenc_int(len(attributes)) + attributes
        packet, switched = self.exchange(data), False
        while not packet.is_ok_packet():
            if packet.is_auth_switch_request() and not switched:
                packet.read_uint8()
                method, switched = (packet.read_string() or b"mysql_old_password").decode("ascii"), True
                if method not in METHODS:
                    raise pymysql.err.OperationalError(
                        CR.CR_AUTH_PLUGIN_CANNOT_LOAD, f"the method {method!a} is not supported"
                    )
            elif not packet.is_extra_auth_data() or method not in METHODS:
                raise DecodeError(
                    f"{self.doing} failed: the server violates the protocol of the log-in", code="TR-3108"
                )
            packet = METHODS[method](self).authenticate(packet)

    def _no_server(self, found: str) -> SourceError:
        self._force_close()
        return SourceError(
            f"{self.doing} failed: there is no MySQL or MariaDB server at this address",
            found,
            "check host and port",
            code="TR-3005",
        )

    # ---- statements ----

    def _execute_command(self, command: int, sql: Any) -> None:
        if self._logged_in:
            self._deadline = Deadline(self.options.query_timeout_ms / 1000, self._whole)
            self._room = self.options.max_answer_bytes
        self._columns = 0
        super()._execute_command(command, sql)
        self._is_first = True

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        self._is_first, self._columns = True, 0
        with self._understood("the answer to a statement"):
            return super()._read_query_result(unbuffered)

    def _read_ok_packet(self) -> Any:
        with self._understood("the answer to a command"):
            return super()._read_ok_packet()

    # ---- packets ----

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> Any:
        is_first, self._is_first = self._is_first, False
        payload = self._payload()
        with self._understood(f"packet {self._next_seq_id - 1 & 255}, of {len(payload)} bytes"):
            packet = packet_type(payload, self.encoding)
            if packet.is_error_packet():
                packet.raise_for_error()
        if packet_type is FieldDescriptorPacket:
            self._columns += 1
        if is_first and payload[0] == _LOCAL_INFILE and payload[1:] != self._offered:
            self._force_close()
            raise self.asked_for_file(payload)
        return packet

    def _payload(self) -> bytes:
        """The payload of the next packet, its parts joined."""
        parts = []
        while True:
            header = self._read_bytes(4)
            size, number = int.from_bytes(header[:3], "little"), header[3]
            if not self._logged_in and size > LOGIN_PACKET:
                raise self._no_server(f"a packet of {size} bytes in the log-in")
            if number != self._next_seq_id:
                if number == 0 and self._logged_in:  # from a MariaDB server that shuts down
                    self._force_close()
                    raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "Lost connection to MySQL server")
                if not self._logged_in:
                    raise self._no_server(f"a packet with number {number}, expected {self._next_seq_id}")
                self._force_close()
                raise DecodeError(
                    "the server's packets are out of sequence",
                    f"found {number}, expected {self._next_seq_id}",
                    code="TR-3017",
                )
            self._next_seq_id = (number + 1) & 255
            self._take_room(size + ROW_COST + VALUE_COST * self._columns)
            parts.append(self._read_bytes(size))
            if size < MAX_PACKET_LEN:
                break
        payload = b"".join(parts)
        if not payload:
            self._force_close()
            raise DecodeError(
                "the server sent an empty packet", f"number {self._next_seq_id - 1 & 255}", code="TR-3017"
            )
        return payload

    def _take_room(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            if not self._logged_in:
                raise self._no_server(f"more than {LOGIN_BYTES} bytes in the log-in")
            self._force_close()
            raise SourceError(
                "the server's answer to a query is too large",
                f"it takes more than {self.options.max_answer_bytes} bytes of memory",
                "if you trust the server, increase maxAnswerBytes",
                code="TR-3009",
            )

    def _read_bytes(self, num_bytes: int) -> bytes:
        ahead = self._ahead
        while len(ahead) < num_bytes:
            if self._sock is None:
                raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "the connection is closed")
            try:
                self._sock.settimeout(self._deadline.left())
                piece = self._sock.recv(max(_RECEIVE_BYTES, min(num_bytes - len(ahead), 1 << 20)))
            except OSError as error:
                self._force_close()
                raise self._lost(error) from error
            if not piece:
                self._force_close()
                raise pymysql.err.OperationalError(
                    CR.CR_SERVER_LOST, "the server closed the connection during an answer"
                )
            ahead += piece
        data = bytes(ahead[:num_bytes])
        del ahead[:num_bytes]
        return data

    def _write_bytes(self, data: Any) -> None:
        if self._sock is None:
            raise pymysql.err.InterfaceError(0, "")  # PyMySQL's error for a closed connection
        try:
            self._sock.settimeout(self._deadline.left())
            self._sock.sendall(data)
        except OSError as error:
            self._force_close()
            raise self._lost(error) from error

    def _lost(self, error: OSError) -> pymysql.err.OperationalError:
        failure = pymysql.err.OperationalError(CR.CR_SERVER_LOST, f"lost connection ({error})")
        if isinstance(error, TimeoutError):  # as PyMySQL does where it cannot connect
            failure.original_exception = TimeoutError(self._late())  # type: ignore[attr-defined]
        return failure

    def _late(self) -> str:
        what = "the answer" if self._logged_in else "the log-in"
        return f"{what} was not complete within {self._deadline.seconds:g} s"

    def _subject(self, what: str) -> str:
        return f"{what} of the server" if self._logged_in else f"{self.doing} failed: {what}"

    @contextmanager
    def _understood(self, what: str) -> Iterator[None]:
        """Turn errors about malformed packets into a DecodeError."""
        try:
            yield
        except (pymysql.err.MySQLError, OSError, TailraceError) as error:
            broken = isinstance(error, pymysql.err.MySQLError) and not (
                error.args and isinstance(error.args[0], int)
            )
            if broken:  # PyMySQL's error for anything unexpected
                self._force_close()
                raise DecodeError(
                    f"{self._subject(what)} violates the protocol", str(error), code="TR-3017"
                ) from error
            raise
        except Exception as error:
            self._force_close()
            raise DecodeError(
                f"{self._subject(what)} is malformed",
                f"{type(error).__name__} while reading it",
                code="TR-3017",
            ) from error

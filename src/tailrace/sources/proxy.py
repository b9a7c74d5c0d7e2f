"""Connections through a proxy: SOCKS5, and HTTP with CONNECT.

The proxy resolves the database's name. Nothing beyond the proxy's own answer is read from the socket, since
a MySQL server speaks first.

Source: RFC 1928 (SOCKS5), RFC 1929 (its user and password), RFC 9110 section 9.3.6 (CONNECT).
"""

from __future__ import annotations

import base64
import ipaddress
import re
import socket
import struct

from tailrace.config.options import RouteOptions
from tailrace.errors import ConfigError, SourceError, TransientSourceError
from tailrace.sources.bounds import Deadline
from tailrace.sources.network import open_socket

_VERSION, _CONNECT = 5, 1
_NO_LOGIN, _BY_PASSWORD, _NONE_OF_THEM = 0, 2, 255
_IPV4, _NAME, _IPV6 = 1, 3, 4
#: Answers of a SOCKS5 proxy to a request.
_ANSWERS = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
    7: "command not supported",
    8: "type of address not supported",
}
#: Those that another try does not change.
_DEFINITE = frozenset({2, 7, 8})
#: Most bytes of a proxy's answer by HTTP.
_MOST_HEAD = 8 << 10
_LONGEST_FIELD = 255


def open_through(route: RouteOptions, host: str, port: int, deadline: Deadline, doing: str) -> socket.socket:
    """A socket that the proxy has connected to a server.

    Args:
        route: the proxy, its user and password.
        host: the server's; the proxy resolves it.
        port: its port.
        deadline: of the log-in to the server.
        doing: what is being done, for errors.

    Raises:
        OSError: the proxy cannot be reached, or the time is over.
        SourceError: it refuses the user or the server, or is no such proxy.
        TransientSourceError: it does not reach the server, or closed the connection.
        ConfigError: its password cannot be read, or is longer than the protocol allows.
    """
    assert route.proxy is not None
    user = route.proxy_user or ""
    login = (user, route.proxy_password.resolve("the proxy's password")) if user else None
    talk = _socks if route.proxy.kind == "socks5" else _http
    sock = open_socket(route.proxy.host, route.proxy.port, deadline)
    try:
        talk(_Line(sock, deadline, doing), host, port, login)
    except BaseException:
        sock.close()
        raise
    return sock


class _Line:
    """The connection to the proxy while it is the proxy that answers."""

    def __init__(self, sock: socket.socket, deadline: Deadline, doing: str) -> None:
        self._sock, self._deadline, self.doing = sock, deadline, doing

    def send(self, data: bytes) -> None:
        self._sock.settimeout(self._deadline.left())
        self._sock.sendall(data)

    def receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._sock.settimeout(self._deadline.left())
            piece = self._sock.recv(size - len(data))
            if not piece:
                raise TransientSourceError(
                    f"{self.doing} failed: the proxy closed the connection",
                    "before it answered",
                    "check the proxy's address and its log",
                    code="TR-3043",
                )
            data += piece
        return bytes(data)

    def no_proxy(self, found: str) -> SourceError:
        return SourceError(
            f"{self.doing} failed: there is no such proxy at the address of `proxy`",
            found,
            "check its kind (socks5, http), host and port",
            code="TR-3042",
        )

    def refused_user(self, found: str) -> SourceError:
        return SourceError(
            f"{self.doing} failed: the proxy refuses the user",
            found,
            "set proxyUser and proxyPassword to those that the proxy knows",
            code="TR-3040",
        )

    def refused(self, found: str, *, definite: bool) -> SourceError:
        if definite:
            return SourceError(
                f"{self.doing} failed: the proxy refuses this server",
                found,
                "allow the server's host and port in the proxy's rules",
                code="TR-3041",
            )
        return TransientSourceError(
            f"{self.doing} failed: the proxy does not reach the server",
            found,
            "check that the server listens at this host and port as seen from the proxy",
            code="TR-3043",
        )


def _socks(line: _Line, host: str, port: int, login: tuple[str, str] | None) -> None:
    methods = bytes([_NO_LOGIN] if login is None else [_NO_LOGIN, _BY_PASSWORD])
    line.send(bytes([_VERSION, len(methods)]) + methods)
    version, method = line.receive(2)
    if version != _VERSION:
        raise line.no_proxy(f"its answer has version {version} of SOCKS")
    if method == _NONE_OF_THEM or method not in methods:
        raise line.refused_user(
            "it requires a log-in" if login is None else "it accepts no log-in by user and password"
        )
    if method == _BY_PASSWORD:
        assert login is not None
        line.send(b"\x01" + b"".join(_field(text) for text in login))
        if line.receive(2)[1] != 0:
            raise line.refused_user(f"user `{login[0]}`")
    line.send(bytes([_VERSION, _CONNECT, 0]) + _address(host) + struct.pack("!H", port))
    version, answer, _, kind = line.receive(4)
    if version != _VERSION:
        raise line.no_proxy(f"its answer has version {version} of SOCKS")
    if answer != 0:
        text = _ANSWERS.get(answer, "an unknown answer")
        raise line.refused(f"SOCKS answer {answer}: {text}", definite=answer in _DEFINITE)
    if kind not in (_IPV4, _NAME, _IPV6):
        raise line.no_proxy(f"its answer has an address of kind {kind}")
    size = {_IPV4: 4, _IPV6: 16}.get(kind) or line.receive(1)[0]
    line.receive(size + 2)


def _address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bytes([_NAME]) + _field(host)
    return bytes([_IPV4 if address.version == 4 else _IPV6]) + address.packed


def _field(text: str) -> bytes:
    data = text.encode()
    if len(data) > _LONGEST_FIELD:
        raise ConfigError(
            "a SOCKS5 proxy cannot be told the host, the user or the password",
            f"one of them has more than {_LONGEST_FIELD} bytes",
            code="TR-1010",
        )
    return bytes([len(data)]) + data


def _http(line: _Line, host: str, port: int, login: tuple[str, str] | None) -> None:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
    if login is not None:
        head += f"Proxy-Authorization: Basic {base64.b64encode(':'.join(login).encode()).decode()}\r\n"
    line.send(f"{head}\r\n".encode())
    answer = bytearray()
    while not answer.endswith(b"\r\n\r\n"):
        answer += line.receive(1)
        if len(answer) > _MOST_HEAD or not b"HTTP/1.".startswith(answer[:7]):
            raise line.no_proxy(f"its answer begins with {bytes(answer[:20])!r}")
    match = re.match(rb"HTTP/1\.[01] (\d{3})\b ?([^\r\n]*)", answer)
    if match is None:
        raise line.no_proxy(f"its answer begins with {bytes(answer[:20])!r}")
    status, said = int(match[1]), match[2].decode("latin1")[:100]
    if status == 407:
        raise line.refused_user(f"HTTP status {status}")
    if status // 100 != 2:
        raise line.refused(f"HTTP status {status} {said}", definite=status // 100 != 5)

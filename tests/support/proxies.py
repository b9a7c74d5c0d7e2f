"""Small real proxies on the loopback interface: SOCKS5, and HTTP with CONNECT."""

from __future__ import annotations

import base64
import select
import socket
import struct
from contextlib import suppress

from tests.support.listener import Line, Listener

USER, PASSWORD = "walker", "the-word-of-the-proxy"


class Targets:
    """What a proxy was asked for: host and port of each request, as they were named."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []


def socks5(*, login: bool = False, aliases: dict[str, str] | None = None) -> tuple[Listener, Targets]:
    """A SOCKS5 proxy.

    Args:
        login: whether it requires USER and PASSWORD.
        aliases: names that only it can resolve.
    """
    targets = Targets()

    def script(line: Line) -> None:
        _, count = line.receive(2)
        methods = line.receive(count)
        wanted = 2 if login else 0
        if wanted not in methods:
            line.send(b"\x05\xff")
            return
        line.send(bytes([5, wanted]))
        if login:
            line.receive(1)
            found = [line.receive(line.receive(1)[0]).decode() for _ in range(2)]
            line.send(b"\x01\x00" if found == [USER, PASSWORD] else b"\x01\x01")
            if found != [USER, PASSWORD]:
                return
        _, _, _, kind = line.receive(4)
        if kind == 1:
            host = socket.inet_ntop(socket.AF_INET, line.receive(4))
        elif kind == 4:
            host = socket.inet_ntop(socket.AF_INET6, line.receive(16))
        else:
            host = line.receive(line.receive(1)[0]).decode()
        (port,) = struct.unpack("!H", line.receive(2))
        targets.asked.append((host, port))
        try:
            server = socket.create_connection(((aliases or {}).get(host, host), port), 5)
        except OSError:
            line.send(b"\x05\x05\x00\x01" + bytes(6))
            return
        # its own address as a name, of a length that is not that of IPv4
        line.send(b"\x05\x00\x00\x03\x05proxy" + struct.pack("!H", 1))
        _pump(line, server)

    return Listener(script), targets


def http(*, login: bool = False, aliases: dict[str, str] | None = None) -> tuple[Listener, Targets]:
    """An HTTP proxy; see `socks5`."""
    targets = Targets()
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    def script(line: Line) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += line.receive(1)
        request, *fields = head.decode().split("\r\n")
        method, target, _ = request.split()
        assert method == "CONNECT"
        values = dict(field.split(": ", 1) for field in fields if field)
        assert values["Host"] == target
        if login and values.get("Proxy-Authorization") != expected:
            line.send(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n")
            return
        host, _, port = target.rpartition(":")
        targets.asked.append((host.strip("[]"), int(port)))
        try:
            server = socket.create_connection(((aliases or {}).get(host, host), int(port)), 5)
        except OSError:
            line.send(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return
        line.send(b"HTTP/1.1 200 Connection established\r\nX-Proxy: small\r\n\r\n")
        _pump(line, server)

    return Listener(script), targets


def _pump(line: Line, server: socket.socket) -> None:
    """Pass bytes on in both directions until one side closes."""
    line.sock.settimeout(None)
    server.settimeout(None)
    other = {line.sock: server, server: line.sock}
    with server, suppress(OSError):
        while not line.stopping.is_set():
            for sock in select.select(list(other), [], [], 0.1)[0]:
                if not (piece := sock.recv(65536)):
                    return
                other[sock].sendall(piece)

"""A MySQL server that does what a test wants, at any step of the protocol."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.support.listener import Line, Listener

SALT = b"abcdefghijklmnopqrst"
OK = b"\x00\x00\x00\x02\x00\x00\x00"
END = b"\xfe\x00\x00\x02\x00"
#: Capabilities of a server without TLS, and the one of TLS.
PLAIN, TLS = 0xFFFFFFFF & ~0x800, 0x800
ASKS_FOR_FILE = b"\xfb/etc/passwd"


class MySqlLine(Line):
    """A connection that reads and writes packets."""

    number = 0

    def packet(self, payload: bytes) -> None:
        self.send(framed(payload, self.number))
        self.number = (self.number + 1) & 255

    def next(self) -> bytes:
        """The payload of the client's next packet."""
        head = self.receive(4)
        self.number = (head[3] + 1) & 255
        return self.receive(int.from_bytes(head[:3], "little"))

    def log_in(self, plugin: str = "mysql_native_password", version: str = "8.4.0") -> bytes:
        """Greet and accept the client; returns its answer to the greeting."""
        self.packet(greeting(plugin=plugin, version=version))
        answer = self.next()
        self.packet(OK)
        return answer

    def serve(self, answer: Callable[[str], Sequence[bytes] | None]) -> None:
        """Answer each statement with the packets that `answer` returns, or OK."""
        while True:
            command = self.next()
            if command[:1] == b"\x01":
                return
            for payload in answer(command[1:].decode("utf-8", "replace")) or [OK]:
                self.packet(payload)


def fake_mysql(script: Callable[[MySqlLine], None]) -> Listener:
    """A server that runs `script` for each connection."""
    return Listener(script, MySqlLine)  # type: ignore[arg-type]


def framed(payload: bytes, number: int) -> bytes:
    return struct.pack("<I", len(payload))[:3] + bytes([number]) + payload


def greeting(
    *,
    version: str = "8.4.0",
    salt: bytes = SALT,
    capabilities: int = PLAIN,
    plugin: str = "mysql_native_password",
    protocol: int = 10,
) -> bytes:
    return (
        bytes([protocol])
        + version.encode()
        + b"\0"
        + struct.pack("<I", 7)
        + salt[:8]
        + b"\0"
        + struct.pack("<HBHHB", capabilities & 0xFFFF, 255, 2, capabilities >> 16, len(salt) + 1)
        + bytes(10)
        + salt[8:]
        + b"\0"
        + plugin.encode()
        + b"\0"
    )


def switch(plugin: str, salt: bytes = SALT) -> bytes:
    """A request to switch the authentication method."""
    return b"\xfe" + plugin.encode() + b"\0" + salt + b"\0"


def refusal(number: int, text: str) -> bytes:
    return b"\xff" + struct.pack("<H", number) + b"#HY000" + text.encode()


def text(value: str | None) -> bytes:
    if value is None:
        return b"\xfb"
    data = value.encode()
    return (bytes([len(data)]) if len(data) < 251 else b"\xfc" + struct.pack("<H", len(data))) + data


def definition(name: str, type_: int = 253) -> bytes:
    names = b"".join(text(t) for t in ("def", "", "", "", name, name))
    return names + b"\x0c" + struct.pack("<HIBHB", 255, 1024, type_, 0, 0) + b"\0\0"


def rows_of(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> list[bytes]:
    """The packets of a result."""
    return [*head_of(names), *(b"".join(text(v) for v in row) for row in rows), END]


def head_of(names: Sequence[str]) -> Iterator[bytes]:
    """The packets before the rows of a result."""
    yield bytes([len(names)])
    yield from (definition(name) for name in names)
    yield END


def answering(attack: Callable[[MySqlLine], Any]) -> Callable[[MySqlLine], Any]:
    """A server that accepts the client, sets up its session and attacks at the first query."""

    def script(line: MySqlLine) -> None:
        line.log_in()
        while not line.next().startswith((b"\x03SHOW", b"\x03SELECT")):
            line.packet(OK)
        attack(line)

    return script

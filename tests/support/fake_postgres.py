"""A PostgreSQL server that does what a test wants, at any step of the protocol."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.listener import Line, Listener

TLS_REQUEST = 80877103


def message(kind: bytes, body: bytes = b"", length: int | None = None) -> bytes:
    """A message; `length` replaces the true one."""
    return kind + struct.pack("!i", len(body) + 4 if length is None else length) + body


def authentication(code: int, body: bytes = b"") -> bytes:
    return message(b"R", struct.pack("!i", code) + body)


def parameter(name: str, value: str) -> bytes:
    return message(b"S", f"{name}\0{value}\0".encode())


READY = message(b"Z", b"I")
#: From 17 on, connections lift the server's limit for transactions first.
WELCOME = authentication(0) + parameter("server_version", "16.1") + message(b"K", bytes(8)) + READY


def error(state: str, text: str) -> bytes:
    return message(b"E", f"SERROR\0C{state}\0M{text}\0\0".encode())


def description(*names: str, oid: int = 25) -> bytes:
    fields = b"".join(n.encode() + b"\0" + struct.pack("!ihihih", 0, 0, oid, -1, -1, 0) for n in names)
    return message(b"T", struct.pack("!h", len(names)) + fields)


def row(*values: str | None) -> bytes:
    body = struct.pack("!h", len(values))
    for value in values:
        body += (
            struct.pack("!i", -1)
            if value is None
            else struct.pack("!i", len(value.encode())) + value.encode()
        )
    return message(b"D", body)


def result(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> bytes:
    """The answer to a simple query."""
    return description(*names) + b"".join(row(*r) for r in rows) + message(b"C", b"SELECT 1\0") + READY


class PostgresLine(Line):
    """A connection that reads and writes messages."""

    def start(self) -> bytes:
        """Refuse TLS and accept the startup message."""
        body = self._startup()
        if body[:4] == struct.pack("!i", TLS_REQUEST):
            self.send(b"N")
            body = self._startup()
        return body

    def _startup(self) -> bytes:
        (length,) = struct.unpack("!i", self.receive(4))
        return self.receive(length - 4)

    def next(self) -> tuple[bytes, bytes]:
        """Type and body of the client's next message."""
        head = self.receive(5)
        return head[:1], self.receive(struct.unpack("!i", head[1:])[0] - 4)

    def serve(self, answer: Callable[[str], bytes | None]) -> None:
        """Answer simple queries by `answer`, or with an empty result; the extended protocol with no rows."""
        while True:
            kind, body = self.next()
            if kind == b"Q":
                self.send(answer(body[:-1].decode()) or message(b"C", b"SET\0") + READY)
            elif kind == b"P":
                self.send(answer(body[1:].split(b"\0")[0].decode()) or message(b"1"))
            elif kind == b"S":
                self.send(READY)
            elif kind == b"X":
                return


def fake_postgres(script: Callable[[PostgresLine], None]) -> Listener:
    """A server that runs `script` for each connection."""
    return Listener(script, PostgresLine)  # type: ignore[arg-type]


def answering(attack: Callable[[PostgresLine], Any]) -> Callable[[PostgresLine], None]:
    """A server that accepts the client and attacks at the first query."""

    def script(line: PostgresLine) -> None:
        line.start()
        line.send(WELCOME)
        line.next()
        attack(line)

    return script

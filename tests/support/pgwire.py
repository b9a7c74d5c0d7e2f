"""A connection to PostgreSQL that returns the protocol's bytes unchanged, for tests of the decoders."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping

from scramp import ScramClient

from tailrace.sources.postgres.wire.types import SESSION_SETTINGS


class WireError(Exception):
    """The server's error."""


class Wire:
    """A session as `postgres`, in Tailrace's session settings.

    Args:
        host: server.
        port: its port.
        password: of `postgres`.
        database: database.
        replication: whether it is a replication connection.
        settings: settings over SESSION_SETTINGS.
    """

    def __init__(
        self,
        host: str,
        port: int,
        password: str,
        database: str = "postgres",
        *,
        replication: bool = False,
        settings: Mapping[str, str] = {},
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout=60)
        given = {"user": "postgres", "database": database, **SESSION_SETTINGS, **settings}
        if replication:
            given["replication"] = "database"
        body = struct.pack(">I", 3 << 16)
        body += b"".join(f"{k}\0{v}\0".encode() for k, v in given.items()) + b"\0"
        self.socket.sendall(struct.pack(">I", len(body) + 4) + body)
        self._buffer = b""
        self._sign_on(password)
        self._until(b"Z")

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def rows(self, sql: str) -> list[list[str | None]]:
        """The rows of statements, as text."""
        self._send(b"Q", sql.encode() + b"\0")
        out: list[list[str | None]] = []
        for kind, body in self._until(b"Z"):
            if kind == b"D":
                row: list[str | None] = []
                at = 2
                for _ in range(struct.unpack_from(">H", body)[0]):
                    (n,) = struct.unpack_from(">i", body, at)
                    at += 4
                    row.append(None if n < 0 else body[at : at + n].decode())
                    at += max(n, 0)
                out.append(row)
        return out

    def copy(self, sql: str) -> bytes:
        """The messages after the answer to a COPY ... TO STDOUT, up to its end."""
        self._send(b"Q", sql.encode() + b"\0")
        messages = self._until(b"Z")
        return b"".join(
            kind + struct.pack(">I", len(body) + 4) + body
            for kind, body in messages
            if kind not in (b"H", b"Z")
        )

    def replicate(self, slot: str, publication: str, upto: int, **options: str) -> bytes:
        """The messages of a replication stream from the slot's start until `upto` has been sent.

        Args:
            slot: a logical slot of pgoutput.
            publication: publication's name.
            upto: LSN.
            options: of pgoutput.
        """
        given = {"proto_version": "1", "publication_names": publication, **options}
        listed = ", ".join(f"\"{k}\" '{v}'" for k, v in given.items())
        self._send(b"Q", f"START_REPLICATION SLOT {slot} LOGICAL 0/0 ({listed})\0".encode())
        out = bytearray()
        for kind, body in self._messages():
            if kind == b"E":
                raise WireError(body.decode(errors="replace"))
            if kind != b"d":
                continue
            out += kind + struct.pack(">I", len(body) + 4) + body
            if body[:1] == b"k":
                (end,) = struct.unpack_from(">Q", body, 1)
                if end >= upto:
                    return bytes(out)
                if body[17]:
                    self._status()
            elif body[:1] == b"w" and body[25:26] in (b"C", b"c", b"K", b"r", b"P", b"A"):
                self._status()
        raise WireError("the stream ended")

    def _sign_on(self, password: str) -> None:
        """SCRAM. Source: PostgreSQL manual, "SASL Authentication"."""
        self._until(b"R")
        client = ScramClient(["SCRAM-SHA-256"], "postgres", password)
        first = client.get_client_first().encode()
        self._send(b"p", b"SCRAM-SHA-256\0" + struct.pack(">I", len(first)) + first)
        client.set_server_first(self._until(b"R")[0][1][4:].decode())
        self._send(b"p", client.get_client_final().encode())
        client.set_server_final(self._until(b"R")[0][1][4:].decode())

    def _status(self) -> None:
        """Request a keepalive, confirming nothing."""
        body = b"r" + struct.pack(">QQQQB", 0, 0, 0, 0, 1)
        self._send(b"d", body)

    def _send(self, kind: bytes, body: bytes) -> None:
        self.socket.sendall(kind + struct.pack(">I", len(body) + 4) + body)

    def _messages(self) -> Iterator[tuple[bytes, bytes]]:
        while True:
            while len(self._buffer) < 5:
                self._receive()
            (n,) = struct.unpack_from(">I", self._buffer, 1)
            while len(self._buffer) < 1 + n:
                self._receive()
            message, self._buffer = self._buffer[: 1 + n], self._buffer[1 + n :]
            yield message[:1], message[5:]

    def _until(self, last: bytes) -> list[tuple[bytes, bytes]]:
        out, error = [], None
        for kind, body in self._messages():
            out.append((kind, body))
            if kind == b"E":
                error = body.decode(errors="replace")
                if self.socket.gettimeout() is None:
                    break
            if kind == last:
                break
        if error:
            raise WireError(error)
        return out

    def _receive(self) -> None:
        piece = self.socket.recv(1 << 20)
        if not piece:
            raise WireError("the connection was closed")
        self._buffer += piece

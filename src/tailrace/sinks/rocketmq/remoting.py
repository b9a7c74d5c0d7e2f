"""BrokerConnections to name servers and brokers: several requests at once, TLS, signatures, time limits.

The official Python client is not used: it speaks gRPC to a proxy, sends message by message, cannot choose a
queue and cannot read a queue back from its end.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, SinkError, TransientSinkError
from tailrace.sinks.rocketmq.failure import unavailable, untrusted
from tailrace.sinks.rocketmq.frames import MOST_BYTES, Reply, Signer, answer, request

#: Time limit for connecting, and for each answer.
TIMEOUT_S = 15.0


@dataclass(frozen=True)
class Access:
    """How to reach name servers and brokers; copied to tasks.

    Args:
        name_servers: `host:port` each.
        access_key: the name of a key; None: requests are not signed.
        secret_key: the key's secret.
        tls: whether connections are encrypted.
        tls_ca: authorities that sign the servers' certificates, a PEM file; None: the system's.
    """

    name_servers: Sequence[str]
    access_key: str | None = None
    secret_key: Secret | None = None
    tls: bool = False
    tls_ca: str | None = None

    @property
    def signer(self) -> Signer | None:
        """Signs requests.

        Raises:
            ConfigError: the secret cannot be resolved.
        """
        if self.access_key is None:
            return None
        return Signer(self.access_key, self.secret_key.resolve() if self.secret_key is not None else "")

    def context(self) -> ssl.SSLContext | None:
        """The TLS context; None without TLS.

        Raises:
            ConfigError: the certificates cannot be read.
        """
        if not self.tls:
            return None
        try:
            return ssl.create_default_context(cafile=self.tls_ca)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(
                "the certificates for RocketMQ cannot be read", str(error), code="TR-1102"
            ) from error


@dataclass(frozen=True)
class Call:
    """A request.

    Args:
        code: its code.
        fields: its fields.
        body: its body.
    """

    code: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class BrokerConnection:
    """A connection to one server.

    Args:
        access: how to reach it.
        address: its `host:port`.

    Raises:
        TransientSinkError: it does not answer.
        SinkError: its certificate is not trusted.
    """

    def __init__(self, access: Access, address: str) -> None:
        self.address = address
        self._signer = access.signer
        self._opaque = 0
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        try:
            raw = socket.create_connection((host, int(port)), TIMEOUT_S)
        except OSError as error:
            raise unavailable(address, str(error)) from error
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = access.context()
        try:
            self._socket = raw if context is None else context.wrap_socket(raw, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raw.close()
            raise untrusted(address, error.verify_message) from error
        except OSError as error:
            raw.close()
            raise unavailable(address, f"no TLS connection: {error}") from error

    def ask(self, one: Call) -> Reply:
        """Send a request; its answer.

        Raises:
            TransientSinkError: there is none.
        """
        return self.ask_all([one])[0]

    def ask_all(self, requests: Sequence[Call]) -> list[Reply]:
        """Send requests at once; their answers. The server may obey them in any order.

        Raises:
            TransientSinkError: one has no answer.
        """
        numbers = range(self._opaque, self._opaque + len(requests))
        self._opaque += len(requests)
        found: dict[int, Reply] = {}
        try:
            for number, one in zip(numbers, requests, strict=True):
                self._socket.sendall(request(one.code, number, one.fields, one.body, self._signer))
            while len(found) < len(requests):
                number, received = answer(self._frame())
                if number in numbers:  # else a request of the server's own
                    found[number] = received
        except (OSError, ValueError) as error:
            self.close()
            raise unavailable(self.address, str(error) or type(error).__name__) from error
        return [found[number] for number in numbers]

    def _frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._read(4))
        if not 0 < length <= MOST_BYTES:
            raise ValueError(f"a frame of {length} bytes: this is no RocketMQ server")
        return self._read(length)

    def _read(self, size: int) -> bytes:
        buffer = bytearray(size)
        view, at = memoryview(buffer), 0
        while at < size:
            count = self._socket.recv_into(view[at:])
            if not count:
                raise ConnectionError("the server closed the connection")
            at += count
        return bytes(buffer)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class BrokerConnections:
    """BrokerConnections to servers, opened when they are needed.

    Args:
        access: how to reach them.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self._open: dict[str, BrokerConnection] = {}

    def to(self, address: str) -> BrokerConnection:
        """The connection to a server; see BrokerConnection."""
        if address not in self._open:
            self._open[address] = BrokerConnection(self.access, address)
        return self._open[address]

    def name_server(self, one: Call) -> Reply:
        """Ask the first name server that answers.

        Raises:
            TransientSinkError: none does.
        """
        last: SinkError | None = None
        for address in self.access.name_servers:
            try:
                return self.to(address).ask(one)
            except TransientSinkError as error:
                self._open.pop(address, None)
                last = error
        assert last is not None
        raise last

    def close(self) -> None:
        """Close all."""
        for connection in self._open.values():
            connection.close()
        self._open = {}

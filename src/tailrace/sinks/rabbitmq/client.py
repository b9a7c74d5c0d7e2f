"""Connections to RabbitMQ, for code that is not asynchronous; its errors as those of the sink (`failure`)."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

import pika
from pika import exceptions
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from tailrace.config.rabbitmq import RabbitMqSettings
from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, SinkError
from tailrace.sinks.rabbitmq.failure import cause, failure

#: Time limits, seconds: for connecting to one address; for an answer; for the end of a connection; for a
#: server that blocks whoever publishes.
_CONNECT_S, _ANSWER_S, _CLOSE_S, _BLOCKED_S = 15, 60, 5, 20
#: A connection lasts as long as a batch; a task may be busy with other things for some time.
_HEARTBEAT_S = 300
_R = TypeVar("_R")

# It logs each failure, with its traceback, before it is ours to tell.
logging.getLogger("pika").setLevel(logging.CRITICAL + 1)


@dataclass(frozen=True)
class RabbitMqAccess:
    """How to reach the servers; copied to tasks.

    Args:
        addresses: scheme, host and port of each.
        vhost: the virtual host.
        user: the user, None for the default one.
        password: the user's.
        tls_ca: authorities that sign their certificates, a PEM file; None: the system's.
    """

    addresses: Sequence[tuple[str, str, int]]
    vhost: str
    user: str | None
    password: Secret | None
    tls_ca: str | None

    @classmethod
    def of(cls, settings: RabbitMqSettings) -> RabbitMqAccess:
        """The access of a sink's settings.

        Raises:
            ConfigError: the password's variable or file does not exist.
        """
        password = None if settings.password is None else settings.password.resolved()
        return cls(settings.addresses, settings.vhost, settings.user, password, settings.tls_ca)

    def parameters(self) -> list[pika.ConnectionParameters]:
        """The client's parameters of each server.

        Raises:
            ConfigError: the certificates cannot be read.
        """
        given: dict[str, Any] = {}
        if self.user is not None and self.password is not None:
            given["credentials"] = pika.PlainCredentials(self.user, self.password.resolve())
        found = []
        for scheme, host, port in self.addresses:
            if scheme == "amqps":
                given["ssl_options"] = pika.SSLOptions(self._context(), host)
            found.append(
                pika.ConnectionParameters(
                    host,
                    port,
                    self.vhost,
                    connection_attempts=1,
                    socket_timeout=_CONNECT_S,
                    stack_timeout=_CONNECT_S,
                    heartbeat=_HEARTBEAT_S,
                    blocked_connection_timeout=_BLOCKED_S,
                    client_properties={"connection_name": "tailrace"},
                    **given,
                )
            )
        return found

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.tls_ca)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(
                "the certificates for RabbitMQ cannot be read", str(error), code="TR-1102"
            ) from error


class RabbitMqConnection:
    """A connection with one channel, and a loop of its own.

    Args:
        access: how to reach the servers.

    Raises:
        TransientSinkError: none of them answers.
        SinkError: they refuse the client.
    """

    def __init__(self, access: RabbitMqAccess) -> None:
        parameters = access.parameters()
        self._loop = asyncio.new_event_loop()
        #: What waits for an answer of the server.
        self._waiting: set[asyncio.Future[Any]] = set()
        self._closed: BaseException | None = None
        self._blocked = ""
        self._connection: Any = None
        self._channel: Any = None
        try:
            self.run(self._connect(parameters), _CONNECT_S * (len(parameters) + 1))
        except BaseException:
            self._loop.close()
            raise

    def run(self, work: Coroutine[Any, Any, _R], limit_s: float = _ANSWER_S) -> _R:
        """Run a coroutine to its end.

        Raises:
            TransientSinkError: the servers do not answer.
            SinkError: they refuse it.
        """
        try:
            return self._loop.run_until_complete(asyncio.wait_for(work, limit_s))
        except (exceptions.AMQPError, AMQPConnectorException, OSError, TimeoutError) as error:
            raise failure(cause(self._closed or error), self._blocked) from error

    async def channel(self) -> Any:
        """The channel; a new one after one that the server has closed."""
        if self._channel is None or not self._channel.is_open:
            opened = self.answer()
            self._connection.channel(on_open_callback=partial(settle, opened))
            self._channel = await opened
            self._channel.add_on_close_callback(self._on_closed)
        return self._channel

    def answer(self) -> asyncio.Future[Any]:
        """What will be the server's answer, or the reason why there is none."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.add(future)
        future.add_done_callback(self._answered)
        return future

    async def ask(self, method: Callable[..., object], *given: Any, **named: Any) -> Any:
        """Call a method of the channel, and wait for the answer."""
        answered = self.answer()
        method(*given, **named, callback=partial(settle, answered))
        return await answered

    async def has(self, kind: str, name: str) -> bool:
        """Whether there is an `exchange` or `queue` of a name."""
        channel = await self.channel()
        try:
            await self.ask(getattr(channel, f"{kind}_declare"), name, passive=True)
        except exceptions.ChannelClosedByBroker as error:
            if error.reply_code != 404:
                raise
            self._closed = None
            return False
        return True

    def close(self) -> None:
        """Close the connection."""
        if self._loop.is_closed():
            return
        try:
            if self._connection.is_open:
                with suppress(SinkError):  # all that matters has been answered
                    self.run(self._close(), _CLOSE_S)
        finally:
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _connect(self, parameters: Sequence[pika.ConnectionParameters]) -> None:
        connected = self.answer()
        AsyncioConnection.create_connection(
            parameters, on_done=partial(settle, connected), custom_ioloop=self._loop
        )
        found = await connected
        if isinstance(found, BaseException):
            raise found
        self._connection = found
        found.add_on_close_callback(self._on_closed)
        found.add_on_connection_blocked_callback(self._on_blocked)
        found.add_on_connection_unblocked_callback(self._on_unblocked)

    async def _close(self) -> None:
        closed = self._loop.create_future()
        self._connection.add_on_close_callback(lambda *_: settle(closed, None))
        self._connection.close()
        await closed

    def _answered(self, future: asyncio.Future[Any]) -> None:
        self._waiting.discard(future)
        if not future.cancelled():
            future.exception()  # nobody may have waited for it

    def _on_closed(self, _: object, error: BaseException) -> None:
        """The connection or the channel is closed: nothing will be answered."""
        self._closed = error
        for future in tuple(self._waiting):
            if not future.done():
                future.set_exception(error)

    def _on_blocked(self, _: object, frame: Any) -> None:
        self._blocked = frame.method.reason

    def _on_unblocked(self, *_: object) -> None:
        self._blocked = ""


def settle(future: asyncio.Future[Any], value: object) -> None:
    """Set a result; nothing if nobody waits for it any longer."""
    if not future.done():
        future.set_result(value)

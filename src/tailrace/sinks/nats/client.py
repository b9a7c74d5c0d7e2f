"""Connections to NATS, for code that is not asynchronous; its errors as those of the sink."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import nats
from nats import errors
from nats.js import errors as js_errors

from tailrace.config.message_sinks import NatsSettings
from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, SinkError, TransientSinkError
from tailrace.printable import shortened

#: Time limit for connecting, and for an answer.
_TIMEOUT_S = 15
_R = TypeVar("_R")


@dataclass(frozen=True)
class NatsAccess:
    """How to reach the servers; copied to tasks.

    Args:
        servers: their addresses.
        user: the user, None for none.
        password: the user's.
        token: instead of both.
        tls_ca: authorities that sign their certificates, a PEM file; None: the system's.
    """

    servers: Sequence[str]
    user: str | None
    password: Secret | None
    token: Secret | None
    tls_ca: str | None

    @classmethod
    def of(cls, settings: NatsSettings) -> NatsAccess:
        """The access of a sink's settings.

        Raises:
            ConfigError: a secret's variable or file does not exist.
        """
        password, token = (None if s is None else s.resolved() for s in (settings.password, settings.token))
        return cls(settings.addresses, settings.user, password, token, settings.tls_ca)

    def options(self) -> dict[str, Any]:
        """The arguments of `nats.connect`.

        Raises:
            ConfigError: the certificates cannot be read.
        """
        given: dict[str, Any] = {}
        if self.user is not None:
            given |= {"user": self.user, "password": "" if self.password is None else self.password.resolve()}
        if self.token is not None:
            given["token"] = self.token.resolve()
        if any(server.startswith("tls:") for server in self.servers):
            try:
                given["tls"] = ssl.create_default_context(cafile=self.tls_ca)
            except OSError as error:  # ssl.SSLError is one
                raise ConfigError(
                    "the certificates for NATS cannot be read", str(error), code="TR-1102"
                ) from error
        return given


class NatsConnection:
    """A connection, with a loop of its own.

    Args:
        access: how to reach the servers.

    Raises:
        TransientSinkError: none of them answers.
        SinkError: they refuse the client.
    """

    def __init__(self, access: NatsAccess) -> None:
        self._loop = asyncio.new_event_loop()
        self._problems: list[Exception] = []
        self._client: Any = None
        try:
            self._client = self.run(
                nats.connect(
                    list(access.servers),
                    name="tailrace",
                    connect_timeout=_TIMEOUT_S,
                    allow_reconnect=False,
                    max_reconnect_attempts=0,
                    error_cb=self._note,
                    **access.options(),
                )
            )
        except BaseException:
            self._loop.close()
            raise
        self.streams: Any = self._client.jetstream(timeout=_TIMEOUT_S)

    async def _note(self, error: Exception) -> None:
        self._problems.append(error)

    def run(self, work: Coroutine[Any, Any, _R]) -> _R:
        """Run a coroutine to its end.

        Raises:
            TransientSinkError: the servers do not answer.
            SinkError: they refuse it.
        """
        try:
            return self._loop.run_until_complete(asyncio.wait_for(work, 4 * _TIMEOUT_S))
        except (errors.Error, OSError, TimeoutError) as error:
            raise _failure(error, self._problems) from error

    def close(self) -> None:
        """Close the connection."""
        if self._loop.is_closed():
            return
        try:
            self._loop.run_until_complete(self._client.close())
        finally:
            self._loop.close()


def _failure(error: Exception, problems: Sequence[Exception]) -> SinkError:
    said = error if str(error).removeprefix("nats: ") or not problems else problems[-1]
    detail = shortened(f"{type(said).__name__}: {said}")
    text = " ".join(str(e).lower() for e in (error, *problems))
    if any(isinstance(e, ssl.SSLCertVerificationError) for e in (error, *problems)):
        return SinkError(
            "the certificate of NATS is not trusted",
            detail,
            "set `sink.tls-ca` to the certificate of its authority",
            code="TR-7834",
        )
    if "authorization violation" in text or "permissions violation" in text or "authentication" in text:
        return SinkError(
            "NATS rejects the client",
            detail,
            "check `sink.user`, `sink.password` and `sink.token`; the user publishes to the subjects of the "
            "topic prefix and to `$JS.API.STREAM.>`, and subscribes to `_INBOX.>`",
            code="TR-7832",
        )
    if isinstance(error, errors.MaxPayloadError):
        return SinkError(
            "a message is larger than NATS takes",
            detail,
            "raise the servers' `max_payload` (1 MiB by default), or leave large columns out "
            "(`column.exclude.list`)",
            code="TR-7835",
        )
    if isinstance(error, js_errors.APIError) and (error.code or 0) < 500:
        return SinkError(
            "NATS refuses a request",
            shortened(f"{error.code}: {error.description}"),
            "see what it says of the stream, and its limits",
            code="TR-7833",
        )
    return TransientSinkError(
        "NATS does not take messages",
        detail,
        "are the servers at `sink.url` up, with JetStream, and is the stream there?",
        code="TR-7831",
    )

"""Connections to Redis, and its errors as those of the sink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis
from redis import exceptions

from tailrace.config.message_sinks import RedisSettings
from tailrace.config.secret import Secret, hidden
from tailrace.errors import LeaseLostError, SinkError, StateError, TransientSinkError
from tailrace.printable import shortened
from tailrace.sinks.lease import lost
from tailrace.sinks.redis.scripts import GONE, LATER, LEASE, OWNER

#: Time limit for connecting, and for an answer.
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class RedisAccess:
    """How to reach the server; copied to tasks.

    Args:
        url: its address.
        user: the user, None for the default one.
        password: the user's.
        tls_ca: authorities that sign its certificate, a PEM file; None: the system's.
    """

    url: str
    user: str | None
    password: Secret | None
    tls_ca: str | None

    @classmethod
    def of(cls, settings: RedisSettings) -> RedisAccess:
        """The access of a sink's settings.

        Raises:
            ConfigError: the password's variable or file does not exist.
        """
        password = None if settings.password is None else settings.password.resolved()
        return cls(settings.url, settings.user, password, settings.tls_ca)

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A client, closed at the end.

        Raises:
            TransientSinkError: the server does not answer.
            SinkError: it refuses the client, or a command.
            StateError: a stream is another's.
            LeaseLostError: another owner has written a stream.
        """
        password = None if self.password is None else self.password.resolve()
        tls = {"ssl_ca_certs": self.tls_ca} if self.url.startswith("rediss:") else {}
        client = redis.Redis.from_url(
            self.url,
            username=self.user,
            password=password,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            retry=None,
            **tls,
        )
        try:
            yield client
        except exceptions.RedisError as error:
            raise _failure(error, hidden(str(error), [password] if password else [])) from error
        finally:
            client.close()


def _failure(error: exceptions.RedisError, text: str) -> SinkError | StateError | LeaseLostError:
    name, _, rest = text.partition(" ")
    detail = shortened(text)
    if name == LEASE:
        noted, lease, stream = rest.split(" ", 2)
        return lost(shortened(stream), int(noted), int(lease))
    if name == OWNER:
        return StateError(
            "what is in Redis under the topic prefix is not this stream's",
            f"a stream belongs to {'somebody else' if rest == '-' else f'stream {shortened(rest)}'}",
            "continue with that stream's checkpoint, set another `topic-prefix`, or delete the stream and "
            "the key `{<stream>}:tailrace`",
            code="TR-6101",
        )
    if name == GONE:
        return TransientSinkError(
            "a stream has been deleted while it was written",
            shortened(rest),
            "the batch is written again, and the stream created anew",
            code="TR-7814",
        )
    if name == LATER:
        return TransientSinkError(
            "another run of the pipeline writes to Redis",
            f"a stream has batch {shortened(rest)} already",
            "let only one process run a pipeline",
            code="TR-7010",
        )
    if "certificate verify failed" in text.lower():
        return SinkError(
            "the certificate of Redis is not trusted",
            detail,
            "set `sink.tls-ca` to the certificate of its authority",
            code="TR-7815",
        )
    if isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError) or name in (
        "NOAUTH",
        "WRONGPASS",
    ):
        return SinkError(
            "Redis rejects the client",
            detail,
            "check `sink.user` and `sink.password`; the user needs the commands of streams, sets, hashes and "
            "scripts on the keys that begin with the topic prefix",
            code="TR-7812",
        )
    if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError) or name in (
        "LOADING",
        "OOM",
        "READONLY",
        "MASTERDOWN",
        "NOREPLICAS",
        "MISCONF",
    ):
        return TransientSinkError(
            "Redis does not take messages",
            detail,
            "is the server at `sink.url` up, with memory left, and no replica?",
            code="TR-7811",
        )
    return SinkError(
        "Redis refuses a command",
        detail,
        "the sink needs Redis 7 or newer, one server and no cluster of several, and keys that nobody else "
        "writes",
        code="TR-7813",
    )

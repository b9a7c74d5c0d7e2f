"""The settings of the RabbitMQ sink (`config.sinks`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tailrace.config.secret import Secret, shown
from tailrace.config.sink_settings import JsonMessageSettings
from tailrace.errors import ConfigError

#: An address of a server, and the name of an exchange; those that begin with `amq.` are the server's.
_AMQP = re.compile(r"(amqps?)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(:\d{1,5})?")
_EXCHANGE = re.compile(r"(?!amq\.)[A-Za-z0-9._:-]{1,127}")


class QueueType(StrEnum):
    """What the queues are that the sink creates in RabbitMQ."""

    QUORUM = "quorum"
    CLASSIC = "classic"
    STREAM = "stream"


@dataclass(frozen=True, kw_only=True)
class RabbitMqSettings(JsonMessageSettings):
    """An exchange of RabbitMQ.

    Args:
        url: `amqp://HOST[:PORT]`, or `amqps://` for TLS; several servers of a cluster with commas.
        vhost: the virtual host.
        user: the user; default: `guest`, whom servers take over the loopback interface only.
        password: the user's.
        tls_ca: authorities that sign the servers' certificates, a PEM file; default: the system's.
        queue_type: creates a queue of this type for each target; default: queues are the consumers' own.

    Raises:
        ConfigError: an address is none or holds a user, or a value is not allowed.
    """

    type: ClassVar[str] = "rabbitmq"
    extra: ClassVar[str | None] = "rabbitmq"
    url: str
    vhost: str = "/"
    user: str | None = None
    password: Secret | None = None
    tls_ca: str | None = None
    queue_type: QueueType | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.addresses or len({address[0] for address in self.addresses}) > 1:
            raise ConfigError(
                "`sink.url` is wrong",
                "needed amqp://HOST[:PORT] or amqps://HOST[:PORT], without a user or a path; several of one "
                "kind with commas",
                "set user, password and virtual host as `user`, `password` and `vhost`",
                code="TR-1010",
            )
        if not _EXCHANGE.fullmatch(self.topic_prefix):
            raise ConfigError(
                "`sink.topic-prefix` is wrong",
                f"found {shown(self.topic_prefix)}; it names an exchange of RabbitMQ: up to 127 letters, "
                "digits, `.`, `_`, `:` and `-`, not beginning with `amq.`",
                code="TR-1010",
            )
        if (self.user is None) != (self.password is None):
            raise ConfigError(
                "`sink.user` and `sink.password` belong together",
                "found one of them",
                "set both, or none",
                code="TR-1010",
            )
        if self.tls_ca is not None and self.addresses[0][0] != "amqps":
            raise ConfigError(
                "`sink.tls-ca` has no meaning without TLS",
                "found a url that does not begin with `amqps:`",
                "url: amqps://HOST:PORT",
                code="TR-1011",
            )

    @property
    def addresses(self) -> tuple[tuple[str, str, int], ...]:
        """Each server's scheme, host and port; none where one of them is wrong."""
        found = []
        for part in self.url.split(","):
            match = _AMQP.fullmatch(part.strip().rstrip("/"))
            port = int((match[3] or ":0")[1:]) if match else 0
            if match is None or port > 65535:
                return ()
            default = 5671 if match[1] == "amqps" else 5672
            found.append((match[1], match[2].strip("[]"), port or default))
        return tuple(found)

    @property
    def address(self) -> tuple[str, int]:
        """The first server's host and port."""
        return self.addresses[0][1:]

"""The settings of sinks that write messages to systems other than Kafka (`config.sinks`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tailrace.config.secret import Secret, shown
from tailrace.config.sink_settings import JsonMessageSettings, check_positive
from tailrace.errors import ConfigError


class TopicType(StrEnum):
    """What the messages of a new topic are for RocketMQ's own clients."""

    FIFO = "fifo"
    NORMAL = "normal"


@dataclass(frozen=True, kw_only=True)
class RocketMqSettings(JsonMessageSettings):
    """Topics of a RocketMQ cluster.

    Args:
        name_servers: `host:port`, comma-separated.
        access_key: the name of the key that signs requests; default: none does.
        secret_key: the key's secret.
        tls: whether connections are encrypted.
        tls_ca: authorities that sign the servers' certificates, a PEM file; default: the system's.
        topic_type: what new topics hold for clients that consume in order: fifo, or normal.
        topic_queues: queues of a new topic on each broker.
        max_message_bytes: most bytes of a message: the brokers' `maxMessageSize`.

    Raises:
        ConfigError: an address is none or holds a user, or a value is not allowed.
    """

    type: ClassVar[str] = "rocketmq"
    extra: ClassVar[str | None] = None
    name_servers: str
    access_key: str | None = None
    secret_key: Secret | None = None
    tls: bool = False
    tls_ca: str | None = None
    topic_type: TopicType = TopicType.FIFO
    topic_queues: int = 8
    max_message_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "topic_queues", "max_message_bytes")
        if not self.addresses or not all(_is_address(address) for address in self.addresses):
            raise ConfigError(
                "`sink.name-servers` is wrong",
                f"found {shown(self.name_servers)}, needed HOST:PORT, or several with commas",
                "name-servers: ns-1.example:9876,ns-2.example:9876",
                code="TR-1010",
            )
        if (self.access_key is None) != (self.secret_key is None):
            raise ConfigError(
                "`sink.access-key` and `sink.secret-key` belong together",
                "found one of them",
                "set both, or none",
                code="TR-1010",
            )
        if self.tls_ca is not None and not self.tls:
            raise ConfigError(
                "`sink.tls-ca` has no meaning without TLS", "found `tls: false`", "tls: true", code="TR-1011"
            )

    @property
    def addresses(self) -> tuple[str, ...]:
        """The name servers' addresses."""
        return tuple(part.strip() for part in self.name_servers.split(",") if part.strip())


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and "@" not in host and "/" not in host and port.isdecimal() and int(port) < 65536

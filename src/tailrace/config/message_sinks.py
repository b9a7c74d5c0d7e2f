"""The settings of sinks that write messages to systems other than Kafka (`config.sinks`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar
from urllib.parse import urlsplit

from tailrace.config.secret import Secret, refuse_credentials, shown
from tailrace.config.sink_settings import JsonMessageSettings, check_positive
from tailrace.errors import ConfigError

#: Names of headers, and those that the webhook sink sets.
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OWN_HEADERS = frozenset(
    {"content-length", "host", "webhook-id", "webhook-timestamp", "webhook-signature", "transfer-encoding"}
)


#: An address of a NATS server, and the beginning of its subjects.
_NATS = re.compile(r"(nats|tls)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(:\d{1,5})?")
_SUBJECT = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


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


@dataclass(frozen=True, kw_only=True)
class RedisSettings(JsonMessageSettings):
    """Streams of a Redis server.

    Args:
        url: `redis://HOST[:PORT][/DATABASE]`, or `rediss://` for TLS.
        user: the user, None for the default one.
        password: the user's.
        tls_ca: authorities that sign the server's certificate, a PEM file; default: the system's.
        max_entries: most entries of a stream, about: older ones are deleted; default: none is.

    Raises:
        ConfigError: the address is none or holds a user, or a value is not allowed.
    """

    type: ClassVar[str] = "redis"
    extra: ClassVar[str | None] = "redis"
    url: str
    user: str | None = None
    password: Secret | None = None
    tls_ca: str | None = None
    max_entries: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "max_entries")
        refuse_credentials(self.url, "sink.url")
        self.address  # noqa: B018 - checked
        if self.user is not None and self.password is None:
            raise ConfigError(
                "`sink.password` is missing",
                "a user of Redis needs one",
                "password: ${env:NAME}",
                code="TR-1006",
            )
        if self.tls_ca is not None and not self.url.startswith("rediss:"):
            raise ConfigError(
                "`sink.tls-ca` has no meaning without TLS",
                "found a url that begins with `redis:`",
                "url: rediss://HOST:PORT",
                code="TR-1011",
            )

    @property
    def address(self) -> tuple[str, int, int]:
        """The url's host, port and database."""
        try:
            parts = urlsplit(self.url)
            port, database = parts.port, parts.path.strip("/") or "0"
        except ValueError:  # its text shows the port, which may be a password
            parts, port, database = urlsplit(""), None, ""
        is_one = parts.scheme in ("redis", "rediss") and parts.hostname and database.isdecimal()
        if not is_one or not parts.hostname or "@" in self.url or parts.query or parts.fragment:
            raise ConfigError(
                "`sink.url` is wrong",
                f"found {shown(self.url)}, needed redis://HOST[:PORT][/DATABASE] or rediss://...",
                code="TR-1010",
            )
        return parts.hostname, port or 6379, int(database)


@dataclass(frozen=True, kw_only=True)
class WebhookSettings(JsonMessageSettings):
    """A web server that takes messages.

    Args:
        url: `http://` or `https://`.
        headers: headers of each request; values may be references to secrets.
        secret: signs requests as Standard Webhooks does; default: they are not signed.
        tls_ca: authorities that sign the server's certificate, a PEM file; default: the system's.
        timeout: time limit of one attempt at a request, seconds.
        max_request_messages: most messages of a request.
        max_request_bytes: most bytes of a request, unless one message has more.

    Raises:
        ConfigError: the address is none or holds a user, or a value is not allowed.
    """

    type: ClassVar[str] = "webhook"
    extra: ClassVar[str | None] = None
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret: Secret | None = None
    tls_ca: str | None = None
    timeout: int = 30
    max_request_messages: int = 500
    max_request_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "timeout", "max_request_messages", "max_request_bytes")
        refuse_credentials(self.url, "sink.url")
        if not self.url.startswith(("http://", "https://")) or not self.address[0] or "@" in self.url:
            raise ConfigError(
                "`sink.url` is wrong", "needed http://HOST[:PORT][/PATH] or https://...", code="TR-1010"
            )
        for name in self.headers:
            if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
                raise ConfigError(
                    "a name is not allowed at `sink.headers`",
                    f"found {shown(name)}; the sink sets {', '.join(sorted(_OWN_HEADERS))} itself",
                    code="TR-1010",
                )
        if self.tls_ca is not None and not self.url.startswith("https:"):
            raise ConfigError(
                "`sink.tls-ca` has no meaning without TLS",
                "found a url that begins with `http:`",
                "url: https://HOST/PATH",
                code="TR-1011",
            )

    @property
    def address(self) -> tuple[str, int]:
        """The url's host and port; none of an address that is wrong."""
        try:
            parts = urlsplit(self.url)
            return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            return "", 0


@dataclass(frozen=True, kw_only=True)
class NatsSettings(JsonMessageSettings):
    """Subjects of a stream of NATS JetStream.

    Args:
        url: `nats://HOST[:PORT]`, or `tls://` for TLS; several with commas.
        user: the user, None for none.
        password: the user's.
        token: instead of user and password.
        tls_ca: authorities that sign the servers' certificates, a PEM file; default: the system's.
        replicas: replicas of a new stream.
        duplicate_window: for how long a new stream knows what it has, seconds.

    Raises:
        ConfigError: an address is none or holds a user, or a value is not allowed.
    """

    type: ClassVar[str] = "nats"
    extra: ClassVar[str | None] = "nats"
    url: str
    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    tls_ca: str | None = None
    replicas: int = 1
    duplicate_window: int = 600

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "replicas", "duplicate_window")
        if not self.addresses or not all(_NATS.fullmatch(address) for address in self.addresses):
            raise ConfigError(
                "`sink.url` is wrong",
                "needed nats://HOST[:PORT] or tls://HOST[:PORT], without a user; several with commas",
                code="TR-1010",
            )
        if not _SUBJECT.fullmatch(self.topic_prefix):
            raise ConfigError(
                "`sink.topic-prefix` is wrong",
                f"found {shown(self.topic_prefix)}; subjects of NATS take letters, digits, `_` and `-`, in "
                "parts separated by dots",
                code="TR-1010",
            )
        if self.token is not None and self.user is not None:
            raise ConfigError(
                "`sink.token` and `sink.user` exclude each other",
                "found both",
                "remove one of them",
                code="TR-1010",
            )
        if self.tls_ca is not None and not self.url.startswith("tls:"):
            raise ConfigError(
                "`sink.tls-ca` has no meaning without TLS",
                "found a url that does not begin with `tls:`",
                "url: tls://HOST:PORT",
                code="TR-1011",
            )

    @property
    def addresses(self) -> tuple[str, ...]:
        """The servers' addresses."""
        return tuple(part.strip().rstrip("/") for part in self.url.split(",") if part.strip())

    @property
    def address(self) -> tuple[str, int]:
        """The first server's host and port."""
        parts = urlsplit(self.addresses[0])
        return parts.hostname or "", parts.port or 4222


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and "@" not in host and "/" not in host and port.isdecimal() and int(port) < 65536

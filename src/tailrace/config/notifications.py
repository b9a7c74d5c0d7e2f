"""The sections `notifications` and `signals` of a pipeline file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.config.secret import Secret, refuse_credentials
from tailrace.errors import ConfigError

_CALLABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class NotificationSettings:
    """Where a pipeline tells what its batches did; default: nowhere.

    Args:
        log: whether to write notifications to the log file.
        file: a file of JSON lines, which grows.
        webhook: an http or https address to which each notification is posted; may be a secret reference.
        webhook_headers: headers of the posts; values may be secret references.
        webhook_timeout: seconds that one post may take.
        call: a function that is called with each notification, as `package.module:name`.
        topic: a Kafka topic; Debezium's `notification.sink.topic.name`.
        bootstrap_servers: its brokers; default: those of the pipeline's Kafka sink.
        properties: librdkafka's settings; default: those of the pipeline's Kafka sink.

    Raises:
        ConfigError: a value is not allowed.
    """

    log: bool = False
    file: str | None = None
    webhook: Secret | None = None
    webhook_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    webhook_timeout: int = 10
    call: str | None = None
    topic: str | None = None
    bootstrap_servers: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        refuse_credentials(self.file, "notifications.file")
        if self.file is not None and "://" in self.file:
            raise ConfigError(
                "`notifications.file` must be a local path",
                "lines are appended to it",
                "use `notifications.topic` or `notifications.webhook` for another machine",
                code="TR-1010",
            )
        webhook = self.webhook
        if webhook is not None and not (webhook.is_reference or is_http(webhook.text)):
            raise ConfigError(
                "`notifications.webhook` is wrong",
                "needed: http://HOST/... or https://HOST/..., or a secret reference",
                code="TR-1010",
            )
        if self.webhook_timeout <= 0:
            raise ConfigError(
                "`notifications.webhook-timeout` must be > 0", f"found {self.webhook_timeout}", code="TR-1010"
            )
        if self.webhook is None and (
            self.webhook_headers or self.webhook_timeout != type(self).webhook_timeout
        ):
            raise ConfigError(
                "`notifications.webhook-headers` and `webhook-timeout` have no effect",
                "there is no `notifications.webhook`",
                "give it, or leave them out",
                code="TR-1011",
            )
        if self.call is not None and _CALLABLE.fullmatch(self.call) is None:
            raise ConfigError(
                "`notifications.call` is wrong",
                "needed: package.module:function",
                code="TR-1010",
            )
        if self.topic is None and (self.bootstrap_servers or self.properties):
            raise ConfigError(
                "`notifications.bootstrap-servers` and `properties` have no effect",
                "there is no `notifications.topic`",
                "give it, or leave them out",
                code="TR-1011",
            )

    @property
    def is_on(self) -> bool:
        """Whether there is any channel."""
        return self.log or any((self.file, self.webhook, self.call, self.topic))


@dataclass(frozen=True)
class SignalSettings:
    """Where a pipeline takes signals from, besides its table of signals and the command line.

    Args:
        topic: a Kafka topic; Debezium's `signal.kafka.topic`.
        key: the key of the messages that are meant for this pipeline; default: the Kafka sink's
            `topic-prefix`, or else the pipeline's name.
        bootstrap_servers: its brokers; default: those of the pipeline's Kafka sink.
        properties: librdkafka's settings; default: those of the pipeline's Kafka sink.

    Raises:
        ConfigError: a value is not allowed.
    """

    topic: str | None = None
    key: str | None = None
    bootstrap_servers: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.topic is None and (self.key or self.bootstrap_servers or self.properties):
            raise ConfigError(
                "settings of section `signals` have no effect",
                "there is no `signals.topic`",
                "give it, or leave them out",
                code="TR-1011",
            )


def is_http(url: str) -> bool:
    """Whether `url` is an http or https address with a host."""
    return re.match(r"https?://[^/\s]+", url) is not None

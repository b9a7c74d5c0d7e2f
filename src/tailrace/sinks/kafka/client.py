"""The configuration of the Kafka clients: plain data; secrets are resolved late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.config.secret import resolve_all
from tailrace.errors import ConfigError

#: Settings reserved for the sink.
_RESERVED = frozenset(
    {
        "bootstrap.servers",
        "metadata.broker.list",
        "transactional.id",
        "enable.idempotence",
        "enable.gapless.guarantee",
        "group.id",
        "isolation.level",
        "enable.auto.commit",
        "partitioner",
    }
)
#: Defaults for every client.
_DEFAULTS = {
    "client.id": "tailrace",
    "log_level": "0",  # librdkafka reports the same as errors
    "reconnect.backoff.max.ms": "2000",
    "topic.metadata.refresh.interval.ms": "60000",
}
#: Defaults for producers.
_PRODUCER_DEFAULTS = {
    # The queue is bounded by bytes.
    "queue.buffering.max.kbytes": "65536",
    "queue.buffering.max.messages": "1000000",
    "delivery.report.only.error": "true",
    # As long as a transaction. `Producer.commit` detects brokers that make no progress.
    "message.timeout.ms": "600000",
    # The topics limit the size of a message: see `cluster.Topic.limit`.
    "message.max.bytes": "1000000000",
    "transaction.timeout.ms": "600000",
    "linger.ms": "5",
}


@dataclass(frozen=True)
class Client:
    """How to reach the cluster.

    Args:
        bootstrap_servers: `host:port`, comma-separated.
        properties: the user's librdkafka settings; values may be references to secrets.
    """

    bootstrap_servers: str
    properties: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        for name in self.properties:
            if name in _RESERVED:
                raise ConfigError(
                    f"`sink.properties.{name}` cannot be set", "the Kafka sink sets it itself", code="TR-1014"
                )

    @property
    def transaction_s(self) -> float:
        """Longest time that the brokers let a transaction stay open, seconds."""
        name = "transaction.timeout.ms"
        return int(self.properties.get(name, _PRODUCER_DEFAULTS[name])) / 1000

    def settings(self) -> dict[str, str]:
        """The settings of any client, with secrets resolved.

        Raises:
            ConfigError: a secret cannot be resolved.
        """
        given = resolve_all(self.properties, "sink.properties")
        return {**_DEFAULTS, "bootstrap.servers": self.bootstrap_servers, **given}

    def producer_settings(
        self, transactional_id: str | None, batch_bytes: int | None = None
    ) -> dict[str, str]:
        """The settings of a producer.

        Args:
            transactional_id: its transactional id; None: no transactions.
            batch_bytes: most bytes of messages sent at once to one partition; None: librdkafka's default.
        """
        settings = {**_PRODUCER_DEFAULTS, "enable.idempotence": "true", **self.settings()}
        if batch_bytes is not None:
            settings.setdefault("batch.size", str(batch_bytes))
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        return settings

"""What clients of the sink's Kafka cluster are configured with: plain data, secrets looked up late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.config.secret import resolve_all
from tailrace.errors import ConfigError

#: Settings that the sink makes itself.
_OURS = frozenset(
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
#: Settings of every client; the user's win.
_DEFAULTS = {
    "client.id": "tailrace",
    "log_level": "0",  # what librdkafka would log comes as errors
    "reconnect.backoff.max.ms": "2000",
    "topic.metadata.refresh.interval.ms": "60000",
}
#: Settings of producers; the user's win.
_PRODUCER_DEFAULTS = {
    # What waits to be sent is bounded by its bytes.
    "queue.buffering.max.kbytes": "65536",
    "queue.buffering.max.messages": "1000000",
    "delivery.report.only.error": "true",
    # As long as a transaction. Brokers that stand still are noticed by the one who waits (`Producer.commit`).
    "message.timeout.ms": "600000",
    # Topics decide how large a message may be: see `cluster.Topic.limit`.
    "message.max.bytes": "1000000000",
    "transaction.timeout.ms": "600000",
    "linger.ms": "5",
}


@dataclass(frozen=True)
class Client:
    """How to reach the cluster.

    Args:
        bootstrap_servers: `host:port`, comma-separated.
        properties: librdkafka's settings as the user gave them; values may be references to secrets.
    """

    bootstrap_servers: str
    properties: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        for name in self.properties:
            if name in _OURS:
                raise ConfigError(f"`sink.properties.{name}` cannot be set", "the Kafka sink sets it itself")

    @property
    def transaction_s(self) -> float:
        """How long the brokers let a transaction last, seconds."""
        name = "transaction.timeout.ms"
        return int(self.properties.get(name, _PRODUCER_DEFAULTS[name])) / 1000

    def settings(self) -> dict[str, str]:
        """Settings of any client, secrets resolved.

        Raises:
            ConfigError: a secret cannot be found.
        """
        given = resolve_all(self.properties, "sink.properties")
        return {**_DEFAULTS, "bootstrap.servers": self.bootstrap_servers, **given}

    def producer_settings(
        self, transactional_id: str | None, batch_bytes: int | None = None
    ) -> dict[str, str]:
        """Settings of a producer.

        Args:
            transactional_id: None: one without transactions.
            batch_bytes: most bytes of messages sent at once to one partition, None: librdkafka's choice.
        """
        settings = {**_PRODUCER_DEFAULTS, "enable.idempotence": "true", **self.settings()}
        if batch_bytes is not None:
            settings.setdefault("batch.size", str(batch_bytes))
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        return settings

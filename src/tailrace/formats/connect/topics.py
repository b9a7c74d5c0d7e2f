"""What topics are called, and the names that schemas take from them.

Source: debezium/debezium v3.6.1 `AbstractTopicNamingStrategy`, `DefaultTopicNamingStrategy`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from tailrace.model.messages import MESSAGES
from tailrace.model.table import TableId

#: Kafka's limit for a topic's name.
_MAX_TOPIC = 249


class TargetNames(Protocol):
    """What a route calls tables (`sinks.route.Router`); hashable, as shapes' schemas are kept by it."""

    def target(self, table: TableId) -> str:
        """The name behind the prefix, `database.table` where no route says another."""


@dataclass(frozen=True)
class Topics:
    """Debezium's default naming, of a table's target where it is routed to one.

    Args:
        prefix: Debezium's `topic.prefix`.
        targets: names the tables' targets; None: each is its own. Tables with one target have one topic, and
            one name for their schemas.
        messages: whether the source has logical messages: PostgreSQL.
    """

    prefix: str
    targets: TargetNames | None = None
    messages: bool = True

    def topic(self, table: TableId) -> str:
        """The topic of a table's changes, with which the names of its schemas begin too."""
        if self.messages and table == MESSAGES.id:
            return legal(f"{self.prefix}.message")
        return legal(f"{self.prefix}.{table if self.targets is None else self.targets.target(table)}")

    @property
    def transaction(self) -> str:
        """The topic of transactions' boundaries."""
        return legal(f"{self.prefix}.transaction")

    @property
    def schema_change(self) -> str:
        """The topic of schema changes."""
        return legal(self.prefix)

    @property
    def heartbeat(self) -> str:
        """The topic of heartbeats."""
        return legal(f"__debezium-heartbeat.{self.prefix}")


def legal(name: str) -> str:
    """`name` as a topic's: what Kafka does not allow in it replaced, and no longer than Kafka allows."""
    return re.sub(r"[^a-zA-Z0-9._-]", "_", name)[:_MAX_TOPIC]


def collision(topic: str) -> str:
    """What two topics that Kafka does not take beside each other have in common.

    Source: apache/kafka `org.apache.kafka.common.internals.Topic.unifyCollisionChars`.
    """
    return topic.replace(".", "_")

"""Names of topics, from which names of schemas are derived.

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
_NAME = re.compile(rf"(?!__)(?!\.{{1,2}}$)[a-zA-Z0-9._-]{{1,{_MAX_TOPIC}}}")


class TargetNames(Protocol):
    """Names of tables' targets (`sinks.route.Router`); hashable, because it is part of cache keys."""

    def target(self, table: TableId) -> str:
        """The name after the prefix: `database.table` unless a route renames the table."""


@dataclass(frozen=True)
class Topics:
    """Debezium's default naming, applied to a table's target if the table is routed.

    Args:
        prefix: Debezium's `topic.prefix`.
        targets: names of the tables' targets; None: the tables' own names. Tables with the same target share
            a topic and the names of schemas.
        messages: whether the source has logical messages: PostgreSQL.
    """

    prefix: str
    targets: TargetNames | None = None
    messages: bool = True

    def topic(self, table: TableId) -> str:
        """The topic of a table's changes, which is also the prefix of its schemas' names."""
        if self.messages and table == MESSAGES.id:
            return legal(f"{self.prefix}.message")
        return legal(f"{self.prefix}.{table if self.targets is None else self.targets.target(table)}")

    @property
    def transaction(self) -> str:
        """The topic of transaction boundaries."""
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
    """Make `name` a legal topic name: replace illegal characters, truncate to Kafka's limit."""
    return re.sub(r"[^a-zA-Z0-9._-]", "_", name)[:_MAX_TOPIC]


def is_topic(name: str) -> bool:
    """Whether applications may write to a topic of this name: a legal one, and not an internal one."""
    return _NAME.fullmatch(name) is not None


def collision(topic: str) -> str:
    """What two topics that Kafka does not take beside each other have in common.

    Source: apache/kafka `org.apache.kafka.common.internals.Topic.unifyCollisionChars`.
    """
    return topic.replace(".", "_")

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


class TopicReplacement(Protocol):
    """Names topics by their names (`config.java_patterns.Replacement`); hashable, too."""

    def of(self, text: str) -> str | None:
        """The name in place of `text`; None: it stays."""


@dataclass(frozen=True)
class KeyField:
    """A field of message keys that tells the tables of a topic apart, as of Debezium's ByLogicalTableRouter.

    Args:
        name: its name.
        replacement: makes its value of the name of the topic that the table would have; None: it is that.
    """

    name: str
    replacement: TopicReplacement | None = None


@dataclass(frozen=True)
class Topics:
    """Debezium's default naming, applied to a table's target if the table is routed.

    Args:
        prefix: Debezium's `topic.prefix`.
        targets: names of the tables' targets; None: the tables' own names. Tables with the same target share
            a topic and the names of schemas.
        messages: whether the source has logical messages: PostgreSQL.
        replacement: replaces names of tables' topics; None: none.
        key: a field that is added to the keys of tables whose topics are replaced; None: none.
    """

    prefix: str
    targets: TargetNames | None = None
    messages: bool = True
    replacement: TopicReplacement | None = None
    key: KeyField | None = None

    def topic(self, table: TableId) -> str:
        """The topic of a table's changes, which is also the prefix of its schemas' names."""
        if self.messages and table == MESSAGES.id:
            return legal(f"{self.prefix}.message")
        own = self._own(table)
        return (self.replacement.of(own) if self.replacement is not None else None) or own

    def is_replaced(self, table: TableId) -> bool:
        """Whether a table's topic has another name than that of its target."""
        if self.replacement is None or (self.messages and table == MESSAGES.id):
            return False
        return bool(self.replacement.of(self._own(table)))

    def key_field(self, table: TableId) -> tuple[str, str] | None:
        """Name and value of a field that is added to the keys of a table; None: there is none."""
        if self.key is None or not self.is_replaced(table):
            return None
        own = self._own(table)
        return self.key.name, (self.key.replacement.of(own) if self.key.replacement else None) or own

    def _own(self, table: TableId) -> str:
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

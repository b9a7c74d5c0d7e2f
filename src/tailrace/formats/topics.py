"""What topics are called, and the names that schemas take from them.

Source: debezium/debezium v3.6.1 `AbstractTopicNamingStrategy`, `DefaultTopicNamingStrategy`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailrace.model.table import TableId

#: Kafka's limit for a topic's name.
_MAX_TOPIC = 249


@dataclass(frozen=True)
class Topics:
    """Debezium's default naming.

    Args:
        prefix: Debezium's `topic.prefix`.
        delimiter: what stands between the parts of a name.
        only: the one topic that takes the changes of all tables; None: each table has its own.
        targets: what a route calls tables: `database.table` and the name behind the prefix, each. Tables
            with one target have one topic, and one name for their schemas.
    """

    prefix: str
    delimiter: str = "."
    only: str | None = None
    targets: tuple[tuple[str, str], ...] = ()

    def topic(self, table: TableId) -> str:
        """The topic of a table's changes."""
        return self.schema_prefix(table) if self.only is None else _legal(self.only)

    def schema_prefix(self, table: TableId) -> str:
        """What the names of a table's schemas begin with, whichever topic its changes go to."""
        target = dict(self.targets).get(str(table))
        name = target if target is not None else f"{table.database}{self.delimiter}{table.table}"
        return _legal(f"{self.prefix}{self.delimiter}{name}")

    @property
    def transaction(self) -> str:
        """The topic of transactions' boundaries."""
        return _legal(f"{self.prefix}{self.delimiter}transaction")

    @property
    def schema_change(self) -> str:
        """The topic of schema changes."""
        return _legal(self.prefix)

    @property
    def heartbeat(self) -> str:
        """The topic of heartbeats."""
        return _legal(f"__debezium-heartbeat.{self.prefix}")


def _legal(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9._-]", "_", name)[:_MAX_TOPIC]

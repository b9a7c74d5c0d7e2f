"""RocketMQ topics: one per target, messages with the key as sharding key, at least once.

    prefix_database_table       changes; tag: the table, key and message group: the row's key

A queue is chosen by the key, so consumers in order see the changes of a key in theirs. A batch that comes
again sends only what the queues do not have (`tail`).
"""

from __future__ import annotations

from collections.abc import Collection

from tailrace.config.message_sinks import RocketMqSettings
from tailrace.model.table import TableId
from tailrace.sinks.base import CellBatch, Delivery
from tailrace.sinks.rocketmq.channel import RocketChannels
from tailrace.sinks.rocketmq.failure import deleted
from tailrace.sinks.rocketmq.remoting import Access, BrokerConnections
from tailrace.sinks.rocketmq.topics import create, find, topic_name
from tailrace.sinks.route import Router


def access_of(settings: RocketMqSettings) -> Access:
    """How to reach the cluster.

    Raises:
        ConfigError: the secret's variable or file does not exist.
    """
    secret = None if settings.secret_key is None else settings.secret_key.resolved()
    return Access(settings.addresses, settings.access_key, secret, settings.tls, settings.tls_ca)


class RocketMq:
    """See `System`.

    Args:
        settings: the sink's.
        router: names the targets.
    """

    def __init__(self, settings: RocketMqSettings, router: Router) -> None:
        self._settings = settings
        self._router = router
        self._access = access_of(settings)

    @property
    def delivery(self) -> Delivery:
        """See `System`."""
        return Delivery.AT_LEAST_ONCE

    def target(self, table: TableId) -> str:
        """See `System`."""
        return topic_name(self._settings.topic_prefix, self._router.target(table), table)

    def existing(self, targets: Collection[str]) -> Collection[str]:
        """See `System`."""
        connections = BrokerConnections(self._access)
        try:
            return find(connections, targets).keys()
        finally:
            connections.close()

    def begin(self, batch: CellBatch, writers: int, *, is_first: bool) -> int:  # noqa: ARG002 - nothing is noted
        """See `System`."""
        return writers

    def channels(self, targets: Collection[str], missing: Collection[str]) -> RocketChannels:
        """See `System`."""
        settings = self._settings
        connections = BrokerConnections(self._access)
        try:
            if missing:
                create(connections, missing, settings.topic_queues, settings.topic_type)
            found = find(connections, targets)
        finally:
            connections.close()
        if gone := set(targets) - found.keys():
            raise deleted(min(gone))
        return RocketChannels(self._access, found, settings.max_message_bytes)

    def close(self) -> None:
        """See `System`: connections last as long as a batch."""

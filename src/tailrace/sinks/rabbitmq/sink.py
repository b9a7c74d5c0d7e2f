"""RabbitMQ: one exchange, a routing key for each target, each change a message, at least once.

Each message is confirmed before a later one of its key is sent, so the changes of a key come in their order.
A batch that broke off comes again as a whole, in order again.
"""

from __future__ import annotations

from collections.abc import Collection

from tailrace.config.rabbitmq import RabbitMqSettings
from tailrace.model.table import TableId
from tailrace.sinks.base import CellBatch, Delivery
from tailrace.sinks.rabbitmq.channel import RabbitMqChannels
from tailrace.sinks.rabbitmq.client import RabbitMqAccess, RabbitMqConnection
from tailrace.sinks.rabbitmq.names import queue_name
from tailrace.sinks.route import Router


class RabbitMqExchange:
    """See `System`: a target is a routing key.

    Args:
        settings: the sink's.
        router: names the targets.
    """

    def __init__(self, settings: RabbitMqSettings, router: Router) -> None:
        self._settings = settings
        self._router = router
        self._access = RabbitMqAccess.of(settings)
        #: The targets whose way is known to be there, since the last failure.
        self._ready: set[str] = set()

    @property
    def delivery(self) -> Delivery:
        """See `System`: AMQP has no way to know a message that comes again."""
        return Delivery.AT_LEAST_ONCE

    def target(self, table: TableId) -> str:
        """See `System`.

        Raises:
            ConfigError: its name is too long.
        """
        target = self._router.target(table)
        queue_name(self._settings.topic_prefix, target)
        return target

    def existing(self, targets: Collection[str]) -> Collection[str]:
        """See `System`: of targets without a queue of the sink's own, consumers decide."""
        if self._settings.queue_type is None:
            return targets
        prefix = self._settings.topic_prefix
        with RabbitMqConnection(self._access) as connection:
            return {t for t in targets if connection.run(connection.has("queue", queue_name(prefix, t)))}

    def begin(self, batch: CellBatch, writers: int, *, is_first: bool) -> int:  # noqa: ARG002 - nothing is noted
        """See `System`."""
        if is_first:
            self._ready = set()
        return writers

    def channels(self, targets: Collection[str], missing: Collection[str]) -> RabbitMqChannels:
        """See `System`."""
        new = sorted({*missing, *targets} - (self._ready - set(missing)))
        if new:
            with RabbitMqConnection(self._access) as connection:
                connection.run(self._prepare(connection, new, missing))
            self._ready |= set(new)
        settings = self._settings
        return RabbitMqChannels(
            self._access, settings.topic_prefix, creates_queues=settings.queue_type is not None
        )

    async def _prepare(
        self, connection: RabbitMqConnection, targets: Collection[str], missing: Collection[str]
    ) -> None:
        """Create what is missing, and bind the queues: a former run may not have come to that."""
        exchange, type_ = self._settings.topic_prefix, self._settings.queue_type
        if not await connection.has("exchange", exchange):
            channel = await connection.channel()
            await connection.ask(channel.exchange_declare, exchange, "topic", durable=True)
        if type_ is None:
            return
        channel = await connection.channel()
        for target in targets:
            queue = queue_name(exchange, target)
            if target in missing:
                arguments = {"x-queue-type": type_.value}
                await connection.ask(channel.queue_declare, queue, durable=True, arguments=arguments)
            await connection.ask(channel.queue_bind, queue, exchange, target)

    def close(self) -> None:
        """See `System`: connections last as long as a batch."""

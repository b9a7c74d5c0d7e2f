"""What the server says of messages that are on their way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pika import BasicProperties, spec

from tailrace.sinks.rabbitmq.client import RabbitMqConnection, settle

#: Key, properties and body of a message.
Message = tuple[object, BasicProperties, bytes]


class Confirms:
    """Publishes messages, and waits until the server has made them durable.

    The server counts the messages of a channel. It answers for one of them or for all up to one, in any
    order, and returns a message that no queue takes before it confirms that.

    Args:
        connection: its channel publishes nothing else.
    """

    def __init__(self, connection: RabbitMqConnection) -> None:
        self._connection = connection
        self._channel: Any = None
        self._sent = 0
        self._open: set[int] = set()
        self._done: asyncio.Future[Any] | None = None
        self._refused = self._returned = 0

    async def publish(self, exchange: str, key: str, messages: Sequence[Message]) -> tuple[int, int]:
        """Publish messages.

        Returns:
            How many of them queues have refused, and how many no queue took.
        """
        channel = await self._confirming()
        self._refused = self._returned = 0
        self._done = self._connection.answer()
        for _, properties, body in messages:
            self._sent += 1
            self._open.add(self._sent)
            channel.basic_publish(exchange, key, body, properties, mandatory=True)
        await self._done
        return self._refused, self._returned

    async def _confirming(self) -> Any:
        if self._channel is None:
            self._channel = await self._connection.channel()
            self._channel.add_on_return_callback(self._on_returned)
            await self._connection.ask(self._channel.confirm_delivery, self._on_answer)
        return self._channel

    def _on_returned(self, *_: object) -> None:
        self._returned += 1

    def _on_answer(self, frame: Any) -> None:
        last, several = frame.method.delivery_tag, frame.method.multiple
        told = {tag for tag in self._open if tag <= last} if several else {last} & self._open
        self._open -= told
        if isinstance(frame.method, spec.Basic.Nack):
            self._refused += len(told)
        if not self._open and self._done is not None:
            settle(self._done, None)

"""RabbitMQ's queues: their messages, and a row of the contract suite."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
from pika.exceptions import UnroutableError

from tailrace.config.rabbitmq import QueueType, RabbitMqSettings
from tailrace.config.secret import Secret
from tailrace.sinks.messages.sink import MessageSink, message_sink
from tailrace.sinks.rabbitmq.client import RabbitMqAccess
from tailrace.sinks.rabbitmq.sink import RabbitMqExchange
from tailrace_dev.servers import RabbitMqServer
from tests.support.sinks.case import Change, SinkCase
from tests.support.sinks.kafka import changes_of


def settings_of(server: RabbitMqServer, **given: Any) -> RabbitMqSettings:
    """Settings for an exchange of its own, with the server's user."""
    return RabbitMqSettings(
        **{
            "url": server.url,
            "user": server.user,
            "password": Secret(server.password, is_literal=True),
            "topic_prefix": f"t{uuid.uuid4().hex[:8]}",
            **given,
        }
    )


@contextmanager
def channel_of(settings: RabbitMqSettings) -> Iterator[Any]:
    """A channel of the client's own, whose messages are confirmed."""
    connection = pika.BlockingConnection(RabbitMqAccess.of(settings).parameters())
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        if connection.is_open:
            connection.close()


def messages(settings: RabbitMqSettings, queue: str) -> list[tuple[pika.BasicProperties, bytes]]:
    """Properties and body of every message of a queue, in its order; taken out, unless it is a stream."""
    last = f"last:{uuid.uuid4().hex}"
    found: list[tuple[pika.BasicProperties, bytes]] = []
    arguments = {"x-stream-offset": "first"} if settings.queue_type is QueueType.STREAM else None
    with channel_of(settings) as channel:
        try:
            channel.basic_publish("", queue, b"", pika.BasicProperties(message_id=last), mandatory=True)
        except UnroutableError:
            return []
        channel.basic_qos(prefetch_count=500)
        for method, properties, body in channel.consume(queue, arguments=arguments, inactivity_timeout=30):
            assert method is not None, f"the end of `{queue}` does not come"
            channel.basic_ack(method.delivery_tag)
            if properties.message_id == last:
                return found
            if not properties.message_id.startswith("last:"):
                found.append((properties, body))
    raise AssertionError(f"`{queue}` was closed")


def rabbitmq(request: Any) -> SinkCase:
    settings = settings_of(
        request.getfixturevalue("rabbitmq"),
        queue_type=QueueType.STREAM,
        parallelism=2,
        decimal_handling_mode="string",
    )
    prefix = settings.topic_prefix

    def changes(name: str) -> list[Change]:
        return list(changes_of(value for _, value in messages(settings, f"{prefix}.{name}")))

    def drop(name: str) -> None:
        with channel_of(settings) as channel:
            channel.queue_delete(f"{prefix}.{name}")

    def open_(router: Any) -> MessageSink:
        return message_sink(settings, router, RabbitMqExchange(settings, router), "mysql")

    return SinkCase(open_, drop, changes=changes)

"""NATS' streams: their messages, and a row of the contract suite."""

from __future__ import annotations

import uuid
from typing import Any

from nats.js import errors

from tailrace.config.message_sinks import NatsSettings
from tailrace.sinks.messages.sink import MessageSink, message_sink
from tailrace.sinks.nats.client import NatsAccess, NatsConnection
from tailrace.sinks.nats.names import stream_name
from tailrace.sinks.nats.sink import NatsSubjects
from tests.support.sinks.case import Change, SinkCase
from tests.support.sinks.kafka import changes_of


def messages(settings: NatsSettings, subject: str) -> list[tuple[dict[str, str], bytes]]:
    """Headers and value of every message of a subject, in the stream's order."""
    stream = stream_name(settings.topic_prefix)
    connection = NatsConnection(NatsAccess.of(settings))

    async def read() -> list[tuple[dict[str, str], bytes]]:
        try:
            info = await connection.streams.stream_info(stream, subjects_filter=subject)
        except errors.NotFoundError:
            return []
        count = (info.state.subjects or {}).get(subject, 0)
        received = await connection.streams.subscribe(subject, stream=stream, ordered_consumer=True)
        found = [await received.next_msg(timeout=20) for _ in range(count)]
        await received.unsubscribe()
        return [(dict(message.headers or {}), message.data) for message in found]

    try:
        return connection.run(read())
    finally:
        connection.close()


def nats(request: Any) -> SinkCase:
    server = request.getfixturevalue("nats")
    prefix = f"t{uuid.uuid4().hex[:8]}"
    settings = NatsSettings(
        url=server.url, topic_prefix=prefix, parallelism=2, decimal_handling_mode="string"
    )

    def changes(name: str) -> list[Change]:
        return list(changes_of(value for _, value in messages(settings, f"{prefix}.{name}")))

    def drop(_: str) -> None:
        connection = NatsConnection(NatsAccess.of(settings))
        connection.run(connection.streams.delete_stream(stream_name(prefix)))
        connection.close()

    def open_(router: Any) -> MessageSink:
        return message_sink(settings, router, NatsSubjects(settings, router), "mysql")

    return SinkCase(open_, drop, changes=changes, narrows_repeats=True)

"""RocketMQ's topics: their messages, and a row of the contract suite."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.config.message_sinks import RocketMqSettings
from tailrace.sinks.messages.sink import MessageSink, message_sink
from tailrace.sinks.rocketmq import frames, tail
from tailrace.sinks.rocketmq.remoting import BrokerConnections, Call
from tailrace.sinks.rocketmq.sink import RocketMq, access_of
from tailrace.sinks.rocketmq.topics import find
from tests.support.sinks.case import Change, SinkCase
from tests.support.sinks.kafka import changes_of

#: Codes of requests that delete a topic: to brokers, and to name servers.
_DELETE_ON_BROKER, _DELETE_ON_NAME_SERVER = 215, 216


@dataclass(frozen=True)
class Message:
    queue: int
    offset: int
    value: bytes
    properties: Mapping[str, str]

    @property
    def key(self) -> str | None:
        return self.properties.get("KEYS")


def messages(settings: RocketMqSettings, topic: str) -> list[Message]:
    """Every message of a topic up to its present ends, each queue in its order."""
    connections = BrokerConnections(access_of(settings))
    try:
        found = find(connections, [topic])
        if topic not in found:
            return []
        read = []
        for number, queue in enumerate(found[topic].queues):
            begin, end = (
                tail._offset(connections, found[topic], queue, code)
                for code in (frames.GET_MIN_OFFSET, frames.GET_MAX_OFFSET)
            )
            stored = list(tail._read(connections, found[topic], queue, begin, end))
            assert [m.offset for m in stored] == list(range(begin, end))
            read += [Message(number, m.offset, m.body, m.properties) for m in stored]
        return read
    finally:
        connections.close()


def drop(settings: RocketMqSettings, topic: str) -> None:
    """Delete a topic, as a user would."""
    connections = BrokerConnections(access_of(settings))
    try:
        (address,) = {queue.address for queue in find(connections, [topic])[topic].queues}
        for answer in (
            connections.to(address).ask(Call(_DELETE_ON_BROKER, {"topic": topic})),
            connections.name_server(Call(_DELETE_ON_NAME_SERVER, {"topic": topic})),
        ):
            assert answer.code == frames.SUCCESS, answer
    finally:
        connections.close()


def rocketmq(request: Any) -> SinkCase:
    server = request.getfixturevalue("rocketmq")
    prefix = f"t{uuid.uuid4().hex[:8]}"
    settings = RocketMqSettings(
        name_servers=server.name_server,
        topic_prefix=prefix,
        parallelism=2,
        topic_queues=3,
        decimal_handling_mode="string",
    )

    def topic(name: str) -> str:
        return f"{prefix}_{name.replace('.', '_')}"

    def changes(name: str) -> list[Change]:
        return list(changes_of(m.value for m in messages(settings, topic(name))))

    def open_(router: Any) -> MessageSink:
        return message_sink(settings, router, RocketMq(settings, router), "mysql")

    return SinkCase(open_, lambda name: drop(settings, topic(name)), changes=changes, narrows_repeats=True)

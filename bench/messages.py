"""A table's snapshot into RocketMQ, Redis, NATS, RabbitMQ and a webhook, beside Debezium Server.

    python -m bench.messages [rows] [--only SYSTEM...]

Messages are Debezium's in JSON, without schemas. Source, target and writer share the machine. The rate is
that of messages that the target holds, counted from outside, from the first to the last; so what either needs
to start counts in neither. Debezium Server gets a limited time: the rate is what counts.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

from bench import data, spark_runs
from bench.peers import debezium_server
from bench.peers.toolkit import UnavailableError
from bench.processes import Sampler
from bench.report import Figure, show
from bench.servers import Server
from tailrace.config.message_sinks import NatsSettings, RedisSettings, RocketMqSettings, WebhookSettings
from tailrace.config.rabbitmq import QueueType, RabbitMqSettings
from tailrace.config.secret import Secret
from tailrace.sinks.base import StreamId
from tailrace.sinks.messages.sink import MessageSink, message_sink
from tailrace.sinks.nats.client import NatsAccess, NatsConnection
from tailrace.sinks.nats.sink import NatsSubjects
from tailrace.sinks.rabbitmq.sink import RabbitMqExchange
from tailrace.sinks.redis.client import RedisAccess
from tailrace.sinks.redis.sink import RedisStreams
from tailrace.sinks.rocketmq import frames, tail
from tailrace.sinks.rocketmq.remoting import BrokerConnections
from tailrace.sinks.rocketmq.sink import RocketMq, access_of
from tailrace.sinks.rocketmq.topics import create, find
from tailrace.sinks.route import Router
from tailrace.sinks.webhook.sink import WebhookSystem
from tailrace_dev.servers import start_nats, start_rabbitmq, start_redis, start_rocketmq
from tests.support.http_receiver import http_receiver
from tests.support.sinks.rabbitmq import channel_of

_ROUTER = Router([])
_PREFIX = "bench"
#: An exchange that every RabbitMQ has.
_EXCHANGE = "amq.direct"
#: Topic, stream or queue of Tailrace's messages, and of its peer's.
_OURS, _PEERS = f"{_PREFIX}.{data.DATABASE}.items", "peer-items"
#: Longest time of Debezium Server from its first message on, and before that, seconds.
_PEER_S, _PATIENCE_S = 30.0, 180.0
_PERIOD_S = 0.1


@dataclass(frozen=True)
class System:
    """A message system that runs here.

    Args:
        name: as the report says it.
        sink: opens Tailrace's sink.
        count: how many messages a topic holds.
        properties: of Debezium Server's sink.
    """

    name: str
    sink: Callable[[], MessageSink]
    count: Callable[[str], int]
    properties: Mapping[str, str]


@contextmanager
def redis() -> Iterator[System]:
    """Redis' streams."""
    with start_redis() as server:
        settings = RedisSettings(url=server.url, topic_prefix=_PREFIX)
        with RedisAccess.of(settings).client() as client:
            yield System(
                "Redis",
                lambda: message_sink(settings, _ROUTER, RedisStreams(settings, _ROUTER), "mysql"),
                lambda topic: int(client.xlen(topic)),
                {"type": "redis", "redis.address": f"{server.host}:{server.port}"},
            )


@contextmanager
def nats() -> Iterator[System]:
    """NATS' streams."""
    with start_nats() as server:
        settings = NatsSettings(url=server.url, topic_prefix=_PREFIX)
        with closing(NatsConnection(NatsAccess.of(settings))) as connection:

            def count(topic: str) -> int:
                streams = connection.run(connection.streams.streams_info())
                theirs = topic == _PEERS
                return sum(info.state.messages for info in streams if (info.config.name == "peer") == theirs)

            yield System(
                "NATS",
                lambda: message_sink(settings, _ROUTER, NatsSubjects(settings, _ROUTER), "mysql"),
                count,
                {
                    "type": "nats-jetstream",
                    "nats-jetstream.url": server.url,
                    "nats-jetstream.create-stream": "true",
                    "nats-jetstream.stream-name": "peer",
                    "nats-jetstream.subjects": _PEERS,
                    "nats-jetstream.storage": "file",
                },
            )


@contextmanager
def rabbitmq() -> Iterator[System]:
    """RabbitMQ's queues."""
    with start_rabbitmq() as server:
        secret = Secret(server.password, is_literal=True)
        settings = RabbitMqSettings(
            url=server.url,
            user=server.user,
            password=secret,
            topic_prefix=_PREFIX,
            queue_type=QueueType.CLASSIC,  # as the peer's
        )

        def count(queue: str) -> int:
            from pika.exceptions import ChannelClosedByBroker  # noqa: PLC0415

            with channel_of(settings) as channel:
                try:
                    return int(channel.queue_declare(queue, passive=True).method.message_count)
                except ChannelClosedByBroker:
                    return 0

        with channel_of(settings) as channel:  # the peer's default is an exchange of the topic's name
            channel.queue_declare(_PEERS, durable=True)
            channel.queue_bind(_PEERS, _EXCHANGE, _PEERS)
        yield System(
            "RabbitMQ",
            lambda: message_sink(settings, _ROUTER, RabbitMqExchange(settings, _ROUTER), "mysql"),
            count,
            {
                "type": "rabbitmq",
                "rabbitmq.connection.host": server.host,
                "rabbitmq.connection.port": str(server.port),
                "rabbitmq.connection.username": server.user,
                "rabbitmq.connection.password": server.password,
                "rabbitmq.exchange": _EXCHANGE,
                "rabbitmq.routingKey": _PEERS,
            },
        )


@contextmanager
def rocketmq() -> Iterator[System]:
    """RocketMQ's topics."""
    with start_rocketmq() as server:
        settings = RocketMqSettings(name_servers=server.name_server, topic_prefix=_PREFIX)
        with closing(BrokerConnections(access_of(settings))) as connections:
            create(connections, [_PEERS], settings.topic_queues, settings.topic_type)

            def count(topic: str) -> int:
                topic = topic.replace(".", "_")
                found = find(connections, [topic])
                if topic not in found:
                    return 0
                return sum(
                    tail._offset(connections, found[topic], queue, frames.GET_MAX_OFFSET)  # noqa: SLF001
                    for queue in found[topic].queues
                )

            yield System(
                "RocketMQ",
                lambda: message_sink(settings, _ROUTER, RocketMq(settings, _ROUTER), "mysql"),
                count,
                {
                    "type": "rocketmq",
                    "rocketmq.producer.name.srv.addr": server.name_server,
                    "rocketmq.producer.group": "peer",
                },
            )


@contextmanager
def webhook() -> Iterator[System]:
    """A receiver of HTTP requests."""
    with http_receiver() as receiver:
        settings = WebhookSettings(url=f"{receiver.url}/ours", topic_prefix=_PREFIX)

        def count(topic: str) -> int:
            path = "/peer" if topic == _PEERS else "/ours"
            return sum(body.count(b'"before":') for body in receiver.bodies(path))

        yield System(
            "webhook",
            lambda: message_sink(settings, _ROUTER, WebhookSystem(settings, _ROUTER), "mysql"),
            count,
            {"type": "http", "http.url": f"{receiver.url}/peer"},
        )


SYSTEMS: Mapping[str, Callable[[], AbstractContextManager[System]]] = {
    "rocketmq": rocketmq,
    "redis": redis,
    "nats": nats,
    "rabbitmq": rabbitmq,
    "webhook": webhook,
}


class _Arrivals:
    """When how many messages were there, noted by a thread while it is entered.

    Args:
        count: how many there are.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        self.seen: list[tuple[float, int]] = []
        self._count = count
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._note()

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            self._note()

    def _note(self) -> None:
        held = self._count()
        if held and (not self.seen or held > self.seen[-1][1]):
            self.seen.append((time.perf_counter(), held))

    @property
    def held(self) -> int:
        """How many messages there were at last."""
        return self.seen[-1][1] if self.seen else 0

    @property
    def rate(self) -> float:
        """Messages per second from the first seen to the last."""
        (begin, first), (end, last) = self.seen[0], self.seen[-1]
        return (last - first) / max(end - begin, _PERIOD_S)


def measure(source: Server, spark: SparkSession, rows: int, systems: Sequence[str]) -> Iterator[Figure]:
    """The figures of each system; `items` has `rows` rows."""
    for name in systems:
        with SYSTEMS[name]() as system:
            ours = _ours(source, spark, system, rows)
            yield ours
            yield _peer(source, system, rows, ours.value)


def _ours(source: Server, spark: SparkSession, system: System, rows: int) -> Figure:
    stream = StreamId(_PREFIX, uuid.uuid4().hex)
    options = source.options("items", "cells")
    with (
        closing(system.sink()) as sink,
        tempfile.TemporaryDirectory() as checkpoint,
        _Arrivals(lambda: system.count(_OURS)) as arrivals,
    ):
        run = spark_runs.into_sink(spark, options, sink, Path(checkpoint), stream)
    assert arrivals.held == rows, f"{system.name} holds {arrivals.held} of {rows} messages"
    return Figure(
        _section(system, rows),
        "Tailrace",
        arrivals.rate,
        "messages/s",
        cpu_s=dict(run.usage.cpu_s),
        peak_rss_mb=dict(run.usage.peak_rss_mb),
        notes={"batches": run.batches, "stream_s": run.stream_s},
    )


def _peer(source: Server, system: System, rows: int, ours: float) -> Figure:
    name, section = f"Debezium Server {debezium_server.VERSION}", _section(system, rows)
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "log")
        try:
            with (
                debezium_server.running(_properties(source, system), log) as process,
                Sampler([process.pid]) as sampler,
                _Arrivals(lambda: system.count(_PEERS)) as arrivals,
            ):
                begin = time.perf_counter()
                while process.poll() is None and arrivals.held < rows:
                    longest, since = (_PEER_S, arrivals.seen[0][0]) if arrivals.seen else (_PATIENCE_S, begin)
                    if time.perf_counter() - since > longest:
                        break
                    time.sleep(_PERIOD_S)
            why = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        except UnavailableError as error:
            return Figure(section, f"{name}: did not run", 0.0, "messages/s", notes={"why": str(error)})
    if len(arrivals.seen) < 2:
        return Figure(section, f"{name}: did not run", 0.0, "messages/s", notes={"why": why})
    return Figure(
        section,
        f"{name} (Tailrace ÷ it)",
        arrivals.rate,
        "messages/s",
        ratio=ours / arrivals.rate,
        cpu_s={"peer": sum(sampler.usage.cpu_s.values())},
        peak_rss_mb={"peer": max(sampler.usage.peak_rss_mb.values(), default=0.0)},
        notes={"messages": arrivals.held},
        system="",
    )


def _section(system: System, rows: int) -> str:
    return f"{system.name}, snapshot, {rows:,} rows"


def _properties(source: Server, system: System) -> dict[str, str]:
    """Debezium Server's configuration: the snapshot alone, nothing kept on disk."""
    sink = {"debezium.sink.type": system.properties["type"]} | {
        f"debezium.sink.{name}": value for name, value in system.properties.items() if name != "type"
    }
    return {
        **sink,
        "debezium.source.connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "debezium.source.database.hostname": source.host,
        "debezium.source.database.port": str(source.port),
        "debezium.source.database.user": source.user,
        "debezium.source.database.password": source.password,
        "debezium.source.database.server.id": "7001",
        "debezium.source.database.ssl.mode": "disabled",
        "debezium.source.topic.prefix": "peer",
        "debezium.source.table.include.list": f"{data.DATABASE}.items",
        "debezium.source.snapshot.mode": "initial_only",
        "debezium.source.snapshot.fetch.size": "10000",
        "debezium.source.max.batch.size": "8192",
        "debezium.source.max.queue.size": "32768",
        "debezium.source.include.schema.changes": "false",
        "debezium.source.offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
        "debezium.source.schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
        "debezium.format.value": "json",
        "debezium.format.key.schemas.enable": "false",
        "debezium.format.value.schemas.enable": "false",
        "debezium.transforms": "route",
        "debezium.transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "debezium.transforms.route.regex": ".*",
        "debezium.transforms.route.replacement": _PEERS,
        "quarkus.http.port": "0",
        "quarkus.log.console.json": "false",
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.messages", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("rows", type=int, nargs="?", default=500_000)
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    given = parser.parse_args()
    with spark_runs.with_items(given.rows) as (source, spark):
        for figure in measure(source, spark, given.rows, given.only):
            show(figure)


if __name__ == "__main__":
    main()

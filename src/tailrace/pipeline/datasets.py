"""The names of sources' tables and of their targets as OpenLineage's datasets. Pure.

Source: OpenLineage 1.54, spec/Naming.md. MariaDB is not in that list; its tables are
named like MySQL's, with its own scheme.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from tailrace.config.kafka import KafkaSettings
from tailrace.config.message_sinks import NatsSettings, RedisSettings, RocketMqSettings, WebhookSettings
from tailrace.config.options import SourceOptions
from tailrace.config.rabbitmq import RabbitMqSettings
from tailrace.config.sinks import (
    ClickHouseSettings,
    ConsoleSettings,
    DuckDbSettings,
    FileSettings,
    IcebergSettings,
    OpenSearchSettings,
    PostgresSettings,
    ReplicaSettings,
    SinkSettings,
)
from tailrace.model.table import TableId
from tailrace.sinks.clickhouse.sql import Place
from tailrace.sinks.iceberg.names import identifier, location
from tailrace.sinks.kafka.names import topics_of
from tailrace.sinks.nats.names import subject
from tailrace.sinks.opensearch.names import alias_of
from tailrace.sinks.paths import below, target_path
from tailrace.sinks.rabbitmq.names import queue_name
from tailrace.sinks.redis.names import stream_name
from tailrace.sinks.rocketmq.topics import topic_name
from tailrace.sinks.route import Router
from tailrace.spark.checkpoint import absolute, is_local


@dataclass(frozen=True, order=True)
class DatasetName:
    """A dataset.

    Args:
        namespace: the system that holds it.
        name: its name there.
    """

    namespace: str
    name: str


def source_dataset(options: SourceOptions, table: TableId) -> DatasetName:
    """A captured table."""
    server = f"{options.host}:{options.port}"
    if options.dialect == "postgresql":
        return DatasetName(f"postgres://{server}", f"{options.database}.{table}")
    if options.dialect == "oracle":
        return DatasetName(f"oracle://{server}", f"{options.database}.{table}")
    return DatasetName(f"{options.dialect}://{server}", str(table))


def target_dataset(settings: SinkSettings, router: Router, table: TableId) -> DatasetName | None:
    """The target of a table; None: it is none that lasts."""
    match settings:
        case ConsoleSettings() | WebhookSettings():
            return None
        case KafkaSettings():
            server = settings.bootstrap_servers.partition(",")[0].strip()
            return DatasetName(f"kafka://{server}", topics_of(settings, router, messages=True).topic(table))
        case RocketMqSettings():
            topic = topic_name(settings.topic_prefix, router.target(table), table)
            return DatasetName(f"rocketmq://{settings.addresses[0]}", topic)
        case RedisSettings():
            host, port, _ = settings.address
            return DatasetName(
                f"redis://{host}:{port}", stream_name(settings.topic_prefix, router.target(table))
            )
        case NatsSettings():
            host, port = settings.address
            return DatasetName(f"nats://{host}:{port}", subject(settings.topic_prefix, router.target(table)))
        case RabbitMqSettings():
            host, port = settings.address
            return DatasetName(
                f"amqp://{host}:{port}", queue_name(settings.topic_prefix, router.target(table))
            )
        case ReplicaSettings():
            return _replica(settings, router.target(table))
        case OpenSearchSettings():
            server = urlsplit(settings.urls[0]).netloc
            return DatasetName(f"opensearch://{server}", alias_of(router.target(table)))
        case ClickHouseSettings():
            held = Place(settings.database).table(router.target(table))
            _, host, port = settings.address
            return DatasetName(f"clickhouse://{host}:{port}", f"{held.schema}.{held.table}")
        case IcebergSettings():
            return _directory(location(absolute(settings.path), identifier(router.target(table))))
        case DuckDbSettings():
            return DatasetName("file", f"{absolute(settings.database)}/{router.target(table)}")
        case _:
            return _directory(below(absolute(settings.path), target_path(router, table)))


def holds_rows(settings: SinkSettings) -> bool:
    """Whether a sink's targets have the columns of the source's tables, rather than messages."""
    return isinstance(settings, FileSettings | ReplicaSettings) or settings.type in (
        "delta",
        "iceberg",
        "opensearch",
        "clickhouse",
        "duckdb",
    )


def _replica(settings: ReplicaSettings, target: str) -> DatasetName:
    scheme, host, port, database = settings.address
    server = f"{host}:{port}"
    if isinstance(settings, PostgresSettings):
        name = target if "." in target else f"{settings.schema}.{target}"
        return DatasetName(f"postgres://{server}", f"{database}.{name}")
    return DatasetName(f"{scheme}://{server}", target if "." in target else f"{database}.{target}")


def _directory(path: str) -> DatasetName:
    if is_local(path):
        return DatasetName("file", absolute(path))
    url = urlsplit(path)
    scheme = "s3" if url.scheme in ("s3a", "s3n") else url.scheme
    return DatasetName(
        f"{scheme}://{url.netloc}", url.path.lstrip("/") if scheme in ("s3", "gs") else url.path
    )

"""The Kafka sink: `sink` on the driver, `writer` in tasks, `librdkafka` below both. Needs an extra."""

from __future__ import annotations

import importlib
import importlib.util

from tailrace.config.sinks import KafkaSettings
from tailrace.errors import ConfigError
from tailrace.sinks.base import Sink
from tailrace.sinks.route import Router


def kafka_sink(settings: KafkaSettings, router: Router, connector: str, database: str) -> Sink:
    """The sink that `settings` ask for.

    Args:
        settings: where, and how.
        router: names the targets.
        connector: Debezium's name of the source's kind.
        database: the source's database, where tables are in one (PostgreSQL).

    Raises:
        ConfigError: a setting is not allowed, or confluent-kafka is not installed.
    """
    if importlib.util.find_spec("confluent_kafka") is None:
        raise ConfigError(
            "the Kafka sink needs confluent-kafka", "it is not installed", "pip install 'tailrace[kafka]'"
        )
    sink: Sink = importlib.import_module("tailrace.sinks.kafka.sink").KafkaSink(
        settings, router, connector, database
    )
    return sink

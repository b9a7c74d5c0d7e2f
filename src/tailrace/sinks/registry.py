"""Which class writes for which sink settings. A new sink is one line here."""

from __future__ import annotations

from tailrace.config.model import (
    ConsoleSettings,
    DeltaSettings,
    JsonSettings,
    KafkaSettings,
    ParquetSettings,
    SinkSettings,
)
from tailrace.sinks.base import Sink
from tailrace.sinks.console import ConsoleSink
from tailrace.sinks.delta import DeltaSink
from tailrace.sinks.files import FileSink
from tailrace.sinks.kafka import kafka_sink
from tailrace.transform.route import Router


def make_sink(settings: SinkSettings, router: Router, connector: str = "mysql") -> Sink:
    """The sink that `settings` ask for.

    Args:
        settings: which, and how.
        router: names the targets.
        connector: the source's kind, as Debezium calls it.
    """
    match settings:
        case DeltaSettings():
            return DeltaSink(settings, router)
        case ParquetSettings() | JsonSettings():
            return FileSink(settings, router)
        case KafkaSettings():
            return kafka_sink(settings, router, connector)
        case ConsoleSettings():
            return ConsoleSink(settings, router)

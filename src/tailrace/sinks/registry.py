"""Which class writes for which sink settings. A new sink is one line here."""

from __future__ import annotations

from tailrace.config.model import Pipeline
from tailrace.config.sinks import (
    ConsoleSettings,
    DeltaSettings,
    IcebergSettings,
    JsonSettings,
    KafkaSettings,
    MySqlSettings,
    ParquetSettings,
    PostgresSettings,
    SinkSettings,
)
from tailrace.sinks.base import Sink
from tailrace.sinks.console import ConsoleSink
from tailrace.sinks.delta import DeltaSink
from tailrace.sinks.fan_out import SeveralSinks
from tailrace.sinks.files import FileSink
from tailrace.sinks.iceberg import iceberg_sink
from tailrace.sinks.kafka import kafka_sink
from tailrace.sinks.replica.sink import ReplicaSink
from tailrace.sinks.route import Router


def make_sinks(pipeline: Pipeline) -> Sink:
    """One sink that writes to all that `pipeline` names."""
    sinks = [make_sink(settings, pipeline) for settings in pipeline.sinks]
    return sinks[0] if len(sinks) == 1 else SeveralSinks(sinks)


def make_sink(settings: SinkSettings, pipeline: Pipeline) -> Sink:
    """The sink of `pipeline` that `settings` ask for."""
    router = Router(pipeline.routes)
    match settings:
        case DeltaSettings():
            return DeltaSink(settings, router)
        case IcebergSettings():
            return iceberg_sink(settings, router)
        case ParquetSettings() | JsonSettings():
            return FileSink(settings, router)
        case KafkaSettings():
            return kafka_sink(settings, router, pipeline.source.dialect, pipeline.source.database)
        case MySqlSettings() | PostgresSettings():
            return ReplicaSink(settings, router, pipeline.source.dialect)
        case ConsoleSettings():
            return ConsoleSink(settings, router)

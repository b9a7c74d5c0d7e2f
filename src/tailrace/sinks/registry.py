"""The sink class for each kind of settings. A new sink is one case here.

A sink's module is imported only if a pipeline uses it: other sinks may need packages that are not
installed.
"""

# ruff: noqa: PLC0415
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
from tailrace.sinks.fan_out import SeveralSinks
from tailrace.sinks.route import Router


def make_sinks(pipeline: Pipeline) -> Sink:
    """One sink that writes to all sinks of `pipeline`."""
    sinks = [make_sink(settings, pipeline) for settings in pipeline.sinks]
    return sinks[0] if len(sinks) == 1 else SeveralSinks(sinks)


def make_sink(settings: SinkSettings, pipeline: Pipeline) -> Sink:
    """The sink of `pipeline` with `settings`; its extra must be installed."""
    router = Router(pipeline.routes)
    match settings:
        case DeltaSettings():
            from tailrace.sinks.delta.sink import DeltaSink

            return DeltaSink(settings, router)
        case IcebergSettings():
            from tailrace.sinks.iceberg.sink import IcebergSink

            return IcebergSink(settings, router)
        case ParquetSettings() | JsonSettings():
            from tailrace.sinks.files import FileSink

            return FileSink(settings, router)
        case KafkaSettings():
            from tailrace.sinks.kafka.sink import KafkaSink

            return KafkaSink(settings, router, pipeline.source.dialect, pipeline.source.database)
        case MySqlSettings() | PostgresSettings():
            from tailrace.sinks.replica.sink import ReplicaSink

            return ReplicaSink(settings, router, pipeline.source.dialect)
        case ConsoleSettings():
            from tailrace.sinks.console import ConsoleSink

            return ConsoleSink(settings, router)

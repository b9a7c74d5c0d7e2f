"""The sink class for each kind of settings, and what its targets hold. A new sink is a case here and there.

A sink's module is imported only if a pipeline uses it: other sinks may need packages that are not
installed.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.config.kafka import KafkaDelivery, KafkaSettings
from tailrace.config.message_sinks import NatsSettings, RedisSettings, RocketMqSettings, WebhookSettings
from tailrace.config.model import Pipeline
from tailrace.config.rabbitmq import RabbitMqSettings
from tailrace.config.sink_settings import JsonMessageSettings, OnError, RefusedRow
from tailrace.config.sinks import (
    ClickHouseSettings,
    ConsoleSettings,
    DeltaSettings,
    DuckDbSettings,
    FileSettings,
    IcebergSettings,
    JsonSettings,
    MySqlSettings,
    OpenSearchSettings,
    ParquetSettings,
    PostgresSettings,
    SinkSettings,
    WriteMode,
    sink_names,
)
from tailrace.errors import SinkError, TransientSinkError
from tailrace.model.table import TableId
from tailrace.sinks.base import Sink, StreamId
from tailrace.sinks.fan_out import SeveralSinks
from tailrace.sinks.quarantine import Quarantine, SinkQuarantine
from tailrace.sinks.quarantining import ChoosySink, QuarantiningSink
from tailrace.sinks.route import Router
from tailrace.sinks.shared_targets import SharedTargets, SinkOfSource, SourceOfTarget
from tailrace.sinks.standing import SinkStanding, TargetStanding
from tailrace.sinks.timed_sink import TimedSink
from tailrace.spark.checkpoint import absolute, is_local

if TYPE_CHECKING:
    from tailrace.sinks.messages.sink import System


def make_sinks(pipeline: Pipeline, shared: SharedTargets | None = None, *, lease: int = 0) -> Sink:
    """One sink that writes to all sinks of `pipeline`.

    Args:
        pipeline: the pipeline, of one source.
        shared: what it has in common with the pipeline's other sources; None: there are none.
        lease: the number of the lease under which they write; 0: no server runs the pipeline.
    """
    named = zip(sink_names(pipeline.sinks), pipeline.sinks, strict=True)
    makers = {
        name: partial(_timed, name, settings, pipeline, _of_source(pipeline, shared, number), lease)
        for number, (name, settings) in enumerate(named)
    }
    if len(makers) == 1:
        return next(iter(makers.values()))()
    return SeveralSinks(
        makers, tells_apart=any(settings.on_error is OnError.PARK for settings in pipeline.sinks)
    )


def _timed(
    name: str, settings: SinkSettings, pipeline: Pipeline, source: SourceOfTarget | None, lease: int
) -> Sink:
    return TimedSink(make_sink(settings, pipeline, source, lease), name, lease)


def make_sink(
    settings: SinkSettings, pipeline: Pipeline, source: SourceOfTarget | None = None, lease: int = 0
) -> Sink:
    """The sink of `pipeline` with `settings`; its extra must be installed.

    Args:
        settings: of the sink.
        pipeline: the pipeline, of one source.
        source: this source, if there are several.
        lease: as for `make_sinks`.
    """
    router = Router(pipeline.routes, pipeline.source_name)
    sink = _sink(settings, pipeline, router, source, lease)
    if source is None:
        return sink
    may_share = isinstance(settings, DeltaSettings | KafkaSettings | ConsoleSettings)
    return SinkOfSource(sink, settings.type, router, source, may_share=may_share)


def _of_source(pipeline: Pipeline, shared: SharedTargets | None, sink: int) -> SourceOfTarget | None:
    return None if shared is None else SourceOfTarget(pipeline.source_name, shared, sink)


def _messages(system: System, settings: JsonMessageSettings, router: Router, pipeline: Pipeline) -> Sink:
    from tailrace.sinks.messages.sink import message_sink

    return message_sink(settings, router, system, pipeline.source.dialect, pipeline.source.database)


def _sink(
    settings: SinkSettings, pipeline: Pipeline, router: Router, source: SourceOfTarget | None, lease: int
) -> Sink:
    match settings:
        case DeltaSettings():
            from tailrace.sinks.delta.sink import DeltaSink

            return _quarantining(settings, DeltaSink(settings, router, source, lease))
        case IcebergSettings():
            from tailrace.sinks.iceberg.sink import IcebergSink

            return _quarantining(settings, IcebergSink(settings, router))
        case ParquetSettings() | JsonSettings():
            from tailrace.sinks.files import FileSink

            return FileSink(settings, router)
        case KafkaSettings():
            from tailrace.sinks.kafka.sink import KafkaSink

            return KafkaSink(settings, router, pipeline.source.dialect, pipeline.source.database)
        case RocketMqSettings():
            from tailrace.sinks.rocketmq.sink import RocketMq

            return _messages(RocketMq(settings, router), settings, router, pipeline)
        case RedisSettings():
            from tailrace.sinks.redis.sink import RedisStreams

            return _messages(RedisStreams(settings, router), settings, router, pipeline)
        case WebhookSettings():
            from tailrace.sinks.webhook.sink import WebhookSystem

            return _messages(WebhookSystem(settings, router), settings, router, pipeline)
        case NatsSettings():
            from tailrace.sinks.nats.sink import NatsSubjects

            return _messages(NatsSubjects(settings, router), settings, router, pipeline)
        case RabbitMqSettings():
            from tailrace.sinks.rabbitmq.sink import RabbitMqExchange

            return _messages(RabbitMqExchange(settings, router), settings, router, pipeline)
        case MySqlSettings() | PostgresSettings():
            from tailrace.sinks.replica.own_source import OwnSource
            from tailrace.sinks.replica.sink import ReplicaSink

            own_source = OwnSource(pipeline.source, settings)
            return ReplicaSink(settings, router, pipeline.source.dialect, own_source)
        case OpenSearchSettings():
            from tailrace.sinks.opensearch.sink import OpenSearchSink

            return OpenSearchSink(settings, router)
        case ClickHouseSettings():
            if settings.mode is WriteMode.CHANGELOG:
                from tailrace.sinks.clickhouse.log_sink import ClickHouseLogSink

                return ClickHouseLogSink(settings, router)
            from tailrace.sinks.clickhouse.sink import ClickHouseSink

            return ClickHouseSink(settings, router)
        case DuckDbSettings():
            from tailrace.sinks.duckdb.sink import DuckSink

            return DuckSink(settings, router)
        case ConsoleSettings():
            from tailrace.sinks.console import ConsoleSink

            return ConsoleSink(settings, router)


def _quarantining(settings: DeltaSettings | IcebergSettings, sink: ChoosySink) -> Sink:
    if settings.on_refused_row is RefusedRow.FAIL:
        return sink
    return QuarantiningSink(sink, settings.max_quarantined)


def standing(
    settings: SinkSettings, pipeline: Pipeline, stream: StreamId, tables: Sequence[TableId]
) -> SinkStanding:
    """Ask the targets of a sink.

    Args:
        settings: of the sink; its extra must be installed.
        pipeline: the pipeline, of one source.
        stream: the stream.
        tables: the tables that it follows.

    Raises:
        TailraceError: the targets cannot be read.
    """
    try:
        return _standing(settings, pipeline, stream, tables)
    except (OSError, pa.ArrowException) as error:  # a store's; Arrow reads it
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        path = getattr(settings, "path", "")
        what = f"the targets of sink `{settings.type}` cannot be read"
        hint = "what the message names must be there, and this user must be allowed to read it"
        if path and is_local(path):
            raise SinkError(what, text, hint, code="TR-7073") from None
        raise TransientSinkError(what, text, hint, code="TR-7073") from None


def _standing(
    settings: SinkSettings, pipeline: Pipeline, stream: StreamId, tables: Sequence[TableId]
) -> SinkStanding:
    router = Router(pipeline.routes, pipeline.source_name)
    match settings:
        case DeltaSettings():
            from tailrace.sinks.delta import standing as delta

            return SinkStanding(delta.targets(settings, router, tables, router.source, stream.query))
        case IcebergSettings():
            from tailrace.sinks.iceberg import standing as iceberg

            return SinkStanding(iceberg.targets(settings, router, tables, stream.query))
        case FileSettings():
            from tailrace.sinks import files

            by_name = files.newest_batches(settings, router, tables, stream)
            return SinkStanding({name: TargetStanding(n) for name, n in by_name})
        case KafkaSettings() if settings.delivery is KafkaDelivery.EXACTLY_ONCE:
            from tailrace.sinks.kafka import standing as kafka

            newest = kafka.newest_batch(settings, stream)
            return SinkStanding({settings.topic_prefix: TargetStanding(newest)})
        case MySqlSettings() | PostgresSettings():
            from tailrace.sinks.replica import standing as replica

            newest_by_target = replica.newest_batches(settings, pipeline.source.dialect, stream.query)
            return SinkStanding({name: TargetStanding(n) for name, n in newest_by_target.items()})
        case OpenSearchSettings():
            from tailrace.sinks.opensearch import standing as opensearch

            return SinkStanding(opensearch.targets(settings, router, tables, stream))
        case RedisSettings():
            from tailrace.sinks.redis import standing as redis

            return SinkStanding(redis.targets(settings, router, tables, stream))
        case ClickHouseSettings():
            from tailrace.sinks.clickhouse import standing as clickhouse

            return SinkStanding(clickhouse.targets(settings, router, tables, stream))
        case DuckDbSettings():
            from tailrace.sinks.duckdb import standing as duck

            return SinkStanding(duck.targets(settings, stream.query))
        case _:
            return SinkStanding()


def quarantine_of(settings: SinkSettings, pipeline: Pipeline, stream: StreamId) -> SinkQuarantine | None:
    """The rows that a sink has put aside; None: it refuses none, or has put none aside.

    Args:
        settings: of the sink; its extra must be installed.
        pipeline: the pipeline, of one source.
        stream: the stream.

    Raises:
        TailraceError: the target cannot be reached.
    """
    match settings:
        case DeltaSettings() | IcebergSettings():
            of_source = f"/_tailrace/sources/{pipeline.source_name}" if pipeline.named is not None else ""
            of_source = of_source if isinstance(settings, DeltaSettings) else ""
            return Quarantine(f"{absolute(settings.path)}{of_source}", stream.query)
        case KafkaSettings():
            from tailrace.sinks.kafka.standing import KafkaQuarantine

            return KafkaQuarantine(settings, stream.query)
        case MySqlSettings() | PostgresSettings():
            from tailrace.sinks.replica.standing import ReplicaQuarantine

            return ReplicaQuarantine(settings, pipeline.source.dialect, stream.query)
        case OpenSearchSettings():
            from tailrace.sinks.opensearch.quarantine import OpenSearchQuarantine

            return OpenSearchQuarantine(settings, stream.query)
        case ClickHouseSettings():
            from tailrace.sinks.clickhouse.quarantine import ClickHouseQuarantine

            return ClickHouseQuarantine(settings, stream.query)
        case _:
            return None

"""A pipeline file as typed values: what `tailrace run` works from.

    source:   where changes come from      SourceOptions, and Spark's own spelling of them
    sink:     where they go                one of SINKS, told apart by `type`
    route:    which target a table has     RouteRule, the first that matches counts
    pipeline: how it runs                  PipelineSettings

Every section but `source` is a dataclass, and `config.load` reads a section by its dataclass: a field
`checkpoint_path` is the key `checkpoint-path` (camelCase is read too), its annotation is the type, a field
without a default must be given. A new setting is a new field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from tailrace.config.options import MODES, SourceOptions
from tailrace.errors import ConfigError


class WriteMode(StrEnum):
    """What a table sink holds."""

    UPSERT = "upsert"
    CHANGELOG = "changelog"


class RefusedRow(StrEnum):
    """What becomes of a row that a database refuses."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


class TriggerMode(StrEnum):
    """When batches run."""

    CONTINUOUS = "continuous"
    AVAILABLE_NOW = "available-now"
    INTERVAL = "interval"


@dataclass(frozen=True)
class DeltaSettings:
    """One Delta table per target below `path`."""

    type: ClassVar[str] = "delta"
    path: str
    mode: WriteMode = WriteMode.UPSERT
    #: Tables written at the same time.
    parallelism: int = 4


@dataclass(frozen=True)
class ParquetSettings:
    """Change log as Parquet files: one directory per target, one directory in it per batch."""

    type: ClassVar[str] = "parquet"
    path: str
    parallelism: int = 4


@dataclass(frozen=True)
class JsonSettings:
    """Change log as files of JSON lines, laid out like Parquet's."""

    type: ClassVar[str] = "json"
    path: str
    parallelism: int = 4


class KafkaDelivery(StrEnum):
    """What a batch that comes again does to topics."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class MessageEncoding(StrEnum):
    """How keys and values become bytes."""

    DEBEZIUM_JSON = "debezium-json"


@dataclass(frozen=True)
class KafkaSettings:
    """Topics of a Kafka cluster, filled as Debezium fills them.

    Args:
        bootstrap_servers: `host:port`, comma-separated.
        topic_prefix: Debezium's `topic.prefix`: begins the names of topics and schemas.
        value_format: how values are encoded.
        schemas_enable: whether JSON carries its Connect schema.
        tombstones: Debezium's `tombstones.on.delete`: whether a message without a value follows a delete.
        delivery: exactly-once by transactions, or at-least-once.
        parallelism: writers, each with a producer of its own; default: as many as Spark has cores.
        on_refused_row: what becomes of a message that is larger than its topic takes.
        topic_partitions: partitions of a new topic; -1: the brokers' default.
        topic_replication: replicas of a new topic; -1: the brokers' default.
        topic_config: settings of a new topic, e.g. `cleanup.policy`.
        properties: settings of librdkafka, e.g. `security.protocol`; secrets as references.
        decimal_handling_mode: Debezium's `decimal.handling.mode`; so the next three.
    """

    type: ClassVar[str] = "kafka"
    bootstrap_servers: str
    topic_prefix: str
    value_format: MessageEncoding = MessageEncoding.DEBEZIUM_JSON
    schemas_enable: bool = False
    tombstones: bool = True
    delivery: KafkaDelivery = KafkaDelivery.EXACTLY_ONCE
    parallelism: int | None = None
    on_refused_row: RefusedRow = RefusedRow.FAIL
    topic_partitions: int = -1
    topic_replication: int = -1
    topic_config: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    decimal_handling_mode: str = MODES["decimal.handling.mode"][0]
    time_precision_mode: str = MODES["time.precision.mode"][0]
    bigint_unsigned_handling_mode: str = MODES["bigint.unsigned.handling.mode"][0]
    binary_handling_mode: str = MODES["binary.handling.mode"][0]

    def __post_init__(self) -> None:
        for mode, allowed in MODES.items():
            name = mode.replace(".", "_")
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"unknown value `{getattr(self, name)}` at `sink.{name.replace('_', '-')}`",
                    f"allowed: {', '.join(allowed)}",
                )


@dataclass(frozen=True)
class ConsoleSettings:
    """Changes printed to the terminal."""

    type: ClassVar[str] = "console"
    #: Most changes printed of one batch.
    rows: int = 20


SinkSettings = (
    DeltaSettings
    | ParquetSettings
    | JsonSettings
    | KafkaSettings
    | ConsoleSettings
)

#: The settings of each sink type.
SINKS: Mapping[str, type[SinkSettings]] = {
    s.type: s
    for s in (
        DeltaSettings,
        ParquetSettings,
        JsonSettings,
        KafkaSettings,
        ConsoleSettings,
    )
}


@dataclass(frozen=True)
class RouteRule:
    """Tables that match go to `sink_table`.

    Args:
        source_table: regular expression over `database.table`, matched against the whole name.
        sink_table: the target's name; `$1`... stand for groups, `replace_symbol` for the table's name.
        replace_symbol: text in `sink_table` that the source table's own name takes the place of.
        description: for people.
    """

    source_table: str
    sink_table: str
    replace_symbol: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class PipelineSettings:
    """How a pipeline runs.

    Args:
        name: names the pipeline in logs, targets and Spark; default: the file's name.
        checkpoint: directory of Spark's checkpoint; default: `_tailrace/checkpoint` below the sink's path.
        trigger: when batches run.
        interval_ms: time between batches of `trigger: interval`, milliseconds.
        parallelism: cores of a local Spark; default: all.
        master: Spark master; default: SPARK_MASTER, or a local Spark.
        restarts: how often in a row a stream that failed in a passing way is started again.
        spark: further Spark settings.
    """

    name: str = ""
    checkpoint: str | None = None
    trigger: TriggerMode = TriggerMode.CONTINUOUS
    interval_ms: int = 1000
    parallelism: int | None = None
    master: str | None = None
    restarts: int = 10
    spark: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pipeline:
    """A whole pipeline file.

    Args:
        source: the source's options, typed (`shape` is `cells`).
        source_options: the same as given to Spark: camelCase names and texts, secrets as references.
        sink: the sink's settings.
        routes: in the file's order.
        settings: how it runs; `name` and `checkpoint` are filled in.
    """

    source: SourceOptions
    source_options: Mapping[str, str] = field(repr=False)
    sink: SinkSettings
    routes: tuple[RouteRule, ...]
    settings: PipelineSettings

    @property
    def checkpoint(self) -> str:
        """Directory of Spark's checkpoint."""
        assert self.settings.checkpoint is not None
        return self.settings.checkpoint

"""Options of the source that show in messages alone: which sinks they need, and what they exclude."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.config.kafka import KafkaSettings, ValueEncoding
from tailrace.config.model import RouteRule, TransformRule
from tailrace.config.options import INCLUDE_QUERY, SourceOptions
from tailrace.config.sink_settings import JsonMessageSettings
from tailrace.config.sinks import SinkSettings
from tailrace.errors import ConfigError


def check_queries(
    source: SourceOptions,
    sinks: Sequence[SinkSettings],
    transforms: Sequence[TransformRule],
    routes: Sequence[RouteRule],
) -> None:
    """Reject statements that no sink writes, and those beside rows that are not as the source has them.

    A transform hides rows and columns, which a statement has. One that hides nothing is refused, too: what
    its expressions keep cannot be told from what they leave out.

    Raises:
        ConfigError: the source captures statements, and may not.
    """
    if not source.include_query:
        return
    hiding = ["transform"] if transforms else []
    hiding += [f"route[{i}].shard-column" for i, rule in enumerate(routes) if rule.shard_column]
    if hiding:
        raise ConfigError(
            f"`source.{INCLUDE_QUERY}` and `{hiding[0]}` exclude each other",
            "a statement has the values of all columns and rows, also of those that a transform leaves out",
            "leave one of them out",
            code="TR-1090",
        )
    if not any(getattr(sink, "value_format", "canal-json") != "canal-json" for sink in sinks):
        raise ConfigError(
            f"`source.{INCLUDE_QUERY}` has no effect here",
            "no sink writes messages with a block `source`",
            "leave it out, or set value-format: debezium-json in a sink",
            code="TR-1011",
        )


def check_propagation(source: SourceOptions, sinks: Sequence[SinkSettings]) -> None:
    """Reject comments and declared types where no sink writes schemas that have them.

    Raises:
        ConfigError: the source captures them.
    """
    if source.propagation and not any(map(_has_connect_schemas, sinks)):
        raise ConfigError(
            "`source.include.schema.comments`, `source.column.propagate.source.type` and "
            "`source.datatype.propagate.source.type` have no effect here",
            "no sink writes JSON with schemas, or Avro",
            "leave them out, or set schemas-enable: true in a sink",
            code="TR-1011",
        )


def _has_connect_schemas(sink: SinkSettings) -> bool:
    if isinstance(sink, KafkaSettings):
        return sink.carries_schemas and sink.value_format is not ValueEncoding.PROTOBUF
    return isinstance(sink, JsonMessageSettings) and sink.schemas_enable

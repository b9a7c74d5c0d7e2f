"""Which sinks can be compared with a source; by their settings alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tailrace.config.options import SourceOptions
from tailrace.config.sinks import (
    ClickHouseSettings,
    DeltaSettings,
    DuckDbSettings,
    IcebergSettings,
    MySqlSettings,
    OpenSearchSettings,
    PostgresSettings,
    SinkSettings,
)
from tailrace.errors import ConfigError

#: The settings of sinks that can be verified.
VerifiableSettings: TypeAlias = (
    DeltaSettings
    | IcebergSettings
    | MySqlSettings
    | PostgresSettings
    | OpenSearchSettings
    | ClickHouseSettings
    | DuckDbSettings
)

#: The sources whose replicas are compared: the values of their types are read back from any of these.
_OF_REPLICAS = ("mysql", "mariadb", "postgresql")


def compared_sink(sinks: Sequence[SinkSettings], source: SourceOptions) -> VerifiableSettings:
    """The first sink that can be verified.

    Raises:
        ConfigError: there is none.
    """
    for sink in sinks:
        if (found := _verifiable(sink, source)) is not None:
            return found
    raise ConfigError(
        f"a `{sinks[0].type}` sink of a {source.dialect} source cannot be verified",
        "verify supports Delta, Iceberg, DuckDB, OpenSearch, ClickHouse, and replicas of MySQL, MariaDB and"
        " PostgreSQL",
        "use one of these sinks; `tailrace resync` reads tables again without comparing them",
        code="TR-8103",
    )


def is_comparable(sink: SinkSettings, source: SourceOptions) -> bool:
    """Whether the targets of a sink can be verified."""
    return _verifiable(sink, source) is not None


def shows_earlier(sinks: Sequence[SinkSettings], source: SourceOptions) -> bool:
    """Whether the targets that are compared can be read as an earlier batch left them."""
    return isinstance(compared_sink(sinks, source), DeltaSettings | IcebergSettings)


def _verifiable(sink: SinkSettings, source: SourceOptions) -> VerifiableSettings | None:
    if isinstance(
        sink, DeltaSettings | IcebergSettings | OpenSearchSettings | ClickHouseSettings | DuckDbSettings
    ):
        return sink
    if isinstance(sink, MySqlSettings | PostgresSettings) and source.dialect in _OF_REPLICAS:
        return sink
    return None

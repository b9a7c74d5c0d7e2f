"""Tables whose rows meet in one target: rows with the same key are one row there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tailrace.config.model import Pipeline
from tailrace.config.sinks import (
    ClickHouseSettings,
    DeltaSettings,
    DuckDbSettings,
    IcebergSettings,
    OpenSearchSettings,
    ReplicaSettings,
    SinkSettings,
    WriteMode,
)
from tailrace.model.table import TableId
from tailrace.sinks.route import Router
from tailrace.sources.preflight import Finding, Severity

#: Most tables that a finding names.
_MOST_NAMED = 3


def shard_findings(pipeline: Pipeline, tables: Iterable[TableId]) -> Iterator[Finding]:
    """A finding for each target that keeps rows of several tables and cannot tell them apart."""
    if not any(_holds_rows(settings) for settings in pipeline.sinks):
        return
    router = Router(pipeline.routes, pipeline.source_name)
    by_target: dict[str, list[TableId]] = {}
    for table in tables:
        if router.shard_column(table) is None:
            by_target.setdefault(router.target(table), []).append(table)
    for target, sharing in sorted(by_target.items()):
        if len(sharing) > 1:
            named = ", ".join(map(str, sorted(sharing)[:_MOST_NAMED]))
            more = f" and {len(sharing) - _MOST_NAMED} more" if len(sharing) > _MOST_NAMED else ""
            yield Finding(
                f"target {target}",
                f"holds the rows of {len(sharing)} tables: {named}{more}",
                "keys that no two of them share: rows with the same key are one row in the target, and a"
                " delete in one table removes the other's row",
                "shard-column: _shard    # in their route, unless their keys never meet",
                Severity.WARNING,
                code="TR-1555",
            )


def _holds_rows(settings: SinkSettings) -> bool:
    if isinstance(settings, DeltaSettings | IcebergSettings | ClickHouseSettings | DuckDbSettings):
        return settings.mode is not WriteMode.CHANGELOG
    return isinstance(settings, ReplicaSettings | OpenSearchSettings)

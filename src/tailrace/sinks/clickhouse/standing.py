"""What a server holds of a stream."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.config.sinks import ClickHouseSettings
from tailrace.model.table import TableId
from tailrace.sinks.base import StreamId
from tailrace.sinks.clickhouse import state
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.sql import Place
from tailrace.sinks.route import Router
from tailrace.sinks.standing import TargetStanding


def targets(
    settings: ClickHouseSettings, router: Router, tables: Sequence[TableId], stream: StreamId
) -> dict[str, TargetStanding]:
    """The newest batch that each target has something of, by the target's name."""
    client, place = ClickHouseClient(settings), Place(settings.database)
    if not state.exists(client, place):
        return {}
    names = sorted({router.target(table) for table in tables})
    progress = state.read(client, place, names, stream)
    return {name: TargetStanding(p.begun if p.begun >= 0 else None) for name, p in progress.items()}

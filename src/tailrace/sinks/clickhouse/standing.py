"""What a server holds of a stream."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.config.sinks import ClickHouseSettings
from tailrace.model.table import TableId
from tailrace.sinks.base import StreamId
from tailrace.sinks.clickhouse import state
from tailrace.sinks.clickhouse import tables as tables_
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.sql import Place
from tailrace.sinks.route import Router
from tailrace.sinks.standing import TargetStanding


def targets(
    settings: ClickHouseSettings, router: Router, tables: Sequence[TableId], stream: StreamId
) -> dict[str, TargetStanding]:
    """The newest batch that each target has something of, by the target's name."""
    client, place = ClickHouseClient(settings), Place(settings.database)
    names = sorted({router.target(table) for table in tables})
    progress = state.read(client, place, names, stream) if state.exists(client, place) else {}
    newest = {
        name: progress[name].begun
        if name in progress
        else tables_.newest_batch(client, place, name, stream)  # somebody has dropped what we noted
        for name in names
    }
    return {name: TargetStanding(batch) for name, batch in newest.items() if batch is not None}

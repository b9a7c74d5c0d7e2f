"""What a cluster holds of a stream."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.config.sinks import OpenSearchSettings
from tailrace.model.table import TableId
from tailrace.sinks.base import StreamId
from tailrace.sinks.opensearch import state
from tailrace.sinks.opensearch.client import OpenSearchClient
from tailrace.sinks.route import Router
from tailrace.sinks.standing import TargetStanding


def targets(
    settings: OpenSearchSettings, router: Router, tables: Sequence[TableId], stream: StreamId
) -> dict[str, TargetStanding]:
    """The newest batch that each target has something of, by the target's name."""
    names = sorted({router.target(table) for table in tables})
    progress = state.read(OpenSearchClient.of(settings), names, stream)
    return {name: TargetStanding(p.begun if p.begun >= 0 else None) for name, p in progress.items()}

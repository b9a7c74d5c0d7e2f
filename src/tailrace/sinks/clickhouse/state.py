"""How far targets are: rows of the table `_tailrace_state`.

    begun    the last batch that something may have been written of
    done     the last batch that the target has as a whole

What must not be lost is in the target itself (`tables`): whose it is in its comment, its newest batch in the
versions of its rows. Without the rows here, a batch that comes again is written again, to no effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa

from tailrace.config.sinks import WriteMode
from tailrace.sinks.base import StreamId
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.layout import StorageLayout, engine_of
from tailrace.sinks.clickhouse.sql import Place, text
from tailrace.sinks.versions import NEVER

_TABLE = "state"


@dataclass(frozen=True)
class TargetProgress:
    """How far a target is.

    Args:
        target: its name.
        stream: the stream that owns it.
        begun: the last batch that something may have been written of.
        done: the last batch that the target has.
    """

    target: str
    stream: StreamId
    begun: int = NEVER
    done: int = NEVER


def create(client: ClickHouseClient, place: Place, layout: StorageLayout) -> None:
    """Create the table, and its database, unless they exist."""
    engine = engine_of(WriteMode.UPSERT, layout.engine)
    client.run(layout.create_database(place.database))
    client.run(
        f"CREATE TABLE IF NOT EXISTS {place.own(_TABLE)}{layout.on_cluster} (target String, stream String,"
        f" pipeline String, begun Int64, done Int64, version Int64) ENGINE = {engine}(version)"
        " ORDER BY (target, stream) COMMENT 'Tailrace: how far its targets are'"
    )


def exists(client: ClickHouseClient, place: Place) -> bool:
    """Whether the table exists."""
    return bool(client.select(f"EXISTS TABLE {place.own(_TABLE)}").column(0)[0].as_py())


def read(
    client: ClickHouseClient, place: Place, targets: Collection[str], stream: StreamId
) -> dict[str, TargetProgress]:
    """How far those targets are that have begun, by name; of another stream, none has."""
    if not targets:
        return {}
    listed = ", ".join(map(text, targets))
    rows = client.select(
        f"SELECT target, begun, done FROM {place.own(_TABLE)} FINAL"
        f" WHERE stream = {text(stream.query)} AND target IN ({listed})"
    )
    found = zip(*(rows.column(i).to_pylist() for i in range(3)), strict=True)
    return {
        target.decode(): TargetProgress(target.decode(), stream, begun, done) for target, begun, done in found
    }


def write(client: ClickHouseClient, place: Place, progress: Iterable[TargetProgress]) -> None:
    """Note how far targets are; what is noted already of a later time stays."""
    rows = [
        {
            "target": p.target,
            "stream": p.stream.query,
            "pipeline": p.stream.pipeline,
            "begun": p.begun,
            "done": p.done,
            "version": 2 * p.begun + (p.done == p.begun),
        }
        for p in progress
    ]
    if rows:
        client.insert(place.own(_TABLE), pa.Table.from_pylist(rows))

"""Refused rows in the table `_tailrace_quarantine`, for all streams.

Before rows are inserted, those are found that a column cannot hold (`columns.unfit`): ClickHouse itself would
write other values. Rows that the server refuses (a constraint) are found by halves, by the sinks of rows
alone: the parts of a change log must be the same whenever they come (`division`).

A row has an id, made of stream, target, batch and its place: a batch that comes again puts it there once.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.config.sinks import ClickHouseSettings, WriteMode
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.layout import StorageLayout, engine_of
from tailrace.sinks.clickhouse.sql import Place, text
from tailrace.sinks.quarantine import QuarantinedRow, too_many

_TABLE = "quarantine"


def create(client: ClickHouseClient, place: Place, layout: StorageLayout) -> None:
    """Create the table, unless it exists; its database does."""
    engine = engine_of(WriteMode.UPSERT, layout.engine)
    client.run(
        f"CREATE TABLE IF NOT EXISTS {place.own(_TABLE)}{layout.on_cluster} (stream String, target String,"
        f" source String, batch Int64, id String, row String) ENGINE = {engine}"
        " ORDER BY (stream, target, source, batch, id) SETTINGS fsync_after_insert = 1"
        " COMMENT 'Tailrace: rows that targets have refused'"
    )


def put(
    client: ClickHouseClient, place: Place, stream: str, rows: Sequence[QuarantinedRow], most: int
) -> Counter[str]:
    """Put rows aside.

    Args:
        client: the server.
        place: where the table is.
        stream: the stream's id.
        rows: rows of one target and batch.
        most: how many rows of a source table the quarantine may have of a target.

    Returns:
        How many were put aside, by source table.

    Raises:
        SinkError: a table has more rows.
    """
    listed = {_id(stream, row): row for row in rows}
    counts = Counter(row.table for row in listed.values())
    ids = ", ".join(map(text, listed))
    for table, count in sorted(counts.items()):
        one = next(row for row in rows if row.table == table)
        found = client.select(
            f"SELECT toInt64(count()) FROM {place.own(_TABLE)} FINAL WHERE stream = {text(stream)}"
            f" AND target = {text(one.target)} AND source = {text(table)} AND id NOT IN ({ids})"
        )
        if found.column(0)[0].as_py() + count > most:
            raise too_many(table, most, one.reason)
    columns = {
        "stream": [stream] * len(listed),
        "target": [row.target for row in listed.values()],
        "source": [row.table for row in listed.values()],
        "batch": [row.batch for row in listed.values()],
        "id": list(listed),
        "row": [row.to_json() for row in listed.values()],
    }
    if listed:
        client.insert(place.own(_TABLE), pa.table(columns))
    return counts


@dataclass(frozen=True)
class ClickHouseQuarantine:
    """See `SinkQuarantine`.

    Args:
        settings: the sink's.
        stream: the stream's id.
    """

    settings: ClickHouseSettings
    stream: str

    def rows(self) -> list[QuarantinedRow]:
        """See `SinkQuarantine`."""
        client, place = ClickHouseClient(self.settings), Place(self.settings.database)
        if not _exists(client, place):
            return []
        found = client.select(
            f"SELECT row FROM {place.own(_TABLE)} FINAL WHERE stream = {text(self.stream)}"
            " ORDER BY source, batch, id"
        )
        rows = [QuarantinedRow.from_json(row.decode()) for row in found.column(0).to_pylist()]
        return sorted(rows, key=lambda row: (row.table, row.batch, row.position))

    def clear(self, table: str) -> int:
        """See `SinkQuarantine`."""
        client, place = ClickHouseClient(self.settings), Place(self.settings.database)
        if not _exists(client, place):
            return 0
        layout = StorageLayout.of(self.settings, "")
        where = f"WHERE stream = {text(self.stream)} AND source = {text(table)}"
        found = client.select(f"SELECT toInt64(count()) FROM {place.own(_TABLE)} FINAL {where}")
        client.run(
            f"ALTER TABLE {place.own(_TABLE)}{layout.on_cluster} DELETE {where} SETTINGS mutations_sync = 2"
        )
        return int(found.column(0)[0].as_py())


def _exists(client: ClickHouseClient, place: Place) -> bool:
    return bool(client.select(f"EXISTS TABLE {place.own(_TABLE)}").column(0)[0].as_py())


def _id(stream: str, row: QuarantinedRow) -> str:
    key: Mapping[str, object] = row.key or {}
    of = json.dumps([stream, row.target, row.table, row.batch, row.position, key], default=str)
    return hashlib.sha256(of.encode()).hexdigest()

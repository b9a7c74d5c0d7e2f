"""What the sinks of ClickHouse have in common: the connection, the targets' tables, and how far they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from tailrace.config.sink_settings import RefusedRow
from tailrace.config.sinks import ClickHouseEngine, ClickHouseSettings
from tailrace.sinks.base import CellBatch
from tailrace.sinks.claims import Claims
from tailrace.sinks.clickhouse import quarantine, state, tables
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.columns import ALL_YEARS, SOME_YEARS, Years
from tailrace.sinks.clickhouse.layout import StorageLayout
from tailrace.sinks.clickhouse.sql import Place
from tailrace.sinks.clickhouse.state import TargetProgress
from tailrace.sinks.clickhouse.target import Target
from tailrace.sinks.route import Router
from tailrace.sinks.versioned_sink import VersionedSink

A = TypeVar("A")


class ClickHouseTables(VersionedSink[A]):
    """Tables of a ClickHouse server.

    Args:
        settings: the sink's settings.
        router: names the targets.
    """

    gone = "TR-7704"

    def __init__(self, settings: ClickHouseSettings, router: Router) -> None:
        self._place = Place(settings.database)
        claims = Claims(router, lambda table: [self._place.location(router, table)])
        super().__init__(claims, settings.parallelism)
        self._settings = settings
        self._client: ClickHouseClient | None = None
        self._years = SOME_YEARS
        #: The tables of targets, as this sink has found or left them.
        self._targets: dict[str, Target] = {}

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`: readers see what is durable."""
        return 0

    def close(self) -> None:
        """See `Sink.close`."""
        client, self._client = self._client, None
        self._targets = {}
        if client is not None:
            client.close()

    def _open(self) -> ClickHouseClient:
        if self._client is None:
            client = ClickHouseClient(self._settings)
            client.require_synchronous_inserts()
            state.create(client, self._place, self._layout(""))
            if self._settings.on_refused_row is RefusedRow.QUARANTINE:
                quarantine.create(client, self._place, self._layout(""))
            self._years = _years_of(client)
            self._client = client
        return self._client

    def _forget(self) -> None:
        self._targets = {}

    def _layout(self, target: str) -> StorageLayout:
        return StorageLayout.of(self._settings, target)

    def _find(self, batch: CellBatch, name: str) -> Target | None:
        """The table of a target, None if there is none; see `tables.find`."""
        settings = self._settings
        if name in self._targets:
            return self._targets[name]
        mode, engine = settings.mode, settings.engine
        found = tables.find(self._open(), self._place, name, batch.stream, mode=mode, engine=engine)
        if found is not None and engine is ClickHouseEngine.REPLICATED:
            # another replica may have written what this one is to have before it is read
            self._open().run(f"SYSTEM SYNC REPLICA {found.path}")
        return found

    def _done(self, batch: CellBatch, targets: Collection[str]) -> dict[str, int]:
        found = state.read(self._open(), self._place, targets, batch.stream)
        return {name: progress.done for name, progress in found.items()}

    def _note(self, batch: CellBatch, attempt: A, done: Mapping[str, int]) -> None:  # noqa: ARG002 - has none
        progress = [TargetProgress(name, batch.stream, batch.id, last) for name, last in done.items()]
        state.write(self._open(), self._place, progress)


def _years_of(client: ClickHouseClient) -> Years:
    """What a server's dates hold: servers of today hold more than those before them."""
    first, last = ALL_YEARS.first, ALL_YEARS.last
    days = client.select(f"SELECT toInt32(toDate32({first})), toInt32(toDate32({last}))")
    return ALL_YEARS if [c[0].as_py() for c in days.columns] == [first, last] else SOME_YEARS

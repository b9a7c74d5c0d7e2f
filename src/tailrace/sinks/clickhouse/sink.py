"""Tables of a ClickHouse server, kept equal to the source's.

    driver   create or alter tables (`tables`); note which batch begins (`state`)
    tasks      rows, each with the version of the batch (`writer`)
    driver   delete what tables that were read again no longer have (`vanished`); note that the batch is done

A batch becomes visible INSERT by INSERT. A batch that comes again, and a task that outlives its batch, change
nothing: of a key's rows the one with the highest version counts, and a batch writes the same rows each time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tailrace.config.sinks import ClickHouseSettings
from tailrace.errors import SinkError
from tailrace.model.change import REREAD
from tailrace.sinks.base import CellBatch
from tailrace.sinks.claims import Claims
from tailrace.sinks.clickhouse import state, tables, vanished
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.columns import ALL_YEARS, SOME_YEARS, Years, require_names, type_of
from tailrace.sinks.clickhouse.sql import Place
from tailrace.sinks.clickhouse.state import TargetProgress
from tailrace.sinks.clickhouse.tables import Target
from tailrace.sinks.clickhouse.writer import InsertAttempt
from tailrace.sinks.replica.target_schema import TargetSchema, schema_for
from tailrace.sinks.route import Router
from tailrace.sinks.tables.former_columns import (
    former_columns,
    kept_columns,
    missed_columns,
    require_unneeded,
)
from tailrace.sinks.tables.rereads import Refresh
from tailrace.sinks.versioned_sink import VersionedSink
from tailrace.sinks.versions import ReadingStart, version_of
from tailrace.spark.cells import TableBatch


class ClickHouseSink(VersionedSink[InsertAttempt]):
    """Keeps tables of a ClickHouse server equal to the source's.

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
            state.create(client, self._place)
            self._years = _years_of(client)
            self._client = client
        return self._client

    def _forget(self) -> None:
        self._targets = {}

    def _done(self, batch: CellBatch, targets: Collection[str]) -> dict[str, int]:
        found = state.read(self._open(), self._place, targets, batch.stream)
        return {name: progress.done for name, progress in found.items()}

    def _attempt(self, batch: CellBatch, targets: Collection[str]) -> InsertAttempt:
        held = {name: self._targets[name] for name in targets}
        return InsertAttempt(self._open(), held, batch.id, self._years)

    def _note(self, batch: CellBatch, attempt: InsertAttempt, done: Mapping[str, int]) -> None:
        progress = [TargetProgress(name, batch.stream, batch.id, last) for name, last in done.items()]
        state.write(attempt.client, self._place, progress)

    def _remove(self, attempt: InsertAttempt, name: str, refresh: Refresh) -> None:
        vanished.remove(attempt, self._targets[name], refresh)

    def _prepare(
        self, batch: CellBatch, name: str, parts: Sequence[TableBatch], readings: Sequence[Refresh]
    ) -> bool:
        client = self._open()
        schemas = [schema for part in parts for schema in part.schemas]
        for schema in schemas:
            require_names(schema)
        old = self._targets.get(name) or tables.find(client, self._place, name, batch.stream)
        if old is None and not parts:
            return False
        if old is not None:
            old = self._without_former_columns(client, batch, old, parts)
        current = None if old is None else old.schema
        needed = schema_for(name, schemas, current, batch.following) if schemas else current
        assert needed is not None
        if old is None:
            target = Target(name, self._place.table(name), batch.stream, needed)
        else:
            _require_same_key(old.schema, needed)
            target = replace(old, schema=needed)
        for refresh in readings:
            reading = ReadingStart(refresh.reread.id, version_of(batch.id, REREAD))
            target = target.with_reading(refresh.name, reading)
        if old is None:
            batch.creates(name, self._claims.of(name))
            tables.create(client, self._place, target)
        elif target != old:
            tables.alter(client, old, target)
        self._targets[name] = target
        return True

    def _without_former_columns(
        self, client: ClickHouseClient, batch: CellBatch, target: Target, parts: Sequence[TableBatch]
    ) -> Target:
        """Rename and drop the columns that the source has renamed and dropped; the target then."""
        sources = self._claims.of(target.name)
        if len(sources) != 1:  # of which only one has changed
            batch.keeps_columns(target.name, sources)
            return target
        table, key = str(sources[0]), target.schema.key
        held = [column.name for column in target.schema.columns]
        changes = former_columns(batch.column_events, table, held, key)
        if kept_columns(batch.column_events, table, held, changes):
            batch.lacks_columns(target.name, sources)
        old = {change.old for change in changes}
        missed = missed_columns(parts, table, held, key) if batch.drops_columns else []
        for change in (*changes, *(change for change in missed if change.old not in old)):
            try:
                target = tables.follow(client, target, change)
            except SinkError as error:
                if error.code != "TR-7703":
                    raise
                require_unneeded(batch.policy, target.name, change.old, error, sources[0])
        return target


def _years_of(client: ClickHouseClient) -> Years:
    """What a server's dates hold: servers of today hold more than those before them."""
    first, last = ALL_YEARS.first, ALL_YEARS.last
    days = client.select(f"SELECT toInt32(toDate32({first})), toInt32(toDate32({last}))")
    return ALL_YEARS if [c[0].as_py() for c in days.columns] == [first, last] else SOME_YEARS


def _require_same_key(held: TargetSchema, needed: TargetSchema) -> None:
    """Refuse another key, by which the rows would be sorted otherwise.

    Raises:
        SinkError: the key's columns, or their types, have changed.
    """
    old, new = ([(c.name.lower(), type_of(c, s)) for c in s.key_columns] for s in (held, needed))
    if old == new:
        return
    listed = [", ".join(f"{name} {type_}" for name, type_ in key) for key in (old, new)]
    raise SinkError(
        f"target `{held.target}` cannot follow its source: the key has changed",
        f"the target's key is ({listed[0]}), the source's ({listed[1]}); ClickHouse sorts a table by its key"
        " for good",
        "drop the table and read the source's again: tailrace resync PIPELINE.YAML TABLE",
        code="TR-7002",
    )

"""Tables of a ClickHouse server, kept equal to the source's.

    driver   create or alter tables (`tables`); note which batch begins (`state`)
    tasks      rows, each with the version of the batch (`writer`)
    driver   delete what tables that were read again no longer have (`vanished`); note that the batch is done

A batch becomes visible INSERT by INSERT. A batch that comes again, and a task that outlives its batch, change
nothing: of a key's rows the one with the highest version counts, and a batch writes the same rows each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tailrace.config.sinks import ClickHouseSettings
from tailrace.errors import SinkError
from tailrace.failpoints import failpoint
from tailrace.model.change import REREAD
from tailrace.model.table import TableId
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, Unit, Written
from tailrace.sinks.claims import Claims
from tailrace.sinks.clickhouse import state, tables, vanished
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.columns import ALL_YEARS, SOME_YEARS, Years, require_names, type_of
from tailrace.sinks.clickhouse.sql import Place
from tailrace.sinks.clickhouse.state import TargetProgress
from tailrace.sinks.clickhouse.tables import Target
from tailrace.sinks.clickhouse.writer import InsertAttempt
from tailrace.sinks.replica.plan import Work
from tailrace.sinks.replica.row_tasks import write_batch
from tailrace.sinks.replica.target_schema import TargetSchema, schema_for
from tailrace.sinks.route import Router
from tailrace.sinks.tables.former_columns import (
    former_columns,
    kept_columns,
    missed_columns,
    require_unneeded,
)
from tailrace.sinks.tables.rereads import Refresh, refreshes_by_target
from tailrace.sinks.tables.targets import add_targets_without_rows, by_target, of_one_table, written
from tailrace.sinks.timings import COMMIT
from tailrace.sinks.versions import ReadingStart, version_of
from tailrace.spark.cells import TableBatch

#: A table was dropped while it was written.
_GONE = "TR-7704"


class ClickHouseSink:
    """Keeps tables of a ClickHouse server equal to the source's.

    Args:
        settings: the sink's settings.
        router: names the targets.
    """

    def __init__(self, settings: ClickHouseSettings, router: Router) -> None:
        self._settings = settings
        self._place = Place(settings.database)
        self._client: ClickHouseClient | None = None
        self._years = SOME_YEARS
        self._claims = Claims(router, lambda table: [self._place.location(router, table)])
        #: The tables of targets, as this sink has found or left them.
        self._targets: dict[str, Target] = {}

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        return Capabilities(
            Delivery.EXACTLY_ONCE, Order.BY_SEQ, Unit.ROW, holds_rows=True, follows_schema=True
        )

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`: readers see what is durable."""
        return 0

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        self._claims.add(tables)

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        work = by_target(batch.table_batches, self._claims)
        readings = refreshes_by_target(batch, self._claims)
        read = [name for name, of_target in readings.items() if any(r.reread.done for r in of_target)]
        add_targets_without_rows(work, batch, self._claims, read)
        if work:
            with batch.timings.step(batch.sink, COMMIT):
                try:
                    self._write(batch, work, readings)
                except SinkError as error:
                    self._targets = {}
                    if error.code != _GONE:
                        raise
                    self._write(batch, work, readings)
        return written(work)

    def close(self) -> None:
        """See `Sink.close`."""
        client, self._client = self._client, None
        self._targets = {}
        if client is not None:
            client.close()

    def _write(self, batch: CellBatch, work: Work, readings: Mapping[str, Sequence[Refresh]]) -> None:
        client = self._open()
        progress = state.read(client, self._place, work, batch.stream)
        todo = {}
        for name, parts in work.items():
            with of_one_table({part.table for part in parts} or self._claims.of(name)):
                target = self._prepare(client, batch, name, parts, readings.get(name, ()))
            if target is not None and (name not in progress or progress[name].done < batch.id):
                todo[name] = parts
        attempt = InsertAttempt(client, {name: self._targets[name] for name in todo}, batch.id, self._years)
        begun = {
            name: TargetProgress(
                name, batch.stream, batch.id, progress[name].done if name in progress else state.NEVER
            )
            for name in todo
        }
        state.write(client, self._place, begun.values())
        filled = {name: parts for name, parts in todo.items() if parts}
        if filled:
            outcome = write_batch(batch, filled, attempt, self._settings.parallelism)
            for name, error in outcome.errors.items():
                with of_one_table(part.table for part in filled[name]):
                    raise error
        for name in todo:
            done = [refresh for refresh in readings.get(name, ()) if refresh.reread.done]
            if done:
                failpoint("sink.seen")
            for refresh in done:
                with of_one_table([refresh.table]):
                    vanished.remove(attempt, self._targets[name], refresh)
            state.write(client, self._place, [replace(begun[name], done=batch.id)])
            if done:
                failpoint("sink.reread")
            failpoint("sink.table")

    def _open(self) -> ClickHouseClient:
        if self._client is None:
            client = ClickHouseClient(self._settings)
            state.create(client, self._place)
            self._years = _years_of(client)
            self._client = client
        return self._client

    def _prepare(
        self,
        client: ClickHouseClient,
        batch: CellBatch,
        name: str,
        parts: Sequence[TableBatch],
        readings: Sequence[Refresh],
    ) -> Target | None:
        """Create a target's table, or give it the batch's columns; None: none exists, none is needed."""
        schemas = [schema for part in parts for schema in part.schemas]
        for schema in schemas:
            require_names(schema)
        old = self._targets.get(name) or tables.find(client, self._place, name, batch.stream)
        if old is None and not parts:
            return None
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
        return target

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

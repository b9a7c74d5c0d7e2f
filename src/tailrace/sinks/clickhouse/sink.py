"""Tables of a ClickHouse server, kept equal to the source's.

    driver   create or alter tables (`tables`); note which batch begins (`state`)
    tasks      rows, each with the version of the batch (`writer`)
    driver   delete what tables that were read again no longer have (`vanished`); note that the batch is done

A batch becomes visible INSERT by INSERT. A batch that comes again, and a task that outlives its batch, change
nothing: of a key's rows the one with the highest version counts, and a batch writes the same rows each time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tailrace.errors import SinkError
from tailrace.model.change import REREAD
from tailrace.sinks.base import CellBatch
from tailrace.sinks.clickhouse import tables, vanished
from tailrace.sinks.clickhouse.base import ClickHouseTables
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.columns import keeping_arrays, require_names, type_of
from tailrace.sinks.clickhouse.target import Target
from tailrace.sinks.clickhouse.writer import InsertAttempt
from tailrace.sinks.replica.plan import Work
from tailrace.sinks.replica.row_tasks import Outcome, write_batch
from tailrace.sinks.replica.target_schema import TargetSchema, schema_for
from tailrace.sinks.tables.former_columns import (
    former_columns,
    kept_columns,
    missed_columns,
    require_unneeded,
)
from tailrace.sinks.tables.rereads import Refresh
from tailrace.sinks.versions import ReadingStart, version_of
from tailrace.spark.cells import TableBatch


class ClickHouseSink(ClickHouseTables[InsertAttempt]):
    """Keeps tables of a ClickHouse server equal to the source's."""

    def _attempt(self, batch: CellBatch, targets: Collection[str]) -> InsertAttempt:
        held = {name: self._targets[name] for name in targets}
        settings = self._settings
        return InsertAttempt(
            self._open(),
            held,
            batch.id,
            self._years,
            self._place,
            settings.on_refused_row,
            settings.max_quarantined,
        )

    def _write_rows(self, batch: CellBatch, work: Work, attempt: InsertAttempt) -> Outcome:
        return write_batch(batch, work, attempt, self._parallelism)

    def _remove(self, attempt: InsertAttempt, name: str, refresh: Refresh) -> None:
        vanished.remove(attempt, self._targets[name], refresh)

    def _prepare(
        self, batch: CellBatch, name: str, parts: Sequence[TableBatch], readings: Sequence[Refresh]
    ) -> bool:
        client = self._open()
        schemas = [schema for part in parts for schema in part.schemas]
        for schema in schemas:
            require_names(schema)
        old = self._find(batch, name)
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
            needed = keeping_arrays(old.schema, needed, schemas)
            target = replace(old, schema=needed)
        for refresh in readings:
            reading = ReadingStart(refresh.reread.id, version_of(batch.id, REREAD))
            target = target.with_reading(refresh.name, reading)
        if old is None:
            batch.creates(name, self._claims.of(name))
            tables.create(client, self._place, target, self._layout(name))
        elif target != old:
            tables.alter(client, old, target, self._layout(name))
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
                target = tables.follow(client, target, change, self._layout(target.name))
            except SinkError as error:
                if error.code != "TR-7703":
                    raise
                require_unneeded(batch.policy, target.name, change.old, error, sources[0])
        return target


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

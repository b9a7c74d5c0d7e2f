"""Change logs in tables of a ClickHouse server: all changes of a table, each once.

    driver   create or alter tables (`tables`); note which batch begins (`state`); ask which parts are there
    tasks      parts of the batch, each an INSERT with a token (`log_tasks`, `division`)
    driver   count the rows; note that the batch is done

A batch becomes visible part by part. A table that is read again brings its rows as further changes, and at
the end a delete of each row that it no longer has (`gone`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tailrace.errors import StateError, TransientSinkError
from tailrace.model.change import REREAD
from tailrace.model.table import Column, TableSchema
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, Unit
from tailrace.sinks.clickhouse import gone, sql, tables
from tailrace.sinks.clickhouse.base import ClickHouseTables
from tailrace.sinks.clickhouse.columns import BATCH, PART, require_log_names
from tailrace.sinks.clickhouse.division import bucket_count, group_of
from tailrace.sinks.clickhouse.layout import WINDOW
from tailrace.sinks.clickhouse.log_tasks import LogAttempt, write_log
from tailrace.sinks.clickhouse.target import Target
from tailrace.sinks.replica.plan import Work
from tailrace.sinks.replica.row_tasks import Outcome
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.tables.rereads import Refresh
from tailrace.sinks.versions import ReadingStart, version_of
from tailrace.spark.cells import TableBatch


class ClickHouseLogSink(ClickHouseTables[LogAttempt]):
    """Writes all changes of tables to tables of a ClickHouse server."""

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        return Capabilities(
            Delivery.EXACTLY_ONCE, Order.BY_SEQ, Unit.TASK, holds_rows=False, follows_schema=True
        )

    def _prepare(
        self,
        batch: CellBatch,
        name: str,
        parts: Sequence[TableBatch],
        readings: Sequence[Refresh],
    ) -> bool:
        client = self._open()
        schemas = [schema for part in parts for schema in part.schemas]
        for schema in schemas:
            require_log_names(schema)
        old = self._find(batch, name)
        if old is None and not parts:
            return False
        needed = None if old is None else old.schema
        for schema in schemas:
            of_log = _of_log(schema)
            needed = (
                TargetSchema(name, of_log.columns, ())
                if needed is None
                else needed.widened_for(of_log, batch.following)
            )
        assert needed is not None
        layout = self._layout(name)
        if old is None:
            target = Target(name, self._place.table(name), batch.stream, needed, mode=self._settings.mode)
            target = _noting(target, batch, schemas, readings)
            batch.creates(name, self._claims.of(name))
            tables.create(client, self._place, target, layout)
        else:
            target = _noting(replace(old, schema=needed), batch, schemas, readings)
            if target != old:
                tables.alter(client, old, target, layout)
        self._targets[name] = target
        return True

    def _attempt(self, batch: CellBatch, targets: Collection[str]) -> LogAttempt:
        client, settings = self._open(), self._settings
        held = {name: self._targets[name] for name in targets}
        present = {name: self._present(target, batch.id) for name, target in held.items()}
        return LogAttempt(
            client,
            self._place,
            held,
            batch.id,
            self._years,
            settings.on_refused_row,
            settings.max_quarantined,
            present,
            0 if batch.end is None else int(batch.end["log"].get("ts_ms", 0)),
        )

    def _write_rows(self, batch: CellBatch, work: Work, attempt: LogAttempt) -> Outcome:
        for name, parts in work.items():
            blocks = sum(bucket_count(part.changes) for part in parts)
            tables.require_window(attempt.client, attempt.targets[name], 2 * blocks)
        outcome = write_log(batch, work, attempt, self._parallelism)
        for name, parts in work.items():
            if name not in outcome.errors:
                self._require_whole(attempt, name, parts, outcome.quarantined)
        return outcome

    def _remove(self, attempt: LogAttempt, name: str, refresh: Refresh) -> None:
        gone.tell(attempt, self._targets[name], refresh)

    def _present(self, target: Target, batch: int) -> dict[str, int]:
        """The parts of a batch that a change log has, with their numbers of rows."""
        rows = self._open().select(
            f"SELECT {PART}, toInt64(count()) FROM {target.path} WHERE {BATCH} = {batch} GROUP BY {PART}"
        )
        names, counts = (column.to_pylist() for column in rows.columns)
        return {name.decode(): count for name, count in zip(names, counts, strict=True)}

    def _require_whole(
        self,
        attempt: LogAttempt,
        name: str,
        parts: Sequence[TableBatch],
        quarantined: Mapping[str, int],
    ) -> None:
        """Check that a change log has each change of a batch once.

        Raises:
            TransientSinkError: it lacks some.
            StateError: it has more.
        """
        found: Counter[str] = Counter()
        for part, count in self._present(attempt.targets[name], attempt.batch).items():
            found[group_of(part)] += count
        tables_ = {str(part.table) for part in parts}
        for table in sorted(tables_):
            needed = sum(p.changes for p in parts if str(p.table) == table) - quarantined.get(table, 0)
            held = sum(found[f"{table}:{p.kind}"] for p in parts if str(p.table) == table)
            if held == needed:
                continue
            detail = f"batch {attempt.batch} has {needed} changes of `{table}`, the table {held} rows"
            if held < needed:
                raise TransientSinkError(
                    f"change log `{name}` lacks changes that were written",
                    detail,
                    "the batch is written again; does something delete rows of the table (a TTL, a mutation),"
                    " or answer with another replica's rows? If rows of the batch were deleted:"
                    f" {'; '.join(_forget(attempt.targets[name]))}",
                    code="TR-7707",
                )
            where = f"{BATCH} = {attempt.batch} AND startsWith({PART}, {sql.text(f'{table}:')})"
            delete = (
                f"ALTER TABLE {attempt.targets[name].path} DELETE WHERE {where} SETTINGS mutations_sync = 2"
            )
            raise StateError(
                f"change log `{name}` has changes twice",
                detail,
                f"run {'; '.join([delete, *_forget(attempt.targets[name])])}; then start the pipeline, which"
                " writes the batch again",
                code="TR-7708",
            )


def _forget(target: Target) -> list[str]:
    """The statements that make a server forget the blocks of a table."""
    setting = "non_replicated_deduplication_window"
    return [f"ALTER TABLE {target.path} MODIFY SETTING {setting} = {n}" for n in (0, WINDOW)]


def _noting(
    target: Target, batch: CellBatch, schemas: Sequence[TableSchema], readings: Sequence[Refresh]
) -> Target:
    """A target with what it notes of a batch: keys of its tables, and readings that begin."""
    by_name = {column.name.lower(): column.name for column in target.schema.columns}
    keys = {str(s.id): tuple(by_name[name.lower()] for name in s.key) for s in schemas}
    target = replace(target, keys={**target.keys, **keys})
    for refresh in readings:
        reading = ReadingStart(refresh.reread.id, version_of(batch.id, REREAD))
        target = target.with_reading(refresh.name, reading)
    return target


def _of_log(schema: TableSchema) -> TableSchema:
    """A table's schema in a change log: without a key, each column may be NULL."""
    return replace(schema, columns=tuple(Column(c.name, c.type) for c in schema.columns), key=())

"""The schema changes of each batch: what its end offset lists, and what the settings say about them.

The catalog shows a table as it is now, which may be behind schema changes that the stream has yet to read. So
the schemas from before a change are those of the last batch behind which none was known, with the events
since then applied. After a restart they are not known, and events tell less: of a column that was redefined,
that its rows were rewritten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tailrace.errors import SchemaMismatchError
from tailrace.model.column_filter import ALL_COLUMNS, ColumnFilter
from tailrace.model.schema_change import SchemaChange, SchemaEvent, TableDropped, TableTruncated
from tailrace.model.schema_policy import Action, SchemaPolicy
from tailrace.model.table import TableSchema
from tailrace.sources.base import LogRange, Source


class SchemaEvents:
    """The schema changes of one stream, batch after batch.

    Args:
        source: the database.
        policy: the settings.
        columns: the columns that are captured: of others there are no events.
    """

    def __init__(self, source: Source, policy: SchemaPolicy, columns: ColumnFilter = ALL_COLUMNS) -> None:
        self._source = source
        self._columns = columns
        self._policy = policy
        self._known: dict[str, TableSchema] = {}
        self._before: Mapping[str, TableSchema] = {}

    def of(
        self,
        log_range: LogRange | None,
        catalog: Mapping[str, TableSchema],
        *,
        left_out: Collection[str] = (),
        told: Sequence[SchemaEvent] = (),
        captured: Sequence[SchemaEvent] = (),
    ) -> tuple[SchemaEvent, ...]:
        """The schema changes of a batch.

        Args:
            log_range: its share of the log.
            catalog: the captured tables that exist now, with all columns; read after the range, if that has
                schema changes.
            left_out: tables of which the batch has nothing, as they are parked.
            told: those at its begin that the log does not have (`shapes`).
            captured: those because other columns are captured now (`column_changes`).

        Raises:
            SchemaMismatchError: the settings say that the stream stops.
        """
        found = () if log_range is None else self._source.schema_events(log_range, self._known, catalog)
        seen = (*captured, *self._columns.events((*told, *found)))
        events = tuple(event for event in seen if event.table not in left_out)
        self._require_allowed(events)
        self._before = self._known
        if log_range is None:
            self._known = self._known or dict(catalog)
            return events
        self._known = dict(self._known if log_range.ddl_ahead else catalog)
        for event in found if log_range.ddl_ahead else ():
            self._known.pop(event.table, None)
            if event.after is not None:
                self._known[event.table] = event.after
        return events

    @property
    def before(self) -> dict[str, TableSchema]:
        """The schemas, of captured columns, before the changes of the batch that was planned last."""
        return {name: self._columns.schema(schema) for name, schema in self._before.items()}

    def forget(self) -> None:
        """Forget the schemas from before: a part of the log is skipped."""
        self._known = {}

    def kept(self, events: Sequence[SchemaEvent]) -> set[str]:
        """The tables that were truncated, where targets keep such rows."""
        truncated = (TableTruncated(),)
        return set() if self.truncates else {e.table for e in events if e.changes == truncated}

    def emptied(self, events: Sequence[SchemaEvent]) -> set[str]:
        """The tables that were dropped, where targets lose their rows then."""
        return {
            event.table
            for event in events
            for change in event.changes
            if isinstance(change, TableDropped) and self._policy.action(change) is Action.APPLY
        }

    @property
    def truncates(self) -> bool:
        """Whether targets follow TRUNCATE."""
        return self._policy.action(TableTruncated()) is not Action.IGNORE

    def _require_allowed(self, events: Sequence[SchemaEvent]) -> None:
        for event in events:
            for change in event.changes:
                if self._policy.action(change) is Action.FAIL:
                    raise SchemaMismatchError(
                        f"a schema change of `{event.table}` stops the stream, as it is set to",
                        f"`{change.kind}`" + (f": {event.ddl}" if event.ddl else "") + "; nothing of it is "
                        "written",
                        f"to go on with it, change {_setting(change)} and start the stream again",
                        code="TR-4430",
                    )


def _setting(change: SchemaChange) -> str:
    """The setting that lets the stream go on behind `change`."""
    match change:
        case TableTruncated():
            return "onTruncate, or schema.change.behavior,"
        case TableDropped():
            return "onDropTable, or schema.change.behavior,"
    return f"schema.change.behavior, or add {change.kind} to exclude.schema.changes,"

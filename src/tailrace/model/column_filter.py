"""The columns that a stream captures: Debezium's `column.include.list` and `column.exclude.list`. Pure.

What a pattern leaves out is left out by its name wherever columns are: in the catalog's schemas, and so in
SELECTs; in changes of the log, whose columns may be those of an earlier time; in schema changes. A batch has
the columns of the filter in its end offset, so that it has the same ones when it comes again after the
options have changed (`enumerator.column_changes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailrace.errors import SchemaMismatchError
from tailrace.model.change import ChangeBatch
from tailrace.model.messages import MESSAGES
from tailrace.model.schema_change import (
    ColumnAdded,
    ColumnAltered,
    ColumnDropped,
    ColumnRenamed,
    RowsRewritten,
    SchemaChange,
    SchemaEvent,
)
from tailrace.model.table import TableId, TableSchema


@dataclass(frozen=True)
class ColumnFilter:
    """Regular expressions over `database.table.column`, each for a whole name in any case, as Debezium's.

    Args:
        include: columns that are captured, and no others; (): all.
        exclude: columns that are not.
        skips_unchanged: whether updates are left out that change no captured column
            (`skip.messages.without.change`).
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    skips_unchanged: bool = False

    @property
    def has_lists(self) -> bool:
        """Whether there is a list of columns."""
        return bool(self.include or self.exclude)

    def has(self, table: TableId, column: str) -> bool:
        """Whether a column is captured."""
        name = f"{table}.{column}"
        return (not self.include or _any(self.include, name)) and not _any(self.exclude, name)

    def left_out(self, table: TableId, columns: Iterable[str]) -> tuple[str, ...]:
        """Those of a table's columns that are not captured."""
        return tuple(name for name in columns if not self.has(table, name)) if self.has_lists else ()

    def schema(self, table: TableSchema) -> TableSchema:
        """A table without the columns that are not captured; key columns stay (`require_key`)."""
        names = set(self.left_out(table.id, (c.name for c in table.columns))) - set(table.key)
        if not names:
            return table
        return replace(table, columns=tuple(c for c in table.columns if c.name not in names))

    def require_key(self, table: TableSchema) -> None:
        """Refuse a table whose key is not captured.

        Raises:
            SchemaMismatchError: a column of its key is left out.
        """
        if names := self.left_out(table.id, table.key):
            raise SchemaMismatchError(
                f"table `{table.id}` cannot be captured without its key column `{names[0]}`",
                f"{self.text} leaves it out; rows are known by their key",
                self.key_hint(table.id, names),
                code="TR-5014",
            )

    def key_hint(self, table: TableId, names: Iterable[str]) -> str:
        """How to take key columns in."""
        columns = ", ".join(f"`{table}.{name}`" for name in names)
        how = f"add {columns} to `column.include.list`" if self.include else f"do not match {columns}"
        return f"{how}; to hide its values, mask or hash the column in a transform"

    @property
    def text(self) -> str:
        """The option that it is, for errors."""
        return "`column.include.list`" if self.include else "`column.exclude.list`"

    def batch(self, changes: ChangeBatch) -> ChangeBatch:
        """Changes without the columns that are not captured.

        Raises:
            SchemaMismatchError: see `require_key`.
        """
        if changes.table.id == MESSAGES.id:
            return changes
        names = self.left_out(changes.table.id, (c.name for c in changes.table.columns))
        if not names:
            return changes
        self.require_key(changes.table)
        return changes.without(names)

    def events(self, found: Iterable[SchemaEvent]) -> list[SchemaEvent]:
        """Schema changes as the captured columns show them.

        What concerns other columns alone is left out. A column that gets the name of a captured one is a new
        column, and the other way round.
        """
        return [kept for event in found if (kept := self._event(event)) is not None]

    def _event(self, event: SchemaEvent) -> SchemaEvent | None:
        changes = [kept for change in event.changes for kept in self._changes(change, event)]
        if event.changes and not changes:
            return None
        after, shown = (None if s is None else self.schema(s) for s in (event.after, event.shown))
        return replace(event, changes=tuple(changes), after=after, shown=shown)

    def _changes(self, change: SchemaChange, event: SchemaEvent) -> Iterable[SchemaChange]:
        table = TableId.parse(event.table) if event.after is None else event.after.id
        match change:
            case ColumnAdded(column=column) | ColumnAltered(new=column) if not self.has(table, column.name):
                return ()
            case ColumnDropped(name=name) if not self.has(table, name):
                return ()
            case ColumnRenamed(old=old, new=new) if not self.has(table, new):
                return (ColumnDropped(old),) if self.has(table, old) else ()
            case ColumnRenamed(old=old, new=new) if not self.has(table, old):
                columns = () if event.after is None else event.after.columns
                added = tuple(ColumnAdded(column) for column in columns if column.name == new)
                return (*added, RowsRewritten(f"`{new}` was not captured by its former name"))
        return (change,)

    def to_json(self) -> dict[str, Any]:
        """The filter as JSON values in a fixed order."""
        given = {"include": self.include, "exclude": self.exclude}
        found: dict[str, Any] = {name: list(patterns) for name, patterns in given.items() if patterns}
        return {**found, "unchanged": False} if self.skips_unchanged else found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ColumnFilter:
        """Read the filter that `to_json` wrote."""
        include, exclude = (tuple(value.get(name, ())) for name in ("include", "exclude"))
        return cls(include, exclude, not value.get("unchanged", True))


ALL_COLUMNS = ColumnFilter()


def _any(patterns: Iterable[str], name: str) -> bool:
    return any(re.fullmatch(pattern, name, re.DOTALL | re.IGNORECASE) for pattern in patterns)

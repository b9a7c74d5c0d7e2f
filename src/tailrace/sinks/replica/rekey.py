"""A replica's table gets another primary key, because its source has (design 0006). Pure.

The rows of the source are read again then. Until they have been, the target's rows may not fit the new key:
those that lack a value of it, and all but one of those that have the same, leave the target. The reading
brings them back. A key column that was renamed has its values at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tailrace.model.schema_change import ColumnRenamed, SchemaEvent
from tailrace.sinks.replica.dialect import Dialect, TableName
from tailrace.sinks.replica.target_schema import TargetSchema


def has_other_key(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether two keys have different columns, or another order of them."""
    return [name.lower() for name in a] != [name.lower() for name in b]


def renamed_columns(events: Iterable[SchemaEvent], tables: Iterable[str]) -> dict[str, str]:
    """The former names of columns of `tables`, by their new names."""
    names = set(tables)
    changes = [change for event in events if event.table in names for change in event.changes]
    return {change.new: change.old for change in changes if isinstance(change, ColumnRenamed)}


def rekeyed(
    dialect: Dialect,
    table: TableName,
    current: TargetSchema,
    needed: TargetSchema,
    *,
    existing: Sequence[str],
    renamed: Mapping[str, str],
) -> list[str]:
    """Statements that give a table another key.

    Args:
        dialect: the database.
        table: the table.
        current: its schema according to the ledger.
        needed: the new schema.
        existing: the columns that it really has.
        renamed: the former names of columns, by their new names.
    """
    added = [replace(column, nullable=True) for column in needed.columns[len(current.columns) :]]
    between = replace(current, columns=(*current.columns, *added))
    types = {column.name: column.type for column in between.columns}
    copied = {
        new: old for new, old in renamed.items() if new in needed.key and types.get(old) == types.get(new)
    }
    name, quote = dialect.name(table), dialect.quote
    statements = dialect.alter(table, current, between, existing)
    for new, old in copied.items():
        statements.append(f"UPDATE {name} SET {quote(new)} = {quote(old)} WHERE {quote(new)} IS NULL")
    lacking = " OR ".join(f"{quote(column)} IS NULL" for column in needed.key)
    return [
        *statements,
        f"DELETE FROM {name} WHERE {lacking}",
        *dialect.change_key(table, between, needed),
    ]

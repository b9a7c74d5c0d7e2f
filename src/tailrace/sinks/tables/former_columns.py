"""Columns that the source has renamed or dropped, and what a target's columns become by that. Pure.

The changes are those that the batch's end offset lists (`CellBatch.column_events`), and are made before its
rows are written. An earlier attempt may have made them: what is to be done follows from the columns that the
target has now. Names that change places are left alone, and so is a column that comes back in the same batch:
the table is read again, by which columns get their new values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tailrace.model.schema_change import ColumnDropped, ColumnRenamed, SchemaEvent


@dataclass(frozen=True)
class RenameColumn:
    """Rename a column; it keeps its values."""

    old: str
    new: str


@dataclass(frozen=True)
class DropColumn:
    """Drop a column."""

    old: str


def former_columns(
    events: Iterable[SchemaEvent], table: str, held: Sequence[str], key: Sequence[str] = ()
) -> list[RenameColumn | DropColumn]:
    """How a target follows the renamed and dropped columns of its table.

    Args:
        events: the schema changes of the batch, in log order.
        table: the table, as `database.table`.
        held: the target's columns.
        key: those of its key: another key makes another table, whatever its columns are called.
    """
    found: list[RenameColumn | DropColumn] = []
    columns = list(held)
    of_table = [event for event in events if event.table == table]
    if not of_table or of_table[-1].after is None:
        return found
    present = {column.name.lower() for column in of_table[-1].after.columns}
    for event in of_table:
        for change in event.changes:
            match change:
                case ColumnRenamed(old, new) if _may_become(old, new, columns, present, key):
                    found.append(RenameColumn(old, new))
                    columns[columns.index(old)] = new
                case ColumnDropped(name) if (
                    name in columns and name.lower() not in present and name not in key
                ):
                    found.append(DropColumn(name))
                    columns.remove(name)
    return found


def _may_become(old: str, new: str, held: Sequence[str], present: set[str], key: Sequence[str]) -> bool:
    taken = {name.lower() for name in held}
    return (
        old in held
        and old not in key
        and old.lower() not in present
        and new.lower() in present
        and new.lower() not in taken
    )

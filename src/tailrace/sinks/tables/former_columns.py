"""Columns that the source has renamed or dropped, and what a target's columns become by that. Pure.

The changes are those that the batch's end offset lists (`CellBatch.column_events`), and are made before its
rows are written. An earlier attempt may have made them: what is to be done follows from the columns that the
target has now. Renames of one column count as one. Names that change places are left alone, and so is a
column that comes back in the same batch: the table is read again, by which columns get their new values.

A target may also have missed a change: with a table that is read again, columns that it lacks are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tailrace.errors import SinkError
from tailrace.model.change import REREAD
from tailrace.model.schema_change import ColumnDropped, ColumnRenamed, SchemaChange, SchemaEvent
from tailrace.model.schema_policy import SchemaPolicy
from tailrace.model.table import TableId
from tailrace.spark.cells import TableBatch

_log = logging.getLogger(__name__)


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
    of_table = [event for event in events if event.table == table]
    if not of_table or of_table[-1].after is None:
        return []
    present = {column.name.lower() for column in of_table[-1].after.columns}
    columns = set(held) - set(key)
    taken = {name.lower() for name in held}
    found: list[RenameColumn | DropColumn] = []
    for old, new in _fates(change for event in of_table for change in event.changes):
        if old not in columns or old.lower() in present:
            continue
        if new is None:
            found.append(DropColumn(old))
        elif new.lower() in present and new.lower() not in taken:
            found.append(RenameColumn(old, new))
    return found


def kept_columns(
    events: Iterable[SchemaEvent],
    table: str,
    held: Sequence[str],
    followed: Iterable[RenameColumn | DropColumn],
) -> list[str]:
    """The columns that were renamed or dropped at the source and that a target keeps as they are.

    Args:
        events: the schema changes of the batch, in log order.
        table: the table, as `database.table`.
        held: the target's columns before it followed.
        followed: how it follows.
    """
    changes = (change for event in events if event.table == table for change in event.changes)
    gone = {old for old, new in _fates(changes) if new != old}
    return sorted(gone & set(held) - {change.old for change in followed})


def missed_columns(
    parts: Iterable[TableBatch], table: str, held: Sequence[str], key: Sequence[str] = ()
) -> list[RenameColumn | DropColumn]:
    """The columns to drop from a target whose table is read again: the source has them no more.

    The schema change that took them came while the table, or its sink, was parked. All rows come, so no value
    is lost that the source has. A column with the values of another type (`sinks.tables.retyped`) stays.

    Args:
        parts: the target's parts of the batch.
        table: the table, as `database.table`.
        held: the columns that the target has of its source's.
        key: those of its key.
    """
    of_table = [part for part in parts if str(part.table) == table]
    if all(part.kind != REREAD for part in of_table):
        return []
    schemas = (schema for part in of_table for schema in part.schemas)
    present = {column.name.lower() for schema in schemas for column in schema.columns}
    return [
        DropColumn(name)
        for name in held
        if name.lower() not in present and name not in key and name.lower().rpartition("__")[0] not in present
    ]


def _fates(changes: Iterable[SchemaChange]) -> list[tuple[str, str | None]]:
    """The columns that there were before the changes, and their names after them; None: dropped.

    A name that is given on the way is not the target's, which may have such a column from before; nor is one
    that a new column takes after its former holder gave it up.
    """
    fates: dict[str, str | None] = {}
    former: dict[str, str | None] = {}  # by the present name; None: a new column
    for change in changes:
        match change:
            case ColumnRenamed(old, new):
                former[new] = first = former.pop(old, None if old in fates else old)
                if first is not None:
                    fates[first] = new
            case ColumnDropped(name):
                first = former.pop(name, None if name in fates else name)
                if first is not None:
                    fates[first] = None
    return list(fates.items())


def require_unneeded(
    policy: SchemaPolicy | None, target: str, column: str, error: Exception, table: TableId
) -> None:
    """Have a target keep a column that its system does not let us rename or drop, if the settings allow it.

    Args:
        policy: the settings.
        target: the target.
        column: the column.
        error: why it cannot be altered.
        table: the target's table.

    Raises:
        SinkError: they do not.
    """
    detail = error.detail if isinstance(error, SinkError) else str(error)
    message = f"column `{column}` of target `{target}` can be neither renamed nor dropped"
    if policy is not None and policy.keeps_needed_columns:
        _log.warning("%s: %s; it stays", message, detail)
        return
    raise SinkError(
        message,
        detail,
        "remove what needs the column in the target, as a view, a generated column, a constraint, "
        "partitioning or a sort order; or set `schema.change.behavior: try_evolve`, with which targets keep "
        "such columns",
        code="TR-7038",
        table=str(table),
    ) from error

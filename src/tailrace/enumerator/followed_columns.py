"""Renamed and dropped columns for which a table is not read again, where the log has the statement.

With `formerColumns: follow` whoever receives the rows renames and drops its columns, too, before it is given
a row with the new ones. Then the rows that it has are those of the table, provided that

* it has all of them: a batch that read rows after the statement was executed, as of a position before it, may
  have left them out (`reader.snapshot.read_until_rewritten`). So the table must have been read before: up to
  the log's end as it was when the batch of its last rows had ended, each statement counts as executed before.
  Where that is, is not stored: a new process takes the log's end as of its start;
* the statement changes nothing else, and the catalog shows just the columns that it leaves: names that change
  places, columns that come back and key columns need the reading.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.rereading import unfinished
from tailrace.model.schema_change import ColumnDropped, ColumnRenamed, SchemaEvent
from tailrace.model.table import TableSchema


class ReadTables:
    """The tables whose rows have all been read, and the log's end by which they had been.

    Args:
        log_end: asks for the log's end.
    """

    def __init__(self, log_end: Callable[[], Any]) -> None:
        self._log_end = log_end
        self._ends: dict[str, Any] = {}

    def look(self, start: StreamOffset) -> None:
        """Note the tables of which no rows are left to read.

        Args:
            start: the end of a batch; that batch has ended.
        """
        read = start.done.keys() - unfinished(start).keys()
        known = read - start.again.keys()  # the others were read in that batch
        self._ends = {name: end for name, end in self._ends.items() if name in known}
        if new := read - self._ends.keys():
            self._ends |= dict.fromkeys(new, self._log_end())

    def before(self, position: Any) -> set[str]:
        """The tables that had been read before the log reached a position."""
        return {name for name, end in self._ends.items() if end.order <= position.order}

    def forget(self) -> None:
        """Forget the positions: they are another server's."""
        self._ends = {}


def followed(
    events: Collection[SchemaEvent], before: Mapping[str, TableSchema], read: Collection[str]
) -> set[str]:
    """The tables that need not be read again because of their schema changes.

    Args:
        events: the schema changes with which a batch begins.
        before: the tables' schemas before, as far as they are known.
        read: the tables that had been read before the batch begins (`ReadTables.before`).
    """
    concerned = Counter(event.table for event in events)
    alone = [event for event in events if concerned[event.table] == 1 and event.table in read]
    return {event.table for event in alone if _is_followed(event, before.get(event.table))}


def _is_followed(event: SchemaEvent, before: TableSchema | None) -> bool:
    if before is None or event.after is None or not event.changes:
        return False
    names: dict[str, str | None] = {column.name: column.name for column in before.columns}
    taken = {name.lower() for name in names}
    for change in event.changes:
        match change:
            case ColumnRenamed(old=old, new=new) if names.get(old) == old and new.lower() not in taken:
                names[old] = new
            case ColumnDropped(name=name) if names.get(name) == name:
                names[name] = None
            case _:
                return False
    if any(names[name] != name for name in before.key):
        return False
    left = [(names[column.name], column.type) for column in before.columns if names[column.name] is not None]
    return left == [(c.name, c.type) for c in event.after.columns] and before.key == event.after.key

"""Other captured columns than before: `column.include.list` or `column.exclude.list` has changed. Pure.

The offset holds the filter by which the batches before it were read (`StreamOffset.columns`). The first batch
behind it with another one begins with the events that a schema change would have: columns that are captured
no more are dropped, others are added. A column that is taken in has no values in what was read before, so its
table is read again; so is one that loses columns, unless whoever receives the rows drops them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tailrace.config.options import SourceOptions
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.parked import park_with_rows
from tailrace.enumerator.rereading import refreshes
from tailrace.errors import StateError
from tailrace.model.column_filter import ColumnFilter
from tailrace.model.schema_change import ColumnAdded, ColumnDropped, SchemaEvent
from tailrace.sources.base import CapturedTable


@dataclass(frozen=True)
class ColumnChanges:
    """What a batch begins with.

    Args:
        offset: its end as planned so far, with the present filter.
        events: the columns that come and go.
        again: the tables that it begins to read again.
    """

    offset: StreamOffset
    events: tuple[SchemaEvent, ...] = ()
    again: set[str] = field(default_factory=set)


def column_changes(
    start: StreamOffset,
    offset: StreamOffset,
    options: SourceOptions,
    tables: Mapping[str, CapturedTable],
) -> ColumnChanges:
    """What a batch begins with because other columns are captured than before.

    Args:
        start: where the batch begins.
        offset: its end as planned so far.
        options: the stream's options.
        tables: the catalog, by these options.

    Raises:
        StateError: columns are taken in, and their tables are not read again.
    """
    now = options.columns
    offset = replace(offset, columns=now)
    if start.is_new or start.columns == now:
        return ColumnChanges(offset)
    events: list[SchemaEvent] = []
    again: set[str] = set()
    for name in sorted({*offset.names(), *offset.parked} & tables.keys()):
        table = tables[name]
        before, after = start.columns.schema(table.whole), now.schema(table.whole)
        old, new = ([c.name for c in schema.columns] for schema in (before, after))
        if old == new:
            continue
        taken_in = [column for column in after.columns if column.name not in old]
        if taken_in and not refreshes(start, options):
            raise _is_not_read(name, taken_in[0].name, start.columns)
        if name in offset.parked:
            offset = park_with_rows(offset, name)
            continue
        dropped = [ColumnDropped(column) for column in old if column not in new]
        events.append(SchemaEvent(name, (*dropped, *map(ColumnAdded, taken_in)), after=after))
        if taken_in or options.former_columns != "follow":
            again.add(name)
    return ColumnChanges(offset, tuple(events), again if refreshes(start, options) else set())


def _is_not_read(table: str, column: str, before: ColumnFilter) -> StateError:
    return StateError(
        f"column `{column}` of `{table}` cannot be captured from now on",
        "the stream has left it out so far, and does not read tables again: targets would have NULL in all "
        "rows that they have",
        f"restore {before.text}, or start a new query with a new checkpoint and a new target; a stream with "
        "startingPosition: initial and onRewrite: refresh reads the table again",
        code="TR-6008",
    )

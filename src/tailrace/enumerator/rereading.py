"""Which tables are read again, in place, and how offsets say so. All functions are pure.

Rows of a table may change without entries in its log: a schema change rewrites them, the key that orders a
reading is gone, the log has a gap. The stream then reads the table again while it follows its log
(docs/design/0006-reading-tables-again.md).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace

from tailrace.config.options import SourceOptions
from tailrace.enumerator.offset import RereadProgress, StreamOffset, TableProgress
from tailrace.enumerator.parked import park_with_rows
from tailrace.enumerator.schema_events import SchemaEvents
from tailrace.enumerator.stream_keys import changed_key
from tailrace.errors import SchemaMismatchError
from tailrace.model.condition import both
from tailrace.sources.base import CapturedTable, LogRange


def refreshes(offset: StreamOffset, options: SourceOptions) -> bool:
    """Whether tables are read again whose rows the log does not tell."""
    return offset.mode == "initial" and options.on_rewrite == "refresh"


def to_reread(
    offset: StreamOffset,
    table: CapturedTable,
    by: str | None = None,
    where: str | None = None,
    *,
    blocking: bool = False,
) -> StreamOffset:
    """`offset` with a table to be read again from its first row, whatever has been read of it.

    It is read whole where it is being read whole already, for the first time or again. Two conditions at once
    become one, of the rows that either holds for.

    Args:
        offset: the stream's state.
        table: the table.
        by: the request or signal that asks for it; it may be taken back only where the target is right
            without it.
        where: the condition of the rows to be read; None: all.
        blocking: whether the log waits meanwhile.
    """
    name = str(table.schema.id)
    former = offset.again.get(name)
    is_read = former is not None and not former.done
    if name not in offset.done or (is_read and former is not None and former.by is None):
        by = None
    if name not in offset.done:
        where = None
    elif where is not None and is_read and former is not None:
        where = None if former.where is None else both(former.where, where)
    progress = TableProgress(estimated=table.estimated_rows)
    reread = RereadProgress(uuid.uuid4().hex[:12], progress, by=by, where=where, blocking=blocking)
    return offset.with_reread(name, reread)


def unfinished(offset: StreamOffset) -> dict[str, TableProgress]:
    """The progress of the tables that are read again and not finished."""
    return {name: reread.progress for name, reread in offset.again.items() if not reread.done}


def blocks(offset: StreamOffset) -> bool:
    """Whether tables are being read for which the log waits; they begin once first snapshots are done."""
    unfinished = [r for r in offset.again.values() if r.blocking and not r.done]
    return any(r.progress.cursor is not None or not offset.tables for r in unfinished)


def is_continued(start: StreamOffset, end: StreamOffset, name: str) -> bool:
    """Whether a batch continues a reading of a table that an earlier one has begun."""
    return name in start.again and start.again[name].id == end.again[name].id


def begun(
    offset: StreamOffset, start: StreamOffset, tables: Collection[str], options: SourceOptions
) -> StreamOffset:
    """`offset` without what ended with the batch before, whose end is `start`.

    Tables of which targets have deleted all rows, as they were dropped, are forgotten.
    """
    ended = {name for name, reread in start.again.items() if reread.done}
    offset = replace(offset.without_rereads(ended), schema=(), answers=())
    for name in ended & offset.done.keys() if options.on_drop_table == "apply" else ():
        if name not in tables:
            offset = offset.without(name)
    return offset


def rewritten(
    offset: StreamOffset,
    log_range: LogRange | None,
    tables: Mapping[str, CapturedTable],
    events: SchemaEvents,
    options: SourceOptions,
    *,
    followed: Collection[str] = (),
) -> set[str]:
    """The known tables that the log, or a changed key, shows to be rewritten.

    Args:
        offset: the end of a batch.
        log_range: its share of the log.
        tables: the catalog.
        events: the schema changes.
        options: the stream's options.
        followed: tables whose renamed and dropped columns targets rename and drop (`followed_columns`).

    Raises:
        KeyChangedError: a key is gone, and its table is not read again.
    """
    found: set[str] = set()
    for name, progress in {**offset.tables, **unfinished(offset)}.items():
        table = tables.get(name)
        if table is not None and (error := changed_key(progress, table)) is not None:
            if not refreshes(offset, options):
                raise error
            found.add(name)
    if log_range is not None:
        found |= {str(table) for table in log_range.rewritten} - events.kept(offset.schema) - set(followed)
        if not refreshes(offset, options) and events.truncates:
            found |= {str(table) for table in log_range.truncated}
        # a name with two dots may be meant or not: a table that is read once more is harmless
        dropped = tuple(f"{database}." for database in log_range.dropped_databases)
        found |= {name for name in offset.names() if name.startswith(dropped)}
    known = found & set(offset.names())
    return known if offset.mode == "initial" else set()


def parked_rewritten(
    offset: StreamOffset, log_range: LogRange | None, options: SourceOptions
) -> StreamOffset:
    """`offset` with the parked tables noted of which the log shows rows to be rewritten.

    A replay of their changes does not tell these rows: they are read when such a table is resumed.
    """
    if log_range is None or options.on_rewrite == "ignore":
        return offset
    found = {str(table) for table in log_range.rewritten}
    dropped = tuple(f"{database}." for database in log_range.dropped_databases)
    for name in offset.parked:
        if name in found or name.startswith(dropped):
            offset = park_with_rows(offset, name)
    return offset


def read_again(
    offset: StreamOffset,
    names: Collection[str],
    tables: Mapping[str, CapturedTable],
    events: SchemaEvents,
    options: SourceOptions,
) -> StreamOffset:
    """Begin to read rewritten tables again, by `onRewrite`; forget those that were dropped.

    Raises:
        SchemaMismatchError: `onRewrite` is `fail`.
    """
    if names and options.on_rewrite == "fail":
        raise SchemaMismatchError(
            f"rows of {', '.join(f'`{n}`' for n in sorted(names))} changed without being logged",
            "a schema change rewrote them, or the table was missing from the log for a time; onRewrite is "
            "`fail`",
            "set onRewrite: refresh to read such tables again, or onRewrite: ignore to keep the old values "
            "in targets",
            code="TR-4409",
        )
    if options.on_rewrite == "refresh":
        for name in sorted(names):
            if name in tables:
                offset = to_reread(offset, tables[name])
            elif name in events.emptied(offset.schema):
                # read again without a row: targets delete all that they have
                offset = offset.with_reread(name, RereadProgress(uuid.uuid4().hex[:12], done=True))
            else:  # else the offset would grow with every table that there ever was
                offset = offset.without(name)
    return offset

"""The keys under which a stream reads its tables: those that it began with, as long as they exist.

A table may get another key while the stream runs, and the catalog tells only today's. A cursor, and changes
that have been emitted, belong to the key of their time. So the offset keeps a key in two cases:

* with each cursor (`TableProgress.key`): the key of which the cursor is a value;
* for each table whose key the log does not carry (`StreamOffset.keys`): without a primary key MySQL's log
  does not say by which of several UNIQUE indexes the stream reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tailrace.enumerator.offset import StreamOffset, TableProgress
from tailrace.errors import KeyChangedError
from tailrace.model.key import key_changed
from tailrace.model.split import Cursor
from tailrace.model.table import TableSchema
from tailrace.sources.base import CapturedTable


def with_keys(offset: StreamOffset, tables: Mapping[str, CapturedTable], *, is_current: bool) -> StreamOffset:
    """Keep the keys of tables whose key the log does not carry.

    Args:
        offset: the end of a batch.
        tables: the catalog.
        is_current: whether no schema change is known that the offset's position does not cover: only then
            may a finished table get another key, because its old one is gone.
    """
    keys = {name: key for name, key in offset.keys.items() if offset.knows(name)}
    for name, table in tables.items():
        known, progress = keys.get(name), progress_of(offset, name)
        if known is not None and known in table.keys:
            continue
        if progress is not None and progress.cursor is not None and progress.key is not None:
            if table.key_in == "offset":
                keys[name] = tuple(column.name for column in progress.key)
        elif known is not None and is_current:
            del keys[name]
        if name not in keys and offset.knows(name) and table.key_in == "offset" and table.schema.key:
            keys[name] = table.schema.key
    return offset if keys == offset.keys else replace(offset, keys=keys)


def schema_in(offset: StreamOffset, table: CapturedTable) -> TableSchema:
    """A table's schema with the key under which the stream reads it, if it still is one."""
    name = str(table.schema.id)
    progress = progress_of(offset, name) or TableProgress()
    key = offset.keys.get(name)
    if progress.cursor is not None and progress.key is not None:
        key = tuple(column.name for column in progress.key)
    if key is None or key == table.schema.key or key not in table.keys:
        return table.schema
    return replace(table.schema, key=key)


def cursor_in(progress: TableProgress, schema: TableSchema) -> Cursor:
    """A table's cursor with the key that it is a value of."""
    assert progress.cursor is not None
    if progress.key is not None and key_changed(progress.key, schema) is not None:
        schema = TableSchema(schema.id, progress.key, tuple(column.name for column in progress.key))
    return Cursor(schema, progress.cursor)


def changed_key(progress: TableProgress, table: CapturedTable) -> KeyChangedError | None:
    """The error to raise if the key of which a table's cursor is a value no longer exists."""
    if progress.cursor is None or progress.key is None:
        return None
    return key_changed(progress.key, table.schema, table.keys)


def key_in_log(offset: StreamOffset, table: CapturedTable) -> tuple[str, ...]:
    """The key columns of a table's changes; () where the log itself has them."""
    if key := offset.keys.get(str(table.schema.id)):
        return key
    return () if table.key_in == "log" else table.schema.key


def progress_of(offset: StreamOffset, name: str) -> TableProgress | None:
    """How far a table has been read that is not finished, for the first time or again."""
    reread = offset.again.get(name)
    return offset.tables.get(name) if reread is None else reread.progress

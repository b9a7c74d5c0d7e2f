"""What the catalog says of columns and the log does not, as of a batch (`model.declaration`).

A batch has in its end offset what it says of its tables, all its changes and rows alike:

* of a table that joins the stream in it, is resumed, or begins to be read again, and of all tables where the
  stream has no such entries yet: what the catalog has now;
* of a table of which it has a schema change: likewise, as the catalog was read behind the change. Later
  changes that the stream has yet to read may be in it, and their batches take it again;
* of others: what the batch before had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tailrace.enumerator.offset import StreamOffset
from tailrace.model.declaration import CatalogTexts, Propagation, TableTexts, TypeOf
from tailrace.model.schema_change import SchemaEvent
from tailrace.sources.base import CapturedTable


def with_declared(
    start: StreamOffset,
    offset: StreamOffset,
    propagation: Propagation,
    tables: Mapping[str, CapturedTable],
    type_of: TypeOf,
) -> StreamOffset:
    """`offset` with what the catalog says of its tables.

    Args:
        start: where the batch begins.
        offset: its end as planned so far, with its schema changes.
        propagation: which columns' declarations are wanted.
        tables: the catalog.
        type_of: the database's `Source.source_type`.
    """
    if not propagation:
        return offset if offset.declared is None else replace(offset, declared=None)
    known: dict[str, TableTexts] = dict(offset.declared or {})
    names = {name for name in tables if offset.knows(name)}
    if offset.declared is not None:
        altered = {event.table for event in offset.schema}
        resumed, again = start.parked.keys() - offset.parked.keys(), offset.again.keys() - start.again.keys()
        due = altered | resumed | again
        names = {name for name in names if name in due or not start.knows(name)}
    for name in names:
        known.pop(name, None)
        if texts := tables[name].texts:
            known[name] = texts
    known = {name: texts for name, texts in known.items() if offset.knows(name)}
    schema = tuple(_told(event, known, propagation, type_of) for event in offset.schema)
    return replace(offset, declared=known, schema=schema)


def _told(event: SchemaEvent, known: CatalogTexts, propagation: Propagation, type_of: TypeOf) -> SchemaEvent:
    """An event with the table's declarations, if it is a TRUNCATE: its message has the table's schema."""
    if not event.truncates:
        return event
    texts = known.get(event.table, {})
    after, shown = (
        None if schema is None else propagation.table(schema, texts, type_of)
        for schema in (event.after, event.shown)
    )
    return replace(event, after=after, shown=shown)

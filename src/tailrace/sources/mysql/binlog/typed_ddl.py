"""The schema changes of a range of the log, as events of the stream. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tailrace.model.schema_change import SchemaEvent
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.mysql.binlog.follower import BinlogRange
from tailrace.sources.mysql.position import MySqlPosition, seq_of
from tailrace.sources.mysql.wire.rare.schema_changes import Catalog, applied, schema_changes
from tailrace.sources.mysql.wire.rare.secrets import without_secrets
from tailrace.sources.mysql.wire.rare.statements import MARK, first_words, tokens
from tailrace.sources.mysql.wire.transactions import DdlStatement

#: First words of statements after which a table is the one that it was.
_IN_PLACE = ("ALTER", "TRUNCATE")


def events(
    found: BinlogRange,
    before: Mapping[str, TableSchema],
    after: Mapping[str, TableSchema],
    captures: Callable[[TableId], bool],
) -> list[SchemaEvent]:
    """See `Source.schema_events`. Each statement makes one event of each captured table that it concerns."""
    known = dict(before)
    made: list[SchemaEvent] = []
    for number, statement in enumerate(found.ddl, 1):
        catalog = _catalog(known, after, [*found.ddl[number:], *found.later_ddl])
        changes = schema_changes(statement.text, statement.database, captures, catalog, folds=statement.folds)
        seq = seq_of(MySqlPosition(statement.file, statement.start, epoch=found.end.epoch))
        for table, its in changes.items():
            name = str(table)
            is_same = name in known and first_words(statement.text)[0] in _IN_PLACE
            schema = applied(known[name], its) if is_same else None
            if name in catalog.after and name not in catalog.ahead:
                schema = catalog.after[name]
            text = without_secrets(statement.text)
            event = SchemaEvent(name, its, text, seq, statement.ts_ms or None, schema)
            if event.truncates:
                shown = after.get(name) if schema is None else None
                event = replace(event, origin=_origin(statement), shown=shown)
            made.append(event)
            known.pop(name, None)
            if schema is not None:
                known[name] = schema
    return made


def _origin(statement: DdlStatement) -> dict[str, Any]:
    """Where a statement is in the log; Debezium has the time of a statement in milliseconds."""
    origin = {
        "ts_us": statement.ts_us // 1000 * 1000,
        "txn": statement.gtid or None,
        "file": statement.file,
        "pos": statement.pos,
        "server_id": statement.server_id,
    }
    return {name: value for name, value in origin.items() if value is not None}


def _catalog(
    known: Mapping[str, TableSchema], after: Mapping[str, TableSchema], later: Sequence[DdlStatement]
) -> Catalog:
    """What the catalog says about a statement: for tables that later ones change, what these do not name."""
    left: dict[str, TableSchema] = {}
    ahead = set()
    for name, schema in after.items():
        concerning = [s for s in later if schema.id in s.tables or s.dropped_database == schema.id.database]
        words = {word.lower() for s in concerning for kind, word in tokens(s.text) if kind != MARK}
        if all(first_words(s.text)[0] in _IN_PLACE for s in concerning):
            columns = tuple(c for c in schema.columns if c.name.lower() not in words)
            left[name] = replace(schema, columns=columns) if concerning else schema
        if concerning:
            ahead.add(name)
    return Catalog(known, left, frozenset(ahead))

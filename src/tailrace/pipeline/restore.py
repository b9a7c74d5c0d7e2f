"""Restoring a table: its rows as of a time.

    rows now            if no schema change lies between: read now, and rewound over the log
    a base behind it    ... likewise, from the archive
    a base before it    if no schema change lies between: replayed over the log
    CREATE or TRUNCATE  ... likewise, from no rows

The log is that of the server, and where it is purged that of the archive. Each way gives exactly the rows of
the time, or an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.errors import SourceError, TransientSourceError
from tailrace.model.change import ChangeBatch
from tailrace.model.split import LogSplit, SnapshotSplit
from tailrace.model.table import TableId, TableSchema
from tailrace.pipeline.restored_table import Restored
from tailrace.reader.replay import replayed, undone
from tailrace.reader.rewind import Rewind
from tailrace.reader.snapshot import read_snapshot
from tailrace.sources import registry
from tailrace.sources.archive.archive import Archive
from tailrace.sources.archive.bases import Base, BaseTable, base_rows, bases, write_base
from tailrace.sources.archive.sealing import damaged
from tailrace.sources.mysql.binlog.archived import archive_of
from tailrace.sources.mysql.binlog.logfiles import log_name
from tailrace.sources.mysql.gtid import GtidSet
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.start.restoring import TableHistory, table_history
from tailrace.sources.mysql.start.starting import starting_position
from tailrace.sources.mysql.wire.rare.secrets import without_secrets

if TYPE_CHECKING:
    from tailrace.config.options import SourceOptions

#: Rows of one SELECT.
_PAGE_ROWS = 50_000


def restored(options: SourceOptions, table: TableId, at_us: int) -> Restored:
    """A table as of a time; the log is read while the rows are taken.

    Args:
        options: the source, with its archive.
        table: the table.
        at_us: transactions committed before it count; microseconds since 1970 UTC.

    Raises:
        PositionLostError: neither the server nor the archive has the log of that time.
        SourceError: nothing is there from which the rows could be made.
        StateError: the archive is damaged.
    """
    options = options.capturing_only(str(table))
    history = table_history(options, table, at_us)
    present = _schema(options, table)
    if present is not None and not history.between(history.at, history.end):
        return Restored(present, _rewound_now(options, present, history), history.at, "the rows of now")
    archive = archive_of(options)
    for base, its in _candidates(archive, table, history):
        assert archive is not None
        position = _position(base)
        rows = base_rows(archive, base, its)
        if position.order <= history.at.order:
            found = _replayed(options, its.schema, rows, position, history.at)
        else:
            found = _rewound(options, its.schema, rows, history.at, position)
        return Restored(its.schema, found, history.at, f"the base at `{position}`")
    if (start := history.emptied()) is not None:
        changes = _changes(options, table, (), start, history.at)
        first = next(changes, None)
        if first is not None:
            found = replayed((), first.table, _chained(first, changes))
            return Restored(first.table, found, history.at, f"the empty table at `{start}`")
    raise _nothing(table, history, archive)


def _candidates(
    archive: Archive | None, table: TableId, history: TableHistory
) -> Iterator[tuple[Base, BaseTable]]:
    """The bases between which and the position no schema change lies, the nearest before it first."""
    found = []
    for base in [] if archive is None else bases(archive):
        position, its = _position(base), base.table(str(table))
        if its is None or position.server != history.at.server:
            continue
        low, high = sorted((position, history.at), key=lambda p: p.order)
        if its.schema.key and not history.between(low, high):
            found.append((position.order > history.at.order, low.order, base, its))
    before = sorted((f for f in found if not f[0]), key=lambda f: f[1], reverse=True)
    behind = [f for f in found if f[0]]
    return ((base, its) for *_, base, its in [*before, *behind])


def _position(base: Base) -> MySqlPosition:
    """The position of a base. Raises StateError: it has none."""
    try:
        found = MySqlPosition.from_json(base.position)
        texts = (found.file, found.server, found.gtids)
        if not all(isinstance(text, str) for text in texts) or not isinstance(found.pos, int):
            raise TypeError
        GtidSet.parse(found.gtids)
        log_name(found.file)
    except (TypeError, ValueError, AttributeError, SourceError):
        raise damaged(base.name, "it has no position") from None
    return found


def _schema(options: SourceOptions, table: TableId) -> TableSchema | None:
    """The table's schema in the catalog, None if it is not there."""
    with closing(registry.source(options)) as source:
        return next((t.schema for t in source.tables() if t.schema.id == table), None)


def _rewound_now(
    options: SourceOptions, schema: TableSchema, history: TableHistory
) -> Iterator[pa.StructArray]:
    """The rows of now, rewound; the table must not be altered meanwhile."""
    for batch in _rows_as_of(options, schema, history.at):
        yield batch.image("after")
    if history.since(options):
        raise TransientSourceError(
            f"table `{schema.id}` was altered while it was restored",
            None,
            "repeat the command",
            code="TR-8212",
        )


def _rows_as_of(options: SourceOptions, schema: TableSchema, at: MySqlPosition) -> Iterator[ChangeBatch]:
    with closing(registry.source(options)) as source:
        as_of = source.as_of(at)
    with closing(registry.session(options)) as session:
        split = session.located(SnapshotSplit(schema, None, None, as_of, _PAGE_ROWS))
        yield from read_snapshot(split, session, exact=True)


def _changes(
    options: SourceOptions, table: TableId, key: tuple[str, ...], start: MySqlPosition, end: MySqlPosition
) -> Iterator[ChangeBatch]:
    """The changes of a table in `(start, end]`."""
    keys = {table: key} if key else {}
    split = LogSplit(start.to_json(), end.to_json(), finished=frozenset({str(table)}), keys=keys)
    with closing(registry.session(options)) as session:
        for batch in session.changes(session.located(split)):
            if batch.table.id == table:
                yield batch


def _replayed(
    options: SourceOptions,
    schema: TableSchema,
    rows: Iterable[pa.StructArray],
    start: MySqlPosition,
    end: MySqlPosition,
) -> Iterator[pa.StructArray]:
    return replayed(rows, schema, _changes(options, schema.id, schema.key, start, end))


def _rewound(
    options: SourceOptions,
    schema: TableSchema,
    rows: Iterable[pa.StructArray],
    at: MySqlPosition,
    taken: MySqlPosition,
) -> Iterator[pa.StructArray]:
    rewind = Rewind(schema)
    for batch in _changes(options, schema.id, schema.key, at, taken):
        rewind.observe(batch)
    yield from undone(rows, schema, rewind)


def _chained(first: ChangeBatch, rest: Iterator[ChangeBatch]) -> Iterator[ChangeBatch]:
    yield first
    yield from rest


def keep_base(options: SourceOptions, archive: Archive) -> Base:
    """Keep the captured tables in the archive, all as of the log's end."""
    with closing(registry.source(options)) as source:
        tables = [captured.schema for captured in source.tables()]
    end = starting_position(replace(options, starting_position="latest"))
    return write_base(
        archive, end.to_json(), ((schema, _rows_as_of(options, schema, end)) for schema in tables)
    )


def _nothing(table: TableId, history: TableHistory, archive: Archive | None) -> SourceError:
    texts = [
        f"`{without_secrets(change.text)[:80]}` at `{at}`"
        for at, change in history.changes
        if at.order >= history.at.order
    ]
    has = "there is no archive" if archive is None else "the archive has no base that would do"
    return SourceError(
        f"table `{table}` cannot be restored as of that time",
        f"behind `{history.at}` lies {', '.join(texts[:3])}, so its rows of now do not tell, and {has}"
        if texts
        else f"the table does not exist, and {has}",
        "tailrace archive PIPELINE.YAML --base keeps the captured tables; take one regularly, and behind "
        "each schema change",
        code="TR-8211",
    )

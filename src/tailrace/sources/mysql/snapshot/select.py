"""Reading a key range page by page, in key order, with bounded memory whatever the range holds.

Each page is one SELECT from where the last one ended (keyset paging: never an OFFSET, never an open
transaction). A page ends after `page_rows` rows or `page_bytes` bytes, always at a row. When bytes end it,
the rest of the server's answer is discarded, and the next pages request fewer rows.

On a busy server a page is read by many short SELECTs with pauses (`sources.pausing`). That is the same to the
rewind: all of them see what was committed up to the split's position, and nothing behind the end of the log
that is asked for after the last one; of a row whose key changes between two of them the log has the change. A
page, not each SELECT, costs a look at the catalog and a read of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tailrace.model.split import Key
from tailrace.model.table import TableSchema
from tailrace.sources.base import Page
from tailrace.sources.mysql.connection import waiting_briefly
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot.keys import last_key, order_by, range_condition
from tailrace.sources.mysql.snapshot.literal import identifier, table_name
from tailrace.sources.mysql.snapshot.statement import Selection
from tailrace.sources.pausing import Pauses

#: Bytes of packets after which a page ends.
PAGE_BYTES = 32 << 20


def select_pages(
    connection: BoundedConnection,
    table: TableSchema,
    after: Key | None,
    upto: Key | None,
    page_rows: int,
    *,
    page_bytes: int = PAGE_BYTES,
    where: str | None = None,
    pauses: Pauses | None = None,
) -> Iterator[Page]:
    """Read the range `(after, upto]`.

    The pages' ranges follow each other without a gap from `after` to `upto`; there is at least one, and
    any may be empty. Between pages the connection is free for other use.

    Args:
        connection: an idle connection; it may be reopened between pages.
        table: the schema; its key orders the range.
        after: keys above this one, None: from the first.
        upto: keys at or below this one, None: to the last.
        page_rows: most rows of a page.
        page_bytes: most bytes of a page as the server sends it, unless a single row has more.
        where: a condition; None: all rows.
        pauses: pauses to make: a page is then read by many short SELECTs; None: none.

    Raises:
        TransientSourceError: the connection is lost, or the statement took too long.
        TableLockedError: others hold a lock on the table.
        SchemaMismatchError: the table no longer has this schema.
        SourceError: the table has no key, or the server refuses.
    """
    limit = page_rows
    while True:
        with waiting_briefly(connection, rows=True):
            if pauses is None:
                statement = select_statement(table, after, upto, limit, where)
                found = _select(connection, statement, table, limit, page_bytes)
            else:
                found = _select_slowly(
                    connection, table, after, upto, limit, most_bytes=page_bytes, where=where, pauses=pauses
                )
        if found.ended:
            yield Page(found.rows, after, upto)
            return
        last = last_key(found.rows, table)
        yield Page(found.rows, after, last)
        if last == upto:
            return
        after = last
        limit = len(found.rows) if found.cut else min(page_rows, 2 * limit)


@dataclass(frozen=True)
class _Selected:
    """What follows a key.

    Args:
        rows: they end at a row.
        ended: whether no more follow.
        cut: whether bytes have ended them: the connection was reopened.
    """

    rows: pa.StructArray
    ended: bool
    cut: bool


def _select(
    connection: BoundedConnection, statement: str, table: TableSchema, limit: int, most_bytes: int
) -> _Selected:
    """The rows of one SELECT, `limit` at most."""
    with Selection(connection, statement, table, batch_rows=limit, batch_bytes=most_bytes) as selection:
        rows = next(selection, None)
        cut = not selection.ended
    if rows is None:
        return _Selected(pa.array([], table.arrow), ended=True, cut=False)
    return _Selected(rows, ended=not cut and len(rows) < limit, cut=cut)


def _select_slowly(
    connection: BoundedConnection,
    table: TableSchema,
    after: Key | None,
    upto: Key | None,
    limit: int,
    *,
    most_bytes: int,
    where: str | None,
    pauses: Pauses,
) -> _Selected:
    """Up to `limit` rows of `(after, upto]`, by many short SELECTs with pauses, on one connection."""
    parts: list[pa.StructArray] = []
    rows = size = 0
    while True:
        few = min(limit - rows, pauses.rows)
        with pauses.after():
            statement = select_statement(table, after, upto, few, where)
            found = _select(connection, statement, table, few, most_bytes - size)
        pauses.read(found.rows)
        parts.append(found.rows)
        rows, size = rows + len(found.rows), size + found.rows.nbytes
        if found.ended or found.cut or rows >= limit or size >= most_bytes:
            return _Selected(pa.concat_arrays(parts), found.ended, found.cut)
        after = last_key(found.rows, table)
        if after == upto:
            return _Selected(pa.concat_arrays(parts), ended=True, cut=False)


def select_statement(
    table: TableSchema, after: Key | None, upto: Key | None, limit: int | None, where: str | None = None
) -> str:
    """The SELECT of all columns of the rows in `(after, upto]`, in key order, `limit` at most."""
    columns = ", ".join(identifier(c.name) for c in table.columns)
    return (
        f"SELECT {columns} FROM {table_name(table.id)} "
        f"WHERE {range_condition(table, after, upto)}"
        + ("" if where is None else f" AND ({where})")
        + f" {order_by(table)}"
        + ("" if limit is None else f" LIMIT {limit}")
    )

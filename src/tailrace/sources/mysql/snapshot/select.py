"""Reading a key range page by page, in key order, with bounded memory whatever the range holds.

Each page is one SELECT from where the last one ended (keyset paging: never an OFFSET, never an open
transaction). A page ends after `page_rows` rows or `page_bytes` bytes, always at a row. When bytes end it,
the rest of the server's answer is discarded, and the next pages request fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tailrace.model.split import Key
from tailrace.model.table import TableSchema
from tailrace.sources.base import Page
from tailrace.sources.mysql.connection import waiting_briefly
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot.keys import last_key, order_by, range_condition
from tailrace.sources.mysql.snapshot.literal import identifier, table_name
from tailrace.sources.mysql.snapshot.statement import Selection

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

    Raises:
        TransientSourceError: the connection is lost, or the statement took too long.
        TableLockedError: others hold a lock on the table.
        SchemaMismatchError: the table no longer has this schema.
        SourceError: the table has no key, or the server refuses.
    """
    limit = page_rows
    while True:
        statement = select_statement(table, after, upto, limit, where)
        with (
            waiting_briefly(connection, rows=True),
            Selection(connection, statement, table, batch_rows=limit, batch_bytes=page_bytes) as selection,
        ):
            rows = next(selection, None)
            cut = not selection.ended
        if rows is None or (not cut and len(rows) < limit):
            yield Page(_none(table) if rows is None else rows, after, upto)
            return
        last = last_key(rows, table)
        yield Page(rows, after, last)
        if last == upto:
            return
        after = last
        limit = len(rows) if cut else min(page_rows, 2 * limit)


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


def _none(table: TableSchema) -> pa.StructArray:
    return pa.array([], table.arrow)

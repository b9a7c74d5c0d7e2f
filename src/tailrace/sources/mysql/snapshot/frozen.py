"""Tables as they were at one moment: a transaction with a consistent snapshot."""

from __future__ import annotations

from collections.abc import Iterator

import pymysql

from tailrace.config.options import SourceOptions
from tailrace.errors import TransientSourceError
from tailrace.model.table import TableSchema
from tailrace.sources.base import Page
from tailrace.sources.mysql.connection import connect, translate
from tailrace.sources.mysql.snapshot.select import select_pages


class MySqlFrozenTables:
    """See `sources.base.FrozenTables`; the connection has the isolation level REPEATABLE READ.

    Args:
        options: the server.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._connection = connect(options, purpose="reading tables as of one moment")
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        except (pymysql.err.MySQLError, OSError) as error:
            self._connection.close()
            raise translate(error, "beginning to read tables as of one moment") from error
        self._thread = self._connection.thread_id()

    def read_table(self, table: TableSchema, page_rows: int) -> Iterator[Page]:
        """See `FrozenTables`."""
        for page in select_pages(self._connection, table, None, None, page_rows):
            # a page may be read after a connection was opened again, of which nothing else tells
            if self._connection.thread_id() != self._thread:
                raise TransientSourceError(
                    f"reading `{table.id}` as of one moment failed",
                    "the connection was lost",
                    "it is read again from the beginning",
                    code="TR-3001",
                )
            yield page
            if page.upto is None:
                return

    def close(self) -> None:
        """See `FrozenTables`."""
        if self._connection.is_open:
            self._connection.close()

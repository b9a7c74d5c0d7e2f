"""Tables as they were at one moment: transactions with a consistent snapshot."""

from __future__ import annotations

from collections.abc import Iterator

import pymysql

from tailrace.config.options import SourceOptions
from tailrace.errors import TransientSourceError
from tailrace.model.split import Key
from tailrace.model.table import TableSchema
from tailrace.sources.base import Page
from tailrace.sources.connection_pool import ConnectionPool
from tailrace.sources.mysql.connection import connect, translate
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot.select import select_pages


class MySqlFrozenTables:
    """See `sources.base.FrozenTables`; connections have the isolation level REPEATABLE READ.

    Args:
        options: the server.
        connections: how many ranges can be read at the same time.
    """

    def __init__(self, options: SourceOptions, connections: int) -> None:
        def begin() -> tuple[BoundedConnection, int]:
            connection = connect(options, purpose="reading tables as of one moment")
            try:
                with connection.cursor() as cursor:
                    cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            except (pymysql.err.MySQLError, OSError) as error:
                connection.close()
                raise translate(error, "beginning to read tables as of one moment") from error
            return connection, connection.thread_id()

        self._connections = ConnectionPool(connections, begin, lambda begun: begun[0].break_off())

    def read_range(
        self, table: TableSchema, after: Key | None, upto: Key | None, page_rows: int
    ) -> Iterator[Page]:
        """See `FrozenTables`."""
        try:
            with self._connections.taken() as (connection, thread):
                for page in select_pages(connection, table, after, upto, page_rows):
                    # a page may be read after a connection was opened again, of which nothing else tells
                    if connection.thread_id() != thread:
                        raise TransientSourceError(
                            f"reading `{table.id}` as of one moment failed",
                            "the connection was lost",
                            "compare again; `--resume` goes on with the tables that are left",
                            code="TR-3001",
                        )
                    yield page
        except (pymysql.err.MySQLError, OSError) as error:
            raise translate(error, f"reading `{table.id}` as of one moment") from error

    def close(self) -> None:
        """See `FrozenTables`."""
        self._connections.close()

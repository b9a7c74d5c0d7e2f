"""Tables as they were at one moment: transactions of repeatable reads."""

from __future__ import annotations

from collections.abc import Iterator

from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.model.split import Key, SnapshotSplit
from tailrace.model.table import TableSchema
from tailrace.sources.base import Page
from tailrace.sources.connection_pool import ConnectionPool
from tailrace.sources.postgres.connection import Connection, connect, translate
from tailrace.sources.postgres.snapshot.select import copy_pages, is_partitioned


class PostgresFrozenTables:
    """See `sources.base.FrozenTables`.

    Args:
        options: the server.
        connections: how many ranges can be read at the same time.
    """

    def __init__(self, options: SourceOptions, connections: int) -> None:
        def begin() -> Connection:
            connection = connect(options, purpose="reading tables as of one moment", rows=True)
            try:
                connection.rows("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                connection.rows("SELECT 1")  # the first statement takes the snapshot
            except (DatabaseError, InterfaceError, OSError) as error:
                connection.break_off()
                raise translate(error, "beginning to read tables as of one moment") from error
            return connection

        self._connections = ConnectionPool(connections, begin, Connection.break_off)

    def read_range(
        self, table: TableSchema, after: Key | None, upto: Key | None, page_rows: int
    ) -> Iterator[Page]:
        """See `FrozenTables`."""
        split = SnapshotSplit(table, after, upto, {}, page_rows)
        try:
            with self._connections.taken() as connection:
                partitioned = is_partitioned(connection, table)
                yield from copy_pages(connection, split, table, partitioned=partitioned)
        except (DatabaseError, InterfaceError, OSError) as error:
            raise translate(error, f"reading `{table.id}` as of one moment") from error

    def close(self) -> None:
        """See `FrozenTables`."""
        self._connections.close()

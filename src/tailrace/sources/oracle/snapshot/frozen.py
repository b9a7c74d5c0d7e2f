"""All tables as they are at one SCN, for `Source.frozen`."""

from __future__ import annotations

from collections.abc import Iterator

import oracledb

from tailrace.config.options import SourceOptions
from tailrace.model.split import Key
from tailrace.model.table import TableSchema
from tailrace.sources.base import Page
from tailrace.sources.connection_pool import ConnectionPool
from tailrace.sources.oracle import catalog
from tailrace.sources.oracle.connection import Connection, connect, translate
from tailrace.sources.oracle.snapshot import select


class OracleFrozenTables:
    """See `tailrace.sources.base.FrozenTables`: no transaction is held, as undo has the rows.

    Args:
        options: the server.
        connections: how many ranges can be read at the same time.
    """

    def __init__(self, options: SourceOptions, connections: int) -> None:
        def open_one() -> Connection:
            return connect(options, purpose="reading tables", rows=True)

        self._connections = ConnectionPool(connections, open_one, Connection.close)
        try:
            with self._connections.taken() as connection:
                self._scn = catalog.database(connection).scn
        except (oracledb.Error, OSError) as error:
            self._connections.close()
            raise translate(error, "asking for the SCN") from error

    def read_range(
        self, table: TableSchema, after: Key | None, upto: Key | None, page_rows: int
    ) -> Iterator[Page]:
        """The rows of a key range, page by page."""
        try:
            with self._connections.taken() as connection:
                yield from select.pages(
                    connection, table, self._scn, after=after, upto=upto, page_rows=page_rows
                )
        except (oracledb.Error, OSError) as error:
            raise translate(error, f"reading {table.id}") from error

    def close(self) -> None:
        """Close the sessions."""
        self._connections.close()

"""All tables as they are at one SCN, for `Source.frozen`."""

from __future__ import annotations

from collections.abc import Iterator

import oracledb

from tailrace.config.options import SourceOptions
from tailrace.model.table import TableSchema
from tailrace.sources.base import Page
from tailrace.sources.oracle import catalog
from tailrace.sources.oracle.connection import connect, translate
from tailrace.sources.oracle.snapshot import select


class OracleFrozenTables:
    """See `tailrace.sources.base.FrozenTables`: no transaction is held, as undo has the rows.

    Args:
        options: the server.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._connection = connect(options, purpose="reading tables", rows=True)
        try:
            self._scn = catalog.database(self._connection).scn
        except (oracledb.Error, OSError) as error:
            self._connection.close()
            raise translate(error, "asking for the SCN") from error

    def read_table(self, table: TableSchema, page_rows: int) -> Iterator[Page]:
        """All rows of a table, page by page."""
        try:
            yield from select.pages(
                self._connection, table, self._scn, after=None, upto=None, page_rows=page_rows
            )
        except (oracledb.Error, OSError) as error:
            raise translate(error, f"reading {table.id}") from error

    def close(self) -> None:
        """Close the session."""
        self._connection.close()

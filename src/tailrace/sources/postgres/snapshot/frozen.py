"""Tables as they were at one moment: a transaction of repeatable reads."""

from __future__ import annotations

from collections.abc import Iterator

from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.model.split import SnapshotSplit
from tailrace.model.table import TableSchema
from tailrace.sources.base import Page
from tailrace.sources.postgres.connection import connect, translate
from tailrace.sources.postgres.snapshot.select import copy_pages, is_partitioned


class PostgresFrozenTables:
    """See `sources.base.FrozenTables`.

    Args:
        options: the server.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._connection = connect(options, purpose="reading tables as of one moment", rows=True)
        try:
            self._connection.rows("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._connection.rows("SELECT 1")  # the first statement takes the snapshot
        except (DatabaseError, InterfaceError, OSError) as error:
            self._connection.break_off()
            raise translate(error, "beginning to read tables as of one moment") from error

    def read_table(self, table: TableSchema, page_rows: int) -> Iterator[Page]:
        """See `FrozenTables`."""
        split = SnapshotSplit(table, None, None, {}, page_rows)
        try:
            partitioned = is_partitioned(self._connection, table)
            yield from copy_pages(self._connection, split, table, partitioned=partitioned)
        except (DatabaseError, InterfaceError, OSError) as error:
            raise translate(error, f"reading `{table.id}` as of one moment") from error

    def close(self) -> None:
        """See `FrozenTables`."""
        self._connection.break_off()

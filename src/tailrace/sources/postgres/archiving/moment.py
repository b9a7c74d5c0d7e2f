"""A moment: all tables as of one position of the log, with what the catalog said of them then.

The consistent point of a temporary slot, and the snapshot that is exported with it, are the same moment
(`snapshot.snapshots`). A transaction imports it, and reads the catalog and the rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.errors import TransientSourceError
from tailrace.model.change import OP_READ, ChangeBatch, origin_of_rows
from tailrace.model.column_filter import ALL_COLUMNS
from tailrace.model.split import SnapshotSplit
from tailrace.model.table import TableId
from tailrace.sources.postgres import catalog
from tailrace.sources.postgres.archiving.table_state import TableState
from tailrace.sources.postgres.connection import Connection, connect, retrying, sqlstate, translate
from tailrace.sources.postgres.position import PostgresPosition, seq_of
from tailrace.sources.postgres.replication import publication
from tailrace.sources.postgres.snapshot.select import (
    REPEAT,
    copy_pages,
    hold_still,
    import_snapshot,
    is_altered,
)
from tailrace.sources.postgres.snapshot.snapshots import Snapshots
from tailrace.sources.postgres.starting import START_WAIT_S

_DOING = "reading tables as of one moment"
#: Rows of one batch.
_PAGE_ROWS = 8192


class Moment:
    """The captured tables at one moment.

    Args:
        options: the server.

    Attributes:
        position: the position.
        published: the publication then, None if there was none.
        tables: the tables then, by name.

    Raises:
        TransientSourceError: the snapshot waits for transactions that write, and has done so for too long; or
            the server no longer keeps it.
        TailraceError: the server refuses, or cannot be reached.
    """

    def __init__(self, options: SourceOptions) -> None:
        snapshots = Snapshots(options)
        try:
            made = snapshots.within(START_WAIT_S)
            self.position: PostgresPosition = made.position
            self._connection = retrying(
                options, lambda: connect(options, purpose=_DOING, rows=True), "connecting"
            )
            try:
                # the transaction keeps what it has imported
                import_snapshot(self._connection, made.name, made.history.started, then=REPEAT)
                self.published, self.tables = read_tables(self._connection, options)
            except BaseException as error:
                self._connection.break_off()
                if isinstance(error, DatabaseError | InterfaceError | OSError):
                    raise translate(error, _DOING) from error
                raise
        finally:
            snapshots.discard()

    def state(self, table: TableId) -> TableState | None:
        """A table's state, None if it was not there or its changes were not in the log."""
        return state_of(self.tables.get(table), self.published)

    def rows(self, table: TableId) -> Iterator[ChangeBatch]:
        """All rows of a table.

        Raises:
            TransientSourceError: it was altered or rewritten since the moment, or the connection is lost.
        """
        found = self.tables[table]
        schema = found.schema
        split = SnapshotSplit(schema, None, None, {}, _PAGE_ROWS)
        try:
            partitioned = hold_still(self._connection, schema, then=REPEAT)
            planned = [list(numbers) for numbers in found.described]
            if is_altered(self._connection, schema, planned, found.oid):
                raise altered(table)
            for page in copy_pages(self._connection, split, schema, partitioned=partitioned):
                if len(page.rows):
                    yield self._batch(found, page.rows)
        except (DatabaseError, InterfaceError, OSError) as error:
            if sqlstate(error) in ("42P01", "42703"):
                raise altered(table) from error
            raise translate(error, f"reading {table}") from error

    def _batch(self, table: catalog.CatalogTable, rows: pa.StructArray) -> ChangeBatch:
        count, at = len(rows), self.position.lsn
        origin = origin_of_rows(count, seq=seq_of(at), ts_us=0, file="", pos=at)
        return ChangeBatch(table.schema, pa.array(np.full(count, OP_READ, np.int8)), None, rows, origin)

    def close(self) -> None:
        """End the transaction."""
        self._connection.break_off()


def read_tables(
    connection: Connection, options: SourceOptions
) -> tuple[publication.Publication | None, dict[TableId, catalog.CatalogTable]]:
    """The publication, None if there is none, and the captured tables by name, with all their columns.

    Raises pg8000's errors.
    """
    published = publication.read(connection, options.publication)
    whole = options.capturing(None, ALL_COLUMNS)
    found = catalog.captured(connection, whole, published=published)
    return published, {table.schema.id: table for table in found}


def state_of(
    table: catalog.CatalogTable | None, published: publication.Publication | None
) -> TableState | None:
    """The state of a table; None if it is not there or its changes are not, or not wholly, in the log."""
    if table is None or published is None or table.unlogged:
        return None
    id_ = table.schema.id
    if not published.all_tables and id_ not in published.tables:
        return None
    if id_ in published.filtered or not published.actions >= {"insert", "update", "delete"}:
        return None
    return TableState.of(table, published)


def altered(table: TableId) -> TransientSourceError:
    """The error for a table that is altered while it is read."""
    return TransientSourceError(
        f"table `{table}` was altered while its rows were read",
        None,
        REPEAT,
        code="TR-8212",
    )

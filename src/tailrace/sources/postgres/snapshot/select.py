"""Reading a key range under an exported snapshot: one COPY, in pages of bounded size.

Rows come in no order: the snapshot stands still, so nothing has to be read again from where it ended, and the
server is free to scan as it likes. Only a page's *range* matters, where rows are put back (`reader.rewind`):
all
pages are pages of nothing but the last, empty one, which is the whole range's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pg8000.exceptions import DatabaseError

from tailrace.errors import TransientSourceError
from tailrace.model.split import Key, SnapshotSplit
from tailrace.model.table import TableSchema
from tailrace.sources.base import Page
from tailrace.sources.postgres.connection import Connection, sqlstate
from tailrace.sources.postgres.literal import string, table_name
from tailrace.sources.postgres.snapshot.blocks import block_condition
from tailrace.sources.postgres.snapshot.keys import NOTHING, range_condition
from tailrace.sources.postgres.wire.kernels.copy import CopyReader, copy_columns


def import_snapshot(connection: Connection, name: str, kept_by: str) -> None:
    """See the database as an exported snapshot does, until the transaction ends.

    Args:
        connection: to the server that keeps it.
        name: the snapshot's. Servers count their sessions anew when they start, so that another one's
            snapshot may have the same name later, or on a promoted standby.
        kept_by: when the server was started that keeps it.

    Raises:
        TransientSourceError: the snapshot is not kept any more; the batch has to be read again under a new
        one.
    """
    connection.rows("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        connection.rows(f"SET TRANSACTION SNAPSHOT {string(name)}")
    except DatabaseError as error:
        if sqlstate(error) not in ("22023", "42704"):
            raise
        raise snapshot_gone(
            "the process that plans batches has let go of it, or lost its connection"
        ) from error
    if connection.value("SELECT pg_postmaster_start_time()::text") != kept_by:
        raise snapshot_gone("another server answers, or the server was started again")


def snapshot_gone(why: str) -> TransientSourceError:
    """What to raise when rows cannot be read under their batch's snapshot any more."""
    return TransientSourceError(
        "the snapshot that the batch reads under is gone",
        why,
        "the batch is read again under a new snapshot",
    )


def hold_still(connection: Connection, table: TableSchema) -> None:
    """Let nobody alter the table until the transaction ends.

    A snapshot does not cover what rewrites a table: after a TRUNCATE or an ALTER TABLE that changes a type,
    an
    older snapshot finds it empty. The table's file as the snapshot has it and as it is now tell.

    Raises:
        TransientSourceError: the table was rewritten since the snapshot was made; the batch has to be read
            again under a new one.
    """
    connection.wait_for(f"LOCK TABLE {table_name(table.id)} IN ACCESS SHARE MODE")
    name = f"{string(table_name(table.id))}::regclass"
    rewritten = connection.value(
        "SELECT count(*)::int4 FROM pg_catalog.pg_class c WHERE c.relkind = 'r' "
        f"AND (c.oid = {name} OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree({name}))) "
        "AND pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode"
    )
    if rewritten:
        raise TransientSourceError(
            f"table `{table.id}` was rewritten while its snapshot was read",
            "by TRUNCATE, VACUUM FULL or an ALTER TABLE: the snapshot does not show its rows any more",
            "the batch is read again under a new snapshot",
        )


def copy_pages(connection: Connection, split: SnapshotSplit, table: TableSchema) -> Iterator[Page]:
    """The rows of the split's range, and its range last.

    Args:
        connection: within a transaction that has imported a snapshot.
        split: what to read.
        table: the table's shape now.

    Raises pg8000's errors, and DecodeError.
    """
    reader = CopyReader(table, batch_rows=split.page_rows)
    connection.begin_copy(copy_statement(table, split.after, split.upto, split.blocks))
    while not reader.ended:
        count = connection.socket.recv_into(reader.room())
        if not count:
            connection.break_off()
            raise ConnectionResetError("the server has closed the connection")
        for rows in reader.received(count):
            yield Page(rows, NOTHING, NOTHING)
    connection.end_copy(reader.rest())
    last = reader.flush()
    if last is not None:
        yield Page(last, NOTHING, NOTHING)
    yield Page(pa.array([], table.arrow), split.after, split.upto)


def copy_statement(
    table: TableSchema, after: Key | None, upto: Key | None, blocks: tuple[int, int | None] | None = None
) -> str:
    """The COPY of all columns of the rows in `(after, upto]`, or of those of them in some blocks."""
    wanted = [] if after is None and upto is None else [range_condition(table, after, upto)]
    wanted += [] if blocks is None else [block_condition(blocks)]
    where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
    return f"COPY (SELECT {copy_columns(table)} FROM {table_name(table.id)}{where}) TO STDOUT (FORMAT binary)"

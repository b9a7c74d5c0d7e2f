"""Reading a key range under an exported snapshot: one COPY, in pages of bounded size.

Rows come in no order: the snapshot does not change, so no read has to be resumed, and the server is free to
choose its scan. A page's *range* matters only where rows are rewound (`reader.rewind`): all pages have an
empty range except the last, which has no rows and the whole range.

On a busy server the range is cut, within the snapshot, and read by many short COPYs with pauses
(`sources.pausing`). A table without a key cannot be cut, and is read at full speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pg8000.exceptions import DatabaseError

from tailrace.errors import SchemaMismatchError, TransientSourceError
from tailrace.model.split import Key, SnapshotSplit
from tailrace.model.table import TableSchema
from tailrace.sources.base import Page
from tailrace.sources.pausing import Pauses, pauses
from tailrace.sources.postgres.connection import Connection, sqlstate
from tailrace.sources.postgres.protocol.literal import source_of, string, table_name
from tailrace.sources.postgres.snapshot.blocks import block_condition
from tailrace.sources.postgres.snapshot.keys import NOTHING, boundary, range_condition
from tailrace.sources.postgres.waits.locks import lock
from tailrace.sources.postgres.wire.kernels.copy import CopyReader, copy_columns

#: What follows when rows cannot be read under their snapshot: of a stream, and of a command.
READ_AGAIN = "the batch is read again under a new snapshot"
REPEAT = "repeat the command"
#: A page of rows that are read slowly: short COPYs are joined to one.
_PAGE_ROWS, _PAGE_BYTES = 8192, 4 << 20


def import_snapshot(connection: Connection, name: str, kept_by: str, *, then: str = READ_AGAIN) -> None:
    """Begin a transaction that sees the database as an exported snapshot does.

    Args:
        connection: to the server that keeps the snapshot.
        name: the snapshot's name. Servers restart the count of their sessions when they start, so another
            snapshot may have the same name later, or on a promoted standby.
        kept_by: start time of the server that keeps it.
        then: the error's hint.

    Raises:
        TransientSourceError: the snapshot is no longer kept; the rows must be read under a new one.
    """
    connection.rows("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        connection.rows(f"SET TRANSACTION SNAPSHOT {string(name)}")
    except DatabaseError as error:
        if sqlstate(error) not in ("22023", "42704"):
            raise
        raise snapshot_gone(
            "the process that exported it released it, or lost its connection", then
        ) from error
    if connection.value("SELECT pg_postmaster_start_time()::text") != kept_by:
        raise snapshot_gone("another server answers, or the server was restarted", then)


def snapshot_gone(why: str, then: str = READ_AGAIN) -> TransientSourceError:
    """The error when rows can no longer be read under their snapshot; `then` is its hint."""
    return TransientSourceError(
        "the snapshot under which rows are read is gone",
        why,
        then,
        code="TR-4302",
    )


def hold_still(connection: Connection, table: TableSchema, *, then: str = READ_AGAIN) -> bool:
    """Lock the table against alterations until the transaction ends; return whether it is partitioned.

    A snapshot does not cover statements that rewrite a table: after a TRUNCATE or an ALTER TABLE that changes
    a type, an older snapshot finds it empty. The table's file in the snapshot and its file now show that.
    `then` is the hint of the error that says so.

    Raises:
        TransientSourceError: the table was rewritten since the snapshot was exported; its rows must be read
            under a new one. Or others hold a lock on it.
    """
    partitioned = is_partitioned(connection, table)
    lock(connection, f"LOCK TABLE {source_of(table, partitioned)} IN ACCESS SHARE MODE", (table.id,))
    name = f"{string(table_name(table.id))}::regclass"
    rewritten = connection.value(
        "SELECT count(*)::int4 FROM pg_catalog.pg_class c WHERE c.relkind = 'r' "
        f"AND (c.oid = {name} OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree({name}))) "
        "AND pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode"
    )
    if rewritten:
        raise TransientSourceError(
            f"table `{table.id}` was rewritten while its snapshot was read",
            "by TRUNCATE, VACUUM FULL or an ALTER TABLE: the snapshot no longer shows its rows",
            then,
            code="TR-4303",
        )
    return partitioned


def is_partitioned(connection: Connection, table: TableSchema) -> bool:
    """Whether its rows are those of its partitions. Raises pg8000's errors."""
    kind = connection.value(
        f"SELECT relkind = 'p' FROM pg_catalog.pg_class WHERE oid = {string(table_name(table.id))}::regclass"
    )
    return bool(kind)


def as_it_is(
    connection: Connection, table: TableSchema, planned: Sequence[Sequence[int]], oid: int
) -> tuple[TableSchema, TableSchema]:
    """A locked table, by the names that its columns have now and by those that they had when planned.

    Args:
        connection: which holds the lock. Its snapshot may be older than the table's present definition, the
            description of a statement's columns is not.
        table: its schema when the batch was planned.
        planned: of each column the number, type's oid and modifier then.
        oid: the table's oid then.

    Returns:
        Two schemas with the same columns; columns that were dropped are in neither of them.

    Raises:
        TransientSourceError: it is another table now, or its columns have other types; the batch must be
            planned again.
        SchemaMismatchError: a column of the key was dropped.
    """
    live = {c.number: c for c in connection.columns(f"SELECT * FROM {table_name(table.id)} LIMIT 0")}
    if any(c.table != oid for c in live.values()):
        raise _altered(table, "another table has its name now")
    names: dict[str, str] = {}
    for column, (number, type_, modifier) in zip(table.columns, planned, strict=True):
        now = live.get(number)
        if now is None:
            continue
        if (now.type, now.modifier) != (type_, modifier):
            raise _altered(table, f"column `{column.name}` has another type now")
        names[column.name] = now.name
    if not names.keys() >= set(table.key):
        raise SchemaMismatchError(
            f"the key of table `{table.id}` has changed while its snapshot was read",
            f"found columns {', '.join(c.name for c in live.values())}, the key was {', '.join(table.key)}",
            "start the stream again: with onRewrite: refresh and startingPosition initial, it reads the "
            "table again by its new key",
            code="TR-5003",
        )
    kept = [c for c in table.columns if c.name in names]
    now_named = [replace(c, name=names[c.name]) for c in kept]
    key = tuple(names[name] for name in table.key)
    return TableSchema(table.id, tuple(now_named), key), replace(table, columns=tuple(kept))


def is_altered(
    connection: Connection, table: TableSchema, planned: Sequence[Sequence[int]], oid: int
) -> bool:
    """Whether a table's name, or that of a column, now means another one, or a column has another type.

    Args:
        connection: a connection.
        table: its schema when the batch was planned.
        planned: of each column the number, type's oid and modifier then.
        oid: the table's oid then.
    """
    live = {c.number: c for c in connection.columns(f"SELECT * FROM {table_name(table.id)} LIMIT 0")}
    then = {number: (oid, c.name, *form) for c, (number, *form) in zip(table.columns, planned, strict=True)}
    now = {n: (c.table, c.name, c.type, c.modifier) for n, c in live.items() if n in then}
    return now != then


def _altered(table: TableSchema, how: str) -> TransientSourceError:
    return TransientSourceError(
        f"table `{table.id}` was altered after its batch was planned",
        how,
        "the batch is planned again",
        code="TR-5002",
    )


def copy_pages(
    connection: Connection,
    split: SnapshotSplit,
    table: TableSchema,
    *,
    partitioned: bool,
    named: TableSchema | None = None,
    where: str | None = None,
) -> Iterator[Page]:
    """The rows of the split's range, and its range last.

    Args:
        connection: within a transaction that has imported a snapshot.
        split: the key range, or the blocks.
        table: the table's schema now.
        partitioned: whether it is partitioned.
        named: the same columns by the names that the rows are to have; None: as they are.
        where: a condition; None: all rows.

    Raises pg8000's errors, and DecodeError.
    """
    named = named or table
    slow = pauses(split.time_share) if table.key else None
    if slow is None:
        statement = copy_statement(
            table, split.after, split.upto, split.blocks, partitioned=partitioned, matching=where
        )
        found = _copied(connection, statement, named, split.page_rows)
    else:
        found = _copied_slowly(
            connection, split, table, named, where=where, slow=slow, partitioned=partitioned
        )
    for rows in found:
        yield Page(rows, NOTHING, NOTHING)
    yield Page(pa.array([], named.arrow), split.after, split.upto)


def _copied(
    connection: Connection, statement: str, named: TableSchema, page_rows: int
) -> Iterator[pa.StructArray]:
    """The rows of a COPY."""
    reader = CopyReader(named, batch_rows=page_rows)
    connection.begin_copy(statement)
    while not reader.ended:
        connection.socket.settimeout(connection.timeout_s)  # of silence, not of the whole
        count = connection.socket.recv_into(reader.room())
        if not count:
            connection.break_off()
            raise ConnectionResetError("the server has closed the connection")
        yield from reader.received(count)
    connection.end_copy(reader.rest())
    last = reader.flush()
    if last is not None:
        yield last


def _copied_slowly(
    connection: Connection,
    split: SnapshotSplit,
    table: TableSchema,
    named: TableSchema,
    *,
    where: str | None,
    slow: Pauses,
    partitioned: bool,
) -> Iterator[pa.StructArray]:
    """The rows of the split's range, by many short COPYs with pauses.

    One COPY cannot be slowed by reading it slowly: the server sends megabytes ahead.
    """
    # each part by the key's index: an estimate by old statistics must not make it a scan of the table
    connection.rows("SET LOCAL enable_seqscan = off")
    connection.rows("SET LOCAL enable_bitmapscan = off")
    connection.rows("SET LOCAL jit = off")
    after, ended = split.after, False
    parts: list[pa.StructArray] = []
    while not ended:
        with slow.after():
            end = boundary(connection, table, after, slow.rows, partitioned=partitioned, upto=split.upto)
            ended = end is None
            upto = split.upto if ended else end
            statement = copy_statement(table, after, upto, partitioned=partitioned, matching=where)
            read = list(_copied(connection, statement, named, split.page_rows))
        after = upto
        parts += read
        if read:
            slow.read(read[-1])
        if parts and (
            ended or sum(map(len, parts)) >= _PAGE_ROWS or sum(p.nbytes for p in parts) >= _PAGE_BYTES
        ):
            yield pa.concat_arrays(parts)
            parts = []


def copy_statement(
    table: TableSchema,
    after: Key | None,
    upto: Key | None,
    blocks: tuple[int, int | None] | None = None,
    *,
    partitioned: bool = False,
    matching: str | None = None,
) -> str:
    """The COPY of all columns of the rows in `(after, upto]`, or only of those in some blocks."""
    conditions = [] if after is None and upto is None else [range_condition(table, after, upto)]
    conditions += [] if blocks is None else [block_condition(blocks)]
    conditions += [] if matching is None else [f"({matching})"]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    source = source_of(table, partitioned)
    return f"COPY (SELECT {copy_columns(table)} FROM {source}{where}) TO STDOUT (FORMAT binary)"

"""Tables without a key: their rows lie in blocks, which tasks read in parallel.

A change in the log names its row's key but not its block: so no cursor can stand between blocks, and such a
table is one chunk, all of it in one batch. Nor can a row be restored to its block: a batch that is repeated
under a later snapshot is read by one task, which reconstructs the rows of the whole table.
"""

from __future__ import annotations

from dataclasses import replace

from tailrace.model.split import SnapshotSplit
from tailrace.sources.postgres.connection import Connection
from tailrace.sources.postgres.position import PostgresPosition
from tailrace.sources.postgres.protocol.literal import string, table_name

#: Least blocks of a table that are worth a task's connection: 8 MB.
LEAST_BLOCKS = 1024


def is_read_as_it_is(split: SnapshotSplit) -> bool:
    """Whether the snapshot is at the batch's end, so that no row is reconstructed."""
    seen, at = (PostgresPosition.from_json(p) for p in (split.as_of["seen"], split.as_of))
    return seen.lsn == at.lsn


def by_blocks(connection: Connection, split: SnapshotSplit, tasks: int) -> list[SnapshotSplit]:
    """A split of a whole table as up to `tasks` splits; the last one has no upper bound, for new blocks."""
    name = f"{string(table_name(split.table.id))}::regclass"
    blocks = connection.value(
        "SELECT max(pg_relation_size(c.oid)) / current_setting('block_size')::int8 FROM pg_catalog.pg_class c"
        f" WHERE c.relkind = 'r' AND (c.oid = {name}"
        f" OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree({name})))"
    )
    count = max(1, min(tasks, int(blocks or 0) // LEAST_BLOCKS))
    starts = [int(blocks or 0) * i // count for i in range(count)]
    return [
        replace(split, blocks=(start, end)) for start, end in zip(starts, [*starts[1:], None], strict=True)
    ]


def block_condition(blocks: tuple[int, int | None]) -> str:
    """The SQL condition for the rows of some blocks: the server scans no others."""
    start, end = blocks
    upto = "" if end is None else f" AND ctid < '({end},0)'::tid"
    return f"ctid >= '({start},0)'::tid{upto}"

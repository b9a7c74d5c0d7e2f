"""Planning of the key ranges that a batch reads: of first snapshots, then of tables that are read again.

There is no stored list of chunks: each batch plans its own chunks and advances the tables' cursors. It takes
up to `splits` chunks of `chunk_rows` rows from the tables in name order, starting at their cursors. The
server finds the end of a chunk, in its own key order. The last chunk of a table is open-ended: as of the
batch's position it holds the rows that it held when it was planned.

A small table is a part of a chunk: as many of them fit into a batch as its rows allow, since a batch of two
rows costs what one of two full chunks does. The server says whether a table is that small; its estimate only
says whether to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tailrace.enumerator.offset import StreamOffset, TableProgress
from tailrace.errors import TableLockedError, concerning
from tailrace.model.key import key_of
from tailrace.model.split import Key
from tailrace.model.table import TableSchema

#: How many small tables count as one chunk: each has at most this share of a chunk's rows.
SMALL_TABLES = 16

#: (table, after, rows) -> the key `rows` rows after `after`, None if fewer remain.
Boundary = Callable[[TableSchema, Key | None, int], Key | None]


@dataclass(frozen=True)
class KeyRange:
    """The keys in `(after, upto]`; None is open."""

    after: Key | None
    upto: Key | None


def advance(
    start: StreamOffset,
    schemas: Mapping[str, TableSchema],
    boundary: Boundary,
    *,
    splits: int,
    chunk_rows: int,
) -> tuple[StreamOffset, dict[str, list[KeyRange]]]:
    """Advance the cursors of unfinished tables by up to `splits` chunks in total; small tables are parts.

    Args:
        start: the offset to continue from.
        schemas: schema of every unfinished table that still exists; a first snapshot without one is
            finished, a table to read again waits.
        boundary: asks the server where a chunk ends; may raise TableLockedError.
        splits: most chunks to plan.
        chunk_rows: rows per chunk.

    Returns:
        The offset with the new cursors, and the planned ranges by table.
    """
    offset, planned = start, dict[str, list[KeyRange]]()
    left = float(splits)
    for name, progress in start.tables.items():
        if left <= 0:
            break
        if name not in schemas:
            offset = offset.with_done(name, progress.rows)
            continue
        ranges, cost = _planned(progress, schemas[name], boundary, left, chunk_rows)
        if not ranges:
            continue
        planned[name], left = ranges, left - cost
        now, finished = _advanced(progress, schemas[name], ranges, chunk_rows)
        offset = offset.with_done(name, now.rows) if finished else offset.with_table(name, now)
    # those for which the log waits come first, once no other reading moves it
    for name, reread in sorted(start.again.items(), key=lambda item: not item[1].blocking):
        if left <= 0:
            break
        if reread.blocking and offset.tables and reread.progress.cursor is None:
            continue
        if reread.done or name not in schemas:  # a dropped table waits until it is created again
            continue
        ranges, cost = _planned(reread.progress, schemas[name], boundary, left, chunk_rows)
        if not ranges:
            continue
        planned[name], left = ranges, left - cost
        now, finished = _advanced(reread.progress, schemas[name], ranges, chunk_rows)
        offset = offset.with_reread(name, replace(reread, progress=now, done=finished))
    return offset, planned


def _planned(
    progress: TableProgress, schema: TableSchema, boundary: Boundary, left: float, chunk_rows: int
) -> tuple[list[KeyRange], float]:
    """The next ranges of a table, and how many chunks they count as: at most `left`."""
    few = chunk_rows // SMALL_TABLES
    if few and progress.cursor is None and progress.estimated <= few:
        try:
            if boundary(schema, None, few) is None:
                return [KeyRange(None, None)], 1 / SMALL_TABLES
        except TableLockedError:
            return [], 0.0
    ranges = _ranges(schema, progress.cursor, boundary, int(left), chunk_rows)
    return ranges, float(len(ranges))


def _ranges(
    schema: TableSchema, after: Key | None, boundary: Boundary, splits: int, chunk_rows: int
) -> list[KeyRange]:
    """Up to `splits` ranges behind `after`; the table's last one is open. None while the table is locked."""
    ranges: list[KeyRange] = []
    while len(ranges) < splits:
        try:
            with concerning(schema.id):
                end = boundary(schema, after, chunk_rows)
        except TableLockedError:
            break  # the other tables do not wait for it
        ranges.append(KeyRange(after, end))
        if end is None:
            break
        after = end
    return ranges


def _advanced(
    progress: TableProgress, schema: TableSchema, ranges: list[KeyRange], chunk_rows: int
) -> tuple[TableProgress, bool]:
    """The progress behind `ranges`, and whether the table is finished."""
    rows = progress.rows + chunk_rows * len(ranges)
    end = ranges[-1].upto
    if end is None:
        # the last chunk's number of rows is unknown before it is read
        rows = max(rows - chunk_rows, min(rows, progress.estimated))
    key = key_of(schema) if progress.key is None else progress.key
    return TableProgress(end, rows, progress.estimated, key), end is None

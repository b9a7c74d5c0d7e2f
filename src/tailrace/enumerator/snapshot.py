"""Planning of the key ranges that a batch reads.

There is no stored list of chunks: each batch plans its own chunks and advances the tables' cursors. It takes
up to `splits` chunks of `chunk_rows` rows from the tables in name order, starting at their cursors. The
server finds the end of a chunk, in its own key order. The last chunk of a table is open-ended: as of the
batch's position it holds the rows that it held when it was planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tailrace.enumerator.offset import StreamOffset, TableProgress
from tailrace.errors import TableLockedError
from tailrace.model.split import Key
from tailrace.model.table import TableSchema

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
    """Advance the cursors of unfinished tables by up to `splits` chunks in total.

    Args:
        start: the offset to continue from.
        schemas: schema of every unfinished table that still exists; a table that is missing here is finished.
        boundary: asks the server where a chunk ends; may raise TableLockedError.
        splits: most chunks to plan.
        chunk_rows: rows per chunk.

    Returns:
        The offset with the new cursors, and the planned ranges by table.
    """
    offset, planned = start, dict[str, list[KeyRange]]()
    for name, progress in start.tables.items():
        if splits <= 0:
            break
        if name not in schemas:
            offset = offset.with_done(name, progress.rows)
            continue
        ranges: list[KeyRange] = []
        cursor, finished = progress.cursor, False
        while splits > 0 and not finished:
            try:
                end = boundary(schemas[name], cursor, chunk_rows)
            except TableLockedError:
                break  # the other tables do not wait for it
            ranges.append(KeyRange(cursor, end))
            cursor, finished, splits = end, end is None, splits - 1
        if not ranges:
            continue
        planned[name] = ranges
        rows = progress.rows + chunk_rows * len(ranges)
        if finished:
            # the last chunk's number of rows is unknown before it is read
            full = rows - chunk_rows
            offset = offset.with_done(name, max(full, min(rows, progress.estimated)))
        else:
            offset = offset.with_table(name, TableProgress(cursor, rows, progress.estimated))
    return offset, planned

"""Which key ranges a batch reads: cursors move on, chunk by chunk, planned in the batch that reads them.

No list of chunks exists anywhere. A batch takes up to `splits` chunks of `chunk_rows` rows from the tables
in name order, beginning at their cursors; where a chunk ends is asked of the server, in its own key order.
The last chunk of a table is open-ended: as of the batch's position it holds what it held when planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tailrace.enumerator.offset import StreamOffset, TableProgress
from tailrace.model.split import Key
from tailrace.model.table import TableSchema

#: (table, after, rows) -> key that many rows further on, None when fewer remain.
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
    """Move the cursors of unfinished tables on by up to `splits` chunks in all.

    Args:
        start: the offset to go on from.
        schemas: shape of every unfinished table that still exists; a table that is not in it is finished.
        boundary: asks the server where a chunk ends.
        splits: most chunks to plan.
        chunk_rows: rows per chunk.

    Returns:
        The offset with the cursors moved, and the planned ranges by table.
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
            end = boundary(schemas[name], cursor, chunk_rows)
            ranges.append(KeyRange(cursor, end))
            cursor, finished, splits = end, end is None, splits - 1
        planned[name] = ranges
        rows = progress.rows + chunk_rows * len(ranges)
        if finished:
            # what the last chunk holds is not known before it is read
            full = rows - chunk_rows
            offset = offset.with_done(name, max(full, min(rows, progress.estimated)))
        else:
            offset = offset.with_table(name, TableProgress(cursor, rows, progress.estimated))
    return offset, planned

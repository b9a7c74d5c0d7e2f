"""What one task reads. A split is complete: with the source's options it can be run anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.model.table import TableId, TableSchema

#: Values of a table's key columns in key order, as JSON values: int, str (text, decimal and temporal
#: types as the server prints them), or {"b": hex} for binary columns.
Key = tuple[Any, ...]


@dataclass(frozen=True)
class SnapshotSplit:
    """The rows of a key range as of a log position.

    Args:
        table: shape of the table at that position; its key orders the range.
        after: rows with a greater key, None: from the first row.
        upto: rows with this or a smaller key, None: to the last row.
        as_of: the position, as JSON (the source's Position.to_json()).
        page_rows: most rows one SELECT may return; the reader pages through the range.
    """

    table: TableSchema
    after: Key | None
    upto: Key | None
    as_of: Mapping[str, Any]
    page_rows: int


@dataclass(frozen=True)
class LogSplit:
    """The changes in `(start, end]` of the log.

    Args:
        start: position the slice begins after, as JSON.
        end: position of its last transaction's end, as JSON.
        cursors: tables whose snapshot is unfinished: their cursor at the batch's start (None: nothing read
            yet). A change is emitted iff its key is at or below the cursor.
        finished: tables whose changes are all emitted, by `str(TableId)`; None: every captured table
            that is not in `cursors`.
        keys: key columns of tables whose key the log does not carry (unique keys).
        events: the slice's raw events when the driver still held them, else None: the task reads them.
        checksum: whether `events` end in a 4-byte CRC32 each.
    """

    start: Mapping[str, Any]
    end: Mapping[str, Any]
    cursors: Mapping[TableId, Key | None] = field(default_factory=dict)
    finished: frozenset[str] | None = None
    keys: Mapping[TableId, tuple[str, ...]] = field(default_factory=dict)
    events: bytes | None = None
    checksum: bool = True


Split = SnapshotSplit | LogSplit

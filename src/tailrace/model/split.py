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
        blocks: of those rows the ones in these blocks of the table: from one on, up to before another (None:
            to the last); None: all. Only for rows that need not be put back.
    """

    table: TableSchema
    after: Key | None
    upto: Key | None
    as_of: Mapping[str, Any]
    page_rows: int
    blocks: tuple[int, int | None] | None = None


@dataclass(frozen=True)
class Cursor:
    """How far the snapshot of a table has come.

    Args:
        table: the table's shape from the catalog, whose collations order its keys.
        upto: greatest key read so far.
    """

    table: TableSchema
    upto: Key


@dataclass(frozen=True)
class LogSplit:
    """The changes in `(start, end]` of the log.

    A change of a table is emitted if the table is finished, or if it has a cursor and the key lies at or
    below it; changes of all other tables are not.

    Args:
        start: position the slice begins after, as JSON.
        end: position of its last transaction's end, as JSON.
        cursors: tables whose snapshot is unfinished at the batch's start, with the rows read by then.
        finished: the finished tables, as `str(TableId)`; None: every captured table.
        keys: key columns of tables whose key the log does not carry (unique keys).
        events: the slice's raw events when the driver still held them, else None: the task reads them.
        share: (number, count): only the changes of this share of the keys; None: all.
    """

    start: Mapping[str, Any]
    end: Mapping[str, Any]
    cursors: Mapping[TableId, Cursor] = field(default_factory=dict)
    finished: frozenset[str] | None = None
    keys: Mapping[TableId, tuple[str, ...]] = field(default_factory=dict)
    events: bytes | None = None
    share: tuple[int, int] | None = None

    def concerns(self, table: TableId) -> bool:
        """Whether changes of `table` may be emitted."""
        return self.finished is None or str(table) in self.finished or table in self.cursors


Split = SnapshotSplit | LogSplit

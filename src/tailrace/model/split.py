"""Splits: the work of one task. A split is self-contained: it runs anywhere, given the source's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.model.column_filter import ColumnFilter
from tailrace.model.declaration import CatalogTexts
from tailrace.model.table import TableId, TableSchema

#: Values of a table's key columns in key order, as JSON values: int, str (text, decimal and temporal
#: types as the server prints them), or {"b": hex} for binary columns.
Key = tuple[Any, ...]


@dataclass(frozen=True)
class SnapshotSplit:
    """The rows of a key range as of a log position.

    Args:
        table: schema of the table at that position; its key orders the range.
        after: rows with a greater key; None: from the first row.
        upto: rows with this key or a smaller one; None: to the last row.
        as_of: the position, as JSON (the source's Position.to_json()).
        page_rows: most rows that one SELECT may return; the reader pages through the range.
        blocks: only the rows in these blocks of the table, from the first up to, but not including, the
            second (None: to the last); None: all blocks. Only for rows that need no rewind.
        reread: whether the table is read again: targets may have the rows' keys.
        where: a condition (`model.condition`). Other rows are left out, unless they change while they are
            read; None: all rows.
        tables: the patterns of the captured tables; None: those of the stream's options.
        columns: the captured columns; None: those of the stream's options.
        time_share: the share of the time, below 1, in which the server may work for the split: the reader
            pauses. None: all of the time.
        declared: what the catalog says of the table's columns (`model.declaration`).
        until: where the stream ends: the position as JSON under `log`, or the time under `us`, in
            microseconds since 1970 UTC. No later batch makes up for what the rows lack behind it. None: it
            does not end.
    """

    table: TableSchema
    after: Key | None
    upto: Key | None
    as_of: Mapping[str, Any]
    page_rows: int
    blocks: tuple[int, int | None] | None = None
    reread: bool = False
    where: str | None = None
    tables: tuple[str, ...] | None = None
    columns: ColumnFilter | None = None
    time_share: float | None = None
    until: Mapping[str, Any] | None = None
    declared: CatalogTexts = field(default_factory=dict)


@dataclass(frozen=True)
class Cursor:
    """Progress of a table's snapshot.

    Args:
        table: the table's schema from the catalog, whose collations order its keys.
        upto: greatest key read so far.
    """

    table: TableSchema
    upto: Key


@dataclass(frozen=True)
class LogSplit:
    """The changes in `(start, end]` of the log.

    A change of a table is emitted if the table is finished, or if the table has a cursor and the change's key
    is less than or equal to it. All other changes are dropped.

    Args:
        start: position after which the range begins, as JSON.
        end: position of the end of its last transaction, as JSON.
        cursors: tables whose snapshot is unfinished at the batch's start, with the progress at that point.
        finished: the finished tables, as `str(TableId)`; None: every captured table.
        keys: key columns of tables whose key the log does not carry (unique keys).
        left_out: columns of tables that are dropped from their changes: not all row images have them.
        events: the range's raw events if the driver still held them; None: the task reads them.
        relayed: where a process on the driver's host finds the range's raw events; None: nowhere.
        without: tables of which nothing is emitted, as `str(TableId)`: they are parked.
        parked: the one table of the range that was parked at its start, and is resumed with these changes.
        share: (number, count): only the changes whose keys hash to this share; None: all.
        ambiguous: the captured tables whose text another table may have, too: nothing of that one is emitted.
            It may be in the log although the catalog does not show it, as the user may not read it.
        tables: the patterns of the captured tables; None: those of the stream's options.
        columns: the captured columns; None: those of the stream's options.
        declared: what the catalog says of the tables' columns (`model.declaration`).
    """

    start: Mapping[str, Any]
    end: Mapping[str, Any]
    cursors: Mapping[TableId, Cursor] = field(default_factory=dict)
    finished: frozenset[str] | None = None
    keys: Mapping[TableId, tuple[str, ...]] = field(default_factory=dict)
    left_out: Mapping[TableId, tuple[str, ...]] = field(default_factory=dict)
    events: bytes | None = None
    relayed: bytes | None = None
    without: frozenset[str] = frozenset()
    parked: TableId | None = None
    share: tuple[int, int] | None = None
    ambiguous: frozenset[TableId] = frozenset()
    tables: tuple[str, ...] | None = None
    columns: ColumnFilter | None = None
    declared: CatalogTexts = field(default_factory=dict)

    def concerns(self, table: TableId) -> bool:
        """Whether the split may emit changes of `table`."""
        if str(table) in self.without:
            return False
        if any(map(table.is_namesake, self.ambiguous)):
            return False
        return self.finished is None or str(table) in self.finished or table in self.cursors


Split = SnapshotSplit | LogSplit

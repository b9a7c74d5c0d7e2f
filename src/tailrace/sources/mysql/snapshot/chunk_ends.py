"""Where chunks of a table end, mostly without counting rows.

To find the key some rows behind another one, the server scans the index: a sixth of its CPU time for a whole
snapshot. Any key is a good end. So for a key that is one integer the width of the last scanned chunk is tried
again, and the server's estimate (EXPLAIN, which looks at both ends of the range in the index) says whether
that fits.

InnoDB's estimates are no counts: twice the rows of a range, or many times as much where rows were deleted,
and never more than half of the table. So an estimate is compared with that of the scanned chunk, and with
that of all rows that are left, never with a number of rows. Where it does not fit (keys are denser or sparser
there, the table is small or ends) the next chunk is scanned again.
"""

from __future__ import annotations

from dataclasses import dataclass

import pymysql

from tailrace.model.key import integers
from tailrace.model.split import Key
from tailrace.model.table import TableId, TableSchema
from tailrace.model.types import Kind
from tailrace.sources import network
from tailrace.sources.mysql.connection import one, translate
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot import keys
from tailrace.sources.mysql.snapshot.literal import table_name

#: Chunks of fewer rows are scanned: that takes some milliseconds.
LEAST_ROWS = 50_000
#: An estimate of more times the rows that were counted is no measure: rows were deleted there.
_TRUSTED = 2.5
#: What an estimate may be of that of the scanned chunk.
_LEAST, _MOST = 0.7, 1.5
#: What part it may be of the estimate of all rows that are left.
_PART = 0.8


@dataclass(frozen=True)
class _Scanned:
    """A chunk of which the rows were counted: how many, the width of its keys, the server's estimate."""

    table: TableSchema
    rows: int
    width: int
    estimate: int


class ChunkEnds:
    """Finds the ends of chunks; remembers the last chunk of each table that was scanned."""

    def __init__(self) -> None:
        self._scanned: dict[TableId, _Scanned] = {}

    def find(
        self, connection: BoundedConnection, table: TableSchema, after: Key | None, rows: int
    ) -> Key | None:
        """A key about `rows` rows behind `after`; None when fewer remain. Raises as `keys.boundary`."""
        if after is None or rows < LEAST_ROWS or not _is_integer(table):
            return keys.boundary(connection, table, after, rows)
        scanned = self._scanned.get(table.id)
        if scanned is not None and (scanned.table, scanned.rows) == (table, rows):
            end = (after[0] + scanned.width,)
            if _fits(table, end) and _is_like(connection, table, after, end, scanned.estimate):
                return end
        found = keys.boundary(connection, table, after, rows)
        estimate, by_key = (0, False) if found is None else _estimate(connection, table, after, found)
        self._scanned.pop(table.id, None)
        if found is not None and by_key and estimate <= _TRUSTED * rows:
            self._scanned[table.id] = _Scanned(table, rows, found[0] - after[0], estimate)
        return found


def _is_integer(table: TableSchema) -> bool:
    return len(table.key) == 1 and table.column(table.key[0]).type.kind is Kind.INTEGER


def _fits(table: TableSchema, key: Key) -> bool:
    """Whether the key's column can have such a value."""
    _, largest = integers(table.column(table.key[0]).type)
    return bool(key[0] <= largest)


def _is_like(connection: BoundedConnection, table: TableSchema, after: Key, end: Key, scanned: int) -> bool:
    """Whether the rows in `(after, end]` are estimated as the scanned chunk's were, and more are left."""
    estimate, by_key = _estimate(connection, table, after, end)
    if not by_key or not _LEAST * scanned <= estimate <= _MOST * scanned:
        return False
    left, by_key = _estimate(connection, table, after, None)
    return estimate < _PART * (left if by_key else left // 2)


@network.sensible("an estimate of rows")
def _estimate(
    connection: BoundedConnection, table: TableSchema, after: Key, upto: Key | None
) -> tuple[int, bool]:
    """The server's estimate of the rows in `(after, upto]`, True; of the whole table, False."""
    name, where = table_name(table.id), keys.range_condition(table, after, upto)
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN FORMAT=TRADITIONAL SELECT 1 FROM {name} WHERE {where}")
            plan = dict(zip([column[0] for column in cursor.description], one(cursor), strict=True))
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, f"estimating rows of table `{table.id}`") from error
    return int(plan["rows"] or 0), plan["type"] == "range"

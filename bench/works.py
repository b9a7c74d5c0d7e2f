"""The works: what is read, by Tailrace and by everything it is compared with.

snapshot   a table of 12 columns
bulk       the log of 1000-row transactions on such a table, a third each inserts, updates, deletes
single     the same in transactions of one row
wide       a table of 200 columns, 1000-row transactions
nulls      a table of 41 columns, nine in ten values of which are NULL, 1000-row transactions
many       20 tables of 12 columns, 50 rows of each in every transaction
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pymysql

from bench import data
from bench.data import LogPart

Connection: TypeAlias = "pymysql.Connection[Any]"

_PER_TRANSACTION = 1000
_WIDE_COLUMNS, _NULL_COLUMNS, _TABLES = 199, 40, 20
#: Types in turn, and each one's value for row number `n`, column number `i`.
_KINDS = (
    ("INT", "n + {i}"),
    ("BIGINT", "n * 1000003 + {i}"),
    ("DECIMAL(12,2)", "n % 1000000 / 100 + {i}"),
    ("DOUBLE", "(n + {i}) / 7"),
    ("VARCHAR(24)", "CONCAT('value ', n % 9973 + {i})"),
    ("DATETIME(3)", "TIMESTAMP '2024-01-01 00:00:00.123' + INTERVAL n + {i} SECOND"),
    ("TINYINT", "(n + {i}) % 100"),
    ("DATE", "DATE '2020-01-01' + INTERVAL (n + {i}) % 1500 DAY"),
)


@dataclass(frozen=True)
class Work:
    """Something to read.

    Args:
        key: its name in options.
        title: its name in the report.
        tables: regular expression of the tables, without the database.
        events: how many rows or row events, by default and in a smoke run.
        write: makes the log of so many events; None for a snapshot.
        one_table: whether it is one table: others have no shape `row`.
    """

    key: str
    title: str
    tables: str
    events: tuple[int, int]
    write: Callable[[Connection, int], LogPart] | None
    one_table: bool = True

    def make(self, connection: Connection, events: int) -> Made:
        """Write its log; `items` is there already."""
        if self.write is None:
            return Made(self, events, None)
        part = self.write(connection, events)
        return Made(self, part.events, part)


@dataclass(frozen=True)
class Made:
    """A work that is there to be read.

    Args:
        work: which.
        events: rows or row events it has.
        part: its log; None for a snapshot.
    """

    work: Work
    events: int
    part: LogPart | None

    @property
    def section(self) -> str:
        """What the report calls it."""
        if self.part is None:
            return f"{self.work.title}, {self.events:,} rows"
        return f"{self.work.title}, {self.events:,} events, {self.part.size / 1e6:.0f} MB"


def wide_log(connection: Connection, events: int) -> LogPart:
    """Changes of a table with 200 columns."""
    row = _make(connection, "wide", _WIDE_COLUMNS, "{value}")
    return data.changes(connection, "wide", row, "c0 = c0 + 1, c2 = c2 + 1", events=events)


def null_log(connection: Connection, events: int) -> LogPart:
    """Changes of a table whose values are mostly NULL."""
    row = _make(connection, "nulls", _NULL_COLUMNS, "IF((n + {i}) % 10 = 0, {value}, NULL)")
    return data.changes(connection, "nulls", row, "c0 = IFNULL(c0, 0) + 1", events=events)


def many_log(connection: Connection, events: int) -> LogPart:
    """Changes of 20 tables, all of which every transaction touches."""
    tables = [f"many_{number:02}" for number in range(_TABLES)]
    data.execute(
        connection,
        f"USE {data.DATABASE}",
        *(s for t in tables for s in (f"DROP TABLE IF EXISTS {t}", f"CREATE TABLE {t} ({data.COLUMNS})")),
    )
    start = data.new_file(connection)
    share = _PER_TRANSACTION // _TABLES
    transactions = 0
    for first in range(1, events // 3 // _TABLES + 1, share):
        last = first + share - 1
        where = f"WHERE id BETWEEN {first} AND {last}"
        source = data.numbers(data.ROW, first, last)
        for statements in (
            [f"INSERT INTO {t} {source}" for t in tables],
            [f"UPDATE {t} SET {data.UPDATE} {where}" for t in tables],
            [f"DELETE FROM {t} {where}" for t in tables],
        ):
            data.execute(connection, "BEGIN", *statements, "COMMIT")
            transactions += 1
    return data.part(connection, start, transactions * _PER_TRANSACTION, transactions)


def _make(connection: Connection, table: str, columns: int, value: str) -> str:
    """Make a table of `id` and columns of all kinds in turn; its row as expressions."""
    kinds = [_KINDS[i % len(_KINDS)] for i in range(columns)]
    definitions = "".join(f", c{i} {kind} NULL" for i, (kind, _) in enumerate(kinds))
    data.execute(
        connection,
        f"USE {data.DATABASE}",
        f"DROP TABLE IF EXISTS {table}",
        f"CREATE TABLE {table} (id BIGINT NOT NULL PRIMARY KEY{definitions})",
    )
    values = [value.format(i=i, value=text.format(i=i)) for i, (_, text) in enumerate(kinds)]
    return ", ".join(["n", *values])


SNAPSHOT = Work("snapshot", "snapshot", "items", (20_000_000, 50_000), None)
#: Each log fits into one file of MySQL's: into a gigabyte.
WORKS = (
    SNAPSHOT,
    Work("bulk", "log, 1000-row transactions", "events", (6_000_000, 30_000), data.bulk_log),
    Work("single", "log, single-row transactions", "events", (1_700_000, 3_000), data.single_row_log),
    Work("wide", "log, 200 columns", "wide", (600_000, 3_000), wide_log),
    Work("nulls", "log, mostly NULL", "nulls", (3_000_000, 6_000), null_log),
    Work("many", "log, 20 tables", r"many_\d\d", (2_400_000, 6_000), many_log, one_table=False),
)

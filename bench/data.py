"""The tables and logs that are measured, made by the server itself.

`items` has 12 columns of common types, about 150 bytes a row; it is filled without the binary log. `events`
has the same columns; it is changed by transactions of a given size, a third each inserts, updates, deletes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pymysql

DATABASE = "tailrace_bench"
COLUMNS = """
    id BIGINT NOT NULL PRIMARY KEY,
    customer INT NOT NULL,
    quantity SMALLINT UNSIGNED NOT NULL,
    price DECIMAL(12,2) NOT NULL,
    weight DOUBLE NULL,
    sku VARCHAR(24) NOT NULL,
    title VARCHAR(80) NOT NULL,
    note VARCHAR(200) NULL,
    active TINYINT NOT NULL,
    day DATE NOT NULL,
    created DATETIME(3) NOT NULL,
    updated TIMESTAMP(6) NOT NULL
"""
#: The row number `n` as a row of the table.
ROW = """
    n, n * 7919 % 100003, n % 500, n % 1000000 / 100, IF(n % 10 = 0, NULL, n / 3),
    CONCAT('SKU-', n * 31 % 999983), CONCAT('Product number ', n, ' of a shop'),
    IF(n % 4 = 0, NULL, REPEAT('note ', 1 + n % 12)), n % 2,
    DATE '2020-01-01' + INTERVAL n % 1500 DAY, TIMESTAMP '2024-01-01 00:00:00.123' + INTERVAL n SECOND,
    TIMESTAMP '2024-06-01 00:00:00.123456' + INTERVAL n % 10000000 SECOND
"""
UPDATE = "quantity = quantity + 1, price = price + 1"
_FILL_ROWS = 250_000
_SINGLE = """
CREATE PROCEDURE single_row_transactions(begun BIGINT, ended BIGINT)
BEGIN
    DECLARE n BIGINT DEFAULT begun;
    WHILE n < ended DO
        INSERT INTO events SELECT {row} FROM (SELECT n AS n) t;
        UPDATE events SET quantity = quantity + 1, price = price + 1 WHERE id = n;
        DELETE FROM events WHERE id = n;
        SET n = n + 1;
    END WHILE;
END
"""


@dataclass(frozen=True)
class LogPart:
    """A stretch of the binary log that ends at the log's end.

    Args:
        file: its only file.
        start: offset of its first transaction.
        end: offset of its end.
        events: row events in it (changed rows).
        transactions: how many transactions.
        gtids: every GTID before it.
    """

    file: str
    start: int
    end: int
    events: int
    transactions: int
    gtids: str

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start


@dataclass(frozen=True)
class Place:
    """The log's end at some moment: file, offset and every GTID before it."""

    file: str
    offset: int
    gtids: str


def prepare(connection: pymysql.Connection[Any]) -> None:
    """Make the database anew, with empty tables."""
    execute(
        connection,
        f"DROP DATABASE IF EXISTS {DATABASE}",
        f"CREATE DATABASE {DATABASE}",
        f"USE {DATABASE}",
        f"CREATE TABLE items ({COLUMNS})",
        f"CREATE TABLE events ({COLUMNS})",
        f"CREATE TABLE huge ({COLUMNS})",
        f"CREATE TABLE ticks ({COLUMNS})",
        "CREATE TABLE digits (d INT PRIMARY KEY)",
        f"INSERT INTO digits VALUES {','.join(f'({d})' for d in range(1000))}",
        _SINGLE.format(row=ROW),
    )


def fill_items(connection: pymysql.Connection[Any], rows: int) -> None:
    """Give `items` so many rows, ids 1 to `rows`, and no others; not in the binary log."""

    def fill(one: pymysql.Connection[Any], begin: int, end: int) -> None:
        execute(one, "SET SESSION sql_log_bin = 0")
        for first in range(begin, end, _FILL_ROWS):
            last = min(first + _FILL_ROWS, end) - 1
            execute(one, f"INSERT INTO items {numbers(ROW, first, last)}")
        execute(one, "SET SESSION sql_log_bin = 1")

    execute(connection, f"USE {DATABASE}", "SET SESSION sql_log_bin = 0", "TRUNCATE TABLE items")
    _in_halves(connection, rows, fill)
    execute(connection, "ANALYZE NO_WRITE_TO_BINLOG TABLE items")


def bulk_log(connection: pymysql.Connection[Any], events: int, per_transaction: int = 1000) -> LogPart:
    """Change `events` rows in transactions of `per_transaction`, in a new log file."""
    return changes(connection, "events", ROW, UPDATE, events=events, per_transaction=per_transaction)


def changes(
    connection: pymysql.Connection[Any],
    table: str,
    row: str,
    update: str,
    *,
    events: int,
    per_transaction: int = 1000,
) -> LogPart:
    """Insert, update and delete rows of a table, a third of the events each, in a new log file.

    Args:
        connection: to the server.
        table: what is changed.
        row: its row number `n`, as expressions.
        update: what follows SET.
        events: how many changes, rounded up to whole transactions.
        per_transaction: rows of a transaction.
    """
    start = new_file(connection)
    transactions = change(connection, table, row, update, events=events, per_transaction=per_transaction)
    return part(connection, start, transactions * per_transaction, transactions)


def change(
    connection: pymysql.Connection[Any],
    table: str,
    row: str,
    update: str,
    *,
    events: int,
    per_transaction: int,
) -> int:
    """Do so in the present log file, and those that follow; how many transactions."""
    transactions = 0
    for first in range(1, events // 3 + 1, per_transaction):
        last = first + per_transaction - 1
        where = f"WHERE id BETWEEN {first} AND {last}"
        execute(
            connection,
            f"INSERT INTO {table} {numbers(row, first, last)}",
            f"UPDATE {table} SET {update} {where}",
            f"DELETE FROM {table} {where}",
        )
        transactions += 3
    return transactions


def single_row_log(connection: pymysql.Connection[Any], events: int) -> LogPart:
    """Change `events` rows in transactions of one row, in a new log file."""

    def change_rows(one: pymysql.Connection[Any], begin: int, end: int) -> None:
        execute(one, f"CALL single_row_transactions({begin}, {end})")

    start = new_file(connection)
    _in_halves(connection, events // 3, change_rows)
    return part(connection, start, events // 3 * 3, events // 3 * 3)


def _in_halves(
    connection: pymysql.Connection[Any],
    rows: int,
    work: Callable[[pymysql.Connection[Any], int, int], None],
) -> None:
    """Do work on row 1 to row `rows`, half of it over another connection meanwhile.

    Args:
        connection: in the benchmark's database.
        rows: how many.
        work: takes a connection, the first row, and the one behind the last.
    """
    middle = 1 + rows // 2
    arguments = {"host": connection.host, "port": connection.port, "user": connection.user}
    password = connection.password.decode()
    other = pymysql.connect(**arguments, password=password, database=DATABASE, autocommit=True)
    with closing(other), ThreadPoolExecutor(1) as pool:
        half = pool.submit(work, other, middle, rows + 1)
        work(connection, 1, middle)
        half.result()


def one_transaction(connection: pymysql.Connection[Any], size: int) -> LogPart:
    """Insert rows in one transaction that takes about `size` bytes of log, in a new log file."""
    sample = 10_000
    start = new_file(connection)
    execute(connection, f"INSERT INTO huge {numbers(ROW, 1, sample)}")
    row_bytes = (_status(connection).offset - start.offset) / sample
    start = new_file(connection)
    rows = int(size / row_bytes) + 1
    execute(connection, f"INSERT INTO huge {numbers(ROW, sample + 1, sample + rows)}")
    return part(connection, start, rows, 1)


def execute(connection: pymysql.Connection[Any], *statements: str) -> None:
    """Run statements one after the other."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def count(connection: pymysql.Connection[Any], table: str) -> int:
    """The rows of a table."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {table}")
        return int(cursor.fetchone()[0])


def tick(number: int) -> str:
    """The statement that inserts row `number` into `ticks`."""
    return f"INSERT INTO {DATABASE}.ticks SELECT {ROW} FROM (SELECT {number} AS n) t"


def numbers(row: str, first: int, last: int) -> str:
    """A SELECT of the expressions `row` over `n` from `first` to `last`."""
    a, b = (first - 1) // 1000, (last - 1) // 1000
    return (
        f"SELECT {row} FROM (SELECT 1 + a.n * 1000 + d AS n FROM "
        f"(SELECT x.d * 1000 + y.d AS n FROM digits x, digits y "
        f"WHERE x.d BETWEEN {a // 1000} AND {b // 1000} AND x.d * 1000 + y.d BETWEEN {a} AND {b}) a, "
        f"digits) t "
        f"WHERE n BETWEEN {first} AND {last}"
    )


def new_file(connection: pymysql.Connection[Any]) -> Place:
    """Begin a new log file."""
    execute(connection, f"USE {DATABASE}", "FLUSH BINARY LOGS")
    return _status(connection)


def part(connection: pymysql.Connection[Any], start: Place, events: int, transactions: int) -> LogPart:
    """The log from `start` to its end."""
    end = _status(connection)
    assert end.file == start.file, "the log was meant to fit into one file"
    return LogPart(start.file, start.offset, end.offset, events, transactions, start.gtids)


def _status(connection: pymysql.Connection[Any]) -> Place:
    with connection.cursor() as cursor:
        try:
            cursor.execute("SHOW BINARY LOG STATUS")
        except pymysql.err.ProgrammingError:  # before 8.2
            cursor.execute("SHOW MASTER STATUS")
        row = cursor.fetchone()
    assert row is not None
    return Place(str(row[0]), int(row[1]), "".join(str(row[4]).split()))

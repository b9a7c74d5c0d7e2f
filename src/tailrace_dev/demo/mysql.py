"""The demo's shop on MySQL: a case-insensitive key, text that is not UTF-8, ENUM, SET, BIT."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pymysql

from tailrace_dev.demo.shop import DATABASE, Expressions, Sizes, statements
from tailrace_dev.servers import MySqlServer, start_mysql

_CREATE = (
    """
    CREATE TABLE customers (
      email VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci NOT NULL PRIMARY KEY,
      name VARCHAR(60) CHARACTER SET utf8mb4 NOT NULL,
      city VARCHAR(40) CHARACTER SET latin1,
      credit DECIMAL(12, 2) NOT NULL,
      vip BIT(1) NOT NULL,
      joined DATE NOT NULL,
      seen TIMESTAMP(3) NULL
    )""",
    """
    CREATE TABLE products (
      id INT UNSIGNED NOT NULL PRIMARY KEY,
      sku CHAR(12) CHARACTER SET ascii NOT NULL,
      name VARCHAR(80) CHARACTER SET latin1 NOT NULL,
      description TEXT CHARACTER SET latin1,
      price DECIMAL(10, 2) NOT NULL,
      weight DOUBLE,
      tags SET('new', 'sale', 'bulky') NOT NULL
    )""",
    """
    CREATE TABLE orders (
      id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
      customer VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci NOT NULL,
      status ENUM('open', 'paid', 'shipped', 'returned') NOT NULL,
      placed DATETIME(6) NOT NULL,
      total DECIMAL(14, 2) NOT NULL,
      attributes JSON,
      note VARCHAR(120) CHARACTER SET utf8mb4
    )""",
    """
    CREATE TABLE order_lines (
      order_id BIGINT NOT NULL,
      line SMALLINT UNSIGNED NOT NULL,
      product_id INT UNSIGNED NOT NULL,
      quantity MEDIUMINT NOT NULL,
      price DECIMAL(10, 2) NOT NULL,
      discount FLOAT,
      PRIMARY KEY (order_id, line)
    )""",
)

#: Numbers 0..999999, generated without a table.
_NUMBERS = """
    WITH d (i) AS (VALUES ROW(0), ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7), ROW(8), ROW(9)),
    n AS (SELECT a.i + 10 * b.i + 100 * c.i + 1000 * e.i + 10000 * f.i + 100000 * g.i + %(first)s AS i
          FROM d AS a, d AS b, d AS c, d AS e, d AS f, d AS g
          WHERE g.i <= %(count)s DIV 100000 AND 10 * g.i + f.i <= %(count)s DIV 10000)
"""

_FILL = {
    "customers": """
    SELECT CONCAT(ELT(1 + i %% 4, 'anna', 'Bob', 'chloé', 'DÖRTE'), '.', i, '@example.com'),
           CONCAT(ELT(1 + i %% 4, 'Anna', 'Bob', 'Chloé', 'Dörte'), ' №', i),
           IF(i %% 7 = 0, NULL, ELT(1 + i %% 5, 'Zürich', 'Lyon', 'Århus', 'Bern', 'Porto')),
           (i %% 100000) / 100, i %% 10 = 0, DATE_ADD('2015-01-01', INTERVAL i %% 3650 DAY),
           IF(i %% 3 = 0, NULL, TIMESTAMPADD(SECOND, i, '2025-01-01 00:00:00.125'))""",
    "products": """
    SELECT i, CONCAT('SKU-', LPAD(i, 8, '0')), CONCAT('Café ', i),
           IF(i %% 4 = 0, NULL, REPEAT('très bon ', i %% 12)), (100 + i %% 9900) / 100,
           IF(i %% 9 = 0, NULL, i / 7), i %% 8""",
    "orders": """
    SELECT i, CONCAT(ELT(1 + (i %% %(customers)s) %% 4, 'anna', 'Bob', 'chloé', 'DÖRTE'), '.',
                     i %% %(customers)s, '@example.com'),
           1 + i %% 4, TIMESTAMPADD(MICROSECOND, i * 1000003, '2025-01-01'), (i * 37 %% 1000000) / 100,
           IF(i %% 5 = 0, NULL, JSON_OBJECT('channel', ELT(1 + i %% 3, 'web', 'app', 'shop'), 'n', i,
                                            'gift', i %% 2 = 0, 'rate', i / 8)),
           IF(i %% 3 = 0, CONCAT('note ', i, ' ☕'), NULL)""",
    "order_lines": """
    SELECT i DIV %(lines)s, 1 + i %% %(lines)s, i %% %(products)s, 1 + i %% 9, (100 + i %% 9900) / 100,
           IF(i %% 6 = 0, i %% 50 / 100, NULL)""",
}


class MySqlShop:
    """See `tailrace_dev.demo.shop.Shop`."""

    title = "MySQL"
    source: Sequence[str] = ("type: mysql",)
    expressions = Expressions(
        attributes="JSON_SET(COALESCE(attributes, '{}'), '$.n', %s, '$.by', %s)",
        random="RAND()",
        last_first=" ORDER BY line DESC",
        tagged="CONCAT_WS(',', tags, 'sale')",
    )
    errors: tuple[type[Exception], ...] = (pymysql.MySQLError,)
    expected: frozenset[int | str] = frozenset({1062, 1205, 1213})
    gone: frozenset[int | str] = frozenset({2003, 2006, 2013, 1053})

    def start(self, *, detached: bool) -> MySqlServer:
        """Start a server."""
        return start_mysql(detached=detached)

    def create(self, server: MySqlServer) -> None:
        """Create the empty shop on a server."""
        server.execute(f"CREATE DATABASE {DATABASE}", f"USE {DATABASE}", *_CREATE)

    def fill(self, server: MySqlServer, table: str, sizes: Sizes) -> None:
        """Fill one table."""
        filling = statements(_FILL[table], _NUMBERS, table, sizes)
        server.execute(
            f"USE {DATABASE}", "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'", *filling, f"ANALYZE TABLE {table}"
        )

    def admit(self, server: MySqlServer, password: str) -> None:
        """Create the user `tailrace`."""
        server.execute(
            f"CREATE USER tailrace IDENTIFIED BY '{password}'",
            f"GRANT INSERT, UPDATE, DELETE ON {DATABASE}.* TO tailrace",  # for the writers
            f"GRANT SELECT ON {DATABASE}.* TO tailrace",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO tailrace",
        )

    def connect(self, host: str, port: int, user: str, password: Path) -> Any:
        """A writer's connection."""
        return pymysql.connect(
            host=host,
            port=port,
            user=user,
            password=password.read_text(encoding="utf-8"),
            database=DATABASE,
            charset="utf8mb4",
            autocommit=False,
            init_command="SET sql_mode = ''",
        )

    def insert_id(self, cursor: Any) -> int:
        """The last assigned AUTO_INCREMENT value."""
        return int(cursor.lastrowid)

    def code(self, error: Exception) -> int | str:
        """The error's number, the server's or the client's."""
        return int(error.args[0])

"""The demo's source: a shop of four tables, filled by the server itself.

Each table brings something that replication gets wrong when it is careless: a key under a case-insensitive
collation, a composite key, DECIMAL and JSON, fractions of seconds, text that is not UTF-8, ENUM, SET, NULLs.
"""

from __future__ import annotations

from dataclasses import dataclass

DATABASE = "shop"
TABLES = ("order_lines", "orders", "customers", "products")

#: Shares of a row count: of 100 rows, so many are of each table.
_CUSTOMERS, _PRODUCTS, _ORDERS = 10, 2, 24

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

#: Numbers 0..999999, made without a table of them.
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


@dataclass(frozen=True)
class Sizes:
    """Rows of each table; order numbers are 0..orders-1, each with the same number of lines."""

    customers: int
    products: int
    orders: int
    lines_per_order: int

    @classmethod
    def of(cls, rows: int) -> Sizes:
        """A shop of about so many rows in all, never less."""
        orders = max(100, rows * _ORDERS // 100)
        customers, products = max(50, rows * _CUSTOMERS // 100), max(20, rows * _PRODUCTS // 100)
        lines = max(1, -(-(rows - orders - customers - products) // orders))
        return cls(customers, products, orders, lines)

    @property
    def rows(self) -> dict[str, int]:
        """Rows by table."""
        return {
            "customers": self.customers,
            "products": self.products,
            "orders": self.orders,
            "order_lines": self.orders * self.lines_per_order,
        }


def create_statements() -> list[str]:
    """What makes the empty shop."""
    return [f"CREATE DATABASE {DATABASE}", f"USE {DATABASE}", *_CREATE]


def fill_statements(table: str, sizes: Sizes) -> list[str]:
    """What fills one table, some hundred thousand rows a statement."""
    rows, step = sizes.rows[table], 250_000
    numbers = {"customers": sizes.customers, "products": sizes.products, "lines": sizes.lines_per_order}
    statements = []
    for first in range(0, rows, step):
        count = min(step, rows - first)
        given = {**numbers, "first": first, "count": count}
        select = (_NUMBERS + _FILL[table] + f"\n    FROM n WHERE i < {first + count}") % given
        statements.append(f"INSERT INTO {table} {select}")
    return ["SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'", *statements]

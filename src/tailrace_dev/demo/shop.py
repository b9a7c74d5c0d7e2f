"""The demo's source: a shop of four tables on a server of one product, filled by the server itself.

Each table brings something that replication gets wrong when it is careless: keys of text, a composite key,
decimals and JSON, fractions of seconds, enumerations and sets, NULLs. What differs by product is in `mysql`
and `postgres`, each a `Shop`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tailrace_dev.servers import DevServer

DATABASE = "shop"
TABLES = ("order_lines", "orders", "customers", "products")

#: Shares of a row count: of 100 rows, so many are of each table.
_CUSTOMERS, _PRODUCTS, _ORDERS = 10, 2, 24


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


@dataclass(frozen=True)
class Expressions:
    """SQL of the writers that each product has its own of.

    Args:
        attributes: `attributes` with the parameters as its fields `n` and `by`.
        random: a random number from 0 to 1.
        last_first: what makes an UPDATE begin with an order's last line, where keys would collide.
        tagged: `tags` with `sale` among them.
    """

    attributes: str
    random: str
    last_first: str
    tagged: str


class Shop(Protocol):
    """The shop on one product.

    Attributes:
        title: the product's name.
        source: what a pipeline file says of it: `type`, and `database` where the product wants it.
        expressions: SQL for the writers.
        errors: the driver's error class.
        expected: codes of errors that random writers meet by design: duplicate key, deadlock, timeout.
        gone: codes of errors that say that the server is gone: what the demo does to it at its end.
    """

    title: str
    source: Sequence[str]
    expressions: Expressions
    errors: tuple[type[Exception], ...]
    expected: frozenset[int | str]
    gone: frozenset[int | str]

    def start(self, *, detached: bool) -> DevServer:
        """Start a server."""
        ...

    def create(self, server: Any) -> None:
        """Make the empty shop on it."""
        ...

    def fill(self, server: Any, table: str, sizes: Sizes) -> None:
        """Fill one table."""
        ...

    def admit(self, server: Any, password: str) -> None:
        """Make the user `tailrace`, who may read the log and write to the shop."""
        ...

    def connect(self, host: str, port: int, user: str, password: Path) -> Any:
        """A writer's DB-API connection, without autocommit."""
        ...

    def insert_id(self, cursor: Any) -> int:
        """The number that the last INSERT gave."""
        ...

    def code(self, error: Exception) -> int | str:
        """The code of an error of `errors`."""
        ...


def statements(select: str, numbers: str, table: str, sizes: Sizes) -> list[str]:
    """INSERTs that fill one table, some hundred thousand rows each.

    Args:
        select: what makes the row of number `i`.
        numbers: WITH clause that makes `n (i)`: `count` numbers, or some more, from `first` on.
        table: the table.
        sizes: of the shop.
    """
    rows, step = sizes.rows[table], 250_000
    given = {"customers": sizes.customers, "products": sizes.products, "lines": sizes.lines_per_order}
    made = []
    for first in range(0, rows, step):
        count = min(step, rows - first)
        text = (numbers + select) % {**given, "first": first, "count": count}
        made.append(f"INSERT INTO {table} {text}\n    FROM n WHERE i < {first + count}")
    return made

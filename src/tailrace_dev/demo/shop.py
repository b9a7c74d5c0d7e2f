"""The demo's source: a shop of four tables on a server of one product, filled by the server itself.

Each table has features that are easy to replicate wrongly: text keys, a composite key, decimals and JSON,
fractions of seconds, enumerations and sets, NULLs. `mysql` and `postgres` hold the differences between the
products, each in a `Shop`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tailrace_dev.servers import DevServer

DATABASE = "shop"
TABLES = ("order_lines", "orders", "customers", "products")

#: Shares of a row count: rows of each table per 100.
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
        """A shop of about `rows` rows in all, never fewer."""
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
    """SQL of the writers that differs between products.

    Args:
        attributes: `attributes` with the parameters as its fields `n` and `by`.
        random: a random number from 0 to 1.
        last_first: makes an UPDATE start with an order's last line, where keys would collide.
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
        source: its lines in a pipeline file: `type`, and `database` where the product needs it.
        expressions: SQL for the writers.
        errors: the driver's error classes.
        expected: codes of errors that random writers cause: duplicate key, deadlock, timeout.
        gone: codes of errors for a server that has ended, as it does at the end of the demo.
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
        """Create the empty shop on a server."""
        ...

    def fill(self, server: Any, table: str, sizes: Sizes) -> None:
        """Fill one table."""
        ...

    def admit(self, server: Any, password: str) -> None:
        """Create the user `tailrace`, who may read the log and write to the shop."""
        ...

    def connect(self, host: str, port: int, user: str, password: Path) -> Any:
        """A writer's DB-API connection, without autocommit."""
        ...

    def insert_id(self, cursor: Any) -> int:
        """The number that the last INSERT generated."""
        ...

    def code(self, error: Exception) -> int | str:
        """The code of an error of `errors`."""
        ...


def statements(select: str, numbers: str, table: str, sizes: Sizes) -> list[str]:
    """INSERTs that fill one table, some hundred thousand rows each.

    Args:
        select: generates the row with number `i`.
        numbers: WITH clause that generates `n (i)`: `count` numbers, or some more, from `first` on.
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

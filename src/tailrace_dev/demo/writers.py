"""The demo's writers: a separate process that keeps the shop busy at a steady rate.

    python -m tailrace_dev.demo.writers PRODUCT HOST PORT USER PASSWORD-FILE \
        ORDERS CUSTOMERS PRODUCTS RATE STATS

Single-row and multi-row transactions: inserts, updates, deletes, changes of keys (an order's number, a
line's number, the case of an e-mail address, which its collation treats as the same key), occasional
rollbacks. Each product's `Shop` holds its differences. The writers stop after the current transaction at
SIGTERM, or when the process that started them has ended.
The file STATS has their totals so far as JSON: {"transactions": n, "changes": n, "seconds": s}.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from tailrace_dev.demo.products import shop
from tailrace_dev.demo.shop import Expressions, Shop

THREADS = 2
_STATUS = ("open", "paid", "shipped", "returned")


@dataclass
class Counts:
    """Committed transactions and changes, of all threads."""

    transactions: int = 0
    changes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, changes: int) -> None:
        """Count one transaction."""
        with self.lock:
            self.transactions += 1
            self.changes += changes


@dataclass
class Clerk:
    """One connection's work.

    Args:
        execute: runs a statement; returns the number of changed rows.
        insert_id: the number that the last INSERT generated.
        sql: the product's expressions.
        draw: random numbers.
        orders: order numbers that existed at the start: 0..orders-1.
        customers: the same for customers.
        products: the same for products.
    """

    execute: Callable[..., int]
    insert_id: Callable[[], int]
    sql: Expressions
    draw: random.Random
    orders: int
    customers: int
    products: int

    def transaction(self) -> int:
        """Run the statements of one transaction; returns the number of changed rows."""
        work, weights = zip(*_WORK, strict=True)
        (chosen,) = self.draw.choices(work, weights)
        return int(chosen(self))

    def new_order(self) -> int:
        """An order and its lines."""
        changed = self.execute(
            "INSERT INTO orders (customer, status, placed, total, attributes, note)"
            " VALUES (%s, 'open', CURRENT_TIMESTAMP(6), %s, %s, %s)",
            (
                f"new.{self.draw.randrange(self.customers)}@example.com",
                self.draw.randrange(10**7) / 100,
                json.dumps({"channel": "web", "n": self.draw.randrange(1000), "tags": ["é", None, 1.5]}),
                self.draw.choice((None, "prompt ✓", "")),
            ),
        )
        order = self.insert_id()
        rows = [
            (order, line, self.draw.randrange(self.products), self.draw.randrange(1, 9), line * 1.25)
            for line in range(1, self.draw.randrange(2, 7))
        ]
        marks = ", ".join(["(%s, %s, %s, %s, %s)"] * len(rows))
        values = [value for row in rows for value in row]
        return changed + self.execute(
            f"INSERT INTO order_lines (order_id, line, product_id, quantity, price) VALUES {marks}", values
        )

    def change_status(self) -> int:
        """One row."""
        return self.execute(
            "UPDATE orders SET status = %s, total = total + 0.01 WHERE id = %s",
            (self.draw.choice(_STATUS), self._order()),
        )

    def change_attributes(self) -> int:
        """A JSON document, in part."""
        return self.execute(
            f"UPDATE orders SET attributes = {self.sql.attributes} WHERE id = %s",
            (self.draw.randrange(10**9), "clerk №1", self._order()),
        )

    def change_lines(self) -> int:
        """All lines of some adjacent orders."""
        first = self._order()
        return self.execute(
            f"UPDATE order_lines SET quantity = quantity + 1, discount = {self.sql.random}"
            " WHERE order_id BETWEEN %s AND %s",
            (first, first + self.draw.choice((0, 0, 1, 20))),
        )

    def cancel(self) -> int:
        """Delete an order with its lines."""
        order = self._order()
        lines = self.execute("DELETE FROM order_lines WHERE order_id = %s", (order,))
        return lines + self.execute("DELETE FROM orders WHERE id = %s", (order,))

    def move_order(self) -> int:
        """Give an order another number, on the other side of the snapshot's cursor."""
        order = self._order()
        lines = self.execute("UPDATE order_lines SET order_id = %s WHERE order_id = %s", (-order, order))
        return lines + self.execute("UPDATE orders SET id = %s WHERE id = %s", (-order, order))

    def renumber_lines(self) -> int:
        """Change a part of a composite key."""
        return self.execute(
            f"UPDATE order_lines SET line = line + 10 WHERE order_id = %s{self.sql.last_first}",
            (self._order(),),
        )

    def change_customer(self) -> int:
        """One row, by its collated key."""
        return self.execute(
            "UPDATE customers SET credit = credit + 1.25, vip = NOT vip, seen = CURRENT_TIMESTAMP(3),"
            " city = %s WHERE email = %s",
            (self.draw.choice((None, "Zürich", "Genève")), self._email()),
        )

    def rename_customer(self) -> int:
        """A new address, or the same in capitals, which is the same key to the server."""
        email = self._email()
        new = self.draw.choice((email.upper(), email.replace("@", f"+{self.draw.randrange(10**6)}@")))
        return self.execute("UPDATE customers SET email = %s WHERE email = %s", (new, email))

    def new_customer(self) -> int:
        """One row."""
        return self.execute(
            "INSERT INTO customers VALUES (%s, %s, NULL, 0, FALSE, CURRENT_DATE, NULL)",
            (f"new.{self.draw.randrange(10**9)}@example.com", "Ne\u0301w Customer 😀"),
        )

    def drop_customer(self) -> int:
        """One row."""
        return self.execute("DELETE FROM customers WHERE email = %s", (self._email(),))

    def sale(self) -> int:
        """Many rows in one transaction."""
        first = self.draw.randrange(self.products)
        return self.execute(
            f"UPDATE products SET price = price * 1.01, tags = {self.sql.tagged} WHERE id BETWEEN %s AND %s",
            (first, first + 50),
        )

    def inventory(self) -> int:
        """Very many rows in one transaction."""
        first = self._order()
        return self.execute(
            "UPDATE order_lines SET price = price + 0.01 WHERE order_id BETWEEN %s AND %s",
            (first, first + 400),
        )

    def _order(self) -> int:
        return self.draw.randrange(self.orders)

    def _email(self) -> str:
        i = self.draw.randrange(self.customers)
        return f"{('anna', 'Bob', 'chloé', 'DÖRTE')[i % 4]}.{i}@example.com"


_WORK: tuple[tuple[Callable[[Clerk], int], float], ...] = (
    (Clerk.new_order, 22),
    (Clerk.change_status, 22),
    (Clerk.change_attributes, 8),
    (Clerk.change_lines, 10),
    (Clerk.cancel, 8),
    (Clerk.move_order, 4),
    (Clerk.renumber_lines, 5),
    (Clerk.change_customer, 8),
    (Clerk.rename_customer, 5),
    (Clerk.new_customer, 4),
    (Clerk.drop_customer, 2),
    (Clerk.sale, 1.5),
    (Clerk.inventory, 0.5),
)


def make_clerk(product: Shop, cursor: Any, draw: random.Random, numbers: tuple[int, int, int]) -> Clerk:
    """A clerk who uses a cursor; `numbers`: of orders, customers and products."""

    def execute(statement: str, parameters: tuple[Any, ...] | list[Any]) -> int:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)

    return Clerk(execute, lambda: product.insert_id(cursor), product.expressions, draw, *numbers)


def work(
    product: Shop,
    connection: Any,
    numbers: tuple[int, int, int],
    stopping: threading.Event,
    counts: Counts,
    *,
    rate: float,
) -> None:
    """Run transactions at `rate` per second until `stopping`."""
    due = time.monotonic()
    with closing(connection), closing(connection.cursor()) as cursor:
        clerk = make_clerk(product, cursor, random.Random(), numbers)  # noqa: S311 - a workload, not a secret
        while not stopping.wait(max(0.0, due - time.monotonic())):
            # no burst after a pause of the machine
            due = max(due + 1 / rate, time.monotonic() - 1)
            try:
                changes = clerk.transaction()
                if clerk.draw.random() < 0.02:
                    connection.rollback()
                    continue
                connection.commit()
            except product.errors as error:
                code = product.code(error)
                if code in product.gone:
                    return
                if code not in product.expected:
                    raise
                connection.rollback()
            else:
                counts.add(changes)


def main(arguments: list[str]) -> None:
    """Work until a signal to stop."""
    name, host, port, user, password_file, orders, customers, products, rate, stats = arguments
    product = shop(name)
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    counts, started, parent = Counts(), time.monotonic(), os.getppid()

    numbers = (int(orders), int(customers), int(products))
    threads = []
    for number in range(THREADS):
        connection = product.connect(host, int(port), user, Path(password_file))
        given = (product, connection, numbers, stopping, counts)
        threads.append(
            threading.Thread(
                target=work, args=given, kwargs={"rate": float(rate) / THREADS}, name=f"writer-{number}"
            )
        )
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        threads[0].join(0.25)
        if os.getppid() != parent:
            stopping.set()
        _write_stats(Path(stats), counts, time.monotonic() - started)
    _write_stats(Path(stats), counts, time.monotonic() - started)


def _write_stats(file: Path, counts: Counts, seconds: float) -> None:
    stats = {"transactions": counts.transactions, "changes": counts.changes, "seconds": round(seconds, 3)}
    new = file.with_name(file.name + ".new")
    new.write_text(json.dumps(stats), encoding="utf-8")
    new.replace(file)


if __name__ == "__main__":
    main(sys.argv[1:])

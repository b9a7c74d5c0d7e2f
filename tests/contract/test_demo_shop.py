"""The demo's shop and its writers on real servers."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace_dev.demo import products
from tailrace_dev.demo.processes import Process
from tailrace_dev.demo.shop import TABLES, Sizes
from tailrace_dev.demo.writers import _WORK, Clerk, make_clerk
from tests.support.wait import wait_until

SIZES = Sizes(customers=60, products=20, orders=100, lines_per_order=3)
NUMBERS = (SIZES.orders, SIZES.customers, SIZES.products)


@pytest.fixture(scope="module", params=products.PRODUCTS)
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Product, server, the file of its user's password, and how many rows each table was filled with."""
    server = request.getfixturevalue(request.param)
    product = products.shop(request.param)
    password = tmp_path_factory.mktemp("shop") / "password"
    password.write_text("secret")
    product.create(server)
    product.admit(server, "secret")
    for table in TABLES:
        product.fill(server, table, SIZES)
    with closing(product.connect(server.host, server.port, "tailrace", password)) as connection:
        filled = {table: counted(connection, table) for table in SIZES.rows}
    yield request.param, server, password, filled
    if request.param == "postgres":
        server.drop_database("shop")
        server.execute("DROP ROLE tailrace")
    else:
        server.execute("DROP DATABASE shop", "DROP USER tailrace")


@pytest.fixture
def cursor(shop: Any) -> Iterator[Any]:
    """A writer's; what it does is taken back."""
    name, server, password, _ = shop
    connection = products.shop(name).connect(server.host, server.port, "tailrace", password)
    with closing(connection), closing(connection.cursor()) as cursor:
        yield cursor


def counted(connection: Any, query: str) -> int:
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {query}")
        return int(cursor.fetchone()[0])


def test_shop_is_filled_with_exactly_its_sizes(shop: Any, cursor: Any) -> None:
    *_, filled = shop
    assert filled == SIZES.rows
    cursor.execute(
        "SELECT COUNT(*) FROM order_lines l LEFT JOIN orders o ON o.id = order_id WHERE id IS NULL"
    )
    assert cursor.fetchone()[0] == 0


@pytest.mark.parametrize("work", [w for w, _ in _WORK], ids=lambda w: w.__name__)
def test_every_kind_of_transaction_changes_rows(shop: Any, cursor: Any, work: Callable[[Clerk], int]) -> None:
    clerk = make_clerk(products.shop(shop[0]), cursor, random.Random(1), NUMBERS)
    assert sum(work(clerk) for _ in range(5)) > 0


def test_writers_work_until_they_are_told_to_stop(shop: Any, tmp_path: Path) -> None:
    name, server, password, _ = shop
    stats = tmp_path / "stats"
    arguments = [
        "-m",
        "tailrace_dev.demo.writers",
        name,
        server.host,
        str(server.port),
        "tailrace",
        str(password),
    ]
    writers = Process([*arguments, *map(str, NUMBERS), "50", str(stats)], tmp_path / "log")
    try:
        (
            wait_until(lambda: stats.exists() and json.loads(stats.read_text())["transactions"] > 20, 60),
            (tmp_path / "log").read_text(),
        )
    finally:
        ended = writers.stop(signal.SIGTERM)
    assert ended, (tmp_path / "log").read_text()
    assert json.loads(stats.read_text())["changes"] > 20

"""The demo's shop and its writers on a real server."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.demo.processes import Process
from tailrace.demo.shop import TABLES, Sizes, create_statements, fill_statements
from tailrace.demo.writers import _WORK, Clerk
from tailrace.devservers import MySqlServer
from tailrace.devservers.server import wait_until

SIZES = Sizes(customers=60, products=20, orders=100, lines_per_order=3)


@pytest.fixture
def shop(mysql: MySqlServer) -> Iterator[MySqlServer]:
    mysql.execute("DROP DATABASE IF EXISTS shop", *create_statements())
    for table in TABLES:
        mysql.execute("USE shop", *fill_statements(table, SIZES))
    yield mysql
    mysql.execute("DROP DATABASE shop")


def test_shop_is_filled_with_exactly_its_sizes(shop: MySqlServer) -> None:
    for table, rows in SIZES.rows.items():
        assert shop.execute(f"SELECT COUNT(*) FROM shop.{table}") == [(rows,)]
    assert shop.execute(
        "SELECT COUNT(*) FROM shop.order_lines l LEFT JOIN shop.orders o ON o.id = order_id WHERE id IS NULL"
    )[0] == (0,)


@pytest.mark.parametrize("work", [w for w, _ in _WORK], ids=lambda w: w.__name__)
def test_every_kind_of_transaction_changes_rows(shop: MySqlServer, work: Callable[[Clerk], int]) -> None:
    with (
        shop.connect(database="shop", init_command="SET sql_mode = ''") as connection,
        connection.cursor() as cursor,
    ):
        numbers = (SIZES.orders, SIZES.customers, SIZES.products)
        clerk = Clerk(cursor.execute, lambda: int(cursor.lastrowid), random.Random(1), *numbers)
        assert sum(work(clerk) for _ in range(5)) > 0


def test_writers_work_until_they_are_told_to_stop(shop: MySqlServer, tmp_path: Path) -> None:
    password, stats = tmp_path / "password", tmp_path / "stats"
    password.write_text(shop.password)
    numbers = (SIZES.orders, SIZES.customers, SIZES.products, 50)
    arguments = ["-m", "tailrace.demo.writers", shop.host, str(shop.port), shop.user, str(password)]
    writers = Process([*arguments, *map(str, numbers), str(stats)], tmp_path / "log")
    try:
        assert wait_until(
            lambda: stats.exists() and json.loads(stats.read_text())["transactions"] > 20, 60
        ), (tmp_path / "log").read_text()
    finally:
        ended = writers.stop(signal.SIGTERM)
    assert ended, (tmp_path / "log").read_text()
    assert json.loads(stats.read_text())["changes"] > 20

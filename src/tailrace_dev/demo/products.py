"""The products that the demo's shop can run on, by name."""

from __future__ import annotations

import importlib.util

from tailrace.errors import TailraceError
from tailrace_dev.demo.mysql import MySqlShop
from tailrace_dev.demo.shop import Shop

PRODUCTS = ("mysql", "postgres")


def shop(product: str) -> Shop:
    """The shop on one of PRODUCTS.

    Raises:
        TailraceError: the product's driver is not installed.
    """
    if product == "mysql":
        return MySqlShop()
    if importlib.util.find_spec("pg8000") is None:
        raise TailraceError(
            "pg8000 is not installed",
            "connections to PostgreSQL need it",
            "pip install 'tailrace[postgres]'",
        )
    from tailrace_dev.demo.postgres import PostgresShop  # noqa: PLC0415

    return PostgresShop()

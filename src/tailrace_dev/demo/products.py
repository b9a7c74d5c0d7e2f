"""The database products of the demo's shop, by name."""

from __future__ import annotations

from tailrace.extras import require
from tailrace_dev.demo.mysql import MySqlShop
from tailrace_dev.demo.shop import Shop

PRODUCTS = ("mysql", "postgres")


def shop(product: str) -> Shop:
    """The shop on one of PRODUCTS.

    Raises:
        ConfigError: the product's driver is not installed.
    """
    if product == "mysql":
        return MySqlShop()
    require("postgres", "the demo on PostgreSQL")
    from tailrace_dev.demo.postgres import PostgresShop  # noqa: PLC0415

    return PostgresShop()

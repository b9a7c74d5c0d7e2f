"""A replica on the server that it copies from writes into no captured table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.config.model import RouteRule
from tailrace.config.options import SourceOptions, parse_options
from tailrace.config.sinks import MySqlSettings, PostgresSettings
from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.sinks.replica.own_source import OwnSource
from tailrace.sinks.replica.sink import ReplicaSink
from tailrace.sinks.route import Router

ORDERS = TableId("shop", "orders")


def source(url: str, tables: str = r"shop\..*") -> SourceOptions:
    return parse_options({"url": url, "user": "u", "password": "p", "tables": tables})


def claim(settings: MySqlSettings | PostgresSettings, options: SourceOptions, *routes: RouteRule) -> None:
    ReplicaSink(settings, Router(routes), options.dialect, OwnSource(options, settings)).claim([ORDERS])


MYSQL = MySqlSettings(url="mysql://127.0.0.1:3306/shop", user="u")
POSTGRES = PostgresSettings(url="postgresql://127.0.0.1:5432/app", user="u")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_table_that_would_be_its_own_target_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="captures") as raised:
        claim(MYSQL, source(f"mysql://{host}:3306"))
    assert raised.value.code == "TR-1226"
    assert raised.value.table == "shop.orders"


def test_target_that_is_another_captured_table_is_refused_whatever_its_database_is_named_by() -> None:
    copies = RouteRule(r"shop\.(.*)", "copy_of_$1")
    with pytest.raises(ConfigError, match="captures"):
        claim(MYSQL, source("mysql://127.0.0.1:3306"), copies)
    into_schema = replace(POSTGRES, schema="shop")
    with pytest.raises(ConfigError, match="captures"):
        claim(into_schema, source("postgresql://127.0.0.1:5432/app"), copies)


def test_target_beside_the_captured_tables_or_on_another_server_is_taken() -> None:
    claim(MYSQL, source("mysql://127.0.0.1:3306"), RouteRule(r"shop\.(.*)", "copy.$1"))
    claim(MYSQL, source("mysql://127.0.0.1:3307"))
    claim(MYSQL, source("mysql://127.0.0.9:3306"))
    claim(POSTGRES, source("postgresql://127.0.0.1:5432/other"))
    claim(POSTGRES, source("mysql://127.0.0.1:5432"))

"""Routes: table to target."""

from __future__ import annotations

import pytest

from tailrace.config.model import RouteRule
from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.sinks.route import Router

ORDERS = TableId("app_7", "orders")


def test_table_without_a_route_keeps_its_name() -> None:
    assert Router([]).target(ORDERS) == "app_7.orders"


def test_first_matching_route_decides() -> None:
    rules = [RouteRule(r"other\..*", "a"), RouteRule(r"app_.*", "b"), RouteRule(r"app_7\.orders", "c")]
    assert Router(rules).target(ORDERS) == "b"


def test_route_must_match_the_whole_name() -> None:
    assert Router([RouteRule(r"app_7\.order", "x")]).target(ORDERS) == "app_7.orders"


def test_groups_are_put_into_the_target() -> None:
    assert Router([RouteRule(r"(\w+)_(\d+)\.(.*)", "$1.$3_$2")]).target(ORDERS) == "app.orders_7"


def test_replace_symbol_stands_for_the_tables_own_name() -> None:
    assert Router([RouteRule(r"app_.*", "lake.<>_raw", "<>")]).target(ORDERS) == "lake.orders_raw"


def test_group_that_the_pattern_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"`route\[0\]\.sink-table` names group \$2"):
        Router([RouteRule(r"app_(\d+)\..*", "t_$2")])


@pytest.mark.parametrize(
    ("source", "target", "many"),
    [
        (r"shop_\d+\.orders", "all.orders", True),
        (r"shop.*", "all", True),
        (r"shop\.orders", "lake.orders", False),
        ("shop.orders", "lake.orders", False),
        (r"shop\.(.*)", "lake.$1", False),
    ],
)
def test_route_that_brings_many_tables_together_is_known_by_its_pattern(
    source: str, target: str, many: bool
) -> None:
    router = Router([RouteRule(source, target)])
    table = TableId("shop_1" if "_" in source else "shop", "orders")
    assert router.brings_many_together(table) is many
    assert not router.brings_many_together(TableId("other", "t"))

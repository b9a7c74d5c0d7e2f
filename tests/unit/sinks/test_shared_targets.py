"""Which targets several sources of a pipeline may share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.config.model import RouteRule
from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.sinks.route import Router
from tailrace.sinks.shared_targets import SharedTargets

TABLE = TableId("shop", "orders")


def claim(
    shared: SharedTargets, source: str, *rules: RouteRule, may_share: bool = True, sink: int = 0
) -> None:
    shared.claim(sink, "delta", source, Router(rules, source), [TABLE], may_share=may_share)


def test_two_sources_with_a_shard_column_share_a_target(tmp_path: Path) -> None:
    shared, route = SharedTargets(str(tmp_path)), RouteRule(".*", "orders", shard_column="_shard")
    for source in ("east", "west", "east"):
        claim(shared, source, route)


def test_tables_of_the_same_name_are_not_mixed(tmp_path: Path) -> None:
    shared = SharedTargets(str(tmp_path))
    claim(shared, "east")
    with pytest.raises(ConfigError, match="shard-column") as raised:
        claim(shared, "west")
    assert (raised.value.code, raised.value.table) == ("TR-1223", "shop.orders")
    claim(shared, "west", sink=1)
    claim(shared, "west", RouteRule(".*", "west_orders"))


def test_one_shard_column_is_not_enough(tmp_path: Path) -> None:
    shared = SharedTargets(str(tmp_path))
    claim(shared, "east", RouteRule(".*", "orders", shard_column="_shard"))
    with pytest.raises(ConfigError, match="tells their rows apart"):
        claim(shared, "west", RouteRule(".*", "ORDERS"))


def test_a_sink_that_takes_one_stream_is_refused(tmp_path: Path) -> None:
    shared, route = SharedTargets(str(tmp_path)), RouteRule(".*", "orders", shard_column="_shard")
    claim(shared, "east", route, may_share=False)
    with pytest.raises(ConfigError, match="take the rows of one source"):
        claim(shared, "west", route, may_share=False)


@pytest.mark.parametrize("names", [("orders", "orders/new"), ("orders/new", "orders")])
def test_a_target_inside_another_sources_target_is_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    shared = SharedTargets(str(tmp_path))
    claim(shared, "east", RouteRule(".*", names[0]))
    with pytest.raises(ConfigError, match="inside each other"):
        claim(shared, "west", RouteRule(".*", names[1]))


def test_the_pipelines_id_is_made_once(tmp_path: Path) -> None:
    first = SharedTargets(str(tmp_path)).id
    assert first
    assert SharedTargets(str(tmp_path)).id == first


def test_shard_columns_name_the_source() -> None:
    assert Router([], "east").shard_value(TABLE) == "east.shop.orders"
    assert Router([]).shard_value(TABLE) == "shop.orders"

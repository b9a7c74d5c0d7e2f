"""Which tables are compared, and which rows of their targets count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.config.model import RouteRule, TransformRule
from tailrace.enumerator.offset import RereadProgress, StreamOffset, TableProgress
from tailrace.model.parked import Parked, Reason
from tailrace.model.table import TableId, TableSchema
from tailrace.pipeline.rules import Transforms
from tailrace.sinks.route import Router
from tailrace.verify.tables import Routing, tables_by_target
from tests.support.changes import INT, table

PARKED = Parked(Reason("no key", "TR-5001"), None, "all")


def chosen(
    end: StreamOffset,
    *routes: RouteRule,
    source: str = "",
    transforms: tuple[TransformRule, ...] = (),
    **how: Any,
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Names of the tables that are compared, by target, and the reasons of the others."""
    columns = table(("id", INT), key=("id",))
    schemas = [TableSchema(TableId.parse(f"s.t{i}"), columns.columns, columns.key) for i in (1, 2, 3)]
    captured = [SimpleNamespace(schema=schema, estimated_rows=3) for schema in schemas]
    routing = Routing(Router(routes, source), Transforms(transforms))
    server: Any = SimpleNamespace(tables=lambda: captured)
    found, skipped = tables_by_target(routing, server, end, how.pop("pattern", None), **how)
    return {name: [str(t.schema.id) for t in tables] for name, tables in found.items()}, dict(skipped)


END = StreamOffset("initial", {"pos": 1}, done={"s.t1": 1, "s.t2": 1, "s.t3": 1})
ONE = RouteRule("s[.]t.", "all")
SHARDS = RouteRule("s[.]t.", "all", shard_column="_shard")


def test_target_of_several_tables_is_compared_with_all_of_them_unless_rows_name_their_table() -> None:
    assert chosen(END, ONE, pattern="s.t2")[0] == {"all": ["s.t1", "s.t2", "s.t3"]}
    assert chosen(END, SHARDS, pattern="s.t2") == ({"all": ["s.t2"]}, {})


def test_tables_are_left_out_while_they_are_parked_or_read() -> None:
    reading = StreamOffset(
        "initial",
        {"pos": 1},
        tables={"s.t1": TableProgress()},
        done={"s.t2": 1, "s.t3": 1},
        again={"s.t2": RereadProgress("r"), "s.t3": RereadProgress("q", done=True)},
    )
    found, skipped = chosen(reading, SHARDS, settled=True)
    assert found == {"all": ["s.t3"]}
    assert skipped == {name: f"rows of `{name}` are being read" for name in ("s.t1", "s.t2")}
    found, skipped = chosen(reading, ONE, settled=True)
    assert not found
    assert skipped.keys() == {"s.t1", "s.t2", "s.t3"}
    assert chosen(reading, ONE)[0] == {"all": ["s.t1", "s.t2", "s.t3"]}
    parked = StreamOffset("initial", {"pos": 1}, done={"s.t1": 1, "s.t2": 1}, parked={"s.t3": PARKED})
    assert chosen(parked, SHARDS)[0] == {"all": ["s.t1", "s.t2"]}
    assert not chosen(parked, ONE)[0]


def test_targets_of_tables_that_are_followed_without_earlier_rows_are_left_out() -> None:
    end = StreamOffset("initial", {"pos": 1}, done={"s.t1": 1, "s.t2": None, "s.t3": 1}, partial=("s.t2",))
    found, skipped = chosen(end, SHARDS)
    assert found == {"all": ["s.t1", "s.t3"]}
    assert skipped == {"s.t2": "the stream follows `s.t2` without earlier rows"}
    assert not chosen(end, ONE)[0]


@pytest.mark.parametrize(
    ("routes", "source", "reason"),
    [
        ((SHARDS,), "east", "other sources may write its target"),
        ((RouteRule("s[.]t1", "all"), SHARDS), "", "not all tables of its target have the same shard column"),
    ],
)
def test_rows_that_cannot_be_told_apart_are_not_compared(
    routes: tuple[RouteRule, ...], source: str, reason: str
) -> None:
    found, skipped = chosen(END, *routes, source=source)
    assert not found
    assert skipped.keys() == {"s.t1", "s.t2", "s.t3"}
    assert all(reason in why for why in skipped.values())


def test_transformed_tables_are_not_compared() -> None:
    found, skipped = chosen(END, transforms=(TransformRule("s.t1", filter="id > 1"),))
    assert sorted(found) == ["s.t2", "s.t3"]
    assert skipped == {"s.t1": "the pipeline transforms its rows"}

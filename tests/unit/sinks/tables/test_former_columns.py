"""Renamed and dropped columns: what becomes of a target's."""

from __future__ import annotations

import pytest

from tailrace.model.schema_change import ColumnDropped, ColumnRenamed, SchemaChange, SchemaEvent
from tailrace.sinks.tables.former_columns import DropColumn, RenameColumn, former_columns, kept_columns
from tests.support.changes import INT, table


def event(*changes: SchemaChange, after: str | None, name: str = "shop.t") -> SchemaEvent:
    columns = None if after is None else table(*((c, INT) for c in after), key=("i",), name=name)
    return SchemaEvent(name, changes, after=columns)


RENAMED, DROPPED = ColumnRenamed("a", "b"), ColumnDropped("a")


@pytest.mark.parametrize(
    ("events", "held", "wanted"),
    [
        pytest.param([event(RENAMED, after="ib")], "ia", [RenameColumn("a", "b")], id="renamed"),
        pytest.param([event(DROPPED, after="i")], "ia", [DropColumn("a")], id="dropped"),
        pytest.param([event(RENAMED, after="ib")], "ib", [], id="renamed by an earlier attempt"),
        pytest.param([event(DROPPED, after="i")], "i", [], id="dropped by an earlier attempt"),
        pytest.param([event(RENAMED, after="ib")], "iab", [], id="the target has both"),
        pytest.param(
            [event(RENAMED, ColumnRenamed("b", "a"), after="iab")], "iab", [], id="names change places"
        ),
        pytest.param([event(DROPPED, after="i"), event(after="ia")], "ia", [], id="dropped, and comes back"),
        pytest.param([event(RENAMED, after=None)], "ia", [], id="the columns are not known"),
        pytest.param([event(RENAMED, after="ib", name="shop.o")], "ia", [], id="of another table"),
        pytest.param([event(ColumnRenamed("i", "k"), after="ka")], "ia", [], id="a key column"),
        pytest.param(
            [event(ColumnRenamed("a", "t"), after="it"), event(ColumnRenamed("t", "b"), after="ib")],
            "ia",
            [RenameColumn("a", "b")],
            id="renamed twice",
        ),
        pytest.param(
            [event(ColumnRenamed("a", "t"), after="it"), event(ColumnRenamed("t", "a"), after="ia")],
            "ia",
            [],
            id="renamed, and back",
        ),
        pytest.param(
            [event(ColumnRenamed("a", "t"), after="it"), event(ColumnDropped("t"), after="i")],
            "ia",
            [DropColumn("a")],
            id="renamed, then dropped",
        ),
        pytest.param(
            [event(ColumnRenamed("a", "t"), after="it"), event(ColumnRenamed("t", "b"), after="ib")],
            "iat",
            [RenameColumn("a", "b")],
            id="renamed by way of a name that the target has from before",
        ),
        pytest.param(
            [event(ColumnRenamed("a", "t"), after="it"), event(ColumnDropped("t"), after="i")],
            "it",
            [],
            id="renamed, then dropped, by an earlier attempt, and the target has that name from before",
        ),
        pytest.param(
            [event(ColumnRenamed("a", "t"), after="it"), event(ColumnRenamed("t", "b"), after="ib")],
            "it",
            [],
            id="renamed twice, where the target lacks the column, and has that name from before",
        ),
        pytest.param(
            [event(ColumnRenamed("a", "t"), after="it"), event(ColumnDropped("a"), after="it")],
            "ia",
            [RenameColumn("a", "t")],
            id="renamed, and a new column of its name dropped",
        ),
        pytest.param(
            [event(ColumnRenamed("a", "t"), ColumnRenamed("a", "u"), ColumnDropped("u"), after="it")],
            "iau",
            [RenameColumn("a", "t")],
            id="renamed, and a new column of its name renamed and dropped",
        ),
        pytest.param(
            [event(DROPPED, ColumnRenamed("c", "a"), after="ia")],
            "iac",
            [],
            id="dropped, and another takes its name",
        ),
        pytest.param(
            [event(DROPPED, after="ic"), event(ColumnRenamed("c", "d"), after="id")],
            "iac",
            [DropColumn("a"), RenameColumn("c", "d")],
            id="both, one after the other",
        ),
    ],
)
def test_what_becomes_of_former_columns(
    events: list[SchemaEvent], held: str, wanted: list[RenameColumn | DropColumn]
) -> None:
    assert former_columns(events, "shop.t", list(held), ["i"]) == wanted


@pytest.mark.parametrize(
    ("events", "held", "kept"),
    [
        pytest.param([event(RENAMED, after="ib")], "ia", [], id="renamed"),
        pytest.param([event(RENAMED, after="ib")], "ib", [], id="renamed by an earlier attempt"),
        pytest.param([event(RENAMED, after="ib")], "iab", ["a"], id="the target has both"),
        pytest.param([event(DROPPED, after="i"), event(after="ia")], "ia", ["a"], id="it comes back"),
        pytest.param([event(RENAMED, ColumnRenamed("b", "a"), after="ia")], "ia", [], id="renamed, and back"),
        pytest.param([event(RENAMED, after="ib", name="shop.o")], "ia", [], id="of another table"),
    ],
)
def test_columns_that_a_target_keeps_are_named(events: list[SchemaEvent], held: str, kept: list[str]) -> None:
    followed = former_columns(events, "shop.t", list(held), key=["i"])
    assert kept_columns(events, "shop.t", list(held), followed) == kept

"""Which renamed and dropped columns need no reading of their table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tailrace.enumerator.followed_columns import ReadTables, followed
from tailrace.enumerator.offset import RereadProgress, StreamOffset, TableProgress
from tailrace.model.schema_change import ColumnAdded, ColumnDropped, ColumnRenamed, RowsRewritten, SchemaEvent
from tailrace.model.table import TableSchema
from tests.support.changes import BIGINT, INT, table

BEFORE = table(("id", INT), ("a", INT), ("b", INT), key=("id",), name="shop.t")


def after(*names: str, **types: Any) -> TableSchema:
    return table(*((name, types.get(name, INT)) for name in names), key=("id",), name="shop.t")


def is_followed(changes: tuple[Any, ...], schema: TableSchema | None, before: TableSchema = BEFORE) -> bool:
    event = SchemaEvent("shop.t", changes, after=schema)
    return followed([event], {"shop.t": before}, {"shop.t"}) == {"shop.t"}


@pytest.mark.parametrize(
    ("changes", "schema"),
    [
        ((ColumnRenamed("a", "z"),), after("id", "z", "b")),
        ((ColumnDropped("b"),), after("id", "a")),
        ((ColumnRenamed("a", "z"), ColumnDropped("b")), after("id", "z")),
    ],
)
def test_renames_and_drops_are_followed(changes: tuple[Any, ...], schema: TableSchema) -> None:
    assert is_followed(changes, schema)
    event = SchemaEvent("shop.t", changes, after=schema)
    assert not followed([event], {"shop.t": BEFORE}, set()), "rows were being read"
    assert not followed([event], {}, {"shop.t"}), "what it was before is not known"
    assert not followed([event, event], {"shop.t": BEFORE}, {"shop.t"}), "two statements"
    assert not is_followed((*changes, RowsRewritten("why")), schema)


@pytest.mark.parametrize(
    ("changes", "schema"),
    [
        ((), after("id", "a", "b")),
        ((ColumnRenamed("a", "b"), ColumnRenamed("b", "a")), after("id", "b", "a")),
        ((ColumnDropped("a"), ColumnRenamed("b", "a")), after("id", "a")),
        ((ColumnRenamed("a", "A"),), after("id", "A", "b")),
        ((ColumnDropped("a"), ColumnAdded(after("id", "a").columns[1])), after("id", "b", "a")),
        ((ColumnRenamed("a", "z"),), after("id", "y", "b")),  # the catalog is ahead
        ((ColumnRenamed("x", "a"),), BEFORE),  # it was before
        ((ColumnRenamed("a", "z"),), after("id", "b", "z")),
        ((ColumnRenamed("a", "z"),), after("id", "z", "b", z=BIGINT)),
        ((ColumnDropped("b"),), None),
        ((ColumnRenamed("id", "n"),), replace(after("n", "a", "b"), key=("n",))),
        ((ColumnDropped("b"),), replace(after("id", "a"), key=("a",))),
    ],
)
def test_table_is_read_again_where_more_has_changed_or_less_is_known(
    changes: tuple[Any, ...], schema: TableSchema | None
) -> None:
    assert not is_followed(changes, schema)


@dataclass(frozen=True)
class At:
    pos: int

    @property
    def order(self) -> tuple[int, ...]:
        return (self.pos,)


def test_table_counts_as_read_from_the_log_end_on_by_which_its_last_rows_had_been() -> None:
    ends = iter([At(10), At(20), At(30), At(40)])
    tables = ReadTables(lambda: next(ends))
    offset = StreamOffset(mode="initial", done={"shop.t": 3})
    tables.look(offset)
    tables.look(offset)  # asks nothing
    assert tables.before(At(9)) == set()
    assert tables.before(At(10)) == {"shop.t"}
    again = replace(offset, again={"shop.t": RereadProgress("id")})
    tables.look(again)
    assert tables.before(At(99)) == set()
    tables.look(offset)
    assert (tables.before(At(19)), tables.before(At(20))) == (set(), {"shop.t"})
    tables.look(replace(offset, again={"shop.t": RereadProgress("id", done=True)}))  # in a single batch
    assert (tables.before(At(29)), tables.before(At(30))) == (set(), {"shop.t"})
    tables.look(replace(offset, tables={"shop.u": TableProgress()}))
    assert tables.before(At(99)) == {"shop.t"}
    tables.forget()
    tables.look(offset)
    assert tables.before(At(39)) == set()

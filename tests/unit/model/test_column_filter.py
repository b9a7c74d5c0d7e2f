"""Schema changes as captured columns show them: others are in none of them."""

from __future__ import annotations

import pytest

from tailrace.errors import SchemaMismatchError
from tailrace.model.column_filter import ColumnFilter
from tailrace.model.schema_change import (
    ColumnAdded,
    ColumnAltered,
    ColumnDropped,
    ColumnRenamed,
    RowsRewritten,
    SchemaEvent,
    TableTruncated,
)
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import ColumnType, Kind

INT = ColumnType(Kind.INTEGER, "int", bits=32)
ID, A, SECRET = (Column(name, INT) for name in ("id", "a", "secret"))
TABLE = TableSchema(TableId("shop", "t"), (ID, A, SECRET), ("id",))
FILTER = ColumnFilter(exclude=("shop[.]t[.]SECRET.*",))
CASES = [
    ([ColumnAdded(SECRET)], None),
    ([ColumnDropped("secret")], None),
    ([ColumnRenamed("secret", "secret2")], None),
    ([ColumnAltered(SECRET, Column("secret", INT, nullable=False))], None),
    ([ColumnAdded(SECRET), ColumnAdded(A)], [ColumnAdded(A)]),
    ([ColumnRenamed("b", "secret")], [ColumnDropped("b")]),
    (
        [ColumnRenamed("secret2", "a")],
        [ColumnAdded(A), RowsRewritten("`a` was not captured by its former name")],
    ),
    ([TableTruncated()], [TableTruncated()]),
    ([], []),
]


@pytest.mark.parametrize(("changes", "kept"), CASES)
def test_event_has_the_changes_of_captured_columns(changes, kept):
    found = FILTER.events([SchemaEvent("shop.t", tuple(changes), after=TABLE)])
    after = TableSchema(TABLE.id, (ID, A), ("id",))
    assert found == ([] if kept is None else [SchemaEvent("shop.t", tuple(kept), after=after)])


def test_list_of_columns_to_include_has_no_others():
    only = ColumnFilter(include=("shop[.]t[.](id|a)",))
    assert only.schema(TABLE).columns == (ID, A)
    assert ColumnFilter.from_json(only.to_json()) == only


def test_key_that_is_left_out_is_named():
    with pytest.raises(SchemaMismatchError, match=r"`shop.t` cannot be captured without its key column `id`"):
        ColumnFilter(include=(".*[.]a",)).require_key(TABLE)

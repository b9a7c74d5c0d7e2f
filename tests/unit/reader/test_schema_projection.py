"""Rows in another shape of their table: columns found by name."""

from __future__ import annotations

import pytest

from tailrace.model.table import Column, TableId, TableSchema
from tailrace.reader.schema_projection import column_indices, fit_batch, lacking, missing_columns
from tests.support.changes import INT, TEXT, changes, table


@pytest.mark.parametrize(
    ("names", "wanted", "found"),
    [
        (["a", "b"], ["b", "c"], [1, None]),
        (["a", "NAME"], ["name", "a"], [1, 0]),
        (["Name", "name"], ["name", "Name"], [1, 0]),
        (["NAME", "name"], ["Name", "NAME"], [1, 0]),
        (["name"], ["Name", "name"], [None, 0]),
    ],
)
def test_columns_are_found_by_name_and_one_that_was_renamed_by_its_letters(
    names: list[str], wanted: list[str], found: list[int | None]
) -> None:
    assert column_indices(names, wanted) == found


def test_rows_written_before_a_column_was_renamed_in_case_keep_its_values() -> None:
    old = table(("id", INT), ("name", TEXT), key=("id",))
    new = table(("id", INT), ("NAME", TEXT), ("note", TEXT), key=("id",))
    batch = fit_batch(changes(old, [("c", None, {"id": 1, "name": "a"})]), new)
    assert batch.image("after").to_pylist() == [{"id": 1, "NAME": "a", "note": None}]


def test_column_that_rows_lack_may_be_null_and_no_other_one() -> None:
    columns = tuple(Column(name, INT, nullable=False) for name in ("id", "a", "b"))
    held = TableSchema(TableId.parse("shop.t"), columns, ("id",))
    read = table(("ID", INT), ("b", INT), key=("ID",))
    assert missing_columns(read.arrow, held) == {"a"}
    found = lacking(held, {"a"})
    assert [(c.nullable, c.gone) for c in found.columns] == [(False, False), (True, True), (False, False)]
    assert TableSchema.from_json(found.to_json()) == found
    assert lacking(held, ()) is held

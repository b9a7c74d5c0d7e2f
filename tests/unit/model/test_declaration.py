"""Which columns' declarations schemas have."""

from __future__ import annotations

import pytest

from tailrace.model.column_mask import column_mask
from tailrace.model.declaration import CatalogText, Propagation
from tailrace.model.source_type import Declaration, SourceType
from tailrace.model.table import TableSchema
from tailrace.sources.mysql.wire.schema.declarations import source_type
from tests.support.changes import INT, TEXT, table

TABLE = table(("id", INT), ("name", TEXT), key=("id",), name="shop.t")
TEXTS = {"id": CatalogText("int(11)", "number"), "gone": CatalogText("int", "former")}
ID, NAME = SourceType("INT", 11), SourceType("VARCHAR", 100)


@pytest.mark.parametrize(
    ("propagation", "expected"),
    [
        (Propagation(), (None, None)),
        (Propagation(comments=True), (Declaration("id", None, "number"), None)),
        (Propagation((r".*\.NAME",)), (None, Declaration("name", NAME))),
        (Propagation((r"shop\.t\.id",)), (Declaration("id", ID), None)),
        (Propagation((), (r".*\.varchar",)), (None, Declaration("name", NAME))),
        (Propagation((), (r"shop\.t\.INT",), comments=True), (Declaration("id", ID, "number"), None)),
        (
            Propagation((".*",), masks=(column_mask("column.mask.with.1.chars", (r".*\.name",)),)),
            (Declaration("id", ID), None),
        ),
    ],
)
def test_columns_have_what_is_asked_for(
    propagation: Propagation, expected: tuple[Declaration | None, ...]
) -> None:
    made = propagation.table(TABLE, TEXTS, source_type)
    assert tuple(column.declared for column in made.columns) == expected
    assert TableSchema.from_json(made.to_json()) == made
    assert (made.fingerprint == TABLE.fingerprint) == (expected == (None, None))

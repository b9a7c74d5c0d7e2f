"""Shapes: what a Relation message and the catalog tell together, over random histories of a table."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tailrace.model.schema_change import ColumnAdded, ColumnAltered, ColumnDropped, ColumnRenamed, KeyAltered
from tailrace.model.table import Column, TableId
from tailrace.model.types import ColumnType, Kind
from tailrace.sources.postgres.wire.relation import Relation, RelationColumn
from tailrace.sources.postgres.wire.shapes import Shape, ShapeColumn, changes_between, resolved, untold

INT, TEXT, VARCHAR, NUMERIC = 23, 25, 1043, 1700


def shape(*columns: tuple[int, str], last: int = 0, key: tuple[int, ...] = (1,), type_: int = INT) -> Shape:
    found = tuple(ShapeColumn(n, name, type_, -1, n not in key) for n, name in columns)
    return Shape(7, last or max(n for n, _ in columns), key, found)


def relation(of: Shape) -> Relation:
    columns = (RelationColumn(c.name, c.number in of.key, c.type, c.modifier) for c in of.columns)
    return Relation(of.oid, TableId("public", "t"), "d", tuple(columns))


def column(of: ShapeColumn) -> Column:
    return Column(of.name, ColumnType(Kind.INTEGER, "int4", bits=32), of.nullable)


def altered(before: Shape, rng: random.Random) -> Shape:
    """A table's shape after one random statement."""
    names = {c.name for c in before.columns}
    free = sorted(set("abcd") - names)
    others = [c for c in before.columns if c.number not in before.key]
    match rng.choice("ard"):
        case "a" if free:
            added = ShapeColumn(before.last + 1, rng.choice(free), INT, -1, nullable=True)
            return replace(before, last=added.number, columns=(*before.columns, added))
        case "r" if free and others:
            old, name = rng.choice(others), rng.choice(free)
            columns = tuple(replace(c, name=name) if c == old else c for c in before.columns)
            return replace(before, columns=columns)
        case "d" if len(others) > 1:
            gone = rng.choice(others)
            return replace(before, columns=tuple(c for c in before.columns if c != gone))
    return before


def test_relation_is_resolved_to_the_shape_that_the_table_had_or_not_at_all() -> None:
    found = 0
    for seed in range(4000):
        rng = random.Random(seed)
        history = [shape((1, "id"), (2, "a"), (3, "b"))]
        for _ in range(rng.randint(1, 4)):
            history.append(altered(history[-1], rng))
        middle = rng.choice(history)
        told = resolved(history[0], relation(middle), history[-1])
        if told is not None:
            found += 1
            assert [(c.number, c.name) for c in told.columns] == [(c.number, c.name) for c in middle.columns]
    assert found > 2000


def test_same_names_of_other_columns_are_not_resolved() -> None:
    before = shape((1, "id"), (2, "a"))
    renamed = shape((1, "id"), (2, "n"))
    now = shape((1, "id"), (3, "n"), last=3)
    assert relation(renamed).columns == relation(now).columns
    assert resolved(before, relation(renamed), now) is None


def test_shape_survives_its_json() -> None:
    one = shape((1, "id"), (3, 'a"b'), last=5)
    assert Shape.from_json(one.to_json()) == one
    assert Shape.from_json([2, "of a newer version"]) is None


def test_changes_are_named() -> None:
    before = shape((1, "id"), (2, "a"), (3, "b"), (4, "c"))
    wide = ShapeColumn(4, "c", INT, -1, nullable=False)
    now = Shape(7, 5, (2,), (*shape((1, "id"), (2, "x")).columns, wide, ShapeColumn(5, "n", INT, -1, True)))
    now = replace(now, columns=(now.columns[0], replace(now.columns[1], nullable=True), *now.columns[2:]))
    assert changes_between(before, now, column) == (
        ColumnDropped("b"),
        ColumnRenamed("a", "x"),
        ColumnAltered(column(before.columns[3]), column(wide)),
        ColumnAdded(column(now.columns[3])),
        KeyAltered(("id",), ("x",)),
    )


@pytest.mark.parametrize(
    ("old", "new", "is_told"),
    [
        ((VARCHAR, 9), (VARCHAR, 24), True),
        ((VARCHAR, 24), (VARCHAR, 9), False),
        ((VARCHAR, 24), (VARCHAR, -1), True),
        ((VARCHAR, -1), (VARCHAR, 24), False),
        ((VARCHAR, 24), (TEXT, -1), True),
        ((TEXT, -1), (VARCHAR, 24), False),
        ((NUMERIC, (10 << 16 | 2) + 4), (NUMERIC, (12 << 16 | 2) + 4), True),
        ((NUMERIC, (10 << 16 | 2) + 4), (NUMERIC, (12 << 16 | 3) + 4), False),
        ((NUMERIC, (10 << 16 | 2) + 4), (NUMERIC, (9 << 16 | 2) + 4), False),
        ((NUMERIC, (10 << 16 | 2) + 4), (NUMERIC, (39 << 16 | 2) + 4), False),
        ((NUMERIC, (10 << 16 | 2) + 4), (NUMERIC, -1), False),
        ((INT, -1), (26, -1), False),
        ((1114, 3), (1114, 6), True),
        ((1114, -1), (1114, 3), False),
    ],
)
def test_type_is_widened_only_if_the_same_bytes_are_the_same_values(
    old: tuple[int, int], new: tuple[int, int], is_told: bool
) -> None:
    before, now = (
        Shape(7, 2, (1,), (ShapeColumn(1, "id", INT, -1, False), ShapeColumn(2, "a", *form, nullable=True)))
        for form in (old, new)
    )
    assert (untold(before, now, is_read=False, is_followed=False) == "") is is_told
    assert untold(before, now, is_read=True, is_followed=True)


@pytest.mark.parametrize(
    ("now", "is_told"),
    [
        (shape((1, "id"), (2, "x"), (3, "b")), True),
        (shape((1, "id"), (3, "b")), True),
        (shape((1, "id"), (2, "a"), (3, "b"), (4, "n")), True),
        (shape((1, "id"), (2, "b"), (3, "a")), False),
        (shape((1, "id"), (2, "A"), (3, "b")), False),
        (shape((1, "id"), (3, "a")), False),
        (shape((1, "id"), (3, "b"), (4, "a")), False),
        (shape((1, "key"), (2, "a"), (3, "b")), False),
        (replace(shape((1, "id"), (2, "a"), (3, "b")), oid=8), False),
        (replace(shape((1, "id"), (2, "a")), others=frozenset({3})), False),
    ],
)
def test_targets_follow_only_names_that_no_column_had(now: Shape, is_told: bool) -> None:
    before = shape((1, "id"), (2, "a"), (3, "b"))
    assert (untold(before, now, is_read=False, is_followed=True) == "") is is_told

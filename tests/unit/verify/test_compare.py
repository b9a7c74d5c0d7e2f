"""Rows of both sides next to each other."""

from __future__ import annotations

import pyarrow as pa

from tailrace.verify.compare import DifferenceKind, compare

SCHEMA = pa.schema([("a", pa.int32()), ("b", pa.string()), ("v", pa.float64()), ("w", pa.string())])


def rows(*listed: tuple[int, str, float | None, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip("abvw", r, strict=True)) for r in listed], SCHEMA)


def test_equal_rows_in_another_order_do_not_differ() -> None:
    source = rows((1, "x", 1.0, "p"), (2, "y", None, "q"))
    found = compare(source, source.take([1, 0]), ["a", "b"], 10)
    assert (found.missing, found.extra, found.different, found.shown) == (0, 0, 0, ())


def test_each_kind_of_difference_is_counted_and_named() -> None:
    source = rows((1, "x", 1.0, "p"), (2, "y", 2.0, "q"), (3, "z", 0.0, "r"))
    target = rows((2, "y", 2.5, "Q"), (3, "z", -0.0, "r"), (4, "z", 4.0, "s"), (4, "z", 4.0, "s"))
    found = compare(source, target, ["a", "b"], 10)
    assert (found.missing, found.extra, found.different) == (1, 2, 2)
    assert [(d.kind, d.key, d.columns) for d in found.shown] == [
        (DifferenceKind.MISSING, (1, "x"), ()),
        (DifferenceKind.EXTRA, (4, "z"), ()),
        (DifferenceKind.EXTRA, (4, "z"), ()),
        *sorted(
            [(DifferenceKind.DIFFERENT, (2, "y"), ("v", "w")), (DifferenceKind.DIFFERENT, (3, "z"), ("v",))],
            key=lambda d: [s.key for s in found.shown].index(d[1]),
        ),
    ]


def test_keys_that_differ_in_case_only_are_two_keys() -> None:
    found = compare(rows((1, "x", 1.0, "p")), rows((1, "X", 1.0, "p")), ["a", "b"], 10)
    assert (found.missing, found.extra, found.different) == (1, 1, 0)


def test_limit_bounds_what_is_shown_of_each_kind_and_not_the_counts() -> None:
    source = rows(*((i, "x", 0.0, "") for i in range(50)))
    found = compare(source, rows(*((i, "x", 1.0, "") for i in range(25, 80))), ["a"], 3)
    assert (found.missing, found.extra, found.different, len(found.shown)) == (25, 30, 25, 9)


def test_empty_sides_compare() -> None:
    assert compare(rows(), rows(), ["a"], 5).missing == 0
    assert compare(rows((1, "x", 1.0, "")), rows(), ["a"], 5).missing == 1

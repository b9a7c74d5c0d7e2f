"""The rows to which a comparison is limited: the same on both sides, whatever the numbers."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from decimal import Decimal
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.enumerator.snapshot import KeyRange
from tailrace.model.split import Key
from tailrace.model.table import TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.verify.portion import (
    KeyRanges,
    Keys,
    Range,
    Sample,
    has_numbers_as_key,
    holds_numbers,
    key_ranges,
    limited,
)
from tests.support.changes import BIGINT, INT, TEXT, table

UNSIGNED = ColumnType(Kind.INTEGER, "bigint unsigned", bits=64, unsigned=True)
ONE = table(("id", INT), ("v", TEXT), key=("id",))
TWO = table(("a", INT), ("b", BIGINT), key=("a", "b"))
GREATEST = (1 << 63) - 1


class Numbers:
    """A source whose tables have these keys."""

    def __init__(self, *keys: Key) -> None:
        self.keys, self.asked = sorted(keys), 0

    def boundary(self, _: TableSchema, after: Key | None, rows: int) -> Key | None:
        self.asked += 1
        at = (0 if after is None else bisect_right(self.keys, after)) + rows - 1
        return self.keys[at] if at < len(self.keys) else None

    def within(self, part: KeyRange) -> list[Key]:
        first = 0 if part.after is None else bisect_right(self.keys, part.after)
        last = len(self.keys) if part.upto is None else bisect_right(self.keys, part.upto)
        return self.keys[first:last]


def kept(values: pa.Array, *ranges: Range) -> list[Any]:
    """The values in ranges: the same by Arrow and by a condition in SQL."""
    rows, only = pa.RecordBatch.from_arrays([values], ["id"]), KeyRanges("id", ranges)
    found = [row["id"] for batch in limited([rows], only) for row in batch.to_pylist()]
    with duckdb.connect() as connection:
        connection.register("t", pa.Table.from_batches([rows]))
        by_condition = connection.execute(f"SELECT id FROM t WHERE {only.condition('id')}")
        assert sorted(map(int, (row[0] for row in by_condition.fetchall()))) == sorted(map(int, found))
    return found


@pytest.mark.parametrize("type_", [pa.int8(), pa.int32(), pa.int64(), pa.decimal128(20, 0)])
def test_rows_of_ranges_are_kept_with_both_ends_in_every_type_of_number(type_: pa.DataType) -> None:
    values = pa.array([1, 2, None, 3, 7, 100], pa.int64()).cast(type_)
    assert list(map(int, kept(values, (2, 3), (7, 7)))) == [2, 3, 7]
    assert list(map(int, kept(values, (None, 1), (7, 10**19)))) == [1, 7, 100]
    assert list(map(int, kept(values, (-(10**19), 2)))) == [1, 2]
    assert kept(values, (4, 6)) == kept(values) == kept(values.slice(0, 0), (1, 1)) == []


def test_least_and_greatest_numbers_are_in_open_ranges() -> None:
    ends = pa.array([-(1 << 63), GREATEST])
    assert kept(ends, (None, None)) == ends.to_pylist()
    assert kept(ends, (-(1 << 63), GREATEST)) == ends.to_pylist()
    big = pa.array([Decimal((1 << 64) - 1)], pa.decimal128(20, 0))
    assert kept(big, ((1 << 64) - 1, None)) == big.to_pylist()


def test_ranges_are_those_of_the_key_and_not_beyond_what_it_holds() -> None:
    assert key_ranges(ONE, [(1, 5), (None, 0), (7, None)]) == [
        KeyRange((0,), (5,)),
        KeyRange(None, (0,)),
        KeyRange((6,), None),
    ]
    assert key_ranges(ONE, [(-(1 << 40), 1 << 40)]) == [KeyRange(None, None)]
    assert key_ranges(ONE, [(1 << 31, 1 << 40)]) == []
    # every row whose first number is in the range, whatever the second one is
    assert key_ranges(TWO, [(1, 5)]) == [KeyRange((0, GREATEST), (5, GREATEST))]
    unsigned = table(("id", UNSIGNED), key=("id",))
    assert key_ranges(unsigned, [(-5, 3)]) == [KeyRange(None, (3,))]


def test_only_whole_numbers_are_compared_in_part() -> None:
    assert has_numbers_as_key(ONE)
    assert has_numbers_as_key(TWO)
    assert not has_numbers_as_key(table(("id", INT), ("s", TEXT), key=("id", "s")))
    assert not has_numbers_as_key(table(("id", INT), key=()))
    assert holds_numbers(pa.decimal128(20, 0))
    assert not holds_numbers(pa.decimal128(20, 2))
    assert not holds_numbers(pa.string())


@pytest.mark.parametrize("text", ["", "..", "5", "5..1", "1..x", "1.5..2", "1..2..3"])
def test_keys_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a range"):
        Keys.parse(text)


def test_keys_have_a_first_and_a_last_number() -> None:
    assert (Keys.parse("1000..2000"), Keys.parse("-7.."), Keys.parse("..0")) == (
        Keys(1000, 2000),
        Keys(-7, None),
        Keys(None, 0),
    )
    assert Keys(10, 19).rows(1000) == 10
    assert Keys(10, None).rows(1000) == 1000


@pytest.mark.parametrize("text", ["", "1", "0%", "101%", "-1%", "1%%", "1e1%"])
def test_sample_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a share"):
        Sample.parse(text)


def sampled(sample: Sample, source: Any, schema: TableSchema) -> tuple[tuple[Range, ...], list[Key]]:
    ranges = sample.ranges(source, schema, len(source.keys))
    return ranges, [key for part in key_ranges(schema, ranges) for key in source.within(part)]


@pytest.mark.parametrize("seed", range(5))
def test_sample_has_about_its_share_of_the_rows_in_windows_all_over_the_keys(seed: int) -> None:
    source = Numbers(*((i * 3,) for i in range(1_000_000)))
    ranges, keys = sampled(Sample(1, random.Random(seed)), source, ONE)
    assert 9_000 <= len(keys) <= 10_000
    assert len(ranges) == 10
    assert [bisect_left(source.keys, key) // 100_000 for key in keys[::1000]] == list(range(10))
    assert source.asked < 60


@given(
    st.sets(st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-50, 50), max_size=200),
    st.floats(0.01, 100),
    st.randoms(use_true_random=False),
)
def test_windows_are_ascending_and_apart_and_both_sides_take_the_same_rows(
    numbers: set[int], percent: float, choose: random.Random
) -> None:
    source = Numbers(*((number,) for number in numbers))
    ranges, keys = sampled(Sample(percent, choose), source, ONE)
    assert all(left[1] is not None for left in ranges[:-1])
    assert all(left[1] < right[0] for left, right in pairwise(ranges))  # type: ignore[operator]
    assert bool(ranges) == bool(numbers)
    values = pa.array(sorted(numbers), pa.int32())
    assert kept(values, *ranges) == [key[0] for key in keys]


@pytest.mark.parametrize(("percent", "power"), [(30, 2), (100, 1)])
def test_sample_may_be_large_and_keys_have_several_columns(percent: int, power: int) -> None:
    source = Numbers(*((i**power, j) for i in range(5000) for j in range(3)))
    _, keys = sampled(Sample(percent, random.Random(1)), source, TWO)
    assert percent - 10 <= 100 * len(keys) / len(source.keys) <= percent + 10

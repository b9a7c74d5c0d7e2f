"""The rows to which a comparison is limited: ranges of keys, which have the same rows on both sides.

    --key-range 1000..2000    one range
    --sample 1%          windows of consecutive keys, each from a random number on

A range is one of whole numbers, of the key's first column. Their order is the same in the source, in every
target and in Arrow; that of text is not (collations). So only tables whose keys are whole numbers are
compared in part. The source is asked for these ranges alone, by its key's index; a target's rows are
filtered, and stretches of Delta's files without such keys are not read.

*Why no sample by a hash of the key.* Both sides would have to be read whole to compute it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.enumerator.snapshot import KeyRange
from tailrace.model.split import Key
from tailrace.model.table import Column, TableSchema
from tailrace.model.types import Kind
from tailrace.sources.base import Source

#: Most windows of a sample of a table, and the least rows of each.
_WINDOWS, _WINDOW_ROWS = 32, 1_000

#: First and last number of a range, both in it; None: open.
Range = tuple[int | None, int | None]


@dataclass(frozen=True)
class KeyRanges:
    """Rows by the number that a column holds.

    Args:
        column: the column.
        ranges: the ranges, ascending and apart.
    """

    column: str
    ranges: tuple[Range, ...]

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of `rows`."""
        values = _comparable(rows.column(self.column))
        extent = pc.min_max(values).as_py()
        if extent["min"] is None:  # no rows, or none with a key
            return rows.slice(0, 0)
        inside = np.zeros(len(rows), bool)
        for first, last in self._near(int(extent["min"]), int(extent["max"])):
            found = pc.is_valid(values)
            if first is not None:
                found = pc.and_kleene(found, pc.greater_equal(values, _scalar(first, values.type)))
            if last is not None:
                found = pc.and_kleene(found, pc.less_equal(values, _scalar(last, values.type)))
            inside |= pc.fill_null(found, False).to_numpy(zero_copy_only=False)
        return rows if inside.all() else rows.filter(pa.array(inside))

    def condition(self, column: str) -> str:
        """These rows as a condition in SQL; `column`: the column's name, quoted."""
        found = []
        for first, last in self.ranges:
            bounds = [] if first is None else [f"{column} >= {first}"]
            bounds += [] if last is None else [f"{column} <= {last}"]
            found.append(" AND ".join(bounds) or "1 = 1")
        return " OR ".join(f"({each})" for each in found) or "1 = 0"

    def may_have(self, least: int, greatest: int) -> bool:
        """Whether a number between two may be in a range."""
        return any(True for _ in self._near(least, greatest))

    def _near(self, least: int, greatest: int) -> Iterator[Range]:
        for first, last in self.ranges:
            if (first is None or first <= greatest) and (last is None or last >= least):
                yield first, last


def _comparable(values: pa.Array) -> pa.Array:
    """Numbers in a type that has room for bounds beyond those of their own."""
    return values.cast(pa.decimal128(38, 0) if pa.types.is_decimal(values.type) else pa.int64())


def _scalar(number: int, type_: pa.DataType) -> pa.Scalar:
    """A bound, or the greatest or least number of a type if it is beyond that."""
    if pa.types.is_decimal(type_):
        most = 10**38 - 1
        return pa.scalar(Decimal(max(-most, min(number, most))), type_)
    return pa.scalar(max(-(1 << 63), min(number, (1 << 63) - 1)), type_)


def holds_numbers(type_: pa.DataType) -> bool:
    """Whether the values of a target's column are whole numbers."""
    return bool(pa.types.is_integer(type_) or (pa.types.is_decimal(type_) and type_.scale == 0))


def has_numbers_as_key(table: TableSchema) -> bool:
    """Whether a table's key is made of whole numbers, so that it can be compared in part."""
    return bool(table.key) and all(c.type.kind is Kind.INTEGER for c in map(table.column, table.key))


def key_ranges(table: TableSchema, ranges: Iterable[Range]) -> list[KeyRange]:
    """The ranges as those of a table's keys, without what is beyond the numbers that its key can hold."""
    low, high = _extent(table.column(table.key[0]))
    found = []
    for first, last in ranges:
        if (first is None or first <= high) and (last is None or last >= low):
            after = None if first is None or first <= low else greatest_key(table, first - 1)
            found.append(KeyRange(after, None if last is None or last >= high else greatest_key(table, last)))
    return found


def greatest_key(table: TableSchema, number: int) -> Key:
    """The greatest key that begins with `number`."""
    return (number, *(_extent(table.column(name))[1] for name in table.key[1:]))


def _extent(column: Column) -> tuple[int, int]:
    """The least and the greatest number that a column can hold."""
    bits = column.type.bits or 64
    return (0, (1 << bits) - 1) if column.type.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def limited(rows: Iterable[pa.RecordBatch], only: KeyRanges | None) -> Iterator[pa.RecordBatch]:
    """Those of `rows` that are compared; None: all."""
    return iter(rows) if only is None else map(only.of, rows)


class ComparedPart(Protocol):
    """Says which part of tables is compared."""

    def ranges(self, source: Source, table: TableSchema, estimated_rows: int) -> tuple[Range, ...]:
        """The ranges of a table's keys."""

    def rows(self, estimated_rows: int) -> int:
        """About how many rows of a table it has."""


@dataclass(frozen=True)
class Keys:
    """One range of keys, the same of every table.

    Args:
        first: the first number of the range; None: from the first row on.
        last: the last one; None: up to the last row.
    """

    first: int | None
    last: int | None

    @classmethod
    def parse(cls, text: str) -> Keys:
        """Read `1000..2000`, `1000..` or `..2000`.

        Raises:
            ValueError: it is something else.
        """
        found = re.fullmatch(r"(-?\d{1,20})?\.\.(-?\d{1,20})?", text.strip())
        if found is None or not any(found.groups()):
            raise ValueError("a range of whole numbers: 1000..2000, 1000.. or ..2000")
        first, last = (None if each is None else int(each) for each in found.groups())
        if first is not None and last is not None and first > last:
            raise ValueError("a range whose first number is not greater than the last one")
        return cls(first, last)

    def __str__(self) -> str:
        return f"keys {'' if self.first is None else self.first}..{'' if self.last is None else self.last}"

    def ranges(self, source: Source, table: TableSchema, estimated_rows: int) -> tuple[Range, ...]:  # noqa: ARG002
        """See ComparedPart."""
        return ((self.first, self.last),)

    def rows(self, estimated_rows: int) -> int:
        """See ComparedPart: no key has more than one row, where it has one column."""
        if self.first is None or self.last is None:
            return estimated_rows
        return min(estimated_rows, self.last - self.first + 1)


@dataclass(frozen=True)
class Sample:
    """A share of each table's rows.

    Args:
        percent: the share, above 0, at most 100.
        choose: chooses where windows begin.
    """

    percent: float
    choose: random.Random = field(default_factory=random.Random, compare=False)

    @classmethod
    def parse(cls, text: str) -> Sample:
        """Read `1%`.

        Raises:
            ValueError: it is something else.
        """
        found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)\s*%", text.strip())
        if found is None or not 0 < float(found[1]) <= 100:
            raise ValueError("a share of the rows: 1% or 0.1%")
        return cls(float(found[1]))

    def __str__(self) -> str:
        return f"a sample of {self.percent:g} %"

    def rows(self, estimated_rows: int) -> int:
        """See ComparedPart."""
        return max(1, round(estimated_rows * self.percent / 100))

    def ranges(self, source: Source, table: TableSchema, estimated_rows: int) -> tuple[Range, ...]:
        """See ComparedPart: windows of as many rows each, one in each part of the numbers in use.

        The source is asked for about 64 keys, and for each window's end.
        """
        first = source.boundary(table, None, 1)
        if first is None:
            return ()
        rows = self.rows(estimated_rows)
        windows = max(1, min(_WINDOWS, rows // _WINDOW_ROWS))
        low, high = int(first[0]), _greatest(source, table, int(first[0]))
        width = (high - low + 1) / windows
        found: list[Range] = []
        for i in range(windows):
            # so early that, of evenly distributed keys, it ends in its part
            begin = low + int((i + self.choose.random() * (1 - self.percent / 100)) * width)
            if found:
                last = found[-1][1]
                if last is None:
                    break
                begin = max(begin, last + 1)
            after = greatest_key(table, begin - 1) if begin > low else None
            end = source.boundary(table, after, rows // windows)
            found.append((None if after is None else begin, None if end is None else int(end[0])))
        return tuple(found)


def _greatest(source: Source, table: TableSchema, known: int) -> int:
    """The greatest number that a table's keys begin with, by bisection.

    Args:
        source: the database.
        table: the table.
        known: a number in use.
    """
    low, high = known, _extent(table.column(table.key[0]))[1]
    while low < high:
        middle = (low + high) // 2
        behind = source.boundary(table, greatest_key(table, middle), 1)
        if behind is None:
            high = middle
        else:
            low = int(behind[0])
    return low

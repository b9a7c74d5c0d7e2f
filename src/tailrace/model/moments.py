"""Rows as Python values, dates and times included that Python's calendar lacks.

PostgreSQL has dates B.C., after 9999, and infinite ones (the least and the greatest number of days or
microseconds); Python's `date` and `datetime` have the years 1..9999.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

#: What Arrow prints for days and microseconds that are no date at all.
_OUT_OF_RANGE = re.compile(r"<value out of range: (-?)\d+>")


def to_python(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column; where one is beyond Python's calendar, dates and times are ISO text."""
    try:
        return list(array.to_pylist())
    except OverflowError:
        # without a zone: Arrow prints what is out of range as some other date where there is one
        plain = array.cast(_each(array.type, _without_zone))
        return [_named(value) for value in plain.cast(_each(plain.type, lambda _: pa.string())).to_pylist()]


def rows_to_python(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows as dictionaries; see `to_python`."""
    columns = [to_python(column) for column in rows.columns]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _each(type_: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type, or that of a list's elements, changed."""
    return pa.list_(_each(type_.value_type, change)) if pa.types.is_list(type_) else change(type_)


def _without_zone(type_: pa.DataType) -> pa.DataType:
    return pa.timestamp(type_.unit) if pa.types.is_timestamp(type_) else type_


def _named(value: Any) -> Any:
    if isinstance(value, list):
        return [_named(item) for item in value]
    return value if value is None else _OUT_OF_RANGE.sub(r"\1infinity", value)

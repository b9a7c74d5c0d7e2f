"""Documents' sources as rows: the inverse of `documents`."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import chain
from typing import Any

import pyarrow as pa

from tailrace.errors import SinkError

_ISO = re.compile(r"([+-]?)(\d{4,})-(\d\d)-(\d\d)(?:T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?Z?)?", re.ASCII)
_DAY_US, _EPOCH = 86_400_000_000, date(1970, 1, 1).toordinal()
#: Days and years after which the calendar is the same again.
_ERA, _ERA_YEARS = 146_097, 400


def rows_of(sources: Sequence[Mapping[str, Any]], schema: pa.Schema, target: str) -> pa.RecordBatch:
    """Rows of documents; a field that a document lacks is NULL.

    Args:
        sources: the documents' sources.
        schema: the columns.
        target: the target's name, for errors.

    Raises:
        SinkError: a value is none of its column's type.
    """
    columns = []
    for field in schema:
        try:
            columns.append(_column([source.get(field.name) for source in sources], field.type))
        except (ValueError, TypeError, pa.ArrowException):  # their texts have values
            raise SinkError(
                f"a document of target `{target}` has a value that its column cannot have",
                f"column `{field.name}` of type {field.type}",
                "somebody has changed the document: have its table read again: tailrace resync PIPELINE.YAML"
                " TABLE",
                code="TR-7308",
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_list(type_):
        items = _column(list(chain.from_iterable(v for v in values if v is not None)), type_.value_type)
        ends = [0]
        for value in values:
            ends.append(ends[-1] + (0 if value is None else len(value)))
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, type_, mask=mask)
    if pa.types.is_floating(type_):  # what JSON lacks is text
        return pa.array([None if v is None else float(v) for v in values], type_)
    if pa.types.is_decimal(type_):
        return pa.array(values, pa.string()).cast(type_)
    if pa.types.is_binary(type_):
        return pa.array([None if v is None else base64.b64decode(v, validate=True) for v in values], type_)
    if pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        return _moments(values, type_)
    if pa.types.is_duration(type_):
        return pa.array(values, pa.int64()).cast(type_)
    return pa.array(values, type_)


def _moments(values: Sequence[str | None], type_: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, pa.string()).cast(type_)
    except pa.ArrowInvalid:  # a year that is none of 1 to 9999
        numbers = [None if value is None else _number(value, type_) for value in values]
        is_date = pa.types.is_date(type_)
        return pa.array(numbers, pa.int32() if is_date else pa.int64()).cast(type_)


def _number(text: str, type_: pa.DataType) -> int:
    """The days or microseconds since 1970 of a moment in any year."""
    found = _ISO.fullmatch(text)
    if found is None:
        raise ValueError
    sign, year, month, day, hour, minute, second, fraction = found.groups()
    eras, within = divmod(int(year) * (-1 if sign == "-" else 1), _ERA_YEARS)
    days = date(within + _ERA_YEARS, int(month), int(day)).toordinal() - _EPOCH + _ERA * (eras - 1)
    if pa.types.is_date(type_):
        return days
    seconds = 3600 * int(hour or 0) + 60 * int(minute or 0) + int(second or 0)
    return days * _DAY_US + seconds * 1_000_000 + int((fraction or "").ljust(6, "0"))

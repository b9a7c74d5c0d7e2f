"""Values as text, for columns that have become text (`on-incompatible-type: text`). Pure.

One form for every row, whichever way it comes: values that a target holds already, changes of the log, rows
that are read, and the source's rows when both sides are compared.

    integers, decimals       all digits, never an exponent
    floating point           the fewest digits that read as the same number
    booleans                 `true`, `false`
    dates                    `2026-03-01`
    times of a day           `-12:30:00`, `12:30:00.25`; in Delta and Iceberg, which store TIME as a number of
                             microseconds, that number
    date and time            `2026-03-01 12:30:00.25`; a moment ends with `Z`: `2026-03-01 12:30:00Z`
    binary                   base64
    lists                    JSON: `[1,null,2]`, `["a","b"]`

Fractions of a second end with their last digit other than zero. Days and times outside the years 1 to 9999
are the numbers that are stored for them: days, or microseconds, since 1970.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.formats.connect.plaintext import plain_decimal, plain_time
from tailrace.model.change import ChangeBatch
from tailrace.model.types import ColumnType, Kind
from tailrace.spark.cells import Unpack

#: The type of a column that has become text.
TEXT = ColumnType(Kind.STRING, "text")
#: The first and the last day, and microsecond, of the years 1 to 9999.
_DAYS = (-719_162, 2_932_896)
_MOMENTS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)


def as_text(array: pa.Array) -> pa.StringArray:
    """The values of any type that a column can have, NULL as NULL."""
    type_ = array.type
    if pa.types.is_string(type_):
        return array
    if pa.types.is_decimal(type_):
        return plain_decimal(array, type_.scale)
    if pa.types.is_date32(type_):
        return _within(array.cast(pa.int32()), _DAYS, lambda days: days.cast(pa.date32()).cast(pa.string()))
    if pa.types.is_timestamp(type_):
        end = "" if type_.tz is None else "Z"
        return _within(array.cast(pa.timestamp("us", type_.tz)).cast(pa.int64()), _MOMENTS, _moments(end))
    if pa.types.is_duration(type_):
        return _without_zeros(plain_time(array, 6))
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        texts = [None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _lists(array)
    return array.cast(pa.string())


def becomes_text(held: pa.DataType, type_: pa.DataType) -> bool:
    """Whether values of `type_` become text in a column of type `held`."""
    return bool(pa.types.is_string(held) and not pa.types.is_string(type_))


def with_text(
    batch: ChangeBatch, columns: pa.Schema, stored: Callable[[pa.DataType], pa.DataType]
) -> ChangeBatch:
    """`batch` with values as text in those columns that hold text in a target.

    Args:
        batch: changes.
        columns: the source's columns that the target has.
        stored: the target's types.
    """
    held = {field.name.lower(): field.type for field in columns}
    names = {
        field.name
        for field in batch.table.arrow
        if becomes_text(held.get(field.name.lower(), field.type), field.type)
    }
    if not names:
        return batch

    def image(rows: pa.StructArray | None) -> pa.StructArray | None:
        if rows is None:
            return None
        found = dict(_texts(rows, names, stored))
        fields = [f.with_type(pa.string()) if f.name in found else f for f in rows.type]
        children = [found.get(f.name, rows.field(i)) for i, f in enumerate(rows.type)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=rows.is_null())

    table = replace(
        batch.table,
        columns=tuple(replace(c, type=TEXT) if c.name in names else c for c in batch.table.columns),
    )
    return replace(batch, table=table, before=image(batch.before), after=image(batch.after))


def texting(unpack: Unpack, held: pa.Schema, stored: Callable[[pa.DataType], pa.DataType]) -> Unpack:
    """`unpack` for a target that has followed its source, some of whose columns have become text.

    Args:
        unpack: makes rows of `held` from a cell.
        held: the source's columns that the target has.
        stored: the target's types.
    """
    return lambda batch: unpack(with_text(batch, held, stored))


def rows_as_text(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a target with the types of `schema`: text where columns, or fields of structs, become text."""
    arrays = [_fitted(rows.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fitted(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_struct(type_):
        children = [_fitted(array.field(field.name), field.type) for field in type_]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())
    return as_text(array) if becomes_text(type_, array.type) else array.cast(type_)


def _texts(
    rows: pa.StructArray, names: set[str], stored: Callable[[pa.DataType], pa.DataType]
) -> Iterator[tuple[str, pa.StringArray]]:
    for i, field in enumerate(rows.type):
        if field.name in names:
            yield field.name, as_text(rows.field(i).cast(stored(field.type)))


def _moments(end: str) -> Callable[[pa.Array], pa.Array]:
    def texts(us: pa.Array) -> pa.Array:
        found = _without_zeros(us.cast(pa.timestamp("us")).cast(pa.string()))
        return pc.binary_join_element_wise(found, end, "")

    return texts


def _without_zeros(texts: pa.StringArray) -> pa.StringArray:
    """Times whose fraction of a second, of six digits, ends with its last digit other than zero."""
    return pc.replace_substring_regex(texts, r"\.?0*$", "")


def _within(numbers: pa.Array, bounds: tuple[int, int], texts: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The texts of those numbers that are within bounds, the others as they are."""
    fits = pc.and_(pc.greater_equal(numbers, bounds[0]), pc.less_equal(numbers, bounds[1]))
    if pc.all(fits).as_py() is not False:
        return texts(numbers)
    known = texts(pc.if_else(fits, numbers, pa.scalar(0, numbers.type)))
    return pc.if_else(fits, known, numbers.cast(pa.string()))


def _lists(array: pa.Array) -> pa.StringArray:
    plain = pa.types.is_integer(array.type.value_type) or pa.types.is_boolean(array.type.value_type)
    plain = plain or pa.types.is_floating(array.type.value_type)
    found: list[str | None] = []
    for value in array:
        if not value.is_valid:
            found.append(None)
            continue
        texts = as_text(value.values).to_pylist()
        items = ["null" if t is None else t if plain else json.dumps(t, ensure_ascii=False) for t in texts]
        found.append(f"[{','.join(items)}]")
    return pa.array(found, pa.string())

"""Arrow values as plain Python values without loss: moments beyond Python's years are numbers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def plain(array: pa.Array) -> list[Any]:
    """The values; dates, timestamps and durations as numbers in their units, fractional numbers as text."""
    type_ = array.type
    if pa.types.is_struct(type_):
        columns = {f.name: plain(array.field(i)) for i, f in enumerate(type_)}
        present = array.is_valid().to_pylist()
        return [
            {name: values[i] for name, values in columns.items()} if present[i] else None
            for i in range(len(array))
        ]
    if pa.types.is_list(type_):
        return [None if not value.is_valid else plain(value.values) for value in array]
    if pa.types.is_date32(type_):
        return list(array.view(pa.int32()).to_pylist())
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        return list(array.view(pa.int64()).to_pylist())
    if pa.types.is_floating(type_):
        return [None if value is None else str(value) for value in array.to_pylist()]
    if pa.types.is_decimal(type_):
        return [None if value is None else f"{value:f}" for value in array.to_pylist()]
    if pa.types.is_binary(type_):
        return [None if value is None else value.hex() for value in array.to_pylist()]
    return list(array.to_pylist())

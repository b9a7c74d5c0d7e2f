"""Declared types in Debezium's words, as its JDBC driver describes them: INT4 has the length 10, TIME(3) 12.

The log tells all of it but the names of domains, which are those of their base types here, and how a numeric
was declared whose scale is below 0 or above its precision.

Source: pgjdbc `TypeInfoCache.getPrecision`, `getScale`, `getDisplaySize`.
"""

from __future__ import annotations

from dataclasses import replace

from tailrace.model.source_type import SourceType
from tailrace.model.types import ColumnType

#: What the driver says of a type without a limit, and of a numeric without one.
_UNLIMITED, _FREE_NUMERIC = 2**31 - 1, 131_089
#: Lengths and scales of types that have no modifier.
_FIXED = {
    "bool": (1, 0),
    "char": (1, 0),
    "int2": (5, 0),
    "int4": (10, 0),
    "oid": (10, 0),
    "int8": (19, 0),
    "float4": (8, 8),
    "float8": (17, 17),
    "date": (13, 0),
    "interval": (49, 6),
}
#: Characters of a time without its fraction.
_CHARACTERS = {"time": 8, "timetz": 14, "timestamp": 22, "timestamptz": 28}


def source_type(type_: ColumnType, declared: str | None = None) -> SourceType:  # noqa: ARG001 - the log tells
    """A column's type in Debezium's words; the length of an array is that of its elements."""
    native = type_.native
    name = native.rpartition(".")[2].upper()
    if type_.element is not None:
        return replace(source_type(type_.element), name=name)
    if native in _FIXED:
        return SourceType(name, *_FIXED[native])
    if native == "numeric":
        return SourceType(name, type_.precision or _FREE_NUMERIC, type_.scale or 0)
    if native in _CHARACTERS:
        scale = 6 if type_.fraction is None else type_.fraction
        return SourceType(name, _CHARACTERS[native] + (scale + 1 if scale > 1 else 3 * scale), scale)
    if native == "bit":
        return SourceType(name, type_.length or 1, 0)
    length = None if native == "vector" else type_.length
    return SourceType(name, length or _UNLIMITED, 0)

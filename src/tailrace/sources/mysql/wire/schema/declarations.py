"""Declared types in Debezium's words: `int(10) unsigned zerofill` is INT UNSIGNED ZEROFILL of length 10.

The catalog has the declaration of today, the log the type of its time. The declaration counts if it may be
that of the log's type; what only it tells are display widths, ZEROFILL, and digits of FLOAT and DOUBLE.
"""

from __future__ import annotations

import re

from tailrace.model.source_type import SourceType
from tailrace.model.types import ColumnType, Kind

_DECLARATION = re.compile(r"(\w+)(?:\(([\d,]*)\))?(.*)", re.DOTALL)
_ATTRIBUTES = ("UNSIGNED", "ZEROFILL")


def source_type(type_: ColumnType, declared: str | None = None) -> SourceType:
    """A column's type in Debezium's words.

    Args:
        type_: its type in the log.
        declared: its declared type, as `information_schema.COLUMNS.COLUMN_TYPE`; None: it is not known.
    """
    logged = _of_log(type_)
    found = logged if declared is None else _parsed(declared)
    is_same = (
        found.name.removesuffix(" ZEROFILL") == logged.name
        and logged.length in (None, found.length)
        and logged.scale in (None, found.scale)
    )
    return found if is_same else logged


def _parsed(declared: str) -> SourceType:
    match = _DECLARATION.match(declared.strip())
    if match is None:
        return SourceType("")
    attributes = [word for word in match[3].upper().split() if word in _ATTRIBUTES]
    length, scale = [*(int(number) for number in (match[2] or "").split(",") if number), None, None][:2]
    return SourceType(" ".join([match[1].upper(), *attributes]), length, scale)


def _of_log(type_: ColumnType) -> SourceType:
    name = f"{type_.native.upper()} UNSIGNED" if type_.unsigned else type_.native.upper()
    match type_.kind:
        case Kind.DECIMAL:
            return SourceType(name, type_.precision, type_.scale)
        case Kind.BOOLEAN:
            return SourceType(name, 1)
        case Kind.BITS:
            return SourceType(name, type_.bits)
        case Kind.DATETIME | Kind.INSTANT | Kind.TIME:
            return SourceType(name, type_.fraction or None)
        case Kind.ENUM:
            return SourceType(name, 1)
        case Kind.SET:
            return SourceType(name, max(0, 2 * len(type_.labels) - 1))
    return SourceType(name, type_.length)

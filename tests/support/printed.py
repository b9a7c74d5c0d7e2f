"""Arrow values and a MySQL server's output in the same form."""

from __future__ import annotations

import datetime
import struct
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.model.types import ColumnType, Kind

_BINARY = (Kind.BYTES, Kind.BITS, Kind.BOOLEAN, Kind.GEOMETRY, Kind.VECTOR)


def as_printed(value: pa.Scalar, t: ColumnType) -> Any:
    """An Arrow value as the server prints it."""
    if not value.is_valid:
        return None
    if t.zero_dates == "text":
        return value.as_py()
    match t.kind:
        case Kind.BYTES | Kind.BITS | Kind.GEOMETRY:
            return value.as_py()
        case Kind.VECTOR:
            numbers = value.as_py()
            return struct.pack(f"<{len(numbers)}f", *numbers)
        case Kind.BOOLEAN:
            return b"\1" if value.as_py() else b"\0"
        case Kind.INTEGER:
            return str(value.as_py())
        case Kind.YEAR:
            return f"{value.as_py():04}"
        case Kind.FLOAT | Kind.DOUBLE:
            return float(value.as_py())
        case Kind.DECIMAL:
            x = value.as_py()
            return x if isinstance(x, str) else format(x, "f")
        case Kind.DATE:
            return str(value.as_py())
        case Kind.DATETIME | Kind.INSTANT:
            text = str(np.datetime64(value.value, "us")).replace("T", " ")
            return text[:19] + _fraction(text[20:], t.fraction)
        case Kind.TIME:
            us = abs(value.value)
            s = us // 1000000
            sign = "-" if value.value < 0 else ""
            clock = f"{sign}{s // 3600:02}:{s // 60 % 60:02}:{s % 60:02}"
            return clock + _fraction(f"{us % 1000000:06}", t.fraction)
    return value.as_py()


def _fraction(us: str, digits: int) -> str:
    return f".{us[:digits]}" if digits else ""


def as_comparable(text: Any, t: ColumnType) -> Any:
    """The server's output in the form of `as_printed`."""
    kind = t.kind
    if text is None:
        return None
    if isinstance(text, bytes) and kind not in _BINARY:
        text = text.decode()
    if isinstance(text, str) and kind in _BINARY:
        text = text.encode()
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        return float(text)
    if kind is Kind.INTEGER:
        return str(int(text))
    if kind in (Kind.DATE, Kind.DATETIME, Kind.INSTANT) and t.zero_dates != "text":
        try:
            datetime.date.fromisoformat(text[:10])
        except ValueError:
            return None
    return text

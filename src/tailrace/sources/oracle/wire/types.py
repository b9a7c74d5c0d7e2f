"""The types of Oracle's columns, and how a SELECT writes their values so that they read as those of the log.

Values travel as text on both paths: numbers as decimal digits, moments by `SESSION_FORMATS`, RAW as
hexadecimal digits. So one converter (`wire.values`) serves both, and equal values get equal bytes. Pure.
"""

from __future__ import annotations

import re

from tailrace.model.types import MAX_DECIMAL_DIGITS, ColumnType, Kind

#: What every session sets: the form of moments in SQL_REDO and in results. S: a minus sign for B.C.
SESSION_FORMATS = {
    "NLS_DATE_FORMAT": "SYYYY-MM-DD HH24:MI:SS",
    "NLS_TIMESTAMP_FORMAT": "SYYYY-MM-DD HH24:MI:SS.FF9",
    "NLS_TIMESTAMP_TZ_FORMAT": "SYYYY-MM-DD HH24:MI:SS.FF9 TZH:TZM",
    "NLS_NUMERIC_CHARACTERS": ".,",
    "NLS_CALENDAR": "GREGORIAN",
    "NLS_COMP": "BINARY",
    "NLS_SORT": "BINARY",
    "NLS_LANGUAGE": "AMERICAN",
    "TIME_ZONE": "+00:00",
}
#: Most digits of the fraction that Arrow's microseconds hold.
_MICROS = 6
_TEXTS = frozenset(["CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2"])
#: Kinds of keys that the client compares as the server does.
ORDERED = frozenset([Kind.INTEGER, Kind.DECIMAL, Kind.STRING, Kind.DATETIME, Kind.BYTES])
#: Types of text whose order, or whose equality, is not that of their UTF-8 bytes.
UNORDERED_TEXTS = frozenset(["nchar", "nvarchar2", "timestamp with time zone", "float"])
#: The types that are captured, for errors.
CAPTURED = (
    "NUMBER, FLOAT, BINARY_FLOAT, BINARY_DOUBLE, CHAR, VARCHAR2, NCHAR, NVARCHAR2, RAW, DATE, TIMESTAMP, "
    "TIMESTAMP WITH TIME ZONE, TIMESTAMP WITH LOCAL TIME ZONE"
)


def column_type(
    data_type: str, length: int | None, precision: int | None, scale: int | None
) -> ColumnType | None:
    """The type of a column by ALL_TAB_COLS; None: values of the type are not captured.

    Args:
        data_type: DATA_TYPE, e.g. `TIMESTAMP(6) WITH LOCAL TIME ZONE`.
        length: CHAR_LENGTH of a text, DATA_LENGTH of a RAW.
        precision: DATA_PRECISION.
        scale: DATA_SCALE.
    """
    native = re.sub(r"\(\d+\)", "", data_type).lower()
    if data_type == "NUMBER":
        return _number(precision, scale)
    if data_type == "FLOAT":  # a NUMBER with a binary precision, of any scale
        return ColumnType(Kind.STRING, native)
    if data_type in _TEXTS:
        return ColumnType(Kind.STRING, native, length=length)
    if data_type == "RAW":
        return ColumnType(Kind.BYTES, native, length=length)
    if data_type == "BINARY_FLOAT":
        return ColumnType(Kind.FLOAT, native)
    if data_type == "BINARY_DOUBLE":
        return ColumnType(Kind.DOUBLE, native)
    if data_type == "DATE":
        return ColumnType(Kind.DATETIME, native, fraction=0)
    if not data_type.startswith("TIMESTAMP"):
        return None
    fraction = _MICROS if scale is None else scale
    if native == "timestamp with time zone" or fraction > _MICROS:
        return ColumnType(Kind.STRING, native)  # the offset, or the nanoseconds, would be lost
    if native == "timestamp with local time zone":
        return ColumnType(Kind.INSTANT, native, fraction=fraction)
    return ColumnType(Kind.DATETIME, native, fraction=fraction) if native == "timestamp" else None


def _number(precision: int | None, scale: int | None) -> ColumnType:
    if scale is None:  # any exponent, up to 40 digits
        return ColumnType(Kind.STRING, "number")
    digits = MAX_DECIMAL_DIGITS if precision is None else precision
    if scale == 0 and digits <= 18:
        return ColumnType(Kind.INTEGER, "number", bits=32 if digits <= 9 else 64)
    whole = max(digits - scale, 0)
    scale = max(scale, 0)
    if whole + scale > MAX_DECIMAL_DIGITS:
        return ColumnType(Kind.STRING, "number")
    return ColumnType(Kind.DECIMAL, "number", precision=max(whole + scale, 1), scale=scale)


def selected(name: str, type_: ColumnType) -> str:
    """The expression by which a SELECT reads a column as text, or as a number that the driver makes text."""
    quoted = identifier(name)
    if type_.native == "date":
        return f"TO_CHAR({quoted}, '{SESSION_FORMATS['NLS_DATE_FORMAT']}')"
    if type_.native == "timestamp with time zone":
        return f"TO_CHAR({quoted}, '{SESSION_FORMATS['NLS_TIMESTAMP_TZ_FORMAT']}')"
    if type_.native.startswith("timestamp"):
        return f"TO_CHAR({quoted}, '{SESSION_FORMATS['NLS_TIMESTAMP_FORMAT']}')"
    return f"RAWTOHEX({quoted})" if type_.kind is Kind.BYTES else quoted


def bound(type_: ColumnType, place: str) -> str:
    """The expression of a key's value that is bound as text at `place`, e.g. `:1`."""
    if type_.native == "date":
        return f"TO_DATE({place}, '{SESSION_FORMATS['NLS_DATE_FORMAT']}')"
    if type_.native == "timestamp":
        return f"TO_TIMESTAMP({place}, '{SESSION_FORMATS['NLS_TIMESTAMP_FORMAT']}')"
    return f"HEXTORAW({place})" if type_.kind is Kind.BYTES else place


def identifier(name: str) -> str:
    """A name in quotes. Oracle's names hold neither a quote nor a NUL."""
    return f'"{name}"'

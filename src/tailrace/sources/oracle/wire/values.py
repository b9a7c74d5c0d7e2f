"""Values as text, from SQL_REDO or a SELECT, to Arrow. Pure.

LogMiner describes each change by a statement, so values come one by one: the loops here are over columns, the
conversions of each are Python's. What a type cannot hold is an error, never another value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from tailrace.errors import DecodeError
from tailrace.model.split import Key
from tailrace.model.table import Column, TableSchema
from tailrace.model.types import Kind
from tailrace.sources.oracle.wire.redo import Literal

_NUMBERS = frozenset(["number", "float", "binary_float", "binary_double"])
#: The functions around the values of a type in SQL_REDO. A plain text is allowed everywhere: it is converted
#: by the session's formats.
_FUNCTIONS = {
    "raw": {"HEXTORAW"},
    "date": {"TO_DATE"},
    "timestamp": {"TO_TIMESTAMP"},
    "timestamp with time zone": {"TO_TIMESTAMP_TZ"},
    "timestamp with local time zone": {"TO_TIMESTAMP_ITZ", "TO_TIMESTAMP_TZ", "TO_TIMESTAMP"},
    **{native: {"TO_NUMBER"} for native in _NUMBERS},
}
_MOMENT = re.compile(
    r"\s*(?P<sign>-?)(?P<day>\d{4}-\d\d-\d\d)[ T](?P<time>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{0,9}))?"
    r"(?:\s*(?P<zone>[+-]\d\d:\d\d|Z))?\s*"
)
_NOT_NUMBERS = {"BINARY_FLOAT_NAN": "nan", "BINARY_DOUBLE_NAN": "nan", "INFINITY": "inf"}
#: Digits of the fraction of a moment that is text.
_NANOS = 9


def text_of(literal: Literal | None, column: Column) -> str | None:
    """A value of SQL_REDO as the text that a SELECT returns for it.

    Raises:
        DecodeError: it is not written as values of the column's type are.
    """
    if literal is None:
        return None
    native = column.type.native
    if literal.function and literal.function not in _FUNCTIONS.get(native, ()):
        raise _unfit(column, f"{literal.function}(...)")
    if literal.is_number and native not in _NUMBERS:
        raise _unfit(column, "a number")
    return literal.text or None  # Oracle has no empty texts: they are NULL


def array_of(texts: Sequence[str | float | None], column: Column) -> pa.Array:
    """The values of a column.

    Raises:
        DecodeError: the column's type cannot hold one.
    """
    convert = _converter(column)
    try:
        return pa.array([None if t is None else convert(t) for t in texts], column.type.arrow)
    except (ValueError, ArithmeticError, pa.ArrowException) as error:
        raise _unfit(column, "a value beyond it, which is not shown") from error


def rows_of(columns: Mapping[str, Sequence[str | float | None]], table: TableSchema) -> pa.StructArray:
    """Rows of a table, from the values of each column."""
    arrays = [array_of(columns[c.name], c) for c in table.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(table.arrow))


def key_value(text: str | float, column: Column) -> Any:
    """A value of a key column as JSON."""
    if column.type.kind is Kind.INTEGER:
        return int(str(text))
    if column.type.kind is Kind.BYTES:
        return {"b": str(text).lower()}
    return _canonical(str(text), column)


def bind_value(value: Any, column: Column) -> Any:
    """A key's value as it is bound in a statement: see `types.bound`."""
    if column.type.native == "number":
        return Decimal(str(value))
    if column.type.kind is Kind.BYTES:
        return value["b"]
    # SYYYY has a blank where there is no sign
    return f" {value}" if column.type.native in ("date", "timestamp") else value


def sortable(key: Key, columns: Sequence[Column]) -> tuple[Any, ...]:
    """A key that sorts among others as the server's ORDER BY sorts: binary, numbers as numbers."""
    return tuple(_sortable(value, column) for value, column in zip(key, columns, strict=True))


def sortable_rows(keys: pa.StructArray, columns: Sequence[Column]) -> list[tuple[Any, ...]]:
    """As `sortable`, of keys in Arrow."""
    parts = []
    for column, values in zip(columns, keys.flatten(), strict=True):
        if column.type.kind is Kind.DATETIME:
            parts.append([str(v) for v in values.cast(pa.string()).to_pylist()])
            continue
        parts.append([_sortable(v, column) for v in values.to_pylist()])
    return list(zip(*parts, strict=True))


def _sortable(value: Any, column: Column) -> Any:
    if column.type.native == "number":
        return Decimal(str(value))
    if column.type.kind is Kind.BYTES:
        return bytes.fromhex(value["b"]) if isinstance(value, dict) else value
    if column.type.kind is Kind.DATETIME:
        return str(pa.scalar(_moment(str(value)), column.type.arrow).cast(pa.string()).as_py())
    return str(value).encode()


def _converter(column: Column) -> Callable[[Any], Any]:
    match column.type.kind:
        case Kind.INTEGER:
            return _integer
        case Kind.DECIMAL:
            return lambda value: _exact(Decimal(str(value)), column.type.scale or 0)
        case Kind.FLOAT | Kind.DOUBLE:
            return _float
        case Kind.BYTES:
            return lambda value: bytes.fromhex(str(value))
        case Kind.DATETIME:
            return lambda value: _moment(str(value))
        case Kind.INSTANT:
            return lambda value: _moment(str(value)).replace(tzinfo=UTC)
        case _:
            return lambda value: _canonical(str(value), column)


def _integer(value: Any) -> int:
    number = Decimal(str(value))
    if number != number.to_integral_value():
        raise ValueError
    return int(number)


def _exact(number: Decimal, scale: int) -> Decimal:
    """The number, unless it has more digits after the point than the column; Arrow checks those before it."""
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or (exponent < -scale and number.normalize() != round(number, scale)):
        raise InvalidOperation
    return number


def _float(value: Any) -> float:
    text = str(value).strip()
    text = _NOT_NUMBERS.get(text.upper(), text)
    return float(text[:-1] if text[-1:] in "fFdD" and text.lower() not in ("inf", "-inf") else text)


def _canonical(text: str, column: Column) -> str:
    """The one text of a value whose column is text here: SELECT and SQL_REDO may write it in two ways."""
    if column.type.native in ("number", "float"):
        number = Decimal(text)
        if not number.is_finite():
            raise ValueError
        return format(number.normalize(), "f") if number else "0"
    if column.type.native.startswith("timestamp") or column.type.native == "date":
        found = _found(text)
        if column.type.kind is Kind.DATETIME and column.type.native == "date":
            return f"{found['day']} {found['time']}"
        fraction = (found["fraction"] or "").ljust(_NANOS, "0")
        zone = found["zone"]
        if (column.type.native == "timestamp with time zone") != (zone is not None):
            raise ValueError
        return f"{found['day']} {found['time']}.{fraction}" + ("" if zone is None else f" {_offset(zone)}")
    return text


def _offset(zone: str) -> str:
    return "+00:00" if zone == "Z" else zone


def _found(text: str) -> re.Match[str]:
    found = _MOMENT.fullmatch(text)
    if found is None or found["sign"]:  # years B.C. are beyond what is captured
        raise ValueError
    return found


def _moment(text: str) -> datetime:
    """A moment without a zone, to the microsecond."""
    found = _found(text)
    fraction = (found["fraction"] or "").ljust(_NANOS, "0")
    if int(fraction[6:]) or found["zone"] not in (None, "Z", "+00:00"):
        raise ValueError
    return datetime.fromisoformat(f"{found['day']}T{found['time']}.{fraction[:6]}")


def _unfit(column: Column, found: str) -> DecodeError:
    return DecodeError(
        f"a value of column `{column.name}` cannot be read as {column.type.native}",
        f"found {found}; years B.C., and moments that the column's fraction cannot hold, are not captured",
        "correct the value, or leave the column out with column.exclude.list",
        code="TR-4621",
    )

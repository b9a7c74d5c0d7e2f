"""Key values between three forms: Arrow arrays, JSON values (`Key`), SQL literals.

    kind                        JSON                                      SQL
    INTEGER, YEAR               int                                       42
    DECIMAL                     str, as the server prints it              -1.50
    DATE, DATETIME, INSTANT     str, as the server prints it, UTC         TIMESTAMP'2026-01-31 12:00:00.5'
    TIME                        str, as the server prints it              TIME'-838:59:59'
    STRING                      str                                       _utf8mb4 x'C3A9' COLLATE ...
      of MariaDB's UUID, INETn  str                                       CAST(_utf8mb4 x'...' AS UUID)
    BYTES                       {"b": hex}                                _binary x'00FF'

A literal has its column's type, character set and collation: else the server would convert the column and
not use the index.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SchemaMismatchError, SourceError
from tailrace.model.table import Column, TableId
from tailrace.model.types import Kind

_SECOND_US = 1_000_000
#: MariaDB's types whose values are text here, but for the server neither text nor of a collation.
MARIADB_TEXTS = frozenset({"uuid", "inet4", "inet6"})


def identifier(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def table_name(id_: TableId) -> str:
    """A table's full name in backticks."""
    return f"{identifier(id_.database)}.{identifier(id_.table)}"


def key_literal(column: Column, value: Any) -> str:
    """A key value as an SQL expression of the column's type.

    Args:
        column: a key column; a character column has its collation.
        value: its JSON form.

    Raises:
        SchemaMismatchError: the collation is not known.
    """
    match column.type.kind:
        case Kind.INTEGER | Kind.YEAR:
            return str(int(value))
        case Kind.DECIMAL:
            return format(Decimal(value), "f")
        case Kind.DATE:
            return f"DATE{_quoted(value)}"
        case Kind.DATETIME | Kind.INSTANT:
            return f"TIMESTAMP{_quoted(value)}"
        case Kind.TIME:
            return f"TIME{_quoted(value)}"
        case Kind.STRING if column.type.native in MARIADB_TEXTS:
            return f"CAST(_utf8mb4 x'{value.encode().hex()}' AS {column.type.native})"
        case Kind.STRING:
            charset, collation = charset_and_collation(column)
            text = f"_utf8mb4 x'{value.encode().hex()}'"
            converted = text if charset == "utf8mb4" else f"CONVERT({text} USING {charset})"
            return f"{converted} COLLATE {collation}"
        case Kind.BYTES:
            return f"_binary x'{bytes.fromhex(value['b']).hex()}'"
        case _:
            raise _no_key(column)


def _quoted(text: str) -> str:
    if not set(text) <= set("0123456789-:. "):
        raise SourceError(
            "a key value is no date or time", hint="the stored offset may be damaged", code="TR-6002"
        )
    return f"'{text}'"


def charset_and_collation(column: Column) -> tuple[str, str]:
    """Character set and collation of a character column. Raises SchemaMismatchError if not known."""
    collation = column.type.collation
    if collation is None:
        raise SchemaMismatchError(
            f"the collation of key column `{column.name}` is not known",
            "the server compares keys under the column's collation",
            "take the table's schema from the catalog",
            code="TR-5009",
        )
    return collation.partition("_")[0], collation


def json_values(column: Column, array: pa.Array, *, zero: bool = False) -> list[Any]:
    """Key values as JSON values.

    Args:
        column: a key column.
        array: values of type `column.type.arrow`. Keys are NOT NULL, so null is a zero or partial date.
        zero: write null as the zero date instead of raising an error.

    Raises:
        SourceError: a value is null and may not be.
    """
    if array.null_count and not zero:
        raise SourceError(
            f"key column `{column.name}` holds a zero date, which cannot bound a key range",
            hint="change the rows whose key is '0000-00-00' or has a zero month or day; "
            "or capture the column as text by the option zeroDates",
            code="TR-5010",
        )
    type_ = column.type
    match type_.kind:
        case Kind.INTEGER | Kind.YEAR:
            return [int(v) for v in array.to_pylist()]
        case Kind.DECIMAL:
            return [v if isinstance(v, str) else format(v, "f") for v in array.to_pylist()]
        case Kind.DATE | Kind.DATETIME | Kind.INSTANT if pa.types.is_string(array.type):
            return ["0000-00-00" if v is None else str(v) for v in array.to_pylist()]
        case Kind.DATE | Kind.DATETIME | Kind.INSTANT:
            texts = _temporal_text(column, array).to_pylist()
            return ["0000-00-00" if v is None else str(v) for v in texts]
        case Kind.TIME:
            return [_time_text(v, type_.fraction or 0) for v in array.cast(pa.int64()).to_pylist()]
        case Kind.STRING:
            return [str(v) for v in array.to_pylist()]
        case Kind.BYTES:
            return [{"b": v.hex()} for v in array.to_pylist()]
        case _:
            raise _no_key(column)


def _temporal_text(column: Column, array: pa.Array) -> pa.Array:
    if column.type.kind is Kind.DATE:
        return array.cast(pa.string())
    digits = column.type.fraction or 0
    text = array.cast(pa.timestamp("us")).cast(pa.string())  # 2026-01-31 12:00:00.000000
    return pc.utf8_slice_codeunits(text, 0, 19 + (digits + 1 if digits else 0))


def _time_text(value_us: int, digits: int) -> str:
    seconds, fraction = divmod(abs(value_us), _SECOND_US)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{'-' if value_us < 0 else ''}{hour:02d}:{minute:02d}:{second:02d}"
    return text + (f".{fraction:06d}"[: digits + 1] if digits else "")


def arrow_scalar(column: Column, value: Any) -> pa.Scalar:
    """A JSON value as a scalar of the column's Arrow type; null for a zero or partial date."""
    type_ = column.type.arrow
    match column.type.kind:
        case Kind.INTEGER | Kind.YEAR:
            return pa.scalar(Decimal(value) if pa.types.is_decimal(type_) else int(value), type_)
        case Kind.DECIMAL:
            return pa.scalar(value if pa.types.is_string(type_) else Decimal(value), type_)
        case Kind.DATE | Kind.DATETIME | Kind.INSTANT if pa.types.is_string(type_):
            return pa.scalar(value, type_)
        case Kind.DATE | Kind.DATETIME | Kind.INSTANT:
            _, month, day = value[:10].split("-")
            if not int(month) or not int(day):
                return pa.scalar(None, type_)
            naive = type_ if column.type.kind is Kind.DATE else pa.timestamp("us")
            return pa.scalar(value).cast(naive).cast(type_)
        case Kind.TIME:
            hour, minute, second = value.lstrip("-").split(":")
            amount = (int(hour) * 60 + int(minute)) * 60 * _SECOND_US
            amount += int(Decimal(second) * _SECOND_US)
            return pa.scalar(-amount if value.startswith("-") else amount, pa.int64()).cast(type_)
        case Kind.STRING:
            return pa.scalar(value, type_)
        case Kind.BYTES:
            return pa.scalar(bytes.fromhex(value["b"]), type_)
        case _:
            raise _no_key(column)


def _no_key(column: Column) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column `{column.name}` of type {column.type.native} cannot be part of a key",
        "key ranges over this kind of type are not supported",
        code="TR-5008",
    )

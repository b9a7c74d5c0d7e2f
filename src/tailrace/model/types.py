"""Column types: the source's type, its meaning and its one Arrow type.

A column has one canonical Arrow type, and every way of reading the column must produce that type:

* unsigned integers widen to the next signed type (BIGINT UNSIGNED to decimal128(20, 0)), because Spark has no
  unsigned types;
* DECIMAL beyond 38 digits is text;
* TIME is a duration, because its range is -838:59:59..838:59:59;
* wall-clock times carry no zone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

#: Most digits that Spark's and Arrow's 128-bit decimals hold.
MAX_DECIMAL_DIGITS = 38


class Kind(StrEnum):
    """The meaning of a column's values, independent of the database's name for the type."""

    INTEGER = "integer"  # arrow: int8..int64, or decimal128(20, 0) for 64 bits unsigned
    FLOAT = "float"  # float32
    DOUBLE = "double"  # float64
    DECIMAL = "decimal"  # decimal128(precision, scale), string beyond 38 digits
    STRING = "string"  # utf8
    BYTES = "bytes"  # binary
    BOOLEAN = "boolean"  # BIT(1)
    BITS = "bits"  # BIT(n > 1): binary, big-endian, ceil(n / 8) bytes
    DATE = "date"  # date32
    DATETIME = "datetime"  # timestamp[us], wall clock without a zone
    INSTANT = "instant"  # timestamp[us, UTC]
    TIME = "time"  # duration[us]
    YEAR = "year"  # int32
    JSON = "json"  # utf8
    ENUM = "enum"  # utf8: the label
    SET = "set"  # utf8: the labels, comma-separated
    GEOMETRY = "geometry"  # binary: SRID (uint32, little-endian), then WKB
    VECTOR = "vector"  # list of float32
    LIST = "list"  # list of values of type `element`


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type.

    Args:
        kind: meaning of the values.
        native: the source's name of the type in lower case, without arguments: `mediumint`, `varchar`,
            `tinytext`, `varbinary`, `datetime`...
        bits: INTEGER: 8, 16, 24, 32 or 64. BITS: the declared length.
        unsigned: INTEGER, DECIMAL, FLOAT and DOUBLE only.
        precision: DECIMAL: digits in all.
        scale: DECIMAL: digits after the point.
        fraction: DATETIME, INSTANT, TIME: digits of the fraction of a second, 0..6.
        length: STRING and BYTES: declared length in characters or bytes (fixed and variable types). VECTOR:
            maximum number of elements.
        labels: ENUM and SET: the labels in order.
        zero_dates: DATE, DATETIME and INSTANT: the value of an invalid date (zero, or with a zero month or
            day). None: null. "text": all values of the column are text, as the source prints them. "error":
            such a date stops the stream.
        unfit: what a value is that the Arrow type cannot hold (NaN in a DECIMAL, a list of lists). None: an
            error, which stops the stream. "null": null.
        element: LIST: type of the elements.
        collation: name of the collation of a character type, if read from the catalog; not part of equality.
    """

    kind: Kind
    native: str
    bits: int | None = None
    unsigned: bool = False
    precision: int | None = None
    scale: int | None = None
    fraction: int | None = None
    length: int | None = None
    labels: tuple[str, ...] = ()
    zero_dates: str | None = None
    unfit: str | None = None
    element: ColumnType | None = None
    collation: str | None = field(default=None, compare=False)

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of values of this type."""
        match self.kind:
            case Kind.INTEGER:
                return _integer(self.bits or 64, self.unsigned)
            case Kind.FLOAT:
                return pa.float32()
            case Kind.DOUBLE:
                return pa.float64()
            case Kind.DECIMAL:
                assert self.precision is not None
                assert self.scale is not None
                if self.precision > MAX_DECIMAL_DIGITS:
                    return pa.string()
                return pa.decimal128(self.precision, self.scale)
            case Kind.STRING | Kind.JSON | Kind.ENUM | Kind.SET:
                return pa.string()
            case Kind.BYTES | Kind.BITS | Kind.GEOMETRY:
                return pa.binary()
            case Kind.VECTOR:
                return pa.list_(pa.float32())
            case Kind.LIST:
                assert self.element is not None
                return pa.list_(self.element.arrow)
            case Kind.BOOLEAN:
                return pa.bool_()
            case Kind.DATE | Kind.DATETIME | Kind.INSTANT if self.zero_dates == "text":
                return pa.string()
            case Kind.DATE:
                return pa.date32()
            case Kind.DATETIME:
                return pa.timestamp("us")
            case Kind.INSTANT:
                return pa.timestamp("us", tz="UTC")
            case Kind.TIME:
                return pa.duration("us")
            case Kind.YEAR:
                return pa.int32()

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ColumnType:
        """Read the type from its fields, JSON values."""
        element = value.get("element")
        return cls(
            **{
                **value,
                "kind": Kind(value["kind"]),
                "labels": tuple(value.get("labels", ())),
                "element": None if element is None else cls.from_json(element),
            }
        )


def _integer(bits: int, unsigned: bool) -> pa.DataType:
    if unsigned:
        return {
            8: pa.int16(),
            16: pa.int32(),
            24: pa.int32(),
            32: pa.int64(),
            64: pa.decimal128(20, 0),
        }[bits]
    return {8: pa.int8(), 16: pa.int16(), 24: pa.int32(), 32: pa.int32(), 64: pa.int64()}[bits]

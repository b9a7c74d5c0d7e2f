"""Values of a replica in a database of another kind than the source's: both sides in one form. Pure.

Most values are read from either database with the same Arrow type, or one that holds the other's. The rest:

    MySQL in PostgreSQL      TIME, an interval there: microseconds; BIT(n), a bit string there: bytes
    PostgreSQL in MySQL      JSON, which MySQL stores in an order and notation of its own, and arrays, which
                             are JSON there: parsed and written anew

A value that only somebody else can have written, as an interval of days, differs from every value of the
source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.table import Column, TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.replica.list_columns import as_json
from tailrace.sinks.tables.columns import stored_schema, stored_type

#: The metadata of a column whose values are JSON documents, equal if they mean the same.
_FORM = b"tailrace.form"
_JSON = {_FORM: b"json"}
#: An interval of less than a day, as PostgreSQL prints it by ISO 8601.
_INTERVAL = r"^PT(?:(?P<hours>-?\d+)H)?(?:(?P<minutes>-?\d+)M)?(?:(?P<seconds>-?[0-9.]+)S)?$"
_UNITS_US = {"hours": 3_600_000_000, "minutes": 60_000_000}
#: What an interval is that is no TIME.
_OTHER_US = -(1 << 63)
#: What a bit string is that is longer than the source's: no BIT(n) is empty.
_OTHER_BITS = b""
#: The whole numbers that MySQL keeps as such in JSON.
_WHOLE = range(-(1 << 63), 1 << 64)


@dataclass(frozen=True)
class ForeignTypes:
    """The types of a replica in a database of another kind than the source's.

    Args:
        held: the source's types of its columns, by lower-case names.
        rewrites_json: whether its server stores JSON in an order and notation of its own.
    """

    held: Mapping[str, ColumnType]
    rewrites_json: bool

    def columns(self, found: TableSchema) -> pa.Schema:
        """The columns of the replica, with the types in which both sides are compared.

        Args:
            found: its table, as its database has it.
        """
        schema = stored_schema(found)
        for number, column in enumerate(found.columns):
            of_source = self._converted(column)
            if of_source is not None:
                schema = schema.set(number, pa.field(column.name, stored_type(of_source.arrow)))
            elif self._is_json(column):
                schema = schema.set(number, schema.field(number).with_metadata(_JSON))
        return schema

    def as_of_source(self, rows: pa.StructArray, found: TableSchema) -> pa.StructArray:
        """Rows of the replica with values as the source has them."""
        children, fields = [], []
        for number, column in enumerate(found.columns):
            array, of_source = rows.field(number), self._converted(column)
            if of_source is not None:
                array = _bits(array, of_source) if of_source.kind is Kind.BITS else _times(array)
            children.append(array)
            fields.append(pa.field(column.name, array.type))
        return pa.StructArray.from_arrays(children, fields=fields)

    def _is_json(self, column: Column) -> bool:
        of_source = self.held.get(column.name.lower())
        if column.type.kind is Kind.JSON:
            return self.rewrites_json
        return of_source is not None and of_source.kind is Kind.LIST is not column.type.kind

    def _converted(self, column: Column) -> ColumnType | None:
        """The source's type of a column whose values are converted to it; None: they are not."""
        of_source = self.held.get(column.name.lower())
        if of_source is None or column.type.kind is not Kind.STRING:
            return None
        forms = ((Kind.TIME, "interval"), (Kind.BITS, "bit"))
        return of_source if (of_source.kind, column.type.native) in forms else None


def is_json(column: pa.Field) -> bool:
    """Whether values of a column are compared as JSON."""
    return bool((column.metadata or {}).get(_FORM))


def as_plain_json(array: pa.Array) -> pa.StringArray:
    """Documents, or lists, in one form: equal if MySQL would hold the same for them."""
    texts = as_json(array) if pa.types.is_list(array.type) else array
    return pa.array([None if text is None else _written(text) for text in texts.to_pylist()], pa.string())


def _times(array: pa.StringArray) -> pa.Int64Array:
    """Intervals as microseconds."""
    parts = pc.extract_regex(array, _INTERVAL)
    total = pa.array(np.zeros(len(array), np.int64))
    for unit, us in _UNITS_US.items():
        total = pc.add(total, pc.multiply(_number(parts, unit, pa.int64()), pa.scalar(us, pa.int64())))
    seconds = _number(parts, "seconds", pa.decimal128(18, 6))
    total = pc.add(total, pc.multiply(seconds, pa.scalar(1_000_000, pa.int64())).cast(pa.int64()))
    return pc.if_else(array.is_null(), None, pc.fill_null(total, _OTHER_US))


def _number(parts: pa.StructArray, name: str, type_: pa.DataType) -> pa.Array:
    """A part of intervals, 0 if they do not have it; null where the interval has another form."""
    texts = pc.struct_field(parts, name)
    texts = pc.if_else(pc.equal(texts, ""), "0", texts)
    return texts.cast(type_)


def _bits(array: pa.StringArray, of_source: ColumnType) -> pa.BinaryArray:
    """Bit strings as bytes: the number that they are, the most significant byte first."""
    size = -(-(of_source.bits or 1) // 8)
    texts = pc.utf8_ltrim(pc.fill_null(array, ""), "0")
    is_other = pc.greater(pc.utf8_length(texts), 8 * size)
    texts = pc.utf8_lpad(pc.if_else(is_other, "", texts), 8 * size, "0")
    digits = np.frombuffer("".join(texts.to_pylist()).encode(), np.uint8)
    data = np.packbits(digits.reshape(len(array), 8 * size) == ord("1"), axis=1)
    offsets = np.arange(len(array) + 1, dtype=np.int32) * size
    made = pa.Array.from_buffers(
        pa.binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())]
    )
    return pc.if_else(array.is_valid(), pc.if_else(is_other, _OTHER_BITS, made), None)


def _written(text: str) -> str:
    return json.dumps(json.loads(text, parse_int=_integer), sort_keys=True)


def _integer(digits: str) -> int | float:
    number = int(digits)
    return number if number in _WHOLE else float(number)

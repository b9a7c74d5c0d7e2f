"""The plan to decode the values of a table's columns: their types as descriptors for the kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from tailrace.kernels.columns import KIND, P1, P2, WORDS
from tailrace.model.table import TableSchema
from tailrace.model.types import ColumnType, Kind
from tailrace.sources.postgres.wire.kernels import values
from tailrace.sources.postgres.wire.kernels.arrays import Lists
from tailrace.sources.postgres.wire.types import BINARY_TEXTS, has_binary

_INTEGERS = {16: values.K_INT2, 32: values.K_INT4, 64: values.K_INT8}
_MACS = {"macaddr": 6, "macaddr8": 8}
_TEXTS = {
    "ltree": values.K_VERSIONED,
    "numeric": values.K_NUMERIC,
    "uuid": values.K_UUID,
    "inet": values.K_INET,
    "cidr": values.K_INET,
    "macaddr": values.K_MAC,
    "macaddr8": values.K_MAC,
    "interval": values.K_INTERVAL,
    "timetz": values.K_TIMETZ,
    "bit": values.K_BITS,
    "varbit": values.K_BITS,
}
_KINDS = {
    Kind.FLOAT: values.K_FLOAT4,
    Kind.DOUBLE: values.K_FLOAT8,
    Kind.BYTES: values.K_BYTEA,
    Kind.DATE: values.K_DATE,
    Kind.DATETIME: values.K_TIMESTAMP,
    Kind.INSTANT: values.K_TIMESTAMP,
    Kind.TIME: values.K_TIME,
    Kind.ENUM: values.K_TEXT,
    Kind.LIST: values.K_LIST,
    Kind.VECTOR: values.K_VECTOR,
}


class Plan:
    """A table's schema and how its rows are decoded.

    Args:
        schema: the schema, of PostgreSQL's types.

    Attributes:
        schema: the schema.
        descriptors: int64 array (columns, WORDS) with everything but the addresses.
        types: Arrow types that the kernels write.
        is_variable: per column whether the kernels write offsets and data.
        finish: columns whose values are converted from those that the kernels write.
    """

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.descriptors = np.zeros((len(schema.columns), WORDS), np.int64)
        self.types = [c.type.arrow for c in schema.columns]
        self.finish: dict[int, Callable[[pa.BinaryArray], pa.Array]] = {}
        for i, column in enumerate(schema.columns):
            d = self.descriptors[i]
            d[KIND], d[P1], d[P2] = how(column.type)
            d[values.FLAGS] = _flags(column.type)
            if column.type.kind is Kind.LIST:
                assert column.type.element is not None
                name = f"{schema.id}.{column.name}"
                self.finish[i] = Lists(name, column.type, how(column.type.element))
                self.types[i] = pa.binary()
        self.is_variable = self.descriptors[:, KIND] >= values.K_VARIABLE

    def describe(self, descriptors: np.ndarray) -> None:
        """Complete the descriptors of new buffers."""
        for word in (KIND, P1, P2, values.FLAGS):
            descriptors[: len(self.descriptors), word] = self.descriptors[:, word]

    def finished(self, arrays: Sequence[pa.Array]) -> list[pa.Array]:
        """The arrays that the kernels wrote, converted to the columns' types."""
        return [self.finish[i](a) if i in self.finish else a for i, a in enumerate(arrays)]


def _flags(type_: ColumnType) -> int:
    as_text = 0 if has_binary(type_) else values.AS_TEXT
    return as_text | (values.UNFIT_IS_NULL if type_.unfit == "null" else 0)


def how(type_: ColumnType) -> tuple[int, int, int]:
    """KIND, P1 and P2 of a type."""
    match type_.kind:
        case Kind.INTEGER:
            return (values.K_UINT4 if type_.unsigned else _INTEGERS[type_.bits or 64]), 0, 0
        case Kind.DECIMAL if type_.native == "money":
            return values.K_MONEY, 0, 0
        case Kind.DECIMAL:
            return values.K_DECIMAL, type_.precision or 0, type_.scale or 0
        case Kind.BOOLEAN:
            return (values.K_BIT1 if type_.native == "bit" else values.K_BOOL), 0, 0
        case Kind.JSON:
            return (values.K_VERSIONED if type_.native == "jsonb" else values.K_TEXT), 0, 0
        case Kind.STRING if type_.native not in BINARY_TEXTS:
            return values.K_TEXT_ONLY, 0, 0
        case Kind.STRING:
            return _TEXTS.get(type_.native, values.K_TEXT), _MACS.get(type_.native, 0), 0
    return _KINDS[type_.kind], 0, 0

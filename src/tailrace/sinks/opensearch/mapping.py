"""Fields of an index for the columns of a table. Pure.

The documents' sources hold every value exactly; fields are what searches see of them.

    integers, TIME            long (TIME: microseconds)
    floating point            double
    DECIMAL                   double; the source has all digits, as text
    texts                     text, with a `keyword` of up to 256 characters; ENUM: keyword
    booleans                  boolean
    dates and times           date, to the millisecond; the source has microseconds
    binary                    binary: base64
    lists                     as their elements

A field cannot change its type. So a column can become wider where both types have one field. Values that a
field cannot hold (NaN, a date beyond its range) are in the source only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tailrace.model.table import Column, TableSchema
from tailrace.model.types import Kind
from tailrace.sinks.tables.columns import require_free

#: The field that holds the version of a document's last change.
VERSION = "_tailrace_version"
#: The field of a nested row's own document that refers to its parent.
PARENT = "_tailrace_parent"
#: Names that no field of a document can have.
_METADATA = (
    *("_id", "_index", "_source", "_routing", "_field_names", "_ignored", "_nested_path", "_doc_count"),
    *("_seq_no", "_version", "_primary_term", "_type", "_size", "_tier", "_data_stream_timestamp"),
)
#: Most fields that an index may have by default.
_LEAST_LIMIT = 1000
_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
_KEYWORD = {"type": "keyword", "ignore_above": 8191}
_DOUBLE = {"type": "double", "ignore_malformed": True}
_DATE = {"type": "date", "format": "strict_date_optional_time", "ignore_malformed": True}


def require_names(table: TableSchema) -> None:
    """Reject a table with columns whose names are OpenSearch's own, or ours.

    Raises:
        SinkError: it has one.
    """
    require_free(table, (VERSION, PARENT, *_METADATA), "an OpenSearch sink")


def field_of(column: Column) -> dict[str, Any]:
    """The field of a column."""
    if column.type.kind is Kind.ENUM:
        return dict(_KEYWORD)
    return _field(column.type.arrow)


def _field(type_: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _field(type_.value_type)
    if pa.types.is_integer(type_) or pa.types.is_duration(type_):
        return {"type": "long"}
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return dict(_DOUBLE)
    if pa.types.is_boolean(type_):
        return {"type": "boolean"}
    if pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        return dict(_DATE)
    if pa.types.is_binary(type_):
        return {"type": "binary"}
    return dict(_TEXT)


def fields_of(columns: Iterable[Column]) -> dict[str, Any]:
    """The fields of columns, by name."""
    return {column.name: field_of(column) for column in columns}


def settings_of(columns: int, given: Mapping[str, str]) -> dict[str, Any]:
    """The settings of an index.

    Args:
        columns: how many columns its table has.
        given: the user's settings, which come first.
    """
    own = {
        # For so long the index remembers the version of a deleted document. See `versions`.
        "gc_deletes": "15m",
        "mapping.total_fields.limit": most_fields(columns),
    }
    return own | {name.removeprefix("index."): value for name, value in given.items()}


def most_fields(columns: int) -> int:
    """A limit for the number of fields: texts have two."""
    return max(_LEAST_LIMIT, 2 * columns + 100)

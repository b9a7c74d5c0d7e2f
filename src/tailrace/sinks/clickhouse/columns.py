"""Columns of ClickHouse for the columns of a table, and values as they are inserted. Pure.

    integers, YEAR           Int8 ... Int64; in the key always Int64: a key's column cannot become wider
    unsigned BIGINT          Decimal(20, 0)
    floating point           Float32, Float64
    DECIMAL                  Decimal(p, s); String beyond 38 digits
    texts, JSON              String; ENUM outside the key: LowCardinality(String)
    binary                   String
    booleans                 Bool
    DATE                     Date32
    DATETIME, TIMESTAMP      DateTime64(6, 'UTC')
    TIME                     Int64, microseconds
    lists, vectors           NOT NULL: Array(Nullable(...)); else String, as JSON: no Array is NULL

A column that may be NULL is Nullable. An Array stays one when its source's column is dropped, and is empty in
rows without it (`keeping_arrays`). ClickHouse does not refuse values that a column cannot hold: a NULL
becomes 0, a date beyond the range another one. So `fitted` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SinkError
from tailrace.model.table import Column, TableSchema
from tailrace.model.types import Kind
from tailrace.sinks.replica.list_columns import as_json
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.tables.columns import require_free

#: The columns that a table has besides: the version of a row, and whether its key has none.
VERSION, DELETED = "_tailrace_version", "_tailrace_deleted"
#: ... of a change log: the batch that has brought a change, and the part of it (`sinks.clickhouse.division`).
BATCH, PART = "_tailrace_batch", "_tailrace_part"
#: ... what begins the names of columns with the old row of an update, and the columns that it lacks.
BEFORE, ABSENT_BEFORE = "_before.", "_absent_before"
#: A change log's own columns, next to those of the row and those of the old row.
_OF_CHANGE = {
    "_op": "LowCardinality(String)",
    "_seq": "String",
    "_ts_ms": "Nullable(Int64)",
    "_txn": "Nullable(String)",
    "_position": "Nullable(String)",
    "_absent": "Array(String)",
}
#: Columns that every table of ClickHouse has.
_VIRTUAL = (
    *("_part", "_part_index", "_part_uuid", "_part_data_version", "_part_offset", "_part_starting_offset"),
    *("_part_granule_offset", "_partition_id", "_partition_value", "_sample_factor", "_row_exists"),
    *("_block_number", "_block_offset", "_table", "_database", "_disk_name", "_distance"),
)
_NUMBERS = {
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.bool_(): "Bool",
}
_MOMENT = "DateTime64(6, 'UTC')"
_US_PER_DAY = 86_400_000_000


def require_names(table: TableSchema) -> None:
    """Reject a table with columns whose names are ClickHouse's own, or ours.

    Raises:
        SinkError: it has one.
    """
    require_free(table, (VERSION, DELETED, *_VIRTUAL), "a ClickHouse sink")


def require_log_names(table: TableSchema) -> None:
    """As `require_names`, for a change log.

    Raises:
        SinkError: it has one.
    """
    own = (*_OF_CHANGE, BEFORE.rstrip("."), ABSENT_BEFORE, BATCH, PART, *_VIRTUAL)
    of_old = [c.name for c in table.columns if c.name.lower().startswith(BEFORE)]
    require_free(table, (*own, *of_old), "a ClickHouse sink with `mode: changelog`")


def row_columns(schema: TargetSchema) -> dict[str, str]:
    """The columns of a table that holds rows, with their types."""
    columns = {column.name: type_of(column, schema) for column in schema.columns}
    return {**columns, VERSION: "UInt64", DELETED: "UInt8"}


def log_columns(schema: TargetSchema) -> dict[str, str]:
    """The columns of a change log, with their types."""
    columns = {column.name: type_of(column, schema) for column in schema.columns}
    before = {f"{BEFORE}{name}": type_ for name, type_ in columns.items()}
    own = {ABSENT_BEFORE: "Array(String)", BATCH: "UInt64", PART: "LowCardinality(String)"}
    return {**columns, **_OF_CHANGE, **before, **own}


def type_of(column: Column, schema: TargetSchema) -> str:
    """The type of a column."""
    arrow = column.type.arrow
    if schema.is_key(column):
        return "Int64" if pa.types.is_integer(arrow) else _plain(arrow)
    if _is_list(arrow) and not _is_text(column):
        return f"Array(Nullable({_plain(arrow.value_type)}))"
    plain = "String" if _is_list(arrow) else _plain(arrow)
    plain = f"Nullable({plain})" if column.nullable else plain
    return f"LowCardinality({plain})" if column.type.kind is Kind.ENUM else plain


def keeping_arrays(held: TargetSchema, needed: TargetSchema, schemas: Iterable[TableSchema]) -> TargetSchema:
    """`needed`, whose arrays stay NOT NULL where only rows without their column would have NULL.

    Args:
        held: the target's schema.
        needed: the same, widened for `schemas`.
        schemas: the schemas of the rows to write.
    """
    declared = {c.name.lower() for s in schemas for c in s.columns if c.nullable and not c.gone}
    arrays = {
        c.name
        for c in held.columns
        if _is_list(c.type.arrow) and not _is_text(c) and c.name.lower() not in declared
    }
    columns = (replace(c, nullable=False) if c.name in arrays else c for c in needed.columns)
    return replace(needed, columns=tuple(columns))


def _plain(type_: pa.DataType) -> str:
    if type_ in _NUMBERS:
        return _NUMBERS[type_]
    if pa.types.is_duration(type_):
        return "Int64"
    if pa.types.is_decimal(type_):
        return f"Decimal({type_.precision}, {type_.scale})"
    if pa.types.is_date(type_):
        return "Date32"
    return _MOMENT if pa.types.is_timestamp(type_) else "String"


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_))


def _is_text(column: Column) -> bool:
    """Whether lists are stored as JSON.

    ClickHouse takes arrays whose names have one beginning up to a dot for parts of one column.
    """
    return column.nullable or "." in column.name or _is_list(column.type.arrow.value_type)


@dataclass(frozen=True)
class Years:
    """The days that a server's dates and times hold.

    Args:
        first: the first day, since 1970.
        last: the last one.
        text: both, for errors.
    """

    first: int
    last: int
    text: str

    def unfit(self, array: pa.Array) -> pa.BooleanArray | None:
        """Which dates or times are none of these; None: the values are neither."""
        type_ = array.type
        if pa.types.is_date32(type_):
            numbers, unit = array.cast(pa.int32()), 1
        elif pa.types.is_timestamp(type_):
            numbers, unit = array.cast(pa.int64()), _US_PER_DAY
        else:
            return None
        least, most = self.first * unit, (self.last + 1) * unit - 1
        scalar = numbers.type
        return pc.or_(
            pc.less(numbers, pa.scalar(least, scalar)), pc.greater(numbers, pa.scalar(most, scalar))
        )


#: Servers of today, and those before them.
ALL_YEARS = Years(-719_162, 2_932_896, "the years 1 to 9999")
SOME_YEARS = Years(-25_567, 120_529, "the years 1900 to 2299")


@dataclass(frozen=True)
class Unfit:
    """Values of a column that it cannot hold.

    Args:
        column: the column's name.
        rows: their rows.
        reason: why.
    """

    column: str
    rows: pa.BooleanArray
    reason: str


def unfit(rows: pa.Table | pa.RecordBatch, schema: TargetSchema, years: Years) -> list[Unfit]:
    """The values of rows that their columns cannot hold, column by column.

    Args:
        rows: some columns of `schema`, with canonical types.
        schema: the target's schema.
        years: what the server's dates hold.
    """
    by_name = {column.name: column for column in schema.columns}
    found = (_unfit(_whole(rows.column(name)), by_name[name], years) for name in rows.schema.names)
    return [one for one in found if one is not None]


def fitted(
    rows: pa.Table | pa.RecordBatch,
    schema: TargetSchema,
    years: Years,
    origin: Callable[[int], tuple[str, str]],
) -> pa.Table:
    """Rows as they are inserted.

    Args:
        rows: some columns of `schema`, with canonical types.
        schema: the target's schema.
        years: what the server's dates hold.
        origin: gives the source table and the position of row n.

    Raises:
        SinkError: a column cannot hold a value.
    """
    for one in unfit(rows, schema, years):
        table, position = origin(pc.index(one.rows, pa.scalar(value=True)).as_py())
        raise SinkError(
            f"a row is refused by column `{one.column}` of target `{schema.target}`: {one.reason}",
            f"the row is of table `{table}` at {position}",
            "turn the column into text by a transform (CAST(... AS STRING)), leave it out, correct the row at"
            " the source, or set `on-refused-row: quarantine`",
            code="TR-7006",
        )
    by_name = {column.name: column for column in schema.columns}
    return pa.table({name: _stored(_whole(rows.column(name)), by_name[name]) for name in rows.schema.names})


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def read_as(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Values as ClickHouse returns them (texts as bytes) as a column's own: the inverse of what is stored."""
    if not _is_list(type_):
        return array if array.type == type_ else array.cast(type_)
    if _is_list(array.type):
        if pa.types.is_list(array.type) and pa.types.is_binary(array.type.value_type):
            array = array.cast(pa.list_(pa.string())) if type_.value_type == pa.string() else array
        return array.cast(type_)
    return _lists(array.cast(pa.string()), type_)


def _lists(texts: pa.StringArray, type_: pa.ListType) -> pa.ListArray:
    """Lists of their JSON texts (`as_json`)."""
    read = (None if t is None else json.loads(t, parse_int=str, parse_float=str) for t in texts.to_pylist())
    listed = [None if one is None else [_item(item) for item in one] for one in read]
    found = pa.array(listed, pa.list_(pa.string()))
    values, element = found.values, type_.value_type
    if pa.types.is_binary(element):
        values = pa.array([None if v is None else bytes.fromhex(v) for v in values.to_pylist()], element)
    elif pa.types.is_duration(element):
        values = values.cast(pa.int64()).cast(element)
    else:
        values = values.cast(element)
    return pa.ListArray.from_arrays(found.offsets, values, type_, mask=found.is_null())


def _item(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _stored(array: pa.Array, column: Column) -> pa.Array:
    if _is_list(array.type):
        return as_json(array) if _is_text(column) else array.cast(_stored_list(array.type))
    return array.cast(pa.int64()) if pa.types.is_duration(array.type) else array


def _stored_list(type_: pa.ListType) -> pa.DataType:
    element = type_.value_type
    return pa.list_(pa.int64() if pa.types.is_duration(element) else element)


def _unfit(array: pa.Array, column: Column, years: Years) -> Unfit | None:
    found, reason = None, f"the date is none of {years.text}"
    if array.null_count and not column.nullable:
        found, reason = array.is_null(), "it is NULL, and the column is NOT NULL"
    elif _is_list(array.type) and not _is_text(column):
        among = years.unfit(array.flatten())
        if among is not None and pc.any(among).as_py():
            rows = array.value_parent_indices().filter(among)
            found = pa.array(np.isin(np.arange(len(array)), rows.to_numpy()))
    elif not _is_list(array.type):
        found = years.unfit(array)
    if found is None or not pc.any(found).as_py():
        return None
    return Unfit(column.name, found, reason)

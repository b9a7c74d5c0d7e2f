"""Key ranges of a table: as SQL, as queries to the server, and against keys from the log.

Keys are ordered as the server orders them. Integers have one order, which is Arrow's, so such keys are
compared here. The server compares all others (collations, numeric with its NaN, infinite times) in bulk:
distinct keys are sent as arrays, cast to the key's types, and the numbers of those in the range come back.

Ranges are row-wise comparisons, `(a, b) > ('1', '2')`, which an index over (a, b) serves; bounds are untyped
literals, which take the column's type and collation.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pg8000.exceptions import DatabaseError

from tailrace.errors import SchemaMismatchError, SourceError
from tailrace.model.split import Key
from tailrace.model.table import Column, TableSchema
from tailrace.model.types import Kind
from tailrace.sources.postgres.connection import Connection, sqlstate
from tailrace.sources.postgres.protocol.literal import identifier, source_of, string, type_name

#: Kinds of types whose values are not compared here.
WITHOUT_ORDER = (Kind.LIST, Kind.VECTOR, Kind.GEOMETRY)
#: A lower bound of `within` above all keys: the range is empty.
NOTHING: Key = ()
#: Most keys in one query.
_KEYS_PER_QUERY = 10_000
_DAY_US = 86_400_000_000
#: Least and greatest values of Arrow's date32 and timestamp: PostgreSQL's infinities.
_DATE_INFINITIES = (-(1 << 31), (1 << 31) - 1)
_TIME_INFINITIES = (-(1 << 63), (1 << 63) - 1)


def key_columns(table: TableSchema) -> list[Column]:
    """The key's columns in key order.

    Raises:
        SourceError: the table has no key.
    """
    if not table.key:
        raise SourceError(f"table `{table.id}` has no key, so it cannot be read in ranges", code="TR-5001")
    return [table.column(name) for name in table.key]


def range_condition(table: TableSchema, after: Key | None, upto: Key | None) -> str:
    """The SQL condition for the keys in `(after, upto]`; TRUE when neither bounds."""
    bounds = ((">", after), ("<=", upto))
    conditions = [_compared(table, comparison, bound) for comparison, bound in bounds if bound is not None]
    return " AND ".join(conditions) or "TRUE"


def _compared(table: TableSchema, comparison: str, bound: Key) -> str:
    names = ", ".join(identifier(c.name) for c in key_columns(table))
    return f"({names}) {comparison} ({_literals(table, bound)})"


def _literals(table: TableSchema, key: Key) -> str:
    columns = key_columns(table)
    if len(key) != len(columns):
        raise SourceError(
            f"a bound of table `{table.id}` has {len(key)} values, its key has {len(columns)} columns",
            code="TR-6002",
        )
    return ", ".join(string(str(value)) for value in key)


def boundary(
    connection: Connection,
    table: TableSchema,
    after: Key | None,
    rows: int,
    *,
    partitioned: bool = False,
    upto: Key | None = None,
) -> Key | None:
    """The key `rows` rows behind `after` (None: the first row's start); None when fewer remain up to `upto`.

    Raises pg8000's errors.
    """
    columns = key_columns(table)
    names = ", ".join(identifier(c.name) for c in columns)
    # printed outside, so that the index serves the order inside
    printed = ", ".join(f"{identifier(c.name)}::text" for c in columns)
    found = _asked(
        connection,
        table,
        f"SELECT {printed} FROM (SELECT {names} FROM {source_of(table, partitioned)} "
        f"WHERE {range_condition(table, after, upto)} ORDER BY {names} LIMIT 1 OFFSET {rows - 1}) AS found",
    )
    if not found:
        return None
    return tuple(
        int(value) if column.type.kind is Kind.INTEGER else value
        for column, value in zip(columns, found[0], strict=True)
    )


def _asked(connection: Connection, table: TableSchema, sql: str, *values: object) -> list[list[Any]]:
    try:
        return connection.rows(sql, *values)
    except DatabaseError as error:
        raise label_error(table, error) or error from error


def label_error(table: TableSchema, error: DatabaseError) -> SchemaMismatchError | None:
    """The error for a label that a table's key no longer has; None if `error` means something else."""
    enums = [c for c in map(table.column, table.key) if c.type.kind is Kind.ENUM]
    if sqlstate(error) != "22P02" or not enums:
        return None
    return SchemaMismatchError(
        f"a label of the key of table `{table.id}` was renamed while its snapshot was read",
        f"column `{enums[0].name}` of enum {enums[0].type.native} no longer has the label up to which the "
        "snapshot has come",
        f"rename it back until the snapshot is complete: ALTER TYPE {type_name(enums[0].type)} RENAME VALUE "
        "... TO ...; or start the stream again: with onRewrite: refresh and startingPosition initial, it "
        "reads the table again",
        code="TR-5003",
    )


def within(
    connection: Connection, table: TableSchema, keys: pa.StructArray, after: Key | None, upto: Key | None
) -> pa.BooleanArray:
    """For each key whether it lies in `(after, upto]`. Raises pg8000's errors."""
    columns = key_columns(table)
    if all(pa.types.is_integer(keys.field(i).type) for i in range(len(columns))):
        inside = pa.array(np.ones(len(keys), bool))
        if after is not None:
            inside = pc.and_(inside, pc.invert(_at_or_below(keys, after)))
        return inside if upto is None else pc.and_(inside, _at_or_below(keys, upto))
    found = np.zeros(len(keys), bool)
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        part = keys.slice(start, _KEYS_PER_QUERY)
        found[start + _in_range_by_server(connection, table, part, after, upto)] = True
    return pa.array(found)


def _at_or_below(keys: pa.StructArray, cursor: Key) -> pa.BooleanArray:
    """Row-wise comparison of integers."""
    result = pc.less_equal(keys.field(len(cursor) - 1), int(cursor[-1]))
    for i in range(len(cursor) - 2, -1, -1):
        column, value = keys.field(i), int(cursor[i])
        result = pc.or_(pc.less(column, value), pc.and_(pc.equal(column, value), result))
    return result


def _in_range_by_server(
    connection: Connection, table: TableSchema, keys: pa.StructArray, after: Key | None, upto: Key | None
) -> np.ndarray:
    """Indices of the keys in the range, as the server compares them."""
    columns = key_columns(table)
    arrays, values = [], []
    for i, column in enumerate(columns):
        array, printed = _printed(table, column, keys.field(i))
        arrays.append((f"${i + 1}::{array}", _typed(column, f"k.c{i}", array)))
        values.append(printed)
    names = ", ".join(f"c{i}" for i in range(len(columns)))
    compared = ", ".join(expression for _, expression in arrays)
    conditions = [
        f"({compared}) {comparison} ({_literals(table, bound)})"
        for comparison, bound in ((">", after), ("<=", upto))
        if bound is not None
    ]
    rows = _asked(
        connection,
        table,
        f"SELECT k.n::int8 - 1 FROM unnest({', '.join(a for a, _ in arrays)}) WITH ORDINALITY AS "
        f"k({names}, n) "
        f"WHERE {' AND '.join(conditions) or 'TRUE'}",
        *values,
    )
    return np.array([row[0] for row in rows], np.int64)


def _printed(table: TableSchema, column: Column, values: pa.Array) -> tuple[str, list[object]]:
    """SQL type of an array of the values, and the values for it."""
    match column.type.kind:
        case Kind.DATE:
            return "int8[]", values.cast(pa.int32()).to_pylist()
        case Kind.DATETIME | Kind.INSTANT | Kind.TIME:
            return "int8[]", values.cast(pa.int64()).to_pylist()
        case Kind.BYTES | Kind.BITS:
            return "text[]", ["\\x" + v.hex() for v in values.to_pylist()]
        case kind if kind in WITHOUT_ORDER:
            raise SchemaMismatchError(
                f"table `{table.id}` has the key column `{column.name}`, which key ranges do not support yet",
                f"it is of type {column.type.native}",
                as_text_hint(table, column),
                code="TR-5008",
            )
        case _:
            return "text[]", values.cast(pa.string()).to_pylist()


def as_text_hint(table: TableSchema, column: Column) -> str:
    """What to do about a key column of a type whose values are not compared here."""
    return f"set textColumns to {re.escape(f'{table.id}.{column.name}')}, or leave the table out of `tables`"


def _typed(column: Column, name: str, array: str) -> str:
    """The element called `name` as a value of the column's type."""
    if array == "text[]":
        collation = f" COLLATE {column.type.collation}" if column.type.collation else ""
        return f"{name}::{type_name(column.type)}{collation}"
    if column.type.kind is Kind.DATE:
        low, high = _DATE_INFINITIES
        finite = f"date '1970-01-01' + {name}::int4"
    else:
        low, high = _TIME_INFINITIES
        start = {
            Kind.DATETIME: "timestamp '1970-01-01'",
            Kind.INSTANT: "timestamptz '1970-01-01 00:00:00+00'",
            Kind.TIME: "interval '0'",
        }[column.type.kind]
        # two factors, each exact as a double
        finite = (
            f"{start} + ({name} / {_DAY_US}) * interval '1 day' + ({name} % {_DAY_US}) * "
            "interval '1 microsecond'"
        )
    type_ = type_name(column.type)
    if column.type.kind is Kind.TIME:  # no interval casts to 24:00:00
        return f"CASE WHEN {name} = {_DAY_US} THEN time '24:00' ELSE ({finite})::{type_} END"
    return (
        f"CASE {name} WHEN {low} THEN '-infinity'::{type_} WHEN {high} THEN 'infinity'::{type_} "
        f"ELSE ({finite})::{type_} END"
    )

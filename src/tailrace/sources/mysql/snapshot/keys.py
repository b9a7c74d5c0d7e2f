"""Key ranges of a table: as SQL, as queries to the server, and against keys from the log.

Keys are ordered as the server orders them:

* Numbers, times and bytes have one order, which is Arrow's: such key columns are compared here.
* Character columns are ordered by their collation, of which there are hundreds. The server compares them in
  bulk: distinct keys are sent as JSON, `JSON_TABLE` gives them the key columns' character sets and
  collations, and one row each comes back: below, equal or above. Only keys whose leading columns do not
  decide are sent. DECIMALs beyond 38 digits, which are text here, are compared in the same way.

A range is written out column by column, `a >= 1 AND (a > 1 OR (a = 1 AND b > 2))`, since MySQL does not use
an index for the range `(a, b) > (1, 2)`; the leading condition gives the start of the index scan.

A zero or partial date is null in Arrow. As a key it counts as the lowest value, which is where MySQL sorts
zero dates; rows whose *partial* date is a key may be emitted twice while a snapshot runs. Neither holds where
`zeroDates` makes the column text: dates as MySQL prints them sort as the dates do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from tailrace.errors import SourceError
from tailrace.model.split import Key
from tailrace.model.table import Column, TableSchema
from tailrace.model.types import MAX_DECIMAL_DIGITS, Kind
from tailrace.printable import printable
from tailrace.sources import network
from tailrace.sources.mysql.connection import one, too_long, translate
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot.literal import (
    MARIADB_TEXTS,
    arrow_scalar,
    charset_and_collation,
    identifier,
    json_values,
    key_literal,
    table_name,
)

#: Most keys, and bytes of keys, in one query.
_KEYS_PER_QUERY, _BYTES_PER_QUERY = 2_000, 1 << 20
#: Bytes of a statement beyond its text and the keys.
_STATEMENT_ROOM = 64


def key_columns(table: TableSchema) -> list[Column]:
    """The key's columns in key order.

    Raises:
        SourceError: the table has no key.
    """
    if not table.key:
        raise SourceError(
            f"table `{table.id}` has no key, so it cannot be read in ranges",
            hint=f"ALTER TABLE {printable(table_name(table.id))} ADD PRIMARY KEY (...)",
            code="TR-5001",
        )
    return [table.column(name) for name in table.key]


# ---- SQL ----


def range_condition(table: TableSchema, after: Key | None, upto: Key | None) -> str:
    """The SQL condition for the keys in `(after, upto]`; TRUE when neither bounds.

    Raises:
        SourceError: the table has no key, or a bound does not fit the key.
    """
    columns = key_columns(table)
    names = [identifier(c.name) for c in columns]
    conditions = []
    for bound, strict, last in ((after, ">", ">"), (upto, "<", "<=")):
        if bound is not None:
            values = _literals(table, columns, bound)
            conditions.append(_compared(names, values, strict, last))
            if len(columns) > 1:
                conditions.insert(len(conditions) - 1, f"{names[0]} {strict}= {values[0]}")
    return " AND ".join(conditions) or "TRUE"


def order_by(table: TableSchema, direction: str = "ASC") -> str:
    """The ORDER BY clause of the key."""
    return "ORDER BY " + ", ".join(f"{identifier(c.name)} {direction}" for c in key_columns(table))


def _literals(table: TableSchema, columns: Sequence[Column], key: Key) -> list[str]:
    if len(key) != len(columns):
        raise SourceError(
            f"a bound of table `{table.id}` has {len(key)} values, its key has {len(columns)} columns",
            code="TR-6002",
        )
    return [key_literal(c, v) for c, v in zip(columns, key, strict=True)]


def _compared(names: Sequence[str], values: Sequence[str], strict: str, last: str) -> str:
    """Row-wise comparison: `strict` decides in all columns but the last, which `last` decides."""
    condition = f"{names[-1]} {last} {values[-1]}"
    for name, value in zip(names[-2::-1], values[-2::-1], strict=True):
        condition = f"({name} {strict} {value} OR ({name} = {value} AND {condition}))"
    return condition


# ---- queries ----


def boundary(connection: BoundedConnection, table: TableSchema, after: Key | None, rows: int) -> Key | None:
    """The key `rows` rows behind `after` (None: the first row's start); None when fewer rows remain.

    Raises:
        TransientSourceError: the connection is lost.
        SourceError: the table has no key, or the server refuses.
    """
    where = range_condition(table, after, None)
    return _one_key(connection, table, f"WHERE {where} {order_by(table)} LIMIT 1 OFFSET {rows - 1}")


def max_key(connection: BoundedConnection, table: TableSchema) -> Key | None:
    """The greatest key; None when the table is empty. Raises as `boundary`."""
    return _one_key(connection, table, f"{order_by(table, 'DESC')} LIMIT 1")


@network.sensible("a key")
def _one_key(connection: BoundedConnection, table: TableSchema, clauses: str) -> Key | None:
    columns = key_columns(table)
    names = [identifier(c.name) for c in columns]
    # printed outside, so that the index serves the order inside
    printed = [
        n if c.type.kind in (Kind.INTEGER, Kind.YEAR, Kind.STRING, Kind.BYTES) else f"CAST({n} AS CHAR)"
        for n, c in zip(names, columns, strict=True)
    ]
    sql = (
        f"SELECT {', '.join(printed)} FROM "
        f"(SELECT {', '.join(names)} FROM {table_name(table.id)} {clauses}) AS found"
    )
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            row = cursor.fetchone()
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, f"looking for a key of table `{table.id}`") from error
    if row is None:
        return None
    return tuple({"b": v.hex()} if isinstance(v, bytes) else v for v in row)


# ---- keys of rows ----


def key_values(array: pa.StructArray, table: TableSchema) -> list[Key]:
    """The key of each row.

    Args:
        array: rows with at least the key's columns.
        table: their table.

    Raises:
        SourceError: the table has no key, or a row's key is a zero date.
    """
    columns = key_columns(table)
    return list(zip(*(json_values(c, _field(array, c)) for c in columns), strict=True))


def last_key(array: pa.StructArray, table: TableSchema) -> Key:
    """The key of the last of at least one row. Raises as `key_values`."""
    return key_values(array.slice(len(array) - 1), table)[0]


def within(
    connection: BoundedConnection,
    table: TableSchema,
    keys: pa.StructArray,
    after: Key | None,
    upto: Key | None,
) -> pa.BooleanArray:
    """For each row whether its key lies in `(after, upto]`, None being no bound.

    Args:
        connection: asked only about character columns (and DECIMALs beyond 38 digits).
        table: schema from the catalog: character columns need their collation.
        keys: rows with at least the key's columns, of any length.
        after: keys above this one.
        upto: keys at or below this one.

    Returns:
        As many booleans as rows, none of them null.

    Raises:
        TransientSourceError: the connection is lost.
        SchemaMismatchError: a collation is not known.
        SourceError: the table has no key, or the server refuses.
    """
    inside = np.ones(len(keys), bool)
    if after is not None:
        inside &= _order(connection, table, keys, after) > 0
    if upto is not None:
        inside &= _order(connection, table, keys, upto) <= 0
    return pa.array(inside)


def _order(connection: BoundedConnection, table: TableSchema, keys: pa.StructArray, bound: Key) -> np.ndarray:
    """-1, 0 or 1 for each row: its key is below, at or above the bound."""
    columns = key_columns(table)
    _literals(table, columns, bound)  # checks the bound's form
    order = np.zeros(len(keys), np.int8)
    open_ = np.arange(len(keys))  # rows that the columns so far do not decide
    for i, (column, value) in enumerate(zip(columns, bound, strict=True)):
        if not len(open_):
            break
        taken = _field(keys, column).take(pa.array(open_))
        if _by_server(column):
            rest = columns[i:]
            arrays = [_field(keys, c).take(pa.array(open_)) for c in rest]
            order[open_] = _order_by_server(connection, table, rest, arrays, bound[i:])
            break
        order[open_] = _order_of(taken, arrow_scalar(column, value))
        open_ = open_[order[open_] == 0]
    return order


def _by_server(column: Column) -> bool:
    wide = column.type.kind is Kind.DECIMAL and (column.type.precision or 0) > MAX_DECIMAL_DIGITS
    return column.type.kind is Kind.STRING or wide


def _order_of(values: pa.Array, bound: pa.Scalar) -> np.ndarray:
    """-1, 0 or 1 for each value; null is the lowest."""
    null = values.is_null().to_numpy(zero_copy_only=False)
    if not bound.is_valid:
        return np.where(null, 0, 1).astype(np.int8)
    above = pc.fill_null(pc.greater(values, bound), False).to_numpy(zero_copy_only=False)
    below = pc.fill_null(pc.less(values, bound), True).to_numpy(zero_copy_only=False)
    order: np.ndarray = above.astype(np.int8) - below.astype(np.int8)
    return order


@network.sensible("the order of keys")
def _order_by_server(
    connection: BoundedConnection,
    table: TableSchema,
    columns: Sequence[Column],
    arrays: Sequence[pa.Array],
    bound: Key,
) -> np.ndarray:
    """-1, 0 or 1 for each row of `arrays`, as the server sorts its distinct keys."""
    distinct, inverse = _distinct(arrays)
    rows = list(
        zip(
            *(json_values(c, a.take(distinct), zero=True) for c, a in zip(columns, arrays, strict=True)),
            strict=True,
        )
    )
    names = [f"k{i}" for i in range(len(columns))]
    values = [_key_expression(n, c) for n, c in zip(names, columns, strict=True)]
    literals = _literals(table, columns, bound)
    equal = " AND ".join(f"{v} = {x}" for v, x in zip(values, literals, strict=True))
    declared = ", ".join(
        f"{n} {_declared(c)} PATH '$[{i}]' ERROR ON ERROR"
        for i, (n, c) in enumerate(zip(names, columns, strict=True))
    )
    sql = (
        f"SELECT CASE WHEN {equal} THEN 0 WHEN {_compared(values, literals, '<', '<')} THEN -1 ELSE 1 END"
        f" FROM JSON_TABLE(%s, '$[*]' COLUMNS (n FOR ORDINALITY, {declared})) AS given ORDER BY n"
    )
    found: list[int] = []
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@max_allowed_packet")
            # half of it: quotation marks and backslashes are escaped
            room = (int(one(cursor)[0]) - len(sql.encode()) - _STATEMENT_ROOM) // 2
            for text in _documents(rows, min(_BYTES_PER_QUERY, room)):
                cursor.execute(sql, (text,))
                found.extend(int(r[0]) for r in cursor.fetchall())
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, f"comparing keys of table `{table.id}`") from error
    order: np.ndarray = np.array(found, np.int8)[inverse]
    return order


def _distinct(arrays: Sequence[pa.Array]) -> tuple[pa.Array, np.ndarray]:
    """Row numbers of the distinct rows, and for each row which of those it equals."""
    codes = np.zeros(len(arrays[0]), np.int64)
    for array in arrays:
        encoded = array.dictionary_encode("encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        _, codes = np.unique(codes, return_inverse=True)  # small again, whatever comes next
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return pa.array(first), inverse


def _documents(rows: Sequence[Key], most_bytes: int) -> list[str]:
    """Keys as JSON arrays of bounded length; binary values as bare hex.

    Raises:
        SourceError: one key is longer than the server takes.
    """
    documents: list[str] = []
    batch: list[str] = []
    size = 0
    for row in rows:
        text = json.dumps([v["b"] if isinstance(v, dict) else v for v in row], ensure_ascii=False)
        length = len(text.encode()) + 2
        if length > most_bytes and most_bytes < _BYTES_PER_QUERY:
            raise too_long("comparing keys", f"a key needs a statement of {2 * length} bytes and more")
        if batch and (len(batch) == _KEYS_PER_QUERY or size + length > most_bytes):
            documents.append(f"[{','.join(batch)}]")
            batch, size = [], 0
        batch.append(text)
        size += length
    if batch:
        documents.append(f"[{','.join(batch)}]")
    return documents


def _key_expression(name: str, column: Column) -> str:
    if column.type.native in MARIADB_TEXTS:
        return f"CAST({name} AS {column.type.native})"
    return f"UNHEX({name})" if column.type.kind is Kind.BYTES else name


def _declared(column: Column) -> str:
    """The type that a key column has in JSON_TABLE. CHAR is VARCHAR: its padding is not in the values."""
    type_ = column.type
    digits = f"({type_.fraction or 0})"
    match type_.kind:
        case Kind.STRING if type_.native in MARIADB_TEXTS:
            return "VARCHAR(45) CHARACTER SET ascii"
        case Kind.STRING:
            charset, collation = charset_and_collation(column)
            text = f"VARCHAR({type_.length or 1})" if type_.length is not None else "LONGTEXT"
            return f"{text} CHARACTER SET {charset} COLLATE {collation}"
        case Kind.BYTES:
            return "LONGTEXT CHARACTER SET ascii"
        case Kind.DECIMAL:
            return f"DECIMAL({type_.precision},{type_.scale})"
        case Kind.DATE:
            return "DATE"
        case Kind.DATETIME | Kind.INSTANT:
            return "DATETIME" + digits
        case Kind.TIME:
            return "TIME" + digits
        case _:
            return "BIGINT UNSIGNED" if type_.unsigned else "BIGINT"


def _field(array: pa.StructArray, column: Column) -> pa.Array:
    return array.field(column.name)

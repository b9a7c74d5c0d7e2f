"""Rows of a key range as of an SCN, by flashback queries: no rewind is needed, and no lock is taken.

A flashback query shows what was committed at the SCN, exactly. The database makes it from undo, as far as
that is kept (UNDO_RETENTION); it refuses rather than show something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tailrace.model.key import key_of
from tailrace.model.split import Key
from tailrace.model.table import Column, TableSchema
from tailrace.sources.base import Page
from tailrace.sources.oracle.connection import Connection
from tailrace.sources.oracle.wire.types import bound, identifier, selected
from tailrace.sources.oracle.wire.values import bind_value, key_value, rows_of


def table_name(table: TableSchema) -> str:
    """The name in a statement."""
    return f"{identifier(table.id.database)}.{identifier(table.id.table)}"


def pages(
    connection: Connection,
    table: TableSchema,
    scn: int,
    *,
    after: Key | None,
    upto: Key | None,
    page_rows: int,
    where: str | None = None,
) -> Iterator[Page]:
    """The rows of `(after, upto]` as of an SCN, page by page; without a key all rows in one page each.

    Args:
        connection: a session.
        table: the table.
        scn: the SCN.
        after: rows with a greater key.
        upto: rows with this key or a smaller one.
        page_rows: most rows of a page.
        where: a condition of the rows.

    Raises oracledb's errors.
    """
    columns = ", ".join(selected(c.name, c.type) for c in table.columns)
    head = f"SELECT {columns} FROM {table_name(table)} AS OF SCN {scn}"
    if not table.key:
        yield from _without_key(connection, table, head, page_rows, where)
        return
    order = ", ".join(identifier(name) for name in table.key)
    while True:
        condition, values = _condition(table, after, upto, where)
        sql = f"{head}{condition} ORDER BY {order} FETCH FIRST {page_rows} ROWS ONLY"
        rows = connection.rows(sql, values)
        last = _key(rows[-1], table) if len(rows) == page_rows else None
        end = upto if last is None or last == upto else last
        yield Page(_struct(rows, table), after, end)
        if last is None or last == upto:
            return
        after = last


def _without_key(
    connection: Connection, table: TableSchema, head: str, page_rows: int, where: str | None
) -> Iterator[Page]:
    """All rows, by one query: a query as of one SCN has no order that a second one could go on from."""
    rows: list[tuple[Any, ...]] = []
    for row in connection.each(head + ("" if where is None else f" WHERE {where}")):
        rows.append(row)
        if len(rows) == page_rows:
            yield Page(_struct(rows, table), None, None)
            rows = []
    yield Page(_struct(rows, table), None, None)


def boundary(connection: Connection, table: TableSchema, after: Key | None, rows: int) -> Key | None:
    """The key `rows` rows after `after`, None when fewer remain. Raises oracledb's errors."""
    if not table.key:
        return None
    columns = ", ".join(selected(c.name, c.type) for c in key_of(table))
    order = ", ".join(identifier(name) for name in table.key)
    condition, values = _condition(table, after, None, None)
    sql = (
        f"SELECT {columns} FROM {table_name(table)}{condition} ORDER BY {order} "
        f"OFFSET {rows - 1} ROWS FETCH NEXT 1 ROWS ONLY"
    )
    found = connection.rows(sql, values)
    if not found:
        return None
    return tuple(key_value(v, c) for v, c in zip(found[0], key_of(table), strict=True))


def _condition(
    table: TableSchema, after: Key | None, upto: Key | None, where: str | None
) -> tuple[str, list[Any]]:
    values: list[Any] = []
    parts = [] if where is None else [f"({where})"]
    if after is not None:
        parts.append(_compared(key_of(table), after, ">", values))
    if upto is not None:
        parts.append(_compared(key_of(table), upto, "<", values, equal=True))
    return (" WHERE " + " AND ".join(parts) if parts else ""), values


def _compared(
    key: Sequence[Column], bounds: Key, sign: str, values: list[Any], *, equal: bool = False
) -> str:
    """`(k1, k2) > (v1, v2)`: Oracle compares no tuples by order."""
    alternatives = []
    for number, column in enumerate(key):
        parts = []
        for same, value in zip(key[:number], bounds, strict=False):
            values.append(bind_value(value, same))
            parts.append(f"{identifier(same.name)} = {bound(same.type, f':{len(values)}')}")
        values.append(bind_value(bounds[number], column))
        last = sign + "=" if equal and number + 1 == len(key) else sign
        parts.append(f"{identifier(column.name)} {last} {bound(column.type, f':{len(values)}')}")
        alternatives.append(" AND ".join(parts))
    return "(" + " OR ".join(f"({a})" for a in alternatives) + ")"


def _struct(rows: Sequence[tuple[Any, ...]], table: TableSchema) -> Any:
    columns = list(zip(*rows, strict=True)) or [()] * len(table.columns)
    return rows_of({c.name: v for c, v in zip(table.columns, columns, strict=True)}, table)


def _key(row: tuple[Any, ...], table: TableSchema) -> Key:
    place = {c.name: i for i, c in enumerate(table.columns)}
    return tuple(key_value(row[place[c.name]], c) for c in key_of(table))

"""Tables of DuckDB in the contract suite."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

from tailrace.config.sinks import DuckDbSettings, WriteMode
from tailrace.sinks.duckdb.client import connected
from tailrace.sinks.duckdb.sink import DuckSink
from tests.support.sinks.case import Change, Row, SinkCase, as_change
from tests.support.sinks.delta import SYSTEM


def upsert(request: Any) -> SinkCase:
    return _rows(DuckDbSettings(database=f"{request.getfixturevalue('tmp_path')}/shop.duckdb"))


def changelog(request: Any) -> SinkCase:
    path = request.getfixturevalue("tmp_path")
    return _changes(DuckDbSettings(database=f"{path}/shop.duckdb", mode=WriteMode.CHANGELOG))


def rows_of(settings: DuckDbSettings, name: str, order: str = "ALL") -> list[Row]:
    """The rows of a target's table."""
    schema, _, table = name.partition(".")
    with opened(settings) as connection:
        found = connection.execute(f'SELECT * FROM db."{schema}"."{table}" ORDER BY {order}')
        return found.to_arrow_table().to_pylist()


def held_rows(settings: DuckDbSettings, name: str, key: Sequence[str]) -> list[Row]:
    """The rows that a target has, or adds up to by the last change of each key; none if there is none."""
    schema, _, table = name.partition(".")
    with opened(settings) as connection:
        found = connection.execute(
            "SELECT 1 FROM duckdb_tables() WHERE database_name = 'db' AND schema_name = ? AND table_name = ?",
            [schema, table],
        )
        if found.fetchone() is None:
            return []
    if settings.mode is WriteMode.UPSERT:
        return rows_of(settings, name)
    state: dict[tuple[Any, ...], Row] = {}
    for row in rows_of(settings, name, "_seq"):
        of = tuple(row[column] for column in key)
        state.pop(of, None)
        if row["_op"] != "d":
            state[of] = {column: value for column, value in row.items() if column not in SYSTEM}
    return list(state.values())


@contextlib.contextmanager
def opened(settings: DuckDbSettings) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database."""
    with connected(settings) as connection:
        yield connection


def _drop(settings: DuckDbSettings, name: str) -> None:
    schema, _, table = name.partition(".")
    with opened(settings) as connection:
        connection.execute(f'DROP TABLE db."{schema}"."{table}"')


def _rows(settings: DuckDbSettings) -> SinkCase:
    return SinkCase(
        lambda router: DuckSink(settings, router),
        lambda name: _drop(settings, name),
        rows=lambda name: rows_of(settings, name),
        takes_parts=True,
    )


def _changes(settings: DuckDbSettings) -> SinkCase:
    def changes(name: str) -> list[Change]:
        found = []
        for row in rows_of(settings, name, "_seq"):
            columns = {k: v for k, v in row.items() if k not in SYSTEM}
            found.append(as_change(row["_op"], columns, row["_before"]))
        return found

    return SinkCase(
        lambda router: DuckSink(settings, router),
        lambda name: _drop(settings, name),
        changes=changes,
        tells_gone=True,
    )

"""The last change of each key replaces the key's row.

    incoming    all changes of the batch, the last of each key within a cell
    last        the last of each key
    fresh       the rows of `last` that are no deletes, with the columns that the log left out of them

A column that the log left out has the value of the last change that has it, else the old row's. Without an
old row there is no row to be changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from tailrace.model.change import OP_DELETE
from tailrace.sinks.duckdb import sql
from tailrace.sinks.duckdb.table import TABLE, Table


@dataclass(frozen=True)
class ChangedRows:
    """Changes of one table.

    Args:
        table: its name.
        columns: the columns that both it and the target have.
        files: paths of files with them.
    """

    table: str
    columns: Sequence[str]
    files: Sequence[str]


def merge(table: Table, changes: Iterable[ChangedRows], key: Sequence[str]) -> None:
    """Bring changes into a table; the temporary table `last` stays until `forget`.

    Args:
        table: the table; it has the changes' columns.
        changes: the changes.
        key: the key's columns.
    """
    connection, columns = table.connection, table.columns().names
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE incoming AS SELECT *, 0::TINYINT AS _op, ''::VARCHAR AS _seq,"
        f" NULL::VARCHAR[] AS _absent, ''::VARCHAR AS {sql.name(TABLE)} FROM {table.path} LIMIT 0"
    )
    for of_table in changes:
        connection.execute(
            f"INSERT INTO incoming BY NAME SELECT {sql.names(of_table.columns)}, _op, _seq, _absent,"
            f" {sql.text(of_table.table)} AS {sql.name(TABLE)} FROM {sql.files(of_table.files)}"
        )
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE last AS SELECT * FROM incoming QUALIFY row_number() OVER"
        f" (PARTITION BY {sql.names(key)} ORDER BY _seq DESC) = 1"
    )
    _compose(connection, table, columns, key)
    replaced = sql.same_key("held", "last", key)
    connection.execute(f"DELETE FROM {table.path} AS held USING last WHERE {replaced}")
    table.insert(columns, f"SELECT {sql.names(columns)} FROM fresh")


def forget(connection: duckdb.DuckDBPyConnection) -> None:
    """Drop the temporary tables."""
    for name in ("incoming", "last", "fresh"):
        connection.execute(f"DROP TABLE IF EXISTS temp.{name}")


def _compose(
    connection: duckdb.DuckDBPyConnection, table: Table, columns: Sequence[str], key: Sequence[str]
) -> None:
    """Make `fresh`."""
    lacking = _lacking(connection, columns)
    is_left = f"last._op <> {OP_DELETE}"
    if not lacking:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE fresh AS SELECT * FROM last WHERE {is_left}")
        return
    known = ", ".join(
        f"last({sql.name(name)} ORDER BY _seq) FILTER ({has}) AS {sql.name(f'value {name}')},"
        f" bool_or({has}) AS {sql.name(f'has {name}')}"
        for name, has in lacking.items()
    )
    values = ", ".join(
        f"CASE WHEN {sql.column(f'has {name}', 'known')} THEN {sql.column(f'value {name}', 'known')}"
        f" ELSE {sql.column(name, 'held')} END AS {sql.name(name)}"
        if name in lacking
        else sql.column(name, "last")
        for name in columns
    )
    is_whole = " AND ".join(sql.column(f"has {name}", "known") for name in lacking)
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE fresh AS SELECT {values} FROM last"
        f" JOIN (SELECT {sql.names(key)}, {known} FROM incoming GROUP BY {sql.names(key)}) AS known"
        f" ON {sql.same_key('last', 'known', key)}"
        f" LEFT JOIN (SELECT *, true AS {sql.name('is there')} FROM {table.path}) AS held"
        f" ON {sql.same_key('last', 'held', key)}"
        f" WHERE {is_left} AND (({is_whole}) OR held.{sql.name('is there')})"
    )


def _lacking(connection: duckdb.DuckDBPyConnection, columns: Sequence[str]) -> Mapping[str, str]:
    """The columns that some change lacks, each with the condition that a change has it."""
    found = connection.execute(
        "SELECT DISTINCT lower(unnest(_absent)) FROM incoming WHERE _absent IS NOT NULL"
    ).fetchall()
    missing = {row[0] for row in found}
    lowered = "list_transform(_absent, lambda x: lower(x))"
    return {
        name: f"NOT coalesce(list_contains({lowered}, {sql.text(name.lower())}), false)"
        for name in columns
        if name.lower() in missing
    }

"""Change logs: rows of changes, and what a reading of their table ends with.

A table that is read again brings all of its rows as changes `r`. At the end each row that was not seen since
the reading began gets a `d`, with the values that the log adds up to: behind everything that the log has,
before everything that comes later.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.model.change import OP_DELETE, OP_LETTERS, OP_UPDATE
from tailrace.model.soft_delete import SoftDelete
from tailrace.sinks.duckdb import sql
from tailrace.sinks.duckdb.table import Table

#: The columns of a change log that are not the source's.
_OWN = ("_op", "_seq", "_ts_ms", "_txn", "_position", "_absent", "_absent_before")


def append(table: Table, columns: Sequence[str], files: Sequence[str]) -> None:
    """Append the changes of files.

    Args:
        table: the change log.
        columns: the source's columns that the files have.
        files: their paths.
    """
    held = table.columns()
    types = table.types(held)
    given = {name.lower(): name for name in columns}
    chosen = [name for name in held.names if name.lower() in given]
    fields = ", ".join(
        f"{sql.name(name)} := {_field(given.get(name.lower()))}::{types[name]}" for name in held.names
    )
    before = f"CASE WHEN _before IS NULL THEN NULL ELSE struct_pack({fields}) END"
    source = ", ".join(sql.name(given[name.lower()]) for name in chosen)
    table.insert(
        [*chosen, *_OWN, "_before"], f"SELECT {source}, {', '.join(_OWN)}, {before} FROM {sql.files(files)}"
    )


def tell_gone(
    table: Table, seen: str, key: Sequence[str], *, only: str, ts_ms: int, marks: SoftDelete | None
) -> None:
    """Append a change for each row that a table no longer has.

    Args:
        table: the change log.
        seen: the keys of the rows that it has: a table or query.
        key: the key's columns.
        only: the condition for the table's rows.
        ts_ms: the time of the changes, milliseconds since 1970 UTC; 0: unknown.
        marks: how rows are marked that are gone; None: they are deleted.
    """
    held = table.columns()
    values = {name: sql.name(name) for name in held.names}
    gone = [f"NOT EXISTS (SELECT 1 FROM {seen} AS seen WHERE {sql.same_key('seen', 'held', key)})"]
    before = "NULL"
    if marks is not None:
        gone.append(unmarked(held.names, marks))
        before = f"struct_pack({', '.join(f'{sql.name(n)} := {sql.name(n)}' for n in held.names)})"
        by_name = {name.lower(): name for name in held.names}
        types = table.types(held)
        for marked, value in marks.gone.items():
            name = by_name[marked.lower()]
            values[name] = f"CAST({literal(value)} AS {types[name]})"
    op = OP_LETTERS[OP_DELETE if marks is None else OP_UPDATE]
    table.insert(
        [*values, "_op", "_seq", "_ts_ms", "_before"],
        f"SELECT {', '.join(values.values())}, '{op}',"
        f" (SELECT max(_seq) FROM {table.path}) || '0', {ts_ms or 'NULL'}, {before}"
        f" FROM {state(table, held.names, key, only)} AS held WHERE {' AND '.join(gone)}",
    )


def state(table: Table, columns: Sequence[str], key: Sequence[str], only: str = "true") -> str:
    """The rows that a change log adds up to, as a query in brackets.

    Args:
        table: the change log.
        columns: the source's columns.
        key: the key's columns.
        only: the condition for the rows.
    """
    values = "".join(
        f", last({sql.name(n)} ORDER BY _seq) FILTER"
        f" (_absent IS NULL OR NOT list_contains(_absent, {sql.text(n)})) AS {sql.name(n)}"
        for n in columns
        if n not in key
    )
    return (
        f"(SELECT {sql.names(key)}{values} FROM {table.path} WHERE {only} GROUP BY {sql.names(key)}"
        f" HAVING last(_op ORDER BY _seq) <> '{OP_LETTERS[OP_DELETE]}')"
    )


def unmarked(columns: Sequence[str], marks: SoftDelete) -> str:
    """The condition that a row is one that can be marked as deleted, and is not."""
    by_name = {name.lower(): name for name in columns}
    found = [
        f"{sql.name(by_name[name.lower()])} IS NOT DISTINCT FROM {literal(value)}"
        for name, values in marks.of_existing.items()
        for value in values
    ]
    return f"({' OR '.join(found)})" if found else "true" if marks.gone and not marks.of_existing else "false"


def literal(value: object) -> str:
    """A mark's value as DuckDB's literal, a text where it is none of its own."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else sql.text(str(value))


def _field(name: str | None) -> str:
    return "NULL" if name is None else f"_before.{sql.name(name)}"

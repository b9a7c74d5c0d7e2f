"""Pieces of DuckDB's SQL. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: What the connection calls the database, and the schema of our own tables in it.
DATABASE, OWN_SCHEMA = "db", "_tailrace"


def name(*parts: str) -> str:
    """A quoted name."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def text(value: str) -> str:
    """A quoted text."""
    return "'" + value.replace("'", "''") + "'"


def names(columns: Iterable[str], of: str = "") -> str:
    """A list of quoted columns, of a table's alias."""
    return ", ".join(column(c, of) for c in columns)


def column(column: str, of: str = "") -> str:
    """A quoted column, of a table's alias."""
    return f"{of}.{name(column)}" if of else name(column)


def same_key(one: str, other: str, key: Sequence[str]) -> str:
    """The condition that rows of two aliases have one key."""
    return " AND ".join(f"{column(c, one)} IS NOT DISTINCT FROM {column(c, other)}" for c in key)


def files(paths: Sequence[str]) -> str:
    """The rows of Parquet files."""
    return f"read_parquet([{', '.join(map(text, paths))}])"


def own(table: str) -> str:
    """One of our own tables."""
    return name(DATABASE, OWN_SCHEMA, table)

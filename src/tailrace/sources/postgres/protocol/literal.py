"""Names and values as SQL text."""

from __future__ import annotations

from tailrace.model.table import TableId, TableSchema
from tailrace.model.types import ColumnType


def identifier(name: str) -> str:
    """A quoted name."""
    return '"' + name.replace('"', '""') + '"'


def table_name(table: TableId) -> str:
    """A quoted `schema.table`."""
    return f"{identifier(table.database)}.{identifier(table.table)}"


def source_of(table: TableSchema, partitioned: bool) -> str:
    """A table in a FROM, without the tables that inherit from it: their rows are not its own in the log."""
    return table_name(table.id) if partitioned else f"ONLY {table_name(table.id)}"


def string(text: str) -> str:
    """A string literal, the same whatever `standard_conforming_strings` is."""
    quoted = "'" + text.replace("'", "''") + "'"
    return "E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def type_name(type_: ColumnType) -> str:
    """The quoted name of a column's type, without its modifier."""
    native = type_.native
    if native.startswith('"'):  # its schema has a dot in its name, see `types`
        schema, _, name = native.rpartition('".')
        return f'{schema}".{identifier(name)}'
    schema, dot, name = native.partition(".")
    return f"{identifier(schema)}.{identifier(name)}" if dot else identifier(type_.native)

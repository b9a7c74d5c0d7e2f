"""A target's table: its place, its columns, and how they follow the source's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tailrace.config.sinks import OnIncompatibleType, WriteMode
from tailrace.model.schema_policy import Following
from tailrace.model.table import TableSchema
from tailrace.sinks.duckdb import sql
from tailrace.sinks.tables.columns import (
    AddColumn,
    BecomeText,
    follow,
    kept_schema,
    require_free,
    stored_schema,
)
from tailrace.sinks.tables.former_columns import DropColumn, RenameColumn
from tailrace.sinks.tables.rows import UPSERT_FIELDS, log_fields

#: The column with a row's table, of the rows that a batch brings.
TABLE = "_tailrace_table"
_BEFORE = "_before"


def place(target: str) -> tuple[str, str]:
    """The schema and the name of a target's table: `a.b` is table `b` in schema `a`."""
    schema, dot, table = target.partition(".")
    return (schema, table) if dot and schema and table else ("main", target)


def require_names(schema: TableSchema, mode: WriteMode) -> None:
    """Reject a table with columns whose names are ours.

    Raises:
        SinkError: it has one.
    """
    fields = UPSERT_FIELDS if mode is WriteMode.UPSERT else log_fields(pa.schema([]))
    require_free(schema, [*(field.name for field in fields), TABLE], f"mode {mode}")


@dataclass(frozen=True)
class Table:
    """A target's table.

    Args:
        connection: has the database.
        target: the target's name.
        mode: its content.
    """

    connection: duckdb.DuckDBPyConnection
    target: str
    mode: WriteMode

    @property
    def path(self) -> str:
        """The table, quoted."""
        return sql.name(sql.DATABASE, *place(self.target))

    def exists(self) -> bool:
        """Whether the table is there."""
        schema, name = place(self.target)
        found = self.connection.execute(
            "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND lower(schema_name) = lower(?)"
            " AND lower(table_name) = lower(?)",
            [sql.DATABASE, schema, name],
        )
        return found.fetchone() is not None

    def columns(self) -> pa.Schema:
        """The source's columns that it has."""
        held = self.connection.execute(f"SELECT * FROM {self.path} LIMIT 0").to_arrow_table().schema
        if self.mode is WriteMode.UPSERT:
            return held
        return pa.schema(list(held.field(_BEFORE).type))

    def create(self, columns: pa.Schema) -> None:
        """Create it with the source's columns."""
        fields = columns if self.mode is WriteMode.UPSERT else log_fields(columns)
        self.connection.execute(
            f"CREATE SCHEMA IF NOT EXISTS {sql.name(sql.DATABASE, place(self.target)[0])}"
        )
        listed = ", ".join(f"{sql.name(name)} {type_}" for name, type_ in self.types(fields).items())
        self.connection.execute(f"CREATE TABLE {self.path} ({listed})")

    def follow(self, schema: TableSchema, policy: OnIncompatibleType, following: Following) -> None:
        """Add and widen columns, so that it holds the rows of a schema.

        Raises:
            SinkError: a column cannot hold them.
        """
        held = self.columns()
        schema = kept_schema(self.target, schema, held.names, following)
        needed = stored_schema(schema)
        changes = follow(self.target, held, needed, policy, widens=following.widens, key=schema.key)
        for change in changes:
            assert not isinstance(change, BecomeText)  # a setting that this sink does not have
            field = pa.field(change.name, change.type)
            type_ = self.types(pa.schema([field]))[change.name]
            if isinstance(change, AddColumn):
                self._alter(f"ADD COLUMN {sql.name(change.name)} {type_}")
                held = held.append(field)
            else:
                self._alter(f"ALTER COLUMN {sql.name(change.name)} TYPE {type_}")
                held = held.set(held.get_field_index(change.name), field)
        if changes and self.mode is WriteMode.CHANGELOG:
            before = pa.schema([pa.field(_BEFORE, pa.struct(list(held)))])
            self._alter(f"ALTER COLUMN {sql.name(_BEFORE)} TYPE {self.types(before)[_BEFORE]}")

    def change(self, change: RenameColumn | DropColumn) -> None:
        """Rename or drop a column."""
        if isinstance(change, RenameColumn):
            self._alter(f"RENAME COLUMN {sql.name(change.old)} TO {sql.name(change.new)}")
        else:
            self._alter(f"DROP COLUMN {sql.name(change.old)}")

    def types(self, schema: pa.Schema) -> Mapping[str, str]:
        """DuckDB's types of columns, by name."""
        self.connection.register("_tailrace_schema", schema.empty_table())
        found = self.connection.execute("DESCRIBE SELECT * FROM _tailrace_schema").fetchall()
        self.connection.unregister("_tailrace_schema")
        return {row[0]: row[1] for row in found}

    def insert(self, columns: Sequence[str], query: str) -> None:
        """Insert the rows of a query."""
        self.connection.execute(f"INSERT INTO {self.path} ({sql.names(columns)}) {query}")

    def _alter(self, how: str) -> None:
        self.connection.execute(f"ALTER TABLE {self.path} {how}")

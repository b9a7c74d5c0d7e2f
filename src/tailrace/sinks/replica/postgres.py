"""Replicas in PostgreSQL: types, names and tables.

A source type that PostgreSQL lacks becomes the nearest type that holds all its values: BIGINT UNSIGNED
becomes numeric(20), TIME (up to 838 hours in MySQL) interval, ENUM and SET text, GEOMETRY bytea with the
source's bytes (SRID, then WKB; with PostGIS: `ST_GeomFromWKB(substring(g from 5))`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.config.sinks import PostgresSettings
from tailrace.errors import ConfigError, SinkError
from tailrace.kernels import lines
from tailrace.model.table import Column
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.replica.dialect import TableName, require_unreserved
from tailrace.sinks.replica.encode import ColumnEncoding, plain_encoding
from tailrace.sinks.replica.postgres_session import PostgresWriteSession, connect
from tailrace.sinks.replica.target_schema import TYPED_TEXTS, TargetSchema
from tailrace.sources.postgres.protocol.literal import identifier, string

#: Most bytes of a name; PostgreSQL truncates longer ones.
_NAME_BYTES = 63


@dataclass(frozen=True)
class PostgresDialect:
    """PostgreSQL.

    Args:
        settings: the server and the user; the password is resolved.
        is_source: whether the source is PostgreSQL too: its TIME is a time of day.
    """

    settings: PostgresSettings
    is_source: bool = False
    name_type = "text"
    text_type = "text"
    serial_type = "bigserial PRIMARY KEY"
    fraction = 6

    @classmethod
    def open(cls, settings: PostgresSettings, source: str = "mysql") -> PostgresDialect:
        """The dialect of the server in `settings`, for rows from a source of dialect `source`.

        Raises:
            ConfigError: the URL names no database.
        """
        if not settings.address[3]:
            raise ConfigError(
                "`sink.url` names no database",
                "needed: postgresql://HOST[:PORT]/DATABASE",
                code="TR-1012",
            )
        return cls(replace(settings, password=settings.password.resolved()), source == "postgresql")

    @property
    def ledger_schema(self) -> str:
        """See `Dialect.ledger_schema`."""
        return self.settings.schema

    def table_name(self, target: str) -> TableName:
        """See `Dialect.table_name`."""
        schema, dot, table = target.partition(".")
        if not dot:
            schema, table = self.ledger_schema, target
        for part in (schema, table):
            self._require_short(part)
        name = TableName(schema, table)
        is_system = schema.startswith("pg_") or schema == "information_schema"
        require_unreserved(target, name, self.ledger_schema, is_system)
        return name

    def folded_name(self, table: TableName) -> str:
        """See `Dialect.folded_name`."""
        return self.name(table)

    def name(self, table: TableName) -> str:
        """See `Dialect.name`."""
        return f"{self.quote(table.schema)}.{self.quote(table.table)}"

    def quote(self, name: str) -> str:
        """See `Dialect.quote`."""
        return identifier(name)

    def literal(self, value: str | int | None) -> str:
        """See `Dialect.literal`."""
        if value is None:
            return "NULL"
        return str(value) if isinstance(value, int) else string(value)

    def locking(self, sql: str, *, shared: bool) -> str:
        """See `Dialect.locking`."""
        return f"{sql} FOR {'SHARE' if shared else 'UPDATE'}"

    def encoding(self, column: Column) -> ColumnEncoding:
        """See `Dialect.encoding`."""
        return _encoding(column.type)

    def create_schema(self, schema: str) -> list[str]:
        """See `Dialect.create_schema`."""
        # CREATE SCHEMA IF NOT EXISTS needs the CREATE privilege even if the schema exists
        existing = f"SELECT FROM pg_catalog.pg_namespace WHERE nspname = {self.literal(schema)}"
        create = f"IF NOT EXISTS ({existing}) THEN CREATE SCHEMA {self.quote(schema)}; END IF;"
        return [f"DO {string(f'BEGIN {create} END')}"]

    def create(self, table: TableName, schema: TargetSchema) -> list[str]:
        """See `Dialect.create`."""
        listed = ", ".join(
            f"{self.quote(c.name)} {self.column_type(c.type)}{'' if c.nullable else ' NOT NULL'}"
            for c in schema.columns
        )
        for column in schema.columns:
            self._require_short(column.name)
        key = ", ".join(self.quote(name) for name in schema.key)
        return [
            *self.create_schema(table.schema),
            f"CREATE TABLE IF NOT EXISTS {self.name(table)} ({listed}, PRIMARY KEY ({key}))",
        ]

    def alter(
        self, table: TableName, current: TargetSchema, needed: TargetSchema, existing: Sequence[str]
    ) -> list[str]:
        """See `Dialect.alter`."""
        changes = []
        for i, column in enumerate(needed.columns):
            name, type_ = self.quote(column.name), self.column_type(column.type)
            if column.name not in existing:
                self._require_short(column.name)
                changes.append(f"ADD COLUMN {name} {type_}")
                continue
            if i >= len(current.columns):
                continue
            before = current.columns[i]
            if self.column_type(before.type) != type_:
                bits = column.type.kind is Kind.BITS
                using = f" USING lpad({name}::text, {column.type.bits}, '0')::{type_}" if bits else ""
                changes.append(f"ALTER COLUMN {name} TYPE {type_}{using}")
            if column.nullable and not before.nullable:
                changes.append(f"ALTER COLUMN {name} DROP NOT NULL")
        return [f"ALTER TABLE {self.name(table)} {', '.join(changes)}"] if changes else []

    def retype(self, table: TableName, schema: TargetSchema, column: Column) -> str:  # noqa: ARG002 - MySQL's
        """See `Dialect.retype`."""
        type_ = self.column_type(column.type)
        return f"ALTER TABLE {self.name(table)} ALTER COLUMN {self.quote(column.name)} TYPE {type_}"

    def text_of(self, column: Column) -> str | None:
        """See `Dialect.text_of`."""
        value = self.quote(column.name)
        match column.type.kind:
            case Kind.INTEGER | Kind.DECIMAL | Kind.BOOLEAN | Kind.YEAR:
                return f"{value}::text"
            case Kind.DATE:
                return (
                    f"CASE WHEN isfinite({value}) THEN to_char({value}, 'YYYY-MM-DD') ELSE {value}::text END"
                )
            case Kind.DATETIME:
                return _moment(value)
            case Kind.INSTANT:
                moment = _moment(f"({value} AT TIME ZONE 'UTC')")
                return f"{moment} || 'Z'"
            case Kind.TIME:
                time = _trimmed(f"to_char(greatest({value}::interval, -{value}::interval), 'HH24:MI:SS.US')")
                return f"CASE WHEN {value}::interval < interval '0' THEN '-' ELSE '' END || {time}"
            case Kind.BYTES | Kind.GEOMETRY:
                return f"translate(encode({value}, 'base64'), E'\\n', '')"
        return None

    def to_text(
        self, table: TableName, schema: TargetSchema, column: Column, existing: Sequence[str]
    ) -> list[str]:
        """See `Dialect.to_text`."""
        del schema, existing
        value = self.text_of(column) or f"{self.quote(column.name)}::text"
        what = f"ALTER COLUMN {self.quote(column.name)} TYPE text USING {value}"
        return [f"ALTER TABLE {self.name(table)} {what}"]

    def change_key(self, table: TableName, current: TargetSchema, needed: TargetSchema) -> list[str]:
        """See `Dialect.change_key`."""
        name, key = self.name(table), ", ".join(map(self.quote, needed.key))
        numbered = f"SELECT ctid AS place, row_number() OVER (PARTITION BY {key}) AS number FROM {name}"
        constraint = (
            "SELECT conname FROM pg_catalog.pg_constraint"
            f" WHERE contype = 'p' AND conrelid = to_regclass({self.literal(name)})"
        )
        drop = f"EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', {self.literal(name)}, found.conname);"
        loop = f"DECLARE found record; BEGIN FOR found IN {constraint} LOOP {drop} END LOOP; END"
        return [
            f"DELETE FROM {name} AS t USING ({numbered}) AS d WHERE t.ctid = d.place AND d.number > 1",
            f"DO {string(loop)}",
            *self.alter(table, current, needed, [column.name for column in current.columns]),
            f"ALTER TABLE {name} ADD PRIMARY KEY ({key})",
        ]

    def connect(self) -> PostgresWriteSession:
        """See `Dialect.connect`."""
        return PostgresWriteSession(self, connect(self.settings))

    def column_type(self, type_: ColumnType) -> str:
        """The SQL type for values of `type_`."""
        if type_.kind is Kind.LIST and type_.element is not None:
            return f"{self.column_type(type_.element)}[]"
        if type_.kind is Kind.TIME and self.is_source:
            return f"time({6 if type_.fraction is None else type_.fraction})"
        return _column_type(type_)

    def _require_short(self, name: str) -> None:
        if len(name.encode()) > _NAME_BYTES:
            raise SinkError(
                f"`{name}` is too long for a name in PostgreSQL",
                f"{len(name.encode())} bytes, at most {_NAME_BYTES}",
                "route the table to another name, or rename the column",
                code="TR-1507",
            )


def _moment(value: str) -> str:
    return _trimmed(f"to_char({value}, 'YYYY-MM-DD HH24:MI:SS.US')")


def _trimmed(text: str) -> str:
    """A time whose fraction of a second ends with its last digit other than zero."""
    return f"rtrim(rtrim({text}, '0'), '.')"


def _column_type(type_: ColumnType) -> str:
    fraction = f"({type_.fraction})" if type_.fraction is not None else ""
    match type_.kind:
        case _ if type_.zero_dates == "text":
            return "text"
        case Kind.INTEGER:
            bits_needed = (type_.bits or 64) + (1 if type_.unsigned else 0)
            return next((sql for bits, sql in _INTEGERS if bits_needed <= bits), "numeric(20)")
        case Kind.FLOAT:
            return "real"
        case Kind.DOUBLE:
            return "double precision"
        case Kind.DECIMAL:
            return f"numeric({type_.precision},{type_.scale})"
        case Kind.STRING:
            if type_.native in TYPED_TEXTS:
                return type_.native + (fraction if type_.native in ("interval", "timetz") else "")
            if type_.native == "bit" and type_.length:
                return f"bit({type_.length})"
            return f"varchar({type_.length})" if type_.length else "text"
        case Kind.BYTES | Kind.GEOMETRY:
            return "bytea"
        case Kind.BOOLEAN:
            return "boolean"
        case Kind.BITS:
            return f"bit({type_.bits})"
        case Kind.DATE:
            return "date"
        case Kind.DATETIME:
            return f"timestamp{fraction}"
        case Kind.INSTANT:
            return f"timestamptz{fraction}"
        case Kind.TIME:
            return f"interval{fraction}"
        case Kind.YEAR:
            return "integer"
        case Kind.JSON:
            return "jsonb" if type_.native == "jsonb" else "json"
        case Kind.ENUM | Kind.SET:
            return "text"
        case Kind.VECTOR:
            return "real[]"
    raise AssertionError(type_.kind)  # `column_type` handles lists


_INTEGERS = ((16, "smallint"), (32, "integer"), (64, "bigint"))


def _encoding(type_: ColumnType) -> ColumnEncoding:
    match type_.kind:
        case _ if type_.zero_dates == "text":
            return ColumnEncoding(lines.TEXT)
        case Kind.DATETIME | Kind.INSTANT:
            return ColumnEncoding(lines.MOMENT, 6)
        case Kind.TIME:
            return ColumnEncoding(lines.TIME, 6)
        case Kind.BYTES | Kind.GEOMETRY:
            return ColumnEncoding(lines.BYTES)
        case Kind.BITS:
            return ColumnEncoding(lines.BITS, type_.bits or 1)
        case Kind.VECTOR:
            return ColumnEncoding(lines.FLOATS)
        case Kind.LIST:
            return ColumnEncoding(lines.TEXT)
    return plain_encoding(type_.arrow)

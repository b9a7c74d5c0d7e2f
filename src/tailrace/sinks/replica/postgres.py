"""Replicas in PostgreSQL: types, names and tables.

Source types that PostgreSQL lacks become the nearest that holds each of their values: BIGINT UNSIGNED
numeric(20), TIME (which goes to 838 hours in MySQL) interval, ENUM and SET text, GEOMETRY bytea with the
source's bytes (SRID, then WKB: `ST_GeomFromWKB(substring(g from 5))` where there is PostGIS).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.config.secret import Secret
from tailrace.config.sinks import PostgresSettings
from tailrace.errors import ConfigError, SinkError
from tailrace.kernels import lines
from tailrace.model.table import Column
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.replica.dialect import TableName
from tailrace.sinks.replica.encode import Writer, plain_writer
from tailrace.sinks.replica.postgres_session import PostgresWriteSession, connect
from tailrace.sinks.replica.target_schema import TargetSchema

#: PostgreSQL's own types whose values travel as text, and are read back as it.
_TEXTS = frozenset(
    (
        *("numeric", "uuid", "inet", "cidr", "macaddr", "macaddr8", "interval", "timetz", "xml", "varbit"),
        *("tsvector", "tsquery", "pg_lsn", "point", "lseg", "path", "box", "polygon", "line", "circle"),
        *("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange", "jsonpath"),
    )
)
#: Most bytes of a name; longer ones would be cut.
_NAME_BYTES = 63


@dataclass(frozen=True)
class PostgresDialect:
    """PostgreSQL.

    Args:
        settings: the server, the user with a password that is no reference.
        is_source: whether the source is PostgreSQL too, whose TIME is one of the day.
    """

    settings: PostgresSettings
    is_source: bool = False
    name_type = "text"
    text_type = "text"
    serial_type = "bigserial PRIMARY KEY"

    @classmethod
    def open(cls, settings: PostgresSettings, source: str = "mysql") -> PostgresDialect:
        """The dialect of the server that `settings` name, for rows of a source of dialect `source`.

        Raises:
            ConfigError: they name no database.
        """
        if not settings.address[3]:
            raise ConfigError(
                "`sink.url` names no database",
                f"found `{settings.url}`, needed postgresql://HOST[:PORT]/DATABASE",
            )
        return cls(replace(settings, password=Secret(settings.password.resolve())), source == "postgresql")

    @property
    def notes(self) -> str:
        """See `Dialect.notes`."""
        return self.settings.schema

    def place(self, target: str) -> TableName:
        """See `Dialect.place`."""
        schema, dot, table = target.partition(".")
        if not dot:
            schema, table = self.notes, target
        for name in (schema, table):
            self._require_short(name)
        return TableName(schema, table)

    def name(self, place: TableName) -> str:
        """See `Dialect.name`."""
        return f"{self.quote(place.schema)}.{self.quote(place.table)}"

    def quote(self, name: str) -> str:
        """See `Dialect.quote`."""
        return '"' + name.replace('"', '""') + '"'

    def literal(self, value: str | int | None) -> str:
        """See `Dialect.literal`."""
        if value is None:
            return "NULL"
        return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"

    def hold(self, sql: str, *, shared: bool) -> str:
        """See `Dialect.hold`."""
        return f"{sql} FOR {'SHARE' if shared else 'UPDATE'}"

    def writer(self, column: Column) -> Writer:
        """See `Dialect.writer`."""
        return _writer(column.type)

    def make_schema(self, schema: str) -> list[str]:
        """See `Dialect.make_schema`."""
        # CREATE SCHEMA IF NOT EXISTS wants the right to make one even where it is there
        found = f"SELECT FROM pg_catalog.pg_namespace WHERE nspname = {self.literal(schema)}"
        make = f"IF NOT EXISTS ({found}) THEN CREATE SCHEMA {self.quote(schema)}; END IF;"
        return [f"DO {self.literal(f'BEGIN {make} END')}"]

    def create(self, place: TableName, shape: TargetSchema) -> list[str]:
        """See `Dialect.create`."""
        listed = ", ".join(
            f"{self.quote(c.name)} {self.column_type(c.type)}{'' if c.nullable else ' NOT NULL'}"
            for c in shape.columns
        )
        for column in shape.columns:
            self._require_short(column.name)
        key = ", ".join(self.quote(name) for name in shape.key)
        return [
            *self.make_schema(place.schema),
            f"CREATE TABLE IF NOT EXISTS {self.name(place)} ({listed}, PRIMARY KEY ({key}))",
        ]

    def alter(
        self, place: TableName, held: TargetSchema, wanted: TargetSchema, there: Sequence[str]
    ) -> list[str]:
        """See `Dialect.alter`."""
        changes = []
        for i, column in enumerate(wanted.columns):
            name, type_ = self.quote(column.name), self.column_type(column.type)
            if column.name not in there:
                self._require_short(column.name)
                changes.append(f"ADD COLUMN {name} {type_}")
                continue
            if i >= len(held.columns):
                continue
            before = held.columns[i]
            if self.column_type(before.type) != type_:
                bits = column.type.kind is Kind.BITS
                using = f" USING lpad({name}::text, {column.type.bits}, '0')::{type_}" if bits else ""
                changes.append(f"ALTER COLUMN {name} TYPE {type_}{using}")
            if column.nullable and not before.nullable:
                changes.append(f"ALTER COLUMN {name} DROP NOT NULL")
        return [f"ALTER TABLE {self.name(place)} {', '.join(changes)}"] if changes else []

    def connect(self) -> PostgresWriteSession:
        """See `Dialect.connect`."""
        return PostgresWriteSession(self, connect(self.settings))

    def column_type(self, type_: ColumnType) -> str:
        """The SQL type that holds values of `type_`."""
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
            )


def _column_type(type_: ColumnType) -> str:
    fraction = f"({type_.fraction})" if type_.fraction is not None else ""
    match type_.kind:
        case _ if type_.zero_dates == "text":
            return "text"
        case Kind.INTEGER:
            held = (type_.bits or 64) + (1 if type_.unsigned else 0)
            return next((sql for bits, sql in _INTEGERS if held <= bits), "numeric(20)")
        case Kind.FLOAT:
            return "real"
        case Kind.DOUBLE:
            return "double precision"
        case Kind.DECIMAL:
            return f"numeric({type_.precision},{type_.scale})"
        case Kind.STRING:
            if type_.native in _TEXTS:
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
    raise AssertionError(type_.kind)  # a list is its elements' matter


_INTEGERS = ((16, "smallint"), (32, "integer"), (64, "bigint"))


def _writer(type_: ColumnType) -> Writer:
    match type_.kind:
        case _ if type_.zero_dates == "text":
            return Writer(lines.TEXT)
        case Kind.DATETIME | Kind.INSTANT:
            return Writer(lines.MOMENT, 6)
        case Kind.TIME:
            return Writer(lines.TIME, 6)
        case Kind.BYTES | Kind.GEOMETRY:
            return Writer(lines.BYTES)
        case Kind.BITS:
            return Writer(lines.BITS, type_.bits or 1)
        case Kind.VECTOR:
            return Writer(lines.FLOATS)
        case Kind.LIST:
            return Writer(lines.TEXT)
    return plain_writer(type_.arrow)

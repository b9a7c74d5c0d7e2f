"""The interface of a database that holds replicas, and its errors.

A dialect is plain data, copied to the tasks; a session is a connection, used by one thread. There are four
row operations:

    insert   rows with new keys
    upsert   rows that replace those with the same key
    update   partial rows: absent columns keep their values; keys not in the table are skipped
    delete   keys of the rows to delete (rows hold the key columns only)

Rows are written directly, in the current transaction (`WriteSession.write`), or through a staging table that
is filled first (`stage`, `fill`) and merged later (`merge`). Tables of keys (`seen`) are targets for writing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa

from tailrace.errors import ConfigError, SinkError, SourceError, TailraceError, TransientSinkError
from tailrace.model.soft_delete import SoftDelete
from tailrace.model.table import Column
from tailrace.sinks.replica.encode import ColumnEncoding
from tailrace.sinks.replica.existing import ExistingColumn
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.tables.former_columns import DropColumn, RenameColumn
from tailrace.sinks.tables.text_form import as_text


class RowOperation(StrEnum):
    """How rows are written to a table."""

    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True)
class TableName:
    """A table's name in the target: database (MySQL) or schema (PostgreSQL), and table."""

    schema: str
    table: str


class RefusalError(Exception):
    """The database rejected some of the rows.

    Args:
        reason: why, without any value.
        column: the column concerned, "" if it is unknown.
        is_duplicate: a row with that key exists already.
    """

    def __init__(self, reason: str, column: str = "", *, is_duplicate: bool = False) -> None:
        super().__init__(reason, column, is_duplicate)
        self.reason = reason
        self.column = column
        self.is_duplicate = is_duplicate


class WriteSession(Protocol):
    """A connection for writing."""

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows.

        Raises:
            RefusalError: a value is rejected.
            TransientSinkError: a retry may succeed.
            SinkError: the server rejects the statement.
        """

    def write(self, operation: RowOperation, table: TableName, schema: TargetSchema, rows: pa.Table) -> None:
        """Write `rows` in the current transaction; their columns are those of `columns_of`.

        Here and below, `schema` is the schema of the rows: the table's, without the absent columns of an
        update.
        """

    def stage(
        self, staging: TableName, operation: RowOperation, table: TableName, schema: TargetSchema
    ) -> None:
        """Create the staging table `staging` for an operation on `table`."""

    def fill(self, table: TableName, columns: Sequence[Column], rows: pa.Table) -> None:
        """Append rows to a staging table."""

    def merge(
        self,
        staging: TableName,
        operation: RowOperation,
        table: TableName,
        schema: TargetSchema,
        only: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Apply `operation` to `table` with the rows of a staging table.

        `only` names columns and the values of the rows to take, for inserts and upserts.
        """

    def create_keys(self, keys: TableName, table: TableName, key: Sequence[str]) -> None:
        """Create the table `keys` with the columns `key` of `table` as its primary key.

        It outlives transactions, and a crash of the server.
        """

    def keep_keys(
        self,
        keys: TableName,
        table: TableName,
        key: Sequence[str],
        only: Mapping[str, str],
        marks: SoftDelete | None = None,
    ) -> None:
        """Delete the rows of `table` whose key is not in the table `keys`, or mark them as deleted.

        `only` names columns and the values of the rows concerned.
        """

    def columns(self, table: TableName) -> list[str]:
        """The columns of a table, in order; empty if it does not exist."""

    def key(self, table: TableName) -> list[str]:
        """The columns of its primary key, in order."""

    def existing(self, table: TableName) -> dict[str, ExistingColumn]:
        """The columns of a table by lower-case name."""

    def is_unique(self, table: TableName, key: Sequence[str]) -> bool:
        """Whether it has a primary key, or a unique index over all rows, of just these columns."""

    def has_unique_values(self, table: TableName) -> bool:
        """Whether it has a unique index besides its primary key, which somebody has made."""

    def close(self) -> None:
        """Close the connection."""


class Dialect(Protocol):
    """A database as a target."""

    @property
    def name_type(self) -> str:
        """SQL type of a name; usable in a key."""

    @property
    def text_type(self) -> str:
        """SQL type of text of any length."""

    @property
    def serial_type(self) -> str:
        """SQL type of an auto-increment primary key."""

    @property
    def fraction(self) -> int:
        """Digits of a fraction of a second in a type that names no number."""

    def connect(self) -> WriteSession:
        """A new session, outside a transaction.

        Raises:
            TransientSinkError: the server does not answer.
            SinkError: the server rejects the user.
        """

    def table_name(self, target: str) -> TableName:
        """The table of a target.

        Raises:
            ConfigError: the name is reserved for the server's own tables, or Tailrace's.
            SinkError: the name is not valid.
        """

    def folded_name(self, table: TableName) -> str:
        """The table's name as the server compares it: equal for two names of one table."""

    @property
    def ledger_schema(self) -> str:
        """The database or schema of Tailrace's own tables (`ledger`)."""

    def quote(self, name: str) -> str:
        """An identifier, quoted."""

    def name(self, table: TableName) -> str:
        """A table's qualified name, quoted."""

    def literal(self, value: str | int | None) -> str:
        """A value as an SQL literal."""

    def encoding(self, column: Column) -> ColumnEncoding:
        """How to encode a column's values for loading."""

    def create_schema(self, schema: str) -> list[str]:
        """Statements that create a database or schema unless it exists."""

    def create(self, table: TableName, schema: TargetSchema) -> list[str]:
        """Statements that create a table unless it exists.

        Raises:
            SinkError: the database cannot hold such a table.
        """

    def alter(
        self, table: TableName, current: TargetSchema, needed: TargetSchema, existing: Sequence[str]
    ) -> list[str]:
        """Statements that change a table's schema.

        Args:
            table: the table.
            current: its schema according to the ledger.
            needed: the new schema.
            existing: the columns that it really has: an earlier attempt may have added some.
        """

    def retype(self, table: TableName, schema: TargetSchema, column: Column) -> str:
        """The statement that gives a column of an existing table the type that the source needs."""

    def text_of(self, column: Column) -> str | None:
        """A column's values as text in the form of `sinks.tables.text_form`; None: SQL does not make it."""

    def to_text(
        self, table: TableName, schema: TargetSchema, column: Column, existing: Sequence[str]
    ) -> list[str]:
        """Statements that make a column text, with its values as text.

        Args:
            table: the table.
            schema: its schema then.
            column: the column as it is.
            existing: the columns that the table really has: an earlier attempt may have added some.
        """

    def change_key(self, table: TableName, current: TargetSchema, needed: TargetSchema) -> list[str]:
        """Statements that give a table another primary key, and its columns the types that fit.

        Of the rows with one value of the new key only one is left.

        Args:
            table: the table; no row lacks a value of the new key.
            current: its schema, with the columns of `needed` and the old key.
            needed: the new schema.
        """

    def locking(self, sql: str, *, shared: bool) -> str:
        """The SELECT `sql`, locking its rows until the transaction ends."""


def follow_former(dialect: Dialect, table: TableName, change: RenameColumn | DropColumn) -> str:
    """The statement that renames or drops a column which the source has renamed or dropped."""
    match change:
        case RenameColumn(old, new):
            what = f"RENAME COLUMN {dialect.quote(old)} TO {dialect.quote(new)}"
        case DropColumn(old):
            what = f"DROP COLUMN {dialect.quote(old)}"
    return f"ALTER TABLE {dialect.name(table)} {what}"


#: Prefix of the names of Tailrace's own tables.
OWN_PREFIX = "_tailrace"


def require_unreserved(target: str, table: TableName, ledger_schema: str, is_system: bool) -> None:
    """Reject names that no target may have.

    Args:
        target: the target's name.
        table: its table.
        ledger_schema: the database or schema of Tailrace's own tables.
        is_system: whether the database or schema is the server's own.

    Raises:
        ConfigError: the name is reserved for the server's own tables, or Tailrace's.
    """
    if is_system:
        found = f"`{table.schema}` is the server's own"
    elif table.schema.lower() == ledger_schema.lower() and table.table.lower().startswith(OWN_PREFIX):
        found = f"names that begin with `{OWN_PREFIX}` are those of Tailrace's own tables there"
    else:
        return
    raise ConfigError(
        f"target `{target}` cannot be written",
        found,
        "route its table to another name, or leave the table out",
        code="TR-1509",
    )


def plain(value: object) -> str | int | None:
    """A value of a mark, for `Dialect.literal`."""
    if value is None or isinstance(value, int):
        return None if value is None else int(value)
    (shown,) = as_text(pa.array([value])).to_pylist()
    return str(shown).removesuffix("Z")


def columns_of(operation: RowOperation, schema: TargetSchema) -> tuple[Column, ...]:
    """The columns of the rows for an operation."""
    return schema.key_columns if operation is RowOperation.DELETE else schema.columns


#: Source options named in a source's hints; a sink has settings of the same kind.
_OPTION = re.compile(r"\b(tls[A-Z]\w+|allow[A-Z]\w+|serverPublicKeyFile)\b")
#: The part of a hint that names time limits, which only sources have.
_LIMITS = re.compile(r"; (?:if it only needs longer, |or )raise [^;]*Ms\b[^;]*$")


def _as_setting(found: re.Match[str]) -> str:
    return "sink." + re.sub(r"[A-Z]", lambda m: "-" + m[0].lower(), found[0])


def as_sink_error(error: TailraceError, doing: str, grants: str) -> TailraceError:
    """A source's connection error as an error of the sink: the sources interpret the servers' error codes.

    Args:
        error: the result of the source's `translate`.
        doing: the operation that failed.
        grants: the privileges that the user needs.
    """
    if not isinstance(error, SourceError):
        return error
    detail = error.detail
    if error.retryable:
        hint = error.hint and _LIMITS.sub("", error.hint)
        return TransientSinkError(error.message, detail, hint, code=error.code)
    hint = error.hint and (grants if "GRANT" in error.hint else _OPTION.sub(_as_setting, error.hint))
    return SinkError(error.message or f"{doing} failed", detail, hint, code=error.code)

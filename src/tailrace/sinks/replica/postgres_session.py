"""Connections to PostgreSQL that write.

Rows are loaded by COPY in text format. pg8000, which the source needs too, passes buffers to COPY unread, so
a second driver would gain nothing: the server's work on the rows takes five times as long.

Rows for any operation but inserts are loaded into a temporary table first, then merged by
`INSERT ... ON CONFLICT`, `UPDATE ... FROM` or `DELETE ... USING`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.sinks import PostgresSettings
from tailrace.errors import SourceError
from tailrace.model.soft_delete import SoftDelete
from tailrace.model.table import Column
from tailrace.model.types import Kind
from tailrace.sinks.replica.dialect import (
    Dialect,
    RefusalError,
    RowOperation,
    TableName,
    as_sink_error,
    columns_of,
    plain,
)
from tailrace.sinks.replica.encode import encode_table
from tailrace.sinks.replica.existing import ExistingColumn
from tailrace.sinks.replica.list_columns import as_array
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sources.postgres import connection as server
from tailrace.sources.postgres.protocol.literal import string

_GRANTS = "GRANT CREATE ON DATABASE <database> TO <user>; the tables must be the user's own"
#: Why a value is rejected, by SQLSTATE; other states of classes 22 and 23 are reported by number.
_REFUSALS = {
    "22001": "too long for the target",
    "22003": "out of the target type's range",
    "22007": "not a value of the target type",
    "22008": "out of the target type's range",
    "22021": "the character NUL, which PostgreSQL's text does not hold",
    "22P02": "not a value of the target type",
    "22P05": "a character that the target does not hold",
    "23502": "NULL where the target has NOT NULL",
    "23503": "a foreign key of the target",
    "23505": "a row with its key, or another unique value, exists already",
    "23514": "a CHECK constraint, or no partition, of the target",
    "54000": "too long for an index of the target",
    "P0001": "a trigger of the target",
}
_DUPLICATE = "23505"


def connect(settings: PostgresSettings) -> server.Connection:
    """A connection outside a transaction.

    Raises:
        TransientSinkError: the server does not answer.
        SinkError: the server rejects the user.
    """
    options = settings.server
    doing = f"connecting to `{options.host}:{options.port}` as `{options.user}` to write"
    try:
        connection = server.connect(options, purpose="writing", writes=True)
        # wait a minute for locks that a dead task still holds
        connection.rows("SET lock_timeout = '60s'")
    except (SourceError, DatabaseError, InterfaceError, OSError) as error:
        raise as_sink_error(server.translate(error, doing), doing, _GRANTS) from error
    return connection


class PostgresWriteSession:
    """A connection for writing.

    Args:
        dialect: the database.
        connection: the connection.
    """

    def __init__(self, dialect: Dialect, connection: server.Connection) -> None:
        self._dialect = dialect
        self._connection = connection
        self._temporary = 0

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """See `WriteSession.run`."""
        try:
            return [tuple(row) for row in self._connection.rows(sql)]
        except (DatabaseError, InterfaceError, OSError, SourceError) as error:
            raise _failure(error) from error

    def columns(self, table: TableName) -> list[str]:
        """See `WriteSession.columns`."""
        name = self._dialect.literal(self._dialect.name(table))
        return [
            str(row[0])
            for row in self.run(
                "SELECT attname::text FROM pg_catalog.pg_attribute"
                f" WHERE attrelid = to_regclass({name}) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
            )
        ]

    def key(self, table: TableName) -> list[str]:
        """See `WriteSession.key`."""
        name = self._dialect.literal(self._dialect.name(table))
        return [
            str(row[0])
            for row in self.run(
                "SELECT a.attname::text FROM pg_catalog.pg_index i"
                " CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, n)"
                " JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum"
                f" WHERE i.indrelid = to_regclass({name}) AND i.indisprimary ORDER BY k.n"
            )
        ]

    def existing(self, table: TableName) -> dict[str, ExistingColumn]:
        """See `WriteSession.existing`."""
        name = self._dialect.literal(self._dialect.name(table))
        # an identity that is ALWAYS refuses values in INSERT
        found = self.run(
            "SELECT lower(attname::text), format_type(atttypid, atttypmod),"
            " attgenerated <> '' OR attidentity = 'a' FROM pg_catalog.pg_attribute"
            f" WHERE attrelid = to_regclass({name}) AND attnum > 0 AND NOT attisdropped"
        )
        return {column: ExistingColumn(type_, computed) for column, type_, computed in found}

    def is_unique(self, table: TableName, key: Sequence[str]) -> bool:
        """See `WriteSession.is_unique`: ON CONFLICT takes no other index."""
        name = self._dialect.literal(self._dialect.name(table))
        found = self.run(
            "SELECT array_agg(a.attname::text) FROM pg_catalog.pg_index i"
            " CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n)"
            " LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum"
            f" WHERE i.indrelid = to_regclass({name}) AND i.indisunique AND i.indimmediate AND i.indisvalid"
            " AND i.indpred IS NULL AND k.n <= i.indnkeyatts GROUP BY i.indexrelid"
        )
        return any(sorted(map(str, names)) == sorted(key) for (names,) in found)

    def has_unique_values(self, table: TableName) -> bool:
        """See `WriteSession.has_unique_values`."""
        name = self._dialect.literal(self._dialect.name(table))
        return bool(
            self.run(
                "SELECT 1 FROM pg_catalog.pg_index WHERE indrelid ="
                f" to_regclass({name}) AND indisunique AND NOT indisprimary LIMIT 1"
            )
        )

    def write(self, operation: RowOperation, table: TableName, schema: TargetSchema, rows: pa.Table) -> None:
        """See `WriteSession.write`."""
        if operation is RowOperation.INSERT:
            self.fill(table, columns_of(operation, schema), rows)
            return
        self._temporary += 1
        staging = TableName("pg_temp", f"_tailrace_{self._temporary}")
        empty = self._no_rows(operation, table, schema)
        self.run(f"CREATE TEMPORARY TABLE {staging.table} ON COMMIT DROP AS {empty}")
        self.fill(staging, columns_of(operation, schema), rows)
        self.merge(staging, operation, table, schema)
        self.run(f"DROP TABLE {self._dialect.name(staging)}")

    def stage(
        self, staging: TableName, operation: RowOperation, table: TableName, schema: TargetSchema
    ) -> None:
        """See `WriteSession.stage`."""
        empty = self._no_rows(operation, table, schema)
        self.run(f"CREATE UNLOGGED TABLE {self._dialect.name(staging)} AS {empty}")

    def fill(self, table: TableName, columns: Sequence[Column], rows: pa.Table) -> None:
        """See `WriteSession.fill`."""
        listed = ", ".join(self._dialect.quote(c.name) for c in columns)
        encodings = [self._dialect.encoding(c) for c in columns]
        buffers = encode_table(rows, encodings, lambda i, array: self._converted(array, columns[i]))
        try:
            self._connection.copy_in(f"COPY {self._dialect.name(table)} ({listed}) FROM STDIN", buffers)
        except (DatabaseError, InterfaceError, OSError, SourceError) as error:
            raise _failure(error) from error

    def merge(
        self,
        staging: TableName,
        operation: RowOperation,
        table: TableName,
        schema: TargetSchema,
        only: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """See `WriteSession.merge`."""
        source, target = self._dialect.name(staging), self._dialect.name(table)
        quote = self._dialect.quote
        on = " AND ".join(f"t.{quote(k)} = s.{quote(k)}" for k in schema.key)
        rest = [quote(c.name) for c in schema.columns if not schema.is_key(c)]
        if operation is RowOperation.DELETE:
            self.run(f"DELETE FROM {target} AS t USING {source} AS s WHERE {on}")
            return
        if operation is RowOperation.UPDATE:
            sets = ", ".join(f"{c} = s.{c}" for c in rest)
            self.run(f"UPDATE {target} AS t SET {sets} FROM {source} AS s WHERE {on}")
            return
        listed = ", ".join(quote(c.name) for c in schema.columns)
        where = " AND ".join(f"{quote(c)} = {self._dialect.literal(v)}" for c, v in only.items())
        insert = f"INSERT INTO {target} ({listed}) SELECT {listed} FROM {source} WHERE {where or 'TRUE'}"
        if operation is RowOperation.INSERT:
            self.run(insert)
            return
        update = f"UPDATE SET {', '.join(f'{c} = EXCLUDED.{c}' for c in rest)}" if rest else "NOTHING"
        upsert = f"{insert} ON CONFLICT ({', '.join(quote(k) for k in schema.key)}) DO {update}"
        self.run("SAVEPOINT tailrace_upsert")
        try:
            self.run(upsert)
        except RefusalError as refusal:
            self.run("ROLLBACK TO SAVEPOINT tailrace_upsert")
            if not (refusal.is_duplicate and self._may_delete(table)):
                raise
            # rows that exchange unique values: each would meet the other's old one
            of = "".join(f" AND s.{quote(c)} = {self._dialect.literal(v)}" for c, v in only.items())
            self.run(f"DELETE FROM {target} AS t USING {source} AS s WHERE {on}{of}")
            self.run(insert)
        self.run("RELEASE SAVEPOINT tailrace_upsert")

    def _may_delete(self, table: TableName) -> bool:
        """Whether rows may go for a moment: no foreign key refers to them, whose action that would start."""
        name = self._dialect.literal(self._dialect.name(table))
        query = "SELECT 1 FROM pg_catalog.pg_constraint WHERE contype = 'f' AND confrelid ="
        return not self.run(f"{query} to_regclass({name}) LIMIT 1")

    def create_keys(self, keys: TableName, table: TableName, key: Sequence[str]) -> None:
        """See `WriteSession.create_keys`."""
        listed = ", ".join(map(self._dialect.quote, key))
        names = self._dialect.name(keys), self._dialect.name(table)
        # not UNLOGGED: a crash of the server would empty it, and then all rows would be deleted
        self.run("BEGIN")
        self.run(f"CREATE TABLE {names[0]} AS SELECT {listed} FROM {names[1]} WITH NO DATA")
        self.run(f"ALTER TABLE {names[0]} ADD PRIMARY KEY ({listed})")
        self.run("COMMIT")

    def keep_keys(
        self,
        keys: TableName,
        table: TableName,
        key: Sequence[str],
        only: Mapping[str, str],
        marks: SoftDelete | None = None,
    ) -> None:
        """See `WriteSession.keep_keys`."""
        seen, target = self._dialect.name(keys), self._dialect.name(table)
        quote = self._dialect.quote
        # no column of a primary key is null
        on = " AND ".join(f"t.{quote(k)} = s.{quote(k)}" for k in key)
        where = "".join(f" AND t.{quote(c)} = {self._dialect.literal(v)}" for c, v in only.items())
        where = f" WHERE NOT EXISTS (SELECT FROM {seen} AS s WHERE {on}){where}"
        if marks is None:
            self.run(f"DELETE FROM {target} AS t{where}")
            return
        if not marks.gone:
            return

        def value(of: object) -> str:
            literal = plain(of)
            return string(str(of).lower()) if isinstance(of, bool) else self._dialect.literal(literal)

        sets = ", ".join(f"{quote(name)} = {value(of)}" for name, of in marks.gone.items())
        there = " OR ".join(
            f"t.{quote(name)} IS NOT DISTINCT FROM {value(of)}"
            for name, all_ in marks.of_existing.items()
            for of in all_
        )
        self.run(f"UPDATE {target} AS t SET {sets}{where}{f' AND ({there})' if there else ''}")

    def close(self) -> None:
        """See `WriteSession.close`."""
        self._connection.close()

    def _no_rows(self, operation: RowOperation, table: TableName, schema: TargetSchema) -> str:
        """A query without rows that has the columns of the target for `operation`."""
        listed = ", ".join(self._dialect.quote(c.name) for c in columns_of(operation, schema))
        return f"SELECT {listed} FROM {self._dialect.name(table)} WITH NO DATA"

    def _converted(self, array: pa.Array, column: Column) -> pa.Array:
        if column.type.kind is not Kind.LIST:
            return array
        assert column.type.element is not None
        return as_array(array, self._dialect.encoding(Column("", column.type.element)))


def _failure(error: Exception) -> Exception:
    fields = error.args[0] if isinstance(error, DatabaseError) and error.args else None
    state = server.sqlstate(error)
    if isinstance(fields, dict) and (state[:2] in ("22", "23") or state in _REFUSALS):
        named = re.findall(r"^COPY .*, line \d+, column ([^:]+)", str(fields.get("W", "")))
        column = str(fields.get("c") or (named[0] if named else ""))
        reason = _REFUSALS.get(state, f"SQLSTATE {state}")
        return RefusalError(reason, column, is_duplicate=state == _DUPLICATE)
    doing = "writing to the target"
    return as_sink_error(server.translate(error, doing), doing, _GRANTS)

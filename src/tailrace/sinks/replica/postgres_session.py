"""Connections to PostgreSQL that write.

Rows go in by COPY in text form. pg8000, which the source needs too, gives COPY the pieces it is handed
without looking at them, so a second driver would win nothing: what the server does with the rows takes
five times as long.

All but inserts are loaded into a temporary table, then `INSERT ... ON CONFLICT`, `UPDATE ... FROM` or
`DELETE ... USING`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.sinks import PostgresSettings
from tailrace.errors import SourceError
from tailrace.model.table import Column
from tailrace.model.types import Kind
from tailrace.sinks.replica.dialect import (
    Dialect,
    RefusalError,
    RowOperation,
    TableName,
    as_sink_error,
    columns_of,
)
from tailrace.sinks.replica.encode import encode_table
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.replica.written import as_array
from tailrace.sources.postgres import connection as server

_GRANTS = "GRANT CREATE ON DATABASE <database> TO <user>; the tables must be the user's own"
#: Why a value is not taken, by SQLSTATE; of other states of classes 22 and 23 the state is told.
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
    "23505": "a row with its key, or another unique value, is there already",
    "23514": "a CHECK constraint, or no partition, of the target",
    "54000": "too long for an index of the target",
    "P0001": "a trigger of the target",
}
_DUPLICATE = "23505"


def connect(settings: PostgresSettings) -> server.Connection:
    """A connection that is in no transaction.

    Raises:
        TransientSinkError: nobody answers.
        SinkError: the server refuses the user.
    """
    options = settings.server
    doing = f"connecting to `{options.host}:{options.port}` as `{options.user}` to write"
    try:
        connection = server.connect(options, purpose="writing")
        # what a dead task still holds is waited for a minute
        connection.rows("SET lock_timeout = '60s'")
    except (SourceError, DatabaseError, InterfaceError, OSError) as error:
        raise as_sink_error(server.translate(error, doing), doing, _GRANTS) from error
    return connection


class PostgresWriteSession:
    """A connection.

    Args:
        dialect: how names and values are written.
        connection: the connection.
    """

    def __init__(self, dialect: Dialect, connection: server.Connection) -> None:
        self._dialect = dialect
        self._connection = connection
        self._temporary = 0

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """See `Session.run`."""
        try:
            return [tuple(row) for row in self._connection.rows(sql)]
        except (DatabaseError, InterfaceError, OSError, SourceError) as error:
            raise _failure(error) from error

    def columns(self, place: TableName) -> list[str]:
        """See `Session.columns`."""
        name = self._dialect.literal(self._dialect.name(place))
        return [
            str(row[0])
            for row in self.run(
                "SELECT attname::text FROM pg_catalog.pg_attribute"
                f" WHERE attrelid = to_regclass({name}) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
            )
        ]

    def key(self, place: TableName) -> list[str]:
        """See `Session.key`."""
        name = self._dialect.literal(self._dialect.name(place))
        return [
            str(row[0])
            for row in self.run(
                "SELECT a.attname::text FROM pg_catalog.pg_index i"
                " CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, n)"
                " JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum"
                f" WHERE i.indrelid = to_regclass({name}) AND i.indisprimary ORDER BY k.n"
            )
        ]

    def write(self, verb: RowOperation, place: TableName, shape: TargetSchema, rows: pa.Table) -> None:
        """See `Session.write`."""
        if verb is RowOperation.INSERT:
            self.fill(place, columns_of(verb, shape), rows)
            return
        self._temporary += 1
        name = TableName("pg_temp", f"_tailrace_{self._temporary}")
        self.run(f"CREATE TEMPORARY TABLE {name.table} ON COMMIT DROP AS {self._nothing(verb, place, shape)}")
        self.fill(name, columns_of(verb, shape), rows)
        self.merge(name, verb, place, shape)
        self.run(f"DROP TABLE {self._dialect.name(name)}")

    def stage(self, name: TableName, verb: RowOperation, place: TableName, shape: TargetSchema) -> None:
        """See `Session.stage`."""
        self.run(f"CREATE UNLOGGED TABLE {self._dialect.name(name)} AS {self._nothing(verb, place, shape)}")

    def fill(self, name: TableName, columns: Sequence[Column], rows: pa.Table) -> None:
        """See `Session.fill`."""
        listed = ", ".join(self._dialect.quote(c.name) for c in columns)
        writers = [self._dialect.writer(c) for c in columns]
        pieces = encode_table(rows, writers, lambda i, array: self._as_written(array, columns[i]))
        try:
            self._connection.copy_in(f"COPY {self._dialect.name(name)} ({listed}) FROM STDIN", pieces)
        except (DatabaseError, InterfaceError, OSError, SourceError) as error:
            raise _failure(error) from error

    def merge(self, name: TableName, verb: RowOperation, place: TableName, shape: TargetSchema) -> None:
        """See `Session.merge`."""
        source, target = self._dialect.name(name), self._dialect.name(place)
        quote = self._dialect.quote
        on = " AND ".join(f"t.{quote(k)} = s.{quote(k)}" for k in shape.key)
        rest = [quote(c.name) for c in shape.columns if not shape.is_key(c)]
        if verb is RowOperation.DELETE:
            self.run(f"DELETE FROM {target} AS t USING {source} AS s WHERE {on}")
            return
        if verb is RowOperation.UPDATE:
            sets = ", ".join(f"{c} = s.{c}" for c in rest)
            self.run(f"UPDATE {target} AS t SET {sets} FROM {source} AS s WHERE {on}")
            return
        listed = ", ".join(quote(c.name) for c in shape.columns)
        insert = f"INSERT INTO {target} ({listed}) SELECT {listed} FROM {source}"
        if verb is RowOperation.INSERT:
            self.run(insert)
            return
        update = f"UPDATE SET {', '.join(f'{c} = EXCLUDED.{c}' for c in rest)}" if rest else "NOTHING"
        self.run(f"{insert} ON CONFLICT ({', '.join(quote(k) for k in shape.key)}) DO {update}")

    def close(self) -> None:
        """See `Session.close`."""
        self._connection.close()

    def _nothing(self, verb: RowOperation, place: TableName, shape: TargetSchema) -> str:
        """What makes a table with the columns of the target that rows of `verb` have."""
        listed = ", ".join(self._dialect.quote(c.name) for c in columns_of(verb, shape))
        return f"SELECT {listed} FROM {self._dialect.name(place)} WITH NO DATA"

    def _as_written(self, array: pa.Array, column: Column) -> pa.Array:
        if column.type.kind is not Kind.LIST:
            return array
        assert column.type.element is not None
        return as_array(array, self._dialect.writer(Column("", column.type.element)))


def _failure(error: Exception) -> Exception:
    said = error.args[0] if isinstance(error, DatabaseError) and error.args else None
    state = server.sqlstate(error)
    if isinstance(said, dict) and (state[:2] in ("22", "23") or state in _REFUSALS):
        named = re.findall(r"^COPY .*, line \d+, column ([^:]+)", str(said.get("W", "")))
        column = str(said.get("c") or (named[0] if named else ""))
        reason = _REFUSALS.get(state, f"SQLSTATE {state}")
        return RefusalError(reason, column, is_duplicate=state == _DUPLICATE)
    doing = "writing to the target"
    return as_sink_error(server.translate(error, doing), doing, _GRANTS)

"""Connections to MySQL and MariaDB that write.

Rows go in by LOAD DATA LOCAL from memory: no file, and the fastest way there is. Two traps of it:

* LOCAL makes errors warnings: values are cut, rows with keys that are there are left out. So a LOAD that
  warns, or that takes fewer rows than it was given, is a refusal, and its transaction is rolled back.
* The text is read as bytes (CHARACTER SET binary), as that of binary columns is not UTF-8; only JSON must be
  told its character set.

A server that reads no files (`local_infile=OFF`) gets INSERTs of many rows instead.

An upsert is a REPLACE, in one go with the load: measured 1.4 times as fast as a temporary table and
`ON DUPLICATE KEY UPDATE`, which also changes the wrong row where somebody adds a UNIQUE index to the target.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.constants import COMMAND

from tailrace.config.sinks import MySqlSettings
from tailrace.errors import DecodeError, SourceError
from tailrace.kernels import lines
from tailrace.model.table import Column
from tailrace.model.types import Kind
from tailrace.sinks.replica.dialect import (
    OWN,
    Dialect,
    RefusalError,
    RowOperation,
    TableName,
    as_sink_error,
    columns_of,
)
from tailrace.sinks.replica.encode import encode_table
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sinks.replica.written import as_bytes, as_json
from tailrace.sources.mysql.connection import is_mariadb, log_in, translate
from tailrace.sources.mysql.protocol.driver import BoundedConnection

#: Strict, but for dates that are none, which the source may have, and for 0 in columns that count up.
_SET_UP = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'",
    "SET SESSION time_zone = '+00:00', wait_timeout = 86400, net_read_timeout = 600, net_write_timeout = 600",
    # what a dead task still holds is waited for a minute, not a year
    "SET SESSION lock_wait_timeout = 60, innodb_lock_wait_timeout = 60",
    # without gap locks, tasks that write beside each other do not wait for each other
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
_GRANTS = (
    "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, CREATE TEMPORARY TABLES ON <database>.* TO "
    "<user>; -- for the database of each target table, and that of Tailrace's notes"
)
#: Why a value is not taken, by error number. Numbers of 4000 and more are MariaDB's.
_REFUSALS = {
    1048: "NULL where the target has NOT NULL",
    1062: "a row with its key, or another unique value, is there already",
    1118: "the row is too long for the target",
    1216: "a foreign key of the target",
    1217: "a foreign key of the target",
    1263: "NULL where the target has NOT NULL",
    1264: "out of the target type's range",
    1265: "too long for the target, or not a value of its type",
    1292: "not a value of the target type",
    1364: "a column of the target has no default",
    1366: "not a value of the target type",
    1367: "not a value of the target type",
    1406: "too long for the target",
    1411: "not a value of the target type",
    1416: "not a geometry that the target takes",
    1451: "a foreign key of the target",
    1452: "a foreign key of the target",
    1526: "no partition of the target takes it",
    1644: "a trigger of the target",
    1690: "out of the target type's range",
    1748: "no partition of the target takes it",
    3037: "not a geometry that the target takes",
    3140: "not a JSON document",
    3141: "not a JSON document",
    3516: "not a geometry that the target takes",
    3617: "not a geometry that the target takes",
    3643: "not a geometry of the target's SRID",
    3819: "a CHECK constraint of the target",
    4025: "a CHECK constraint of the target",
    6138: "not a vector that the target takes",
}
_DUPLICATE = 1062


#: What LOAD DATA LOCAL calls the rows that a connection offers.
_ROWS = "rows"


class LoadingConnection(BoundedConnection):
    """A connection that loads from memory."""

    def load(self, sql: str, pieces: Iterable[memoryview]) -> tuple[int, int]:
        """Give `pieces` to a LOAD DATA LOCAL statement; rows that it read, and how often it warned."""
        with self.offering(_ROWS.encode()):
            self.command(COMMAND.COM_QUERY, sql.encode())
            asked = self.next_packet()
        if not asked.is_load_local_packet():
            raise pymysql.err.InternalError(0, "the server did not ask for the rows")
        try:
            for piece in pieces:
                self.write_packet(piece)
        finally:
            self.write_packet(b"")
        done = self.next_packet()
        # Records: 1000  Deleted: 0  Skipped: 0  Warnings: 0
        counts = [int(n) for n in re.findall(rb": +(\d{1,20})(?!\d)", done.get_all_data())]
        if len(counts) != 4:
            self.break_off()
            raise DecodeError("the server's answer to LOAD DATA does not count the rows")
        read, _, skipped, warned = counts
        return read - skipped, warned


def connect(settings: MySqlSettings) -> LoadingConnection:
    """A connection in autocommit mode.

    Raises:
        TransientSinkError: nobody answers.
        SinkError: the server refuses the user, or is not to be trusted.
    """
    server = settings.server
    doing = f"connecting to `{server.host}:{server.port}` as `{server.user}` to write"
    try:
        return log_in(LoadingConnection(server, doing, _set_up, loads=True))
    except SourceError as error:
        raise as_sink_error(error, doing, _GRANTS) from error


def _set_up(connection: BoundedConnection) -> None:
    with connection.cursor() as cursor:
        for statement in _SET_UP:
            cursor.execute(statement)
        if is_mariadb(connection):
            cursor.execute("SET SESSION max_statement_time = 0")


class MySqlWriteSession:
    """A connection.

    Args:
        dialect: how names and values are written.
        connection: PyMySQL's.
        reads_files: whether the server takes LOAD DATA LOCAL.
    """

    def __init__(self, dialect: Dialect, connection: LoadingConnection, *, reads_files: bool) -> None:
        self._dialect = dialect
        self._connection = connection
        self._reads_files = reads_files
        self._temporary = 0

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """See `Session.run`."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        except (pymysql.err.MySQLError, OSError, SourceError) as error:
            raise self._failure(error) from error

    def columns(self, place: TableName) -> list[str]:
        """See `Session.columns`."""
        return self._listed("COLUMNS", "1", "ORDINAL_POSITION", place)

    def key(self, place: TableName) -> list[str]:
        """See `Session.key`."""
        return self._listed("STATISTICS", "INDEX_NAME = 'PRIMARY'", "SEQ_IN_INDEX", place)

    def _listed(self, view: str, condition: str, order: str, place: TableName) -> list[str]:
        literal = self._dialect.literal
        return [
            str(row[0])
            for row in self.run(
                f"SELECT COLUMN_NAME FROM information_schema.{view} WHERE {condition}"
                f" AND TABLE_SCHEMA = {literal(place.schema)} AND TABLE_NAME = {literal(place.table)}"
                f" ORDER BY {order}"
            )
        ]

    def write(self, verb: RowOperation, place: TableName, shape: TargetSchema, rows: pa.Table) -> None:
        """See `Session.write`."""
        if verb in (RowOperation.INSERT, RowOperation.UPSERT):
            self._put(self._dialect.name(place), verb, columns_of(verb, shape), rows)
            return
        # a temporary table may be made within a transaction; its name is never used again
        self._temporary += 1
        unlike = "_" if place.table.lower().startswith(OWN) else ""  # it would hide a target of its name
        name = TableName(place.schema, f"{unlike}{OWN}_{self._temporary}")
        self._make("CREATE TEMPORARY TABLE", name, verb, place, shape)
        try:
            self.fill(name, columns_of(verb, shape), rows)
            self.merge(name, verb, place, shape)
        finally:
            self.run(f"DROP TEMPORARY TABLE {self._dialect.name(name)}")

    def stage(self, name: TableName, verb: RowOperation, place: TableName, shape: TargetSchema) -> None:
        """See `Session.stage`."""
        self._make("CREATE TABLE", name, verb, place, shape)

    def fill(self, name: TableName, columns: Sequence[Column], rows: pa.Table) -> None:
        """See `Session.fill`."""
        self._put(self._dialect.name(name), RowOperation.INSERT, columns, rows)

    def merge(self, name: TableName, verb: RowOperation, place: TableName, shape: TargetSchema) -> None:
        """See `Session.merge`."""
        source, target = self._dialect.name(name), self._dialect.name(place)
        quote = self._dialect.quote
        # without an alias for the target: a DELETE's would want a default database
        on = " AND ".join(f"{target}.{quote(k)} = s.{quote(k)}" for k in shape.key)
        if verb is RowOperation.DELETE:
            self.run(f"DELETE FROM {target} USING {source} AS s JOIN {target} ON {on}")
            return
        if verb is RowOperation.UPDATE:
            given = [c.name for c in shape.columns if not shape.is_key(c)]
            sets = [f"{target}.{quote(name)} = s.{quote(name)}" for name in given]
            # a column that sets itself (ON UPDATE CURRENT_TIMESTAMP) does not if it is given its own value
            of_themselves = self._listed("COLUMNS", "EXTRA LIKE '%on update%'", "ORDINAL_POSITION", place)
            kept = {name.lower() for name in of_themselves} - {name.lower() for name in given}
            sets += [f"{target}.{quote(name)} = {target}.{quote(name)}" for name in sorted(kept)]
            # rows of the target are found, and locked, by their keys alone
            self.run(f"UPDATE {source} AS s STRAIGHT_JOIN {target} ON {on} SET {', '.join(sets)}")
            return
        listed = ", ".join(quote(c.name) for c in columns_of(verb, shape))
        word = "REPLACE" if verb is RowOperation.UPSERT else "INSERT"
        self.run(f"{word} INTO {target} ({listed}) SELECT {listed} FROM {source}")

    def close(self) -> None:
        """See `Session.close`."""
        self._connection.break_off()

    def _make(
        self, create: str, name: TableName, verb: RowOperation, place: TableName, shape: TargetSchema
    ) -> None:
        """A table with the columns of the target that rows of `verb` have."""
        listed = ", ".join(self._dialect.quote(c.name) for c in columns_of(verb, shape))
        names = self._dialect.name(name), self._dialect.name(place)
        self.run(f"{create} {names[0]} ENGINE = InnoDB AS SELECT {listed} FROM {names[1]} LIMIT 0")

    def _put(self, table: str, verb: RowOperation, columns: Sequence[Column], rows: pa.Table) -> None:
        writers = [self._dialect.writer(c) for c in columns]

        def written(i: int, array: pa.Array) -> pa.Array:
            return _as_written(array, columns[i])

        try:
            if self._reads_files:
                taken, warned = self._connection.load(
                    self._load(table, verb, columns), encode_table(rows, writers, written)
                )
                if warned or taken != rows.num_rows:
                    raise self._warning()
            else:
                listed = ", ".join(self._dialect.quote(c.name) for c in columns)
                insert = "REPLACE" if verb is RowOperation.UPSERT else "INSERT"
                head = f"{insert} INTO {table} ({listed}) VALUES "
                for piece in encode_table(rows, writers, written, style=lines.TUPLES):
                    with self._connection.cursor() as cursor:
                        cursor.execute(head.encode() + bytes(piece))
        except (pymysql.err.MySQLError, OSError, SourceError) as error:
            raise self._failure(error) from error

    def _load(self, table: str, verb: RowOperation, columns: Sequence[Column]) -> str:
        quote = self._dialect.quote
        listed, converted = [], []
        for i, column in enumerate(columns):
            if column.type.kind in (Kind.JSON, Kind.LIST):
                listed.append(f"@v{i}")
                converted.append(f"{quote(column.name)} = CONVERT(@v{i} USING utf8mb4)")
            else:
                listed.append(quote(column.name))
        set_ = f" SET {', '.join(converted)}" if converted else ""
        replace_ = " REPLACE" if verb is RowOperation.UPSERT else ""
        return (
            f"LOAD DATA LOCAL INFILE '{_ROWS}'{replace_} INTO TABLE {table} CHARACTER SET binary"
            r" FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n'"
            f" ({', '.join(listed)}){set_}"
        )

    def _warning(self) -> RefusalError:
        """What the last statement warned of."""
        found = self.run("SHOW WARNINGS LIMIT 1")
        if not found:
            return RefusalError("a row with its key is there already", is_duplicate=True)
        _, number, text = found[0]
        return _refusal(int(number), str(text))

    def _failure(self, error: Exception) -> Exception:
        number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        if isinstance(error, pymysql.err.MySQLError) and number in _REFUSALS:
            return _refusal(number, str(error.args[1]) if len(error.args) > 1 else "")
        doing = "writing to the target"
        return as_sink_error(translate(error, doing), doing, _GRANTS)


def _refusal(number: int, text: str) -> RefusalError:
    # the column's name comes after any value that is quoted
    named = re.findall(r"[Cc]olumn '([^']*)'", text)
    reason = _REFUSALS.get(number, f"server error {number}")
    return RefusalError(reason, named[-1] if named else "", is_duplicate=number == _DUPLICATE)


def _as_written(array: pa.Array, column: Column) -> pa.Array:
    """An array in the form that lines have it."""
    match column.type.kind:
        case Kind.VECTOR:
            return as_bytes(array)
        case Kind.LIST:
            return as_json(array)
    return array

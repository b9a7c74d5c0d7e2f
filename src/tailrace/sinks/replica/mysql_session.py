"""Connections to MySQL and MariaDB that write.

Rows are loaded by LOAD DATA LOCAL from memory, without a file: the fastest way. It has two traps:

* LOCAL turns errors into warnings: values are truncated, rows with an existing key are skipped. So a LOAD
  with warnings, or with fewer rows than sent, counts as a rejection, and its transaction is rolled back.
* The text is read as bytes (CHARACTER SET binary), since binary columns are not UTF-8; only JSON and
  MariaDB's types of text (UUID, INET4, INET6) need an explicit character set.

With `local_infile=OFF`, rows are written by multi-row INSERTs instead.

An upsert is a REPLACE within the load: measured 1.4 times as fast as a temporary table with
`ON DUPLICATE KEY UPDATE`, which also changes the wrong row if a user adds a UNIQUE index to the target.
REPLACE, for its part, deletes every row whose unique values collide. So into a table with such an index, rows
go by a temporary table, a DELETE of their keys and a plain INSERT, which a collision rejects.

Both delete rows that come back at once, and `ON DELETE CASCADE` of a foreign key would delete those that
refer to them. So into a table to which foreign keys refer, rows go by an UPDATE of those that are there and
an INSERT of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.constants import COMMAND

from tailrace.config.sinks import MySqlSettings
from tailrace.errors import DecodeError, SourceError
from tailrace.kernels import lines
from tailrace.model.soft_delete import SoftDelete
from tailrace.model.table import Column
from tailrace.model.types import Kind
from tailrace.sinks.replica.dialect import (
    OWN_PREFIX,
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
from tailrace.sinks.replica.list_columns import as_bytes, as_json
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.sources.mysql.connection import is_mariadb, log_in, translate
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot.literal import MARIADB_TEXTS

#: Strict, except for the invalid dates that a source may have, and for 0 in AUTO_INCREMENT columns.
_SET_UP = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'",
    "SET SESSION time_zone = '+00:00', wait_timeout = 86400, net_read_timeout = 600, net_write_timeout = 600",
    # wait a minute, not a year, for locks that a dead task still holds
    "SET SESSION lock_wait_timeout = 60, innodb_lock_wait_timeout = 60",
    # without gap locks, concurrent tasks do not wait for each other
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
_GRANTS = (
    "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, CREATE TEMPORARY TABLES ON <database>.* TO "
    "<user>; -- for the database of each target table, and that of Tailrace's notes"
)
#: Why a value is rejected, by error number. Numbers from 4000 are MariaDB's.
_REFUSALS = {
    1048: "NULL where the target has NOT NULL",
    1062: "a row with its key, or another unique value, exists already",
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
    1416: "not a geometry that the target accepts",
    1451: "a foreign key of the target",
    1452: "a foreign key of the target",
    1526: "no partition of the target accepts it",
    1644: "a trigger of the target",
    1690: "out of the target type's range",
    1748: "no partition of the target accepts it",
    3037: "not a geometry that the target accepts",
    3140: "not a JSON document",
    3141: "not a JSON document",
    3516: "not a geometry that the target accepts",
    3617: "not a geometry that the target accepts",
    3643: "not a geometry of the target's SRID",
    3819: "a CHECK constraint of the target",
    4025: "a CHECK constraint of the target",
    6138: "not a vector that the target accepts",
}
_DUPLICATE = 1062


#: The file name for the rows in LOAD DATA LOCAL statements.
_FILE_NAME = "rows"


class LoadingConnection(BoundedConnection):
    """A connection that loads from memory."""

    def load(self, sql: str, buffers: Iterable[memoryview]) -> tuple[int, int]:
        """Run a LOAD DATA LOCAL statement with `buffers` as its file; the rows loaded and its warnings."""
        with self.offering(_FILE_NAME.encode()):
            self.command(COMMAND.COM_QUERY, sql.encode())
            request = self.next_packet()
        if not request.is_load_local_packet():
            raise pymysql.err.InternalError(0, "the server did not ask for the rows")
        try:
            for buffer in buffers:
                self.write_packet(buffer)
        finally:
            self.write_packet(b"")
        answer = self.next_packet()
        # Records: 1000  Deleted: 0  Skipped: 0  Warnings: 0
        counts = [int(n) for n in re.findall(rb": +(\d{1,20})(?!\d)", answer.get_all_data())]
        if len(counts) != 4:
            self.break_off()
            raise DecodeError("the server's answer to LOAD DATA does not count the rows", code="TR-3016")
        read, _, skipped, warned = counts
        return read - skipped, warned


def connect(settings: MySqlSettings) -> LoadingConnection:
    """A connection in autocommit mode.

    Raises:
        TransientSinkError: the server does not answer.
        SinkError: the server rejects the user, or its certificate is not trusted.
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
    """A connection for writing.

    Args:
        dialect: the database.
        connection: the connection.
        reads_files: whether the server allows LOAD DATA LOCAL.
    """

    def __init__(self, dialect: Dialect, connection: LoadingConnection, *, reads_files: bool) -> None:
        self._dialect = dialect
        self._connection = connection
        self._reads_files = reads_files
        self._temporary = 0
        #: Whether tables have another unique index than their primary key.
        self._unique: dict[TableName, bool] = {}
        #: Whether foreign keys refer to tables.
        self._referenced: dict[TableName, bool] = {}

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """See `WriteSession.run`."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        except (pymysql.err.MySQLError, OSError, SourceError) as error:
            raise self._failure(error) from error

    def columns(self, table: TableName) -> list[str]:
        """See `WriteSession.columns`."""
        return self._listed("COLUMNS", "1", "ORDINAL_POSITION", table)

    def key(self, table: TableName) -> list[str]:
        """See `WriteSession.key`."""
        return self._listed("STATISTICS", "INDEX_NAME = 'PRIMARY'", "SEQ_IN_INDEX", table)

    def existing(self, table: TableName) -> dict[str, ExistingColumn]:
        """See `WriteSession.existing`."""
        literal = self._dialect.literal
        found = self.run(
            "SELECT LOWER(COLUMN_NAME), COLUMN_TYPE, GENERATION_EXPRESSION > ''"
            " FROM information_schema.COLUMNS"
            f" WHERE TABLE_SCHEMA = {literal(table.schema)} AND TABLE_NAME = {literal(table.table)}"
        )
        return {str(column): ExistingColumn(str(type_), bool(computed)) for column, type_, computed in found}

    def is_unique(self, table: TableName, key: Sequence[str]) -> bool:
        """See `WriteSession.is_unique`."""
        literal = self._dialect.literal
        found = self.run(
            "SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0"
            f" AND TABLE_SCHEMA = {literal(table.schema)} AND TABLE_NAME = {literal(table.table)}"
        )
        indexes: dict[str, list[str]] = {}
        for index, column in found:
            indexes.setdefault(str(index), []).append(str(column).lower())
        return any(sorted(columns) == sorted(name.lower() for name in key) for columns in indexes.values())

    def has_unique_values(self, table: TableName) -> bool:
        """See `WriteSession.has_unique_values`; asked once in a session."""
        if table not in self._unique:
            literal = self._dialect.literal
            found = self.run(
                "SELECT 1 FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 AND INDEX_NAME <> 'PRIMARY'"
                f" AND TABLE_SCHEMA = {literal(table.schema)} AND TABLE_NAME = {literal(table.table)} LIMIT 1"
            )
            self._unique[table] = bool(found)
        return self._unique[table]

    def _is_referenced(self, table: TableName) -> bool:
        """Whether foreign keys refer to it, whose actions a DELETE would start; asked once in a session."""
        if table not in self._referenced:
            literal = self._dialect.literal
            found = self.run(
                "SELECT 1 FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE UNIQUE_CONSTRAINT_SCHEMA ="
                f" {literal(table.schema)} AND REFERENCED_TABLE_NAME = {literal(table.table)} LIMIT 1"
            )
            self._referenced[table] = bool(found)
        return self._referenced[table]

    def _listed(self, view: str, condition: str, order: str, table: TableName) -> list[str]:
        literal = self._dialect.literal
        return [
            str(row[0])
            for row in self.run(
                f"SELECT COLUMN_NAME FROM information_schema.{view} WHERE {condition}"
                f" AND TABLE_SCHEMA = {literal(table.schema)} AND TABLE_NAME = {literal(table.table)}"
                f" ORDER BY {order}"
            )
        ]

    def write(self, operation: RowOperation, table: TableName, schema: TargetSchema, rows: pa.Table) -> None:
        """See `WriteSession.write`."""
        replaces = operation is RowOperation.UPSERT and not (
            self.has_unique_values(table) or self._is_referenced(table)
        )
        if operation is RowOperation.INSERT or replaces:
            self._load(self._dialect.name(table), operation, columns_of(operation, schema), rows)
            return
        # creating a temporary table does not commit the transaction; its name is used once
        self._temporary += 1
        # a temporary table hides a target of the same name
        prefix = "_" if table.table.lower().startswith(OWN_PREFIX) else ""
        staging = TableName(table.schema, f"{prefix}{OWN_PREFIX}_{self._temporary}")
        self._create("CREATE TEMPORARY TABLE", staging, operation, table, schema)
        try:
            self.fill(staging, columns_of(operation, schema), rows)
            self.merge(staging, operation, table, schema)
        finally:
            self.run(f"DROP TEMPORARY TABLE {self._dialect.name(staging)}")

    def stage(
        self, staging: TableName, operation: RowOperation, table: TableName, schema: TargetSchema
    ) -> None:
        """See `WriteSession.stage`."""
        self._create("CREATE TABLE", staging, operation, table, schema)

    def fill(self, table: TableName, columns: Sequence[Column], rows: pa.Table) -> None:
        """See `WriteSession.fill`."""
        self._load(self._dialect.name(table), RowOperation.INSERT, columns, rows)

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
        # the target has no alias: in a DELETE, an alias needs a default database
        on = " AND ".join(f"{target}.{quote(k)} = s.{quote(k)}" for k in schema.key)
        if operation is RowOperation.DELETE:
            self.run(f"DELETE FROM {target} USING {source} AS s JOIN {target} ON {on}")
            return
        # STRAIGHT_JOIN: find, and lock, the rows of the target by key only
        update = f"UPDATE {source} AS s STRAIGHT_JOIN {target} ON {on}"
        if operation is RowOperation.UPDATE:
            assigned = [c.name for c in schema.columns if not schema.is_key(c)]
            sets = [f"{target}.{quote(name)} = s.{quote(name)}" for name in assigned]
            # assigning a column its own value suppresses ON UPDATE CURRENT_TIMESTAMP
            automatic = self._listed("COLUMNS", "EXTRA LIKE '%on update%'", "ORDINAL_POSITION", table)
            kept = {name.lower() for name in automatic} - {name.lower() for name in assigned}
            sets += [f"{target}.{quote(name)} = {target}.{quote(name)}" for name in sorted(kept)]
            self.run(f"{update} SET {', '.join(sets)}")
            return
        columns = [quote(c.name) for c in columns_of(operation, schema)]
        listed = ", ".join(columns)
        word = "REPLACE" if operation is RowOperation.UPSERT else "INSERT"
        where = " AND ".join(f"{quote(c)} = {self._dialect.literal(v)}" for c, v in only.items())
        of_rows = "".join(f" AND s.{quote(c)} = {self._dialect.literal(v)}" for c, v in only.items())
        if operation is RowOperation.UPSERT and self._is_referenced(table):
            # with the key, whose values may be equal, but written otherwise
            sets = [f"{target}.{name} = s.{name}" for name in columns]
            self.run(f"{update}{of_rows} SET {', '.join(sets)}")
            self.run(
                f"INSERT INTO {target} ({listed}) SELECT {', '.join(f's.{name}' for name in columns)}"
                f" FROM {source} AS s LEFT JOIN {target} ON {on}"
                f" WHERE {target}.{quote(schema.key[0])} IS NULL{of_rows}"
            )
            return
        if operation is RowOperation.UPSERT and self.has_unique_values(table):
            word = "INSERT"
            self.run(f"DELETE FROM {target} USING {source} AS s JOIN {target} ON {on}{of_rows}")
        self.run(f"{word} INTO {target} ({listed}) SELECT {listed} FROM {source} WHERE {where or 'TRUE'}")

    def create_keys(self, keys: TableName, table: TableName, key: Sequence[str]) -> None:
        """See `WriteSession.create_keys`."""
        listed = ", ".join(map(self._dialect.quote, key))
        names = self._dialect.name(keys), self._dialect.name(table)
        self.run(
            f"CREATE TABLE IF NOT EXISTS {names[0]} (PRIMARY KEY ({listed})) ENGINE = InnoDB"
            f" AS SELECT {listed} FROM {names[1]} LIMIT 0"
        )

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
        on = " AND ".join(f"{target}.{quote(k)} = s.{quote(k)}" for k in key)
        where = "".join(f" AND {target}.{quote(c)} = {self._dialect.literal(v)}" for c, v in only.items())
        # MariaDB looks keys up in a join, but not in a NOT EXISTS of a DELETE
        joined, where = f"{target} LEFT JOIN {seen} AS s ON {on}", f" WHERE s.{quote(key[0])} IS NULL{where}"
        if marks is None:
            self.run(f"DELETE FROM {target} USING {joined}{where}")
            return
        if not marks.gone:
            return

        def value(of: object) -> str:
            return self._dialect.literal(plain(of))

        sets = ", ".join(f"{target}.{quote(name)} = {value(of)}" for name, of in marks.gone.items())
        there = " OR ".join(
            f"{target}.{quote(name)} <=> {value(of)}"
            for name, all_ in marks.of_existing.items()
            for of in all_
        )
        self.run(f"UPDATE {joined} SET {sets}{where}{f' AND ({there})' if there else ''}")

    def close(self) -> None:
        """See `WriteSession.close`."""
        self._connection.break_off()

    def _create(
        self, create: str, staging: TableName, operation: RowOperation, table: TableName, schema: TargetSchema
    ) -> None:
        """Create a staging table with the columns of `table` for `operation`."""
        listed = ", ".join(self._dialect.quote(c.name) for c in columns_of(operation, schema))
        names = self._dialect.name(staging), self._dialect.name(table)
        self.run(f"{create} {names[0]} ENGINE = InnoDB AS SELECT {listed} FROM {names[1]} LIMIT 0")

    def _load(self, table: str, operation: RowOperation, columns: Sequence[Column], rows: pa.Table) -> None:
        encodings = [self._dialect.encoding(c) for c in columns]

        def convert(i: int, array: pa.Array) -> pa.Array:
            return _converted(array, columns[i])

        try:
            if self._reads_files:
                loaded, warned = self._connection.load(
                    self._load_statement(table, operation, columns), encode_table(rows, encodings, convert)
                )
                if warned or loaded != rows.num_rows:
                    raise self._warning()
            else:
                listed = ", ".join(self._dialect.quote(c.name) for c in columns)
                insert = "REPLACE" if operation is RowOperation.UPSERT else "INSERT"
                head = f"{insert} INTO {table} ({listed}) VALUES "
                for buffer in encode_table(rows, encodings, convert, style=lines.TUPLES):
                    with self._connection.cursor() as cursor:
                        cursor.execute(head.encode() + bytes(buffer))
        except (pymysql.err.MySQLError, OSError, SourceError) as error:
            raise self._failure(error) from error

    def _load_statement(self, table: str, operation: RowOperation, columns: Sequence[Column]) -> str:
        quote = self._dialect.quote
        listed, converted = [], []
        for i, column in enumerate(columns):
            if column.type.kind in (Kind.JSON, Kind.LIST) or column.type.native in MARIADB_TEXTS:
                listed.append(f"@v{i}")
                converted.append(f"{quote(column.name)} = CONVERT(@v{i} USING utf8mb4)")
            else:
                listed.append(quote(column.name))
        set_ = f" SET {', '.join(converted)}" if converted else ""
        replace_ = " REPLACE" if operation is RowOperation.UPSERT else ""
        return (
            f"LOAD DATA LOCAL INFILE '{_FILE_NAME}'{replace_} INTO TABLE {table} CHARACTER SET binary"
            r" FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n'"
            f" ({', '.join(listed)}){set_}"
        )

    def _warning(self) -> RefusalError:
        """The first warning of the last statement, as a rejection."""
        warnings = self.run("SHOW WARNINGS LIMIT 1")
        if not warnings:
            return RefusalError("a row with its key exists already", is_duplicate=True)
        _, number, text = warnings[0]
        return _refusal(int(number), str(text))

    def _failure(self, error: Exception) -> Exception:
        number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        if isinstance(error, pymysql.err.MySQLError) and number in _REFUSALS:
            return _refusal(number, str(error.args[1]) if len(error.args) > 1 else "")
        doing = "writing to the target"
        return as_sink_error(translate(error, doing), doing, _GRANTS)


def _refusal(number: int, text: str) -> RefusalError:
    # the column's name follows any quoted value
    named = re.findall(r"[Cc]olumn '([^']*)'", text)
    reason = _REFUSALS.get(number, f"server error {number}")
    return RefusalError(reason, named[-1] if named else "", is_duplicate=number == _DUPLICATE)


def _converted(array: pa.Array, column: Column) -> pa.Array:
    """The array to encode for a column."""
    match column.type.kind:
        case Kind.VECTOR:
            return as_bytes(array)
        case Kind.LIST:
            return as_json(array)
    return array

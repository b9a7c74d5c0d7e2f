"""Replicas in MySQL and MariaDB.

Text keys are compared as bytes (a NO PAD binary collation): keys that differ by the source's collation, such
as `a` and `A`, must differ in the replica too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.config.sinks import MySqlSettings
from tailrace.errors import SinkError
from tailrace.kernels import lines
from tailrace.model.table import Column
from tailrace.model.types import ColumnType, Kind
from tailrace.sinks.replica.dialect import TableName, require_unreserved
from tailrace.sinks.replica.encode import ColumnEncoding, plain_encoding
from tailrace.sinks.replica.mysql_session import MySqlWriteSession, connect
from tailrace.sinks.replica.target_schema import TargetSchema, capacity
from tailrace.sources.mysql.connection import parse_version
from tailrace.sources.mysql.snapshot.literal import MARIADB_TEXTS, identifier

_INTEGERS = {8: "tinyint", 16: "smallint", 24: "mediumint", 32: "int", 64: "bigint"}
#: Most bytes of an index key, of a row without its texts and blobs, and of a character.
_KEY_BYTES, _ROW_BYTES, _CHARACTER = 3072, 65_000, 4
_SYSTEM_SCHEMAS = frozenset({"mysql", "sys", "information_schema", "performance_schema", "ndbinfo"})
_TEXTS = (
    (255, "tinytext", "tinyblob"),
    (65_535, "text", "blob"),
    (16_777_215, "mediumtext", "mediumblob"),
    (4_294_967_295, "longtext", "longblob"),
)


@dataclass(frozen=True)
class MySqlDialect:
    """MySQL or MariaDB.

    Args:
        settings: the server and the user; the password is resolved.
        mariadb: whether the server is MariaDB.
        has_vectors: whether it has the type VECTOR.
        reads_files: whether it allows LOAD DATA LOCAL.
        folds_case: whether it treats names that differ only in case as equal.
    """

    settings: MySqlSettings
    mariadb: bool = False
    has_vectors: bool = False
    reads_files: bool = True
    folds_case: bool = False
    name_type = "varchar(255) character set utf8mb4 collate utf8mb4_bin"
    text_type = "longtext character set utf8mb4"
    serial_type = "bigint AUTO_INCREMENT PRIMARY KEY"
    fraction = 0

    @classmethod
    def open(cls, settings: MySqlSettings) -> MySqlDialect:
        """The dialect of the server, asked for its version and settings.

        Raises:
            TransientSinkError: the server does not answer.
            SinkError: the server rejects the user.
        """
        dialect = cls(replace(settings, password=settings.password.resolved()))
        session = dialect.connect()
        try:
            ((version, local_infile, folds),) = session.run(
                "SELECT VERSION(), @@global.local_infile, @@lower_case_table_names"
            )
        finally:
            session.close()
        mariadb = "mariadb" in str(version).lower()
        least = (11, 7, 0) if mariadb else (9, 0, 0)
        return replace(
            dialect,
            mariadb=mariadb,
            has_vectors=parse_version(str(version)) >= least,
            reads_files=bool(int(local_infile)),
            folds_case=bool(int(folds)),
        )

    # ---- names and values ----------------------------------------------------------------------------

    @property
    def ledger_schema(self) -> str:
        """See `Dialect.ledger_schema`."""
        return self.settings.address[3] or "tailrace"

    def table_name(self, target: str) -> TableName:
        """See `Dialect.table_name`."""
        schema, dot, table = target.partition(".")
        if not dot:
            schema, table = "", target
        for part in (schema, table):
            if len(part) > 64:
                raise SinkError(
                    f"`{part}` is too long for a name in MySQL",
                    f"{len(part)} characters, at most 64",
                    "route the table to another name",
                    code="TR-1507",
                )
        name = TableName(schema or self.ledger_schema, table)
        require_unreserved(target, name, self.ledger_schema, name.schema.lower() in _SYSTEM_SCHEMAS)
        return name

    def folded_name(self, table: TableName) -> str:
        """See `Dialect.folded_name`."""
        name = self.name(table)
        return name.lower() if self.folds_case else name

    def quote(self, name: str) -> str:
        """See `Dialect.quote`."""
        return identifier(name)

    def literal(self, value: str | int | None) -> str:
        """See `Dialect.literal`."""
        if value is None:
            return "NULL"
        if isinstance(value, int):
            return str(value)
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"

    def locking(self, sql: str, *, shared: bool) -> str:
        """See `Dialect.locking`."""
        return f"{sql} {'LOCK IN SHARE MODE' if shared else 'FOR UPDATE'}"

    def encoding(self, column: Column) -> ColumnEncoding:
        """See `Dialect.encoding`."""
        type_ = column.type
        match type_.kind:
            case _ if type_.zero_dates == "text":
                return ColumnEncoding(lines.TEXT)
            case Kind.DATE:
                return ColumnEncoding(lines.MYSQL_DATE)
            case Kind.DATETIME | Kind.INSTANT:
                return ColumnEncoding(lines.MYSQL_MOMENT, 6)
            case Kind.TIME:
                return ColumnEncoding(lines.TIME, 6)
            case Kind.YEAR:
                return ColumnEncoding(lines.YEAR)
            case Kind.BOOLEAN:
                return ColumnEncoding(lines.BIT if type_.native == "bit" else lines.BOOLEAN)
            case Kind.JSON | Kind.LIST:
                return ColumnEncoding(lines.TEXT, 1)
            case Kind.STRING if type_.native in MARIADB_TEXTS:
                return ColumnEncoding(lines.TEXT, 1)
            case Kind.VECTOR:
                return ColumnEncoding(lines.TEXT)
        return plain_encoding(type_.arrow)

    # ---- tables --------------------------------------------------------------------------------------

    def create_schema(self, schema: str) -> list[str]:
        """See `Dialect.create_schema`."""
        return [f"CREATE DATABASE IF NOT EXISTS {self.quote(schema)}"]

    def create(self, table: TableName, schema: TargetSchema) -> list[str]:
        """See `Dialect.create`."""
        listed = ", ".join(self._definitions(schema))
        key = ", ".join(self.quote(name) for name in schema.key)
        options = "ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 ROW_FORMAT = DYNAMIC"
        return [
            *self.create_schema(table.schema),
            f"CREATE TABLE IF NOT EXISTS {self.name(table)} ({listed}, PRIMARY KEY ({key})) {options}",
        ]

    def alter(
        self, table: TableName, current: TargetSchema, needed: TargetSchema, existing: Sequence[str]
    ) -> list[str]:
        """See `Dialect.alter`."""
        changes = self._changes(current, needed, existing)
        return [f"ALTER TABLE {self.name(table)} {', '.join(changes)}"] if changes else []

    def retype(self, table: TableName, schema: TargetSchema, column: Column) -> str:
        """See `Dialect.retype`."""
        definition = self._definitions(schema)[schema.columns.index(column)]
        return f"ALTER TABLE {self.name(table)} MODIFY COLUMN {definition}"

    def text_of(self, column: Column) -> str | None:
        """See `Dialect.text_of`."""
        type_, value = column.type, self.quote(column.name)
        text = f"CAST({value} AS CHAR)"
        match type_.kind:
            case Kind.INTEGER | Kind.DECIMAL | Kind.DATE:
                return text
            case Kind.YEAR:
                return f"CAST({value} + 0 AS CHAR)"
            case Kind.BOOLEAN:
                return f"CASE WHEN {value} THEN 'true' WHEN NOT {value} THEN 'false' END"
            case Kind.DATETIME | Kind.TIME | Kind.INSTANT:
                if type_.fraction:
                    text = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
                return f"CONCAT({text}, 'Z')" if type_.kind is Kind.INSTANT else text
            case Kind.BYTES:
                return f"REPLACE(TO_BASE64({value}), '\n', '')"
            case Kind.BITS:
                digits = 2 * -(-(type_.bits or 1) // 8)
                number = f"LPAD(HEX({value} + 0), {digits}, '0')"
                return f"REPLACE(TO_BASE64(UNHEX({number})), '\n', '')"
        return None

    def to_text(
        self, table: TableName, schema: TargetSchema, column: Column, existing: Sequence[str]
    ) -> list[str]:
        """See `Dialect.to_text`."""
        alter, old = f"ALTER TABLE {self.name(table)}", self.quote(column.name)
        number = schema.arrow.names.index(column.name)
        definition = self._definitions(schema)[number]
        value = self.text_of(column)
        if value is None or value == f"CAST({old} AS CHAR)":  # what MODIFY makes of it
            return [f"{alter} MODIFY COLUMN {definition}"]
        # readers see the column as it was, or as text: DDL is atomic, and cannot compute values
        new = f"_tailrace_text_{number}"
        added = [] if new in existing else [f"{alter} ADD COLUMN {self.quote(new)} longtext NULL AFTER {old}"]
        return [
            *added,
            f"UPDATE {self.name(table)} SET {self.quote(new)} = {value}",
            f"{alter} DROP COLUMN {old}, CHANGE COLUMN {self.quote(new)} {definition}",
        ]

    def change_key(self, table: TableName, current: TargetSchema, needed: TargetSchema) -> list[str]:
        """See `Dialect.change_key`."""
        name = self.name(table)
        old, new = (", ".join(map(self.quote, key)) for key in (current.key, needed.key))
        on = " AND ".join(f"{name}.{self.quote(k)} = d.{self.quote(k)}" for k in current.key)
        number = self.quote("_tailrace_number")
        numbered = (
            f"SELECT {old}, ROW_NUMBER() OVER (PARTITION BY {new} ORDER BY {old}) AS {number} FROM {name}"
        )
        changes = self._changes(current, needed, [column.name for column in current.columns])
        changes += ["DROP PRIMARY KEY", f"ADD PRIMARY KEY ({new})"]
        return [
            f"DELETE FROM {name} USING {name} JOIN ({numbered}) AS d ON {on} WHERE d.{number} > 1",
            f"ALTER TABLE {name} {', '.join(changes)}",
        ]

    def _changes(self, current: TargetSchema, needed: TargetSchema, existing: Sequence[str]) -> list[str]:
        """The changes of columns in an ALTER TABLE."""
        before = self._definitions(current)
        present = {name.lower() for name in existing}
        changes = []
        for i, (column, definition) in enumerate(zip(needed.columns, self._definitions(needed), strict=True)):
            if column.name.lower() not in present:
                changes.append(f"ADD COLUMN {definition}")
            elif i >= len(before) or before[i] != definition:
                changes.append(f"MODIFY COLUMN {definition}")
        return changes

    def name(self, table: TableName) -> str:
        """A table's full name in SQL."""
        return f"{self.quote(table.schema)}.{self.quote(table.table)}"

    def _definitions(self, schema: TargetSchema) -> list[str]:
        """The columns' definitions in CREATE TABLE."""
        types = {c.name: self.column_type(c.type, in_key=schema.is_key(c)) for c in schema.columns}
        types |= self._fitting_key(schema)
        types |= self._fitting_row(schema, types)
        return [
            # without NULL, a first TIMESTAMP would be NOT NULL in MariaDB
            f"{self.quote(c.name)} {types[c.name]} {'NULL' if c.nullable else 'NOT NULL'}"
            for c in schema.columns
        ]

    def column_type(self, type_: ColumnType, *, in_key: bool = False) -> str:
        """The SQL type for values of `type_`."""
        match type_.kind:
            case Kind.INTEGER:
                return _INTEGERS[type_.bits or 64] + (" unsigned" if type_.unsigned else "")
            case Kind.FLOAT | Kind.DOUBLE:
                return str(type_.kind)
            case Kind.DECIMAL:
                precision, scale = type_.precision or 10, type_.scale or 0
                fits = precision <= 65 and scale <= (38 if self.mariadb else 30)
                return f"decimal({precision},{scale})" if fits else "longtext"
            case Kind.STRING:
                return self._text(type_, in_key=in_key)
            case Kind.BYTES:
                return self._bytes(type_)
            case Kind.BOOLEAN:
                return "bit(1)" if type_.native == "bit" else "tinyint(1)"
            case Kind.BITS:
                return f"bit({type_.bits})"
            case Kind.DATE:
                return "date"
            case Kind.DATETIME:
                return f"datetime({type_.fraction or 0})"
            case Kind.INSTANT:
                # a PostgreSQL timestamptz goes beyond 2038, where TIMESTAMP ends
                return f"{'timestamp' if type_.native == 'timestamp' else 'datetime'}({type_.fraction or 0})"
            case Kind.TIME:
                return f"time({type_.fraction or 0})"
            case Kind.YEAR:
                return "year"
            case Kind.JSON | Kind.LIST:
                return "json"
            case Kind.ENUM | Kind.SET:
                listed = ",".join(self.literal(label) for label in type_.labels)
                return f"{type_.kind}({listed}) character set utf8mb4"
            case Kind.GEOMETRY:
                other = self.mariadb and type_.native == "geomcollection"
                return "geometrycollection" if other else type_.native
            case Kind.VECTOR:
                return f"vector({type_.length or 2048})" if self.has_vectors else "longblob"

    def _text(self, type_: ColumnType, *, in_key: bool) -> str:
        if type_.native in MARIADB_TEXTS and self.mariadb:
            return type_.native
        characters = capacity(type_)
        if in_key:
            collation = "utf8mb4_nopad_bin" if self.mariadb else "utf8mb4_0900_bin"
            most = min(characters, _KEY_BYTES // _CHARACTER)
            return f"varchar({most}) character set utf8mb4 collate {collation}"
        if characters * _CHARACTER <= 65_532 and not type_.native.endswith("text"):
            return f"{'char' if type_.native == 'char' and characters <= 255 else 'varchar'}({characters})"
        # the limit of a text type is in bytes, and the source's character set may need fewer
        return next((text for most, text, _ in _TEXTS if characters * _CHARACTER <= most), "longtext")

    def _bytes(self, type_: ColumnType) -> str:
        size = capacity(type_)
        if type_.native in ("binary", "varbinary") and size <= 65_532:
            return f"{type_.native}({size})"
        return next(blob for most, _, blob in _TEXTS if size <= most)

    def _fitting_key(self, schema: TargetSchema) -> dict[str, str]:
        """Types of unbounded key columns: they share the bytes left in the index key."""
        fixed, unbounded = 0, []
        for name in schema.key:
            type_ = next(c.type for c in schema.columns if c.name == name)
            if type_.kind is Kind.STRING and type_.native not in MARIADB_TEXTS:
                size = capacity(type_) * _CHARACTER
            elif type_.kind is Kind.BYTES:
                size = capacity(type_)
            else:
                size = 16
            if size > _KEY_BYTES:
                unbounded.append((name, type_.kind))
            else:
                fixed += size
        left = (_KEY_BYTES - fixed) // max(len(unbounded), 1)
        if left < 4 * _CHARACTER * len(unbounded) or fixed > _KEY_BYTES:
            raise SinkError(
                f"target `{schema.target}` cannot have its source's key",
                f"the key ({', '.join(schema.key)}) takes more than {_KEY_BYTES} bytes of UTF-8 text",
                "leave the table out of the captured ones, or shorten the key's columns",
                code="TR-7003",
            )
        collation = "utf8mb4_nopad_bin" if self.mariadb else "utf8mb4_0900_bin"
        text = f"varchar({left // _CHARACTER}) character set utf8mb4 collate {collation}"
        return {name: text if kind is Kind.STRING else f"varbinary({left})" for name, kind in unbounded}

    def _fitting_row(self, schema: TargetSchema, types: dict[str, str]) -> dict[str, str]:
        """TEXT or BLOB for the longest columns, if all columns together are too long for a row."""
        sizes = {}
        for column in schema.columns:
            found = re.match(r"(var)?(char|binary)\((\d+)\)", types[column.name])
            if found and not schema.is_key(column):
                sizes[column.name] = int(found[3]) * (_CHARACTER if found[2] == "char" else 1)
        others = 16 * (len(schema.columns) - len(sizes)) + _KEY_BYTES
        moved: dict[str, str] = {}
        for name in sorted(sizes, key=lambda n: (-sizes[n], n)):
            if sum(sizes.values()) - sum(sizes[n] for n in moved) + others <= _ROW_BYTES:
                break
            moved[name] = "text" if "char" in types[name] else "blob"
        return moved

    def connect(self) -> MySqlWriteSession:
        """See `Dialect.connect`."""
        return MySqlWriteSession(self, connect(self.settings), reads_files=self.reads_files)

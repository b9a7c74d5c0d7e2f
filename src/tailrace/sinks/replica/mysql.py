"""Replicas in MySQL and MariaDB.

Keys that are text are compared as bytes (a NO PAD binary collation): the source's own collation has decided
already which of them are one, and `a` and `A` that are two there must be two here.
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
from tailrace.sinks.replica.dialect import TableName, require_free
from tailrace.sinks.replica.encode import Writer, plain_writer
from tailrace.sinks.replica.mysql_session import MySqlWriteSession, connect
from tailrace.sinks.replica.target_schema import TargetSchema, capacity
from tailrace.sources.mysql.connection import parse_version
from tailrace.sources.mysql.snapshot.literal import identifier

_INTEGERS = {8: "tinyint", 16: "smallint", 24: "mediumint", 32: "int", 64: "bigint"}
#: Most bytes of an index and of a row's columns but texts and blobs, and most bytes of a character.
_KEY_BYTES, _ROW_BYTES, _CHARACTER = 3072, 65_000, 4
_SERVERS_OWN = frozenset({"mysql", "sys", "information_schema", "performance_schema", "ndbinfo"})
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
        settings: the server, the user with a password that is no reference.
        mariadb: whether it is MariaDB.
        has_vectors: whether it has the type VECTOR.
        reads_files: whether it takes LOAD DATA LOCAL.
        folds_case: whether it takes names that differ in case only for one.
    """

    settings: MySqlSettings
    mariadb: bool = False
    has_vectors: bool = False
    reads_files: bool = True
    folds_case: bool = False
    name_type = "varchar(255) character set utf8mb4 collate utf8mb4_bin"
    text_type = "longtext character set utf8mb4"
    serial_type = "bigint AUTO_INCREMENT PRIMARY KEY"

    @classmethod
    def open(cls, settings: MySqlSettings) -> MySqlDialect:
        """The dialect of the server that answers.

        Raises:
            TransientSinkError: nobody answers.
            SinkError: the server refuses the user.
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
    def notes(self) -> str:
        """See `Dialect.notes`."""
        return self.settings.address[3] or "tailrace"

    def place(self, target: str) -> TableName:
        """See `Dialect.place`."""
        schema, dot, table = target.partition(".")
        if not dot:
            schema, table = "", target
        for name in (schema, table):
            if len(name) > 64:
                raise SinkError(
                    f"`{name}` is too long for a name in MySQL",
                    f"{len(name)} characters, at most 64",
                    "route the table to another name",
                )
        place = TableName(schema or self.notes, table)
        require_free(target, place, self.notes, place.schema.lower() in _SERVERS_OWN)
        return place

    def same(self, place: TableName) -> str:
        """See `Dialect.same`."""
        name = self.name(place)
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

    def hold(self, sql: str, *, shared: bool) -> str:
        """See `Dialect.hold`."""
        return f"{sql} {'LOCK IN SHARE MODE' if shared else 'FOR UPDATE'}"

    def writer(self, column: Column) -> Writer:
        """See `Dialect.writer`."""
        type_ = column.type
        match type_.kind:
            case _ if type_.zero_dates == "text":
                return Writer(lines.TEXT)
            case Kind.DATE:
                return Writer(lines.MYSQL_DATE)
            case Kind.DATETIME | Kind.INSTANT:
                return Writer(lines.MYSQL_MOMENT, 6)
            case Kind.TIME:
                return Writer(lines.TIME, 6)
            case Kind.YEAR:
                return Writer(lines.YEAR)
            case Kind.BOOLEAN:
                return Writer(lines.BIT if type_.native == "bit" else lines.BOOLEAN)
            case Kind.JSON | Kind.LIST:
                return Writer(lines.TEXT, 1)
            case Kind.VECTOR:
                return Writer(lines.TEXT)
        return plain_writer(type_.arrow)

    # ---- tables --------------------------------------------------------------------------------------

    def make_schema(self, schema: str) -> list[str]:
        """See `Dialect.make_schema`."""
        return [f"CREATE DATABASE IF NOT EXISTS {self.quote(schema)}"]

    def create(self, place: TableName, shape: TargetSchema) -> list[str]:
        """See `Dialect.create`."""
        listed = ", ".join(self._definitions(shape))
        key = ", ".join(self.quote(name) for name in shape.key)
        options = "ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 ROW_FORMAT = DYNAMIC"
        return [
            *self.make_schema(place.schema),
            f"CREATE TABLE IF NOT EXISTS {self.name(place)} ({listed}, PRIMARY KEY ({key})) {options}",
        ]

    def alter(
        self, place: TableName, held: TargetSchema, wanted: TargetSchema, there: Sequence[str]
    ) -> list[str]:
        """See `Dialect.alter`."""
        before = self._definitions(held)
        present = {name.lower() for name in there}
        changes = []
        for i, (column, definition) in enumerate(zip(wanted.columns, self._definitions(wanted), strict=True)):
            if column.name.lower() not in present:
                changes.append(f"ADD COLUMN {definition}")
            elif i >= len(before) or before[i] != definition:
                changes.append(f"MODIFY COLUMN {definition}")
        return [f"ALTER TABLE {self.name(place)} {', '.join(changes)}"] if changes else []

    def name(self, place: TableName) -> str:
        """A table's full name in SQL."""
        return f"{self.quote(place.schema)}.{self.quote(place.table)}"

    def _definitions(self, shape: TargetSchema) -> list[str]:
        """What stands in CREATE TABLE for each column."""
        types = {c.name: self.column_type(c.type, in_key=shape.is_key(c)) for c in shape.columns}
        types |= self._fitting_key(shape)
        types |= self._fitting_row(shape, types)
        return [
            # without NULL, a first TIMESTAMP would be NOT NULL in MariaDB
            f"{self.quote(c.name)} {types[c.name]} {'NULL' if c.nullable else 'NOT NULL'}"
            for c in shape.columns
        ]

    def column_type(self, type_: ColumnType, *, in_key: bool = False) -> str:
        """The SQL type that holds values of `type_`."""
        match type_.kind:
            case Kind.INTEGER:
                return _INTEGERS[type_.bits or 64] + (" unsigned" if type_.unsigned else "")
            case Kind.FLOAT | Kind.DOUBLE:
                return str(type_.kind)
            case Kind.DECIMAL:
                precision, scale = type_.precision or 10, type_.scale or 0
                held = precision <= 65 and scale <= (38 if self.mariadb else 30)
                return f"decimal({precision},{scale})" if held else "longtext"
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
                # that of PostgreSQL reaches beyond the year 2038
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
        if type_.native in ("uuid", "inet4", "inet6") and self.mariadb:
            return type_.native
        characters = capacity(type_)
        if in_key:
            collation = "utf8mb4_nopad_bin" if self.mariadb else "utf8mb4_0900_bin"
            most = min(characters, _KEY_BYTES // _CHARACTER)
            return f"varchar({most}) character set utf8mb4 collate {collation}"
        if characters * _CHARACTER <= 65_532 and not type_.native.endswith("text"):
            return f"{'char' if type_.native == 'char' and characters <= 255 else 'varchar'}({characters})"
        # a text's limit is one of bytes, and the source's characters may have had fewer of them
        return next((text for most, text, _ in _TEXTS if characters * _CHARACTER <= most), "longtext")

    def _bytes(self, type_: ColumnType) -> str:
        size = capacity(type_)
        if type_.native in ("binary", "varbinary") and size <= 65_532:
            return f"{type_.native}({size})"
        return next(blob for most, _, blob in _TEXTS if size <= most)

    def _fitting_key(self, shape: TargetSchema) -> dict[str, str]:
        """Types of key columns without a length of their own: they share what an index may hold."""
        fixed, open_ = 0, []
        for name in shape.key:
            type_ = next(c.type for c in shape.columns if c.name == name)
            if type_.kind is Kind.STRING and type_.native not in ("uuid", "inet4", "inet6"):
                size = capacity(type_) * _CHARACTER
            elif type_.kind is Kind.BYTES:
                size = capacity(type_)
            else:
                size = 16
            if size > _KEY_BYTES:
                open_.append((name, type_.kind))
            else:
                fixed += size
        left = (_KEY_BYTES - fixed) // max(len(open_), 1)
        if left < 4 * _CHARACTER * len(open_) or fixed > _KEY_BYTES:
            raise SinkError(
                f"target `{shape.target}` cannot have its source's key",
                f"the key ({', '.join(shape.key)}) takes more than {_KEY_BYTES} bytes of UTF-8 text",
                "leave the table out of the captured ones, or shorten the key's columns",
            )
        collation = "utf8mb4_nopad_bin" if self.mariadb else "utf8mb4_0900_bin"
        text = f"varchar({left // _CHARACTER}) character set utf8mb4 collate {collation}"
        return {name: text if kind is Kind.STRING else f"varbinary({left})" for name, kind in open_}

    def _fitting_row(self, shape: TargetSchema, types: dict[str, str]) -> dict[str, str]:
        """Types of the longest columns where all together are too long for a row: they become texts."""
        sizes = {}
        for column in shape.columns:
            found = re.match(r"(var)?(char|binary)\((\d+)\)", types[column.name])
            if found and not shape.is_key(column):
                sizes[column.name] = int(found[3]) * (_CHARACTER if found[2] == "char" else 1)
        others = 16 * (len(shape.columns) - len(sizes)) + _KEY_BYTES
        moved: dict[str, str] = {}
        for name in sorted(sizes, key=lambda n: (-sizes[n], n)):
            if sum(sizes.values()) - sum(sizes[n] for n in moved) + others <= _ROW_BYTES:
                break
            moved[name] = "text" if "char" in types[name] else "blob"
        return moved

    def connect(self) -> MySqlWriteSession:
        """See `Dialect.connect`."""
        return MySqlWriteSession(self, connect(self.settings), reads_files=self.reads_files)

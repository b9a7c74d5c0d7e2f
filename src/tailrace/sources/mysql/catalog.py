"""The catalog: the tables and their schemas, equal to those of the log's TABLE_MAP.

The log's row images hold *every* column in the catalog's order: invisible ones, generated ones (STORED
and VIRTUAL alike), the generated invisible primary key. They do not hold the hidden columns behind
functional indexes, and neither does `information_schema.COLUMNS`. Measured on 9.7.4 with `mysqlbinlog
--print-table-metadata`. So a SELECT of the columns listed here has a row image's columns.

MariaDB logs generated columns of rows that are inserted, and leaves them out of updates and deletes. Their
values after an update cannot be known, so they are in no schema.

A key is the primary key, else a UNIQUE index over whole NOT NULL columns, else there is none. A primary key
over a column's prefix is treated as one over the column, as the log does: correct, but the server then sorts
the rest of the table for every page.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pymysql
from pymysql.cursors import DictCursor

from tailrace.errors import SchemaMismatchError, TailraceError
from tailrace.model.column_filter import ALL_COLUMNS, ColumnFilter
from tailrace.model.declaration import CatalogText, TableTexts
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import Kind
from tailrace.sources import network
from tailrace.sources.base import KeyPlace
from tailrace.sources.mysql.connection import is_mariadb, translate
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.wire.schema.declarations import source_type
from tailrace.sources.mysql.wire.schema.native import column_type

KeyKind = Literal["primary", "unique", "none"]

_SYSTEM_SCHEMAS = ("information_schema", "mysql", "performance_schema", "sys")
#: The type of MariaDB's tables with system versioning.
_VERSIONED = "SYSTEM VERSIONED"
_TABLES_PER_QUERY = 200
#: Bytes of a statement about tables without their names, and of one name.
_STATEMENT_BYTES, _NAME_BYTES = 1024, 256
#: Kinds that key ranges are supported over: the server can compare them with literals.
_ORDERED_KINDS = frozenset(
    {
        Kind.INTEGER,
        Kind.DECIMAL,
        Kind.STRING,
        Kind.BYTES,
        Kind.DATE,
        Kind.DATETIME,
        Kind.INSTANT,
        Kind.TIME,
        Kind.YEAR,
    }
)
#: Types that have another name in MariaDB's catalog than in its log.
_MARIADB_NAMES = {"vector": "varbinary", "geometrycollection": "geomcollection"}
#: Cached statistics may be a day old; a hidden generated key is in the log too.
_SET_UP = (
    "SET SESSION time_zone = @@session.time_zone "
    "/*!80000 , information_schema_stats_expiry = 0 */ "
    "/*!80030 , show_gipk_in_create_table_and_information_schema = ON */"
)
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r"}


@dataclass(frozen=True)
class CatalogTable:
    """A table of the catalog.

    Args:
        schema: its schema.
        estimated_rows: the storage engine's estimate of its number of rows.
        engine: storage engine, e.g. `InnoDB`.
        key_kind: where the schema's key comes from.
        keys: all keys by which its rows can be read, the schema's first.
        logged: the schema with all columns that the log's table maps have.
        whole: the schema with the columns that the stream's column filter leaves out.
        texts: declared types that the log does not tell, and comments, of columns that have any.
    """

    schema: TableSchema
    estimated_rows: int
    engine: str
    key_kind: KeyKind
    keys: tuple[tuple[str, ...], ...]
    logged: TableSchema
    whole: TableSchema
    texts: TableTexts = field(default_factory=dict, compare=False)

    @property
    def generated(self) -> tuple[str, ...]:
        """Columns that the log has in some row images only: the generated columns of MariaDB."""
        known = {column.name for column in self.whole.columns}
        return tuple(c.name for c in self.logged.columns if c.name not in known)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Columns of the log that are not in the schema: generated ones, and those of the column filter."""
        known = {column.name for column in self.schema.columns}
        return tuple(c.name for c in self.logged.columns if c.name not in known)

    @property
    def key_in(self) -> KeyPlace:
        """The log has primary keys; of UNIQUE indexes it has another choice than ours."""
        return "offset" if self.key_kind == "unique" else "log"


@network.sensible("the catalog")
def tables(
    connection: BoundedConnection,
    captures: Callable[[str], bool],
    zero_dates: Callable[[str], str | None] = lambda _: None,
    refused: dict[str, TailraceError] | None = None,
    columns: ColumnFilter = ALL_COLUMNS,
) -> list[CatalogTable]:
    """The base tables that are captured, ordered by name; system schemas are never among them.

    A table that the user may not read is not in the catalog at all.

    Args:
        connection: its user sees what it may read.
        captures: whether the table `database.table` is captured.
        zero_dates: how zero and partial dates of the column `database.table.column` are read.
        refused: receives the tables that cannot be captured, with the reason; None: the first one is raised.
        columns: the columns that are captured.

    Raises:
        SchemaMismatchError: a captured table has a column of an unsupported type, or a primary key over a
            type without key ranges, or of columns that are not captured.
        TransientSourceError: the connection is lost.
        SourceError: the server refuses.
    """
    try:
        with connection.cursor(DictCursor) as cursor:
            return list(
                _tables(
                    cursor, captures, zero_dates, is_mariadb(connection), refused=refused, columns=columns
                )
            )
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "reading the catalog") from error


def table(
    connection: BoundedConnection,
    id_: TableId,
    zero_dates: Callable[[str], str | None] = lambda _: None,
) -> CatalogTable | None:
    """One table, None if it is not there: quicker than `tables`. Raises as `tables`."""
    try:
        with connection.cursor(DictCursor) as cursor:
            return next(_described(cursor, [id_], zero_dates, is_mariadb(connection)), None)
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "reading the catalog") from error


def holds_captured(connection: BoundedConnection, database: str, captures: Callable[[str], bool]) -> bool:
    """Whether a database holds tables that are captured. Raises as `tables`."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s", (database,)
            )
            return any(captures(str(TableId(database, str(name)))) for (name,) in cursor.fetchall())
    except (pymysql.err.MySQLError, OSError) as error:
        raise translate(error, "reading the catalog") from error


def _tables(
    cursor: DictCursor,
    captures: Callable[[str], bool],
    zero_dates: Callable[[str], str | None],
    mariadb: bool,
    *,
    refused: dict[str, TailraceError] | None,
    columns: ColumnFilter,
) -> Iterator[CatalogTable]:
    cursor.execute(
        "SELECT TABLE_SCHEMA AS d, TABLE_NAME AS t, TABLE_TYPE AS type FROM information_schema.TABLES"
        f" WHERE TABLE_TYPE IN ('BASE TABLE', '{_VERSIONED}') AND TABLE_SCHEMA NOT IN {_SYSTEM_SCHEMAS}"
    )
    found = sorted((TableId(r["d"], r["t"]), r["type"]) for r in cursor.fetchall())
    by_database = defaultdict(list)
    for id_, type_ in found:
        if captures(str(id_)):
            if type_ == _VERSIONED:
                if refused is None:
                    raise _is_versioned(id_)
                refused[str(id_)] = _is_versioned(id_)
                continue
            by_database[id_.database].append(id_)
    cursor.execute("SELECT @@max_allowed_packet AS room")
    (row,) = cursor.fetchall()
    count = max(1, min(_TABLES_PER_QUERY, (int(row["room"]) - _STATEMENT_BYTES) // _NAME_BYTES))
    for ids in by_database.values():
        for first in range(0, len(ids), count):
            yield from _described(
                cursor, ids[first : first + count], zero_dates, mariadb, refused=refused, captured=columns
            )


def _is_versioned(id_: TableId) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"table `{id_}` has system versioning, which is not supported yet",
        "its log mixes old row versions with the rows",
        "leave the table out of the captured tables, or ALTER TABLE ... DROP SYSTEM VERSIONING",
        code="TR-5007",
    )


def _described(
    cursor: DictCursor,
    ids: Sequence[TableId],
    zero_dates: Callable[[str], str | None],
    mariadb: bool,
    *,
    refused: dict[str, TailraceError] | None = None,
    captured: ColumnFilter = ALL_COLUMNS,
) -> Iterator[CatalogTable]:
    cursor.execute(_SET_UP)
    where = "WHERE TABLE_SCHEMA = %s AND TABLE_NAME IN (" + ", ".join(["%s"] * len(ids)) + ")"
    names = [ids[0].database, *(id_.table for id_ in ids)]
    cursor.execute(
        "SELECT TABLE_NAME AS t, TABLE_ROWS AS estimate, ENGINE AS engine "
        f"FROM information_schema.TABLES {where}",
        names,
    )
    facts = {r["t"]: r for r in cursor.fetchall()}
    generated = "IS_GENERATED" if mariadb else "'NEVER'"
    cursor.execute(
        "SELECT TABLE_NAME AS t, COLUMN_NAME AS name, DATA_TYPE AS type, COLUMN_TYPE AS declared,"
        " IS_NULLABLE AS nullable, CHARACTER_MAXIMUM_LENGTH AS length, NUMERIC_PRECISION AS digits,"
        " NUMERIC_SCALE AS scale, DATETIME_PRECISION AS fraction, CHARACTER_SET_NAME AS charset,"
        f" COLLATION_NAME AS collation, {generated} AS is_generated, COLUMN_COMMENT AS comment"
        f" FROM information_schema.COLUMNS {where}"
        " ORDER BY TABLE_NAME, ORDINAL_POSITION",
        names,
    )
    columns = _grouped([_as_logged(r) if mariadb else r for r in cursor.fetchall()])
    unusable = "0" if mariadb else "IS_VISIBLE = 'NO' OR EXPRESSION IS NOT NULL"
    cursor.execute(
        "SELECT TABLE_NAME AS t, INDEX_NAME AS name, COLUMN_NAME AS part, SUB_PART AS prefix,"
        f" NULLABLE AS nullable, {unusable} AS unusable FROM information_schema.STATISTICS {where}"
        " AND NON_UNIQUE = 0 ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX",
        names,
    )
    indexes = _grouped(cursor.fetchall())
    for id_ in ids:
        if id_.table in columns and id_.table in facts:  # else the table was dropped since it was listed
            rows = columns[id_.table]
            try:
                logged = tuple(_column(id_, row, zero_dates) for row in rows)
                table_columns = tuple(
                    column
                    for row, column in zip(rows, logged, strict=True)
                    if _text(row["is_generated"]) != "ALWAYS"
                )
                keys, kind = _keys(id_, table_columns, indexes.get(id_.table, []))
                key = keys[0] if keys else ()
                whole = TableSchema(id_, table_columns, key)
                captured.require_key(whole)
            except SchemaMismatchError as error:
                if refused is None:
                    raise
                refused[str(id_)] = error
                continue
            fact = facts[id_.table]
            yield CatalogTable(
                captured.schema(whole),
                int(fact["estimate"] or 0),
                fact["engine"] or "",
                kind,
                tuple(other for other in keys if not captured.left_out(id_, other)),
                TableSchema(id_, logged, key),
                whole,
                {c.name: text for c, row in zip(logged, rows, strict=True) if (text := _text_of(c, row))},
            )


def _grouped(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups = defaultdict(list)
    for row in rows:
        groups[row["t"]].append(row)
    return groups


def _as_logged(row: dict[str, Any]) -> dict[str, Any]:
    """A column of MariaDB's catalog, with the type's name in the log."""
    native = _text(row["type"]).lower()
    return row | {"type": _MARIADB_NAMES.get(native, native)}


def _column(id_: TableId, row: dict[str, Any], zero_dates: Callable[[str], str | None]) -> Column:
    # COLUMN_TYPE is a blob in MySQL's catalog, and so bytes, in some versions
    declared = _text(row["declared"])
    native = _text(row["type"]).lower()
    name = f"{id_}.{row['name']}"
    type_ = column_type(
        native,
        unsigned="unsigned" in declared.rpartition(")")[2].split(),
        length=int(declared[len("vector(") : -1]) if native == "vector" else row["length"],
        precision=row["digits"],
        scale=row["scale"],
        fraction=row["fraction"],
        bits=row["digits"],
        labels=parse_labels(declared) if native in ("enum", "set") else (),
        charset=row["charset"],
        collation=row["collation"],
        zero_dates=zero_dates(name),
        column=name,
    )
    return Column(row["name"], type_, row["nullable"] == "YES")


def _text_of(column: Column, row: dict[str, Any]) -> CatalogText | None:
    """What the catalog says of a column and the log does not, None for nothing."""
    declared, comment = _text(row["declared"]), _text(row["comment"])
    if source_type(column.type, declared) == source_type(column.type):
        return CatalogText(comment=comment) if comment else None
    return CatalogText(declared, comment)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def parse_labels(declared: str) -> tuple[str, ...]:
    r"""The labels in a declaration, e.g. `enum('a','it''s','back\\slash')`."""
    return tuple(
        re.sub(
            r"''|\\(.)",
            lambda m: "'" if m[1] is None else _ESCAPED.get(m[1], m[1]),
            quoted,
            flags=re.DOTALL,
        )
        for quoted in re.findall(r"'((?:[^'\\]|''|\\.)*)'", declared, re.DOTALL)
    )


def _keys(
    id_: TableId, columns: tuple[Column, ...], parts: Sequence[dict[str, Any]]
) -> tuple[tuple[tuple[str, ...], ...], KeyKind]:
    """The keys of a table, the one to read it by first, and where that one comes from."""
    by_name = {c.name: c for c in columns}
    indexes = defaultdict(list)
    for part in parts:
        indexes[part["name"]].append(part)
    primary = tuple(p["part"] for p in indexes.pop("PRIMARY", []))  # MySQL's own name for it
    usable = [
        tuple(p["part"] for p in index)
        for index in indexes.values()
        if all(
            p["part"] in by_name and p["prefix"] is None and p["nullable"] != "YES" and not p["unusable"]
            for p in index
        )
    ]
    usable = [key for key in usable if all(by_name[n].type.kind in _ORDERED_KINDS for n in key)]
    usable.sort(key=lambda key: _cost(key, by_name))
    if primary:
        for name in primary:
            _require_ordered(id_, by_name[name])
        return (primary, *usable), "primary"
    return tuple(usable), "unique" if usable else "none"


def _cost(key: tuple[str, ...], columns: dict[str, Column]) -> tuple[int, int, tuple[str, ...]]:
    """Fewest columns first, then fewest that only the server can compare, then by name: a stable choice."""
    collated = sum(columns[n].type.kind in (Kind.STRING, Kind.BYTES) for n in key)
    return len(key), collated, key


def _require_ordered(id_: TableId, column: Column) -> None:
    if column.type.kind not in _ORDERED_KINDS:
        raise SchemaMismatchError(
            f"table `{id_}` has the key column `{column.name}` of type {column.type.native}, over "
            "which key ranges are not supported yet",
            f"key columns may be of the kinds {', '.join(sorted(_ORDERED_KINDS))}",
            "leave the table out of the captured tables, or give it another primary key",
            code="TR-5008",
        )

"""Preconditions of the captured tables: privileges, types, names, keys, supplemental logging."""

from __future__ import annotations

from collections.abc import Iterator

import oracledb

from tailrace.config.options import SourceOptions
from tailrace.sources.oracle import catalog
from tailrace.sources.oracle.catalog import CatalogTable, Database
from tailrace.sources.oracle.connection import Connection, ora_number
from tailrace.sources.oracle.snapshot.select import table_name
from tailrace.sources.oracle.wire.types import CAPTURED, identifier
from tailrace.sources.preflight import Finding, Severity

_NOT_ALLOWED = frozenset([942, 1031, 41900])
_CHARACTER_SET = "SELECT VALUE FROM NLS_DATABASE_PARAMETERS WHERE PARAMETER = 'NLS_CHARACTERSET'"
#: Character sets in which text sorts by its code points.
_BY_CODE_POINT = frozenset(["AL32UTF8", "US7ASCII"])


class TableChecks:
    """The checks of the captured tables.

    Args:
        options: the stream's options.
        connection: an open one; stays the caller's.
        database: the database.
        user: the user's name, quoted.
    """

    def __init__(self, options: SourceOptions, connection: Connection, database: Database, user: str) -> None:
        self._options = options
        self._connection = connection
        self._database = database
        self._user = user
        self._reads_log = options.starting_position != "snapshot"

    def run(self) -> Iterator[Finding]:
        """Every finding."""
        tables = catalog.captured(self._connection, self._options)
        if not tables:
            yield Finding(
                "captured tables",
                f"none matches {self._options.choice}",
                "at least one table; each pattern must match a whole `SCHEMA.TABLE`, and most names are in "
                "upper case",
                "",
                Severity.ERROR,
                code="TR-1401",
            )
            return
        ((charset,),) = self._connection.rows(_CHARACTER_SET)
        ((zone,),) = self._connection.rows("SELECT DBTIMEZONE FROM DUAL")
        for table in tables:
            findings = [f for f in self._table(table, charset, zone) if f is not None]
            yield from findings or [
                Finding(f"table {table.schema.id}", "can be captured", "", table=str(table.schema.id))
            ]

    def _table(self, table: CatalogTable, charset: str, zone: str) -> Iterator[Finding | None]:
        yield self._allowed(table)
        yield self._kind(table)
        yield self._columns(table)
        yield self._key(table, charset)
        if table.has_local_times and zone not in ("+00:00", "UTC"):
            yield _failed(
                table,
                f"TIMESTAMP WITH LOCAL TIME ZONE with DBTIMEZONE {zone}",
                "DBTIMEZONE +00:00: LogMiner prints such values in the database's zone",
                f"leave the column out: column.exclude.list: {table.schema.id}...",
                "TR-4609",
            )
        if self._reads_log and not (table.logs_all or self._database.logs_all):
            yield _failed(
                table,
                "no supplemental logging of all columns",
                "it: else the log has only the columns that a change sets",
                f"ALTER TABLE {table_name(table.schema)} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS;",
                "TR-4604",
            )

    def _allowed(self, table: CatalogTable) -> Finding | None:
        sql = f"SELECT 1 FROM {table_name(table.schema)} AS OF SCN {self._database.scn} WHERE 1 = 0"
        try:
            self._connection.rows(sql)
        except oracledb.Error as error:
            if ora_number(error) not in _NOT_ALLOWED:
                return None  # it was altered a moment ago; reading rows says so
            return _failed(
                table,
                f"{self._user} may not read it as of an SCN",
                "SELECT and FLASHBACK on it",
                f"GRANT SELECT, FLASHBACK ON {table_name(table.schema)} TO {self._user};",
                "TR-4608",
            )
        return None

    def _kind(self, table: CatalogTable) -> Finding | None:
        if table.organization:
            return _failed(
                table,
                f"an {table.organization}",
                "a heap-organized table",
                "leave it out of `tables`",
                "TR-4610",
            )
        if self._reads_log and table.long_names:
            return _failed(
                table,
                f"names of more than {catalog.LONGEST_NAME} bytes: {', '.join(table.long_names)}",
                "names that LogMiner describes",
                "rename them, or leave the table out of `tables`",
                "TR-4610",
            )
        return None

    def _columns(self, table: CatalogTable) -> Finding | None:
        if not table.refused:
            return None
        id_ = table.schema.id
        return _failed(
            table,
            ", ".join(f"column {name} of type {type_}" for name, type_ in table.refused.items()),
            f"columns of these types: {CAPTURED}",
            "leave them out: column.exclude.list: "
            + ",".join(f"{id_.database}\\.{id_.table}\\.{name}" for name in table.refused),
            "TR-4609",
        )

    def _key(self, table: CatalogTable, charset: str) -> Finding | None:
        needed = "key columns of NUMBER, RAW, DATE, TIMESTAMP, or CHAR and VARCHAR2 with binary collation"
        if table.unordered_key:
            found = ", ".join(f"{c.name} {c.type.native}" for c in table.unordered_key)
            return _failed(table, f"a key with {found}", needed, "leave it out of `tables`", "TR-4611")
        if catalog.has_text_key(table.schema) and charset not in _BY_CODE_POINT:
            return _failed(
                table,
                f"a key of text in character set {charset}",
                f"{' or '.join(sorted(_BY_CODE_POINT))}: others do not sort by code points",
                "leave it out of `tables`",
                "TR-4611",
            )
        return None


def _failed(table: CatalogTable, found: str, needed: str, remedy: str, code: str) -> Finding:
    id_ = table.schema.id
    name = f"{identifier(id_.database)}.{identifier(id_.table)}"
    return Finding(f"table {name}", found, needed, remedy, Severity.ERROR, code=code, table=str(id_))

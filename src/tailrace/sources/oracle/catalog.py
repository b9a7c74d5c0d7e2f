"""The catalog: the database, and the captured tables with their columns, keys and supplemental logging."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.options import SourceOptions
from tailrace.model.declaration import TableTexts
from tailrace.model.key import key_of
from tailrace.model.table import Column, TableId, TableSchema
from tailrace.model.types import Kind
from tailrace.sources.base import KeyPlace
from tailrace.sources.oracle.connection import Connection
from tailrace.sources.oracle.wire.types import ORDERED, UNORDERED_TEXTS, column_type

_DATABASE = """\
SELECT DBID, RESETLOGS_CHANGE#, CURRENT_SCN, OPEN_MODE, DATABASE_ROLE, LOG_MODE, SUPPLEMENTAL_LOG_DATA_MIN,
       SUPPLEMENTAL_LOG_DATA_ALL, FORCE_LOGGING, CDB FROM V$DATABASE"""
#: Oracle's own schemas are left out.
_TABLES = """\
SELECT t.OWNER, t.TABLE_NAME, o.OBJECT_ID, TO_CHAR(o.LAST_DDL_TIME, 'YYYY-MM-DD HH24:MI:SS'), t.NUM_ROWS,
       t.AVG_ROW_LEN, t.IOT_TYPE, t.CLUSTER_NAME
FROM ALL_TABLES t
JOIN ALL_OBJECTS o ON o.OWNER = t.OWNER AND o.OBJECT_NAME = t.TABLE_NAME AND o.OBJECT_TYPE = 'TABLE'
JOIN ALL_USERS u ON u.USERNAME = t.OWNER AND u.ORACLE_MAINTAINED = 'N'
WHERE t.TEMPORARY = 'N' AND t.NESTED = 'NO' AND t.SECONDARY = 'N' AND t.DROPPED = 'NO'
ORDER BY t.OWNER, t.TABLE_NAME"""
_COLUMNS = """\
SELECT OWNER, TABLE_NAME, COLUMN_NAME, DATA_TYPE, DATA_LENGTH, CHAR_LENGTH, DATA_PRECISION, DATA_SCALE,
       NULLABLE, COLLATION
FROM ALL_TAB_COLS
WHERE USER_GENERATED = 'YES' AND VIRTUAL_COLUMN = 'NO' AND OWNER IN ({})
ORDER BY OWNER, TABLE_NAME, INTERNAL_COLUMN_ID"""
_KEYS = """\
SELECT c.OWNER, c.TABLE_NAME, k.COLUMN_NAME
FROM ALL_CONSTRAINTS c
JOIN ALL_CONS_COLUMNS k ON k.OWNER = c.OWNER AND k.CONSTRAINT_NAME = c.CONSTRAINT_NAME
WHERE c.CONSTRAINT_TYPE = 'P' AND c.STATUS = 'ENABLED' AND c.VALIDATED = 'VALIDATED'
  AND c.DEFERRABLE = 'NOT DEFERRABLE' AND c.OWNER IN ({})
ORDER BY c.OWNER, c.TABLE_NAME, k.POSITION"""
_LOGGED = """\
SELECT OWNER, TABLE_NAME FROM ALL_LOG_GROUPS WHERE LOG_GROUP_TYPE = 'ALL COLUMN LOGGING' AND OWNER IN ({})"""
#: LogMiner describes no table or column with a longer name.
LONGEST_NAME = 30


@dataclass(frozen=True)
class Database:
    """What V$DATABASE says.

    Args:
        identity: see `OraclePosition.database`.
        scn: the present SCN.
        open_mode: e.g. READ WRITE.
        role: e.g. PRIMARY.
        archives: whether redo logs are archived.
        logs_minimum: whether the database has minimal supplemental logging.
        logs_all: whether it logs all columns of every table.
        forces_logging: whether no operation can leave out the log.
        is_container: whether it is a container database.
    """

    identity: str
    scn: int
    open_mode: str
    role: str
    archives: bool
    logs_minimum: bool
    logs_all: bool
    forces_logging: bool
    is_container: bool


@dataclass(frozen=True)
class CatalogTable:
    """A table of the catalog.

    Args:
        schema: its schema.
        whole: the schema with the columns that the stream's column filter leaves out.
        estimated_rows: NUM_ROWS of its statistics.
        row_bytes: AVG_ROW_LEN of its statistics, None if there are none.
        object_id: its OBJECT_ID.
        altered_at: LAST_DDL_TIME, in the clock of the server; grants change it, too.
        logs_all: whether it has supplemental logging of all columns.
        organization: what it is stored as, if that is no plain table; "" for one.
        refused: its captured columns of types that are not captured, by name with the type.
        collated: its text columns with a collation of their own, by name.
        key_in: see `CapturedTable`.
        keys: see `CapturedTable`.
        left_out: see `CapturedTable`; columns that are never captured are in no schema.
    """

    schema: TableSchema
    whole: TableSchema
    estimated_rows: int
    row_bytes: int | None
    object_id: int
    altered_at: str
    logs_all: bool
    organization: str
    refused: dict[str, str] = field(default_factory=dict)
    collated: dict[str, str] = field(default_factory=dict)
    key_in: KeyPlace = "offset"
    keys: tuple[tuple[str, ...], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def texts(self) -> TableTexts:
        """Nothing: no option asks for comments, or for declared types."""
        return {}

    @property
    def version(self) -> str:
        """Digest of the table as it is decoded by: another one after each schema change, and each grant."""
        text = json.dumps([self.object_id, self.altered_at, self.whole.to_json(), self.logs_all])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def long_names(self) -> tuple[str, ...]:
        """Its names that LogMiner does not describe."""
        names = (self.schema.id.database, self.schema.id.table, *(c.name for c in self.whole.columns))
        return tuple(name for name in names if len(name.encode()) > LONGEST_NAME)

    @property
    def unordered_key(self) -> tuple[Column, ...]:
        """Columns of its key whose order is the server's own."""
        return tuple(c for c in key_of(self.schema) if not _is_ordered(c, self.collated))

    @property
    def has_local_times(self) -> bool:
        """Whether a column is TIMESTAMP WITH LOCAL TIME ZONE."""
        return any(c.type.native == "timestamp with local time zone" for c in self.schema.columns)


def _is_ordered(column: Column, collated: dict[str, str]) -> bool:
    if column.name in collated or column.type.native in UNORDERED_TEXTS:
        return False
    return column.type.kind in ORDERED


def database(connection: Connection) -> Database:
    """The database. Raises oracledb's errors."""
    ((dbid, reset, scn, mode, role, log_mode, minimum, everything, forced, cdb),) = connection.rows(_DATABASE)
    return Database(
        identity=f"{dbid}/{reset}",
        scn=int(scn),
        open_mode=mode,
        role=role,
        archives=log_mode == "ARCHIVELOG",
        logs_minimum=minimum != "NO",
        logs_all=everything == "YES",
        forces_logging=forced == "YES",
        is_container=cdb == "YES",
    )


def captured(connection: Connection, options: SourceOptions) -> list[CatalogTable]:
    """The captured tables, in order of their names. Raises oracledb's errors."""
    found = [row for row in connection.rows(_TABLES) if options.captures(f"{row[0]}.{row[1]}")]
    owners = sorted({row[0] for row in found})
    if not owners:
        return []
    places = ", ".join(f":{number}" for number in range(1, len(owners) + 1))
    columns: dict[tuple[str, str], list[tuple[Any, ...]]] = defaultdict(list)
    for owner, table, *column in connection.rows(_COLUMNS.format(places), owners):
        columns[owner, table].append(tuple(column))
    keys: dict[tuple[str, str], list[str]] = defaultdict(list)
    for owner, table, name in connection.rows(_KEYS.format(places), owners):
        keys[owner, table].append(name)
    logged = {(owner, table) for owner, table in connection.rows(_LOGGED.format(places), owners)}
    return [
        _table(options, row, columns[row[0], row[1]], keys[row[0], row[1]], (row[0], row[1]) in logged)
        for row in found
    ]


def _table(
    options: SourceOptions,
    row: tuple[Any, ...],
    columns: list[tuple[Any, ...]],
    key: list[str],
    logs_all: bool,
) -> CatalogTable:
    owner, name, object_id, altered_at, estimate, row_bytes, iot, cluster = row
    id_ = TableId(owner, name)
    known: list[Column] = []
    refused: dict[str, str] = {}
    collated: dict[str, str] = {}
    for column, data_type, length, chars, precision, scale, nullable, collation in columns:
        is_text = data_type.endswith(("CHAR", "CHAR2"))
        type_ = column_type(data_type, _int(chars if is_text else length), _int(precision), _int(scale))
        if type_ is None:
            if options.columns.has(id_, column):
                refused[column] = data_type
            continue
        known.append(Column(column, type_, nullable == "Y"))
        if collation not in (None, "USING_NLS_COMP", "BINARY"):
            collated[column] = collation
    # without all of its columns it is no key
    names = tuple(key) if {*key} <= {c.name for c in known} else ()
    whole = TableSchema(id_, tuple(known), names)
    organization = "index-organized table" if iot is not None else "clustered table" if cluster else ""
    return CatalogTable(
        schema=options.columns.schema(whole),
        whole=whole,
        estimated_rows=int(estimate or 0),
        row_bytes=_int(row_bytes) or None,
        object_id=int(object_id),
        altered_at=altered_at,
        logs_all=logs_all,
        organization=organization,
        refused=refused,
        collated=collated,
        keys=(names,) if names else (),
    )


def has_text_key(table: TableSchema) -> bool:
    """Whether a key column is text, which sorts by the bytes of the database's character set."""
    return any(c.type.kind is Kind.STRING and c.type.native != "number" for c in key_of(table))


def _int(value: Any) -> int | None:
    return None if value is None else int(value)

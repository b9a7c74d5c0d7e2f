"""A stand-in for an Oracle database, written from Oracle's documentation. It is no recording.

There is no Oracle server where these tests run. This one answers the statements of `tailrace.sources.oracle`
as the documentation says that Oracle does: flashback queries, V$LOGMNR_CONTENTS and the catalog. It shows
that the adapter is consistent with itself and with the documentation as it was understood, and nothing about
a server.

Tables keep all versions of their rows, by commit SCN. Each change writes a record to the redo log, of which
LogMiner shows what lies in the files that were added. Statements against tables are run by SQLite.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import oracledb

from tailrace.sources.oracle import catalog, clock
from tailrace.sources.oracle.checks import table_checks
from tailrace.sources.oracle.logminer import files, miner

DBID, RESETLOGS = 4711, 1
_BEGIN = datetime(2026, 1, 31, 12)  # noqa: DTZ001 - the server's clock, in its own zone
#: Characters of SQL_REDO in one record; the documented 4,000 would make tests slow.
PIECE = 120


def ora(number: int) -> oracledb.DatabaseError:
    """An error of the server, as python-oracledb raises it."""
    return oracledb.DatabaseError(SimpleNamespace(code=number, full_code=f"ORA-{number:05d}", message="..."))


@dataclass
class Column:
    name: str
    data_type: str
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    nullable: bool = True
    collation: str = "USING_NLS_COMP"
    virtual: bool = False


@dataclass
class Table:
    owner: str
    name: str
    columns: list[Column]
    key: tuple[str, ...]
    object_id: int
    altered: datetime
    altered_scn: int
    logs_all: bool = True
    iot: str | None = None
    may_flashback: bool = True
    #: (commit SCN, row id, values or None), in order
    versions: list[tuple[int, str, dict[str, Any] | None]] = field(default_factory=list)

    def at(self, scn: int) -> dict[str, dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = {}
        for commit, row_id, values in self.versions:
            if commit <= scn:
                if values is None:
                    rows.pop(row_id, None)
                else:
                    rows[row_id] = values
        return rows


@dataclass
class Record:
    xid: str
    op: int
    scn: int
    place: tuple[str, int]
    at: datetime
    owner: str | None = None
    table: str | None = None
    object_id: int = 0
    sql: str | None = None
    undoes: int = 0
    csf: int = 0
    row_id: str | None = None
    status: int = 0
    con: int = 0
    parent: str | None = None


class Transaction:
    """Changes rows; they are visible once it has committed."""

    def __init__(self, server: OracleServer, xid: str) -> None:
        self.server, self.xid = server, xid
        self.start = server.log(xid, 6).scn
        self.changes: list[tuple[Table, str, dict | None, dict | None]] = []

    def insert(self, name: str, **values: Any) -> None:
        table = self.server.tables[name]
        row = {c.name: values.get(c.name) for c in table.columns if not c.virtual}
        self.server.row_ids += 1
        self._change(table, f"AAA{self.server.row_ids:06d}", None, row)

    def update(self, name: str, where: dict[str, Any], **values: Any) -> None:
        table, row_id, row = self._find(name, where)
        self._change(table, row_id, row, {**row, **values})

    def delete(self, name: str, **where: Any) -> None:
        self._change(*self._find(name, where), None)

    def savepoint(self) -> int:
        return len(self.changes)

    def rollback_to(self, savepoint: int) -> None:
        while len(self.changes) > savepoint:
            table, row_id, before, after = self.changes.pop()
            self.server.log_change(self.xid, table, row_id, after, before, undoes=1)

    def commit(self, *, scn: int | None = None) -> int:
        record = self.server.log(self.xid, 7, scn=scn)
        for table, row_id, _, after in self.changes:
            table.versions.append((record.scn, row_id, after))
        self.server.open.remove(self)
        return record.scn

    def rollback(self) -> None:
        self.rollback_to(0)
        self.server.log(self.xid, 36)
        self.server.open.remove(self)

    def _find(self, name: str, where: dict[str, Any]) -> tuple[Table, str, dict]:
        table = self.server.tables[name]
        rows = table.at(self.server.scn)
        for changed, row_id, _, after in self.changes:
            if changed is table:
                rows.pop(row_id, None)
                if after is not None:
                    rows[row_id] = after
        return next((table, i, r) for i, r in rows.items() if where.items() <= r.items())

    def _change(self, table: Table, row_id: str, before: dict | None, after: dict | None) -> None:
        self.server.log_change(self.xid, table, row_id, before, after)
        self.changes.append((table, row_id, before, after))


class OracleServer:
    """The database; its tables are those of the schema SHOP."""

    def __init__(self) -> None:
        self.scn = 1000
        self.seconds = 0
        self.row_ids = self.xids = self.records_made = 0
        self.tables: dict[str, Table] = {}
        self.open: list[Transaction] = []
        self.redo: list[Record] = []
        #: number, first SCN, next SCN or None, whether it is archived
        self.files: list[tuple[int, int, int | None, bool]] = [(1, self.scn, None, False)]
        #: redo above it is not on disk yet
        self.written: int | None = None
        self.undo_from = 0
        self.settings: dict[str, Any] = {
            "open_mode": "READ WRITE",
            "role": "PRIMARY",
            "log_mode": "ARCHIVELOG",
            "minimal": "YES",
            "all": "NO",
            "force": "YES",
            "cdb": "NO",
            "version": "19.22.0.0.0",
            "threads": 1,
            "privileges": ["LOGMINING", "SET CONTAINER"],
            "may_mine": 1,
            "user": "TAILRACE",
            "container": "FREEPDB1",
            "charset": "AL32UTF8",
            "dbtimezone": "+00:00",
            "undo_retention": "10800",
            "denied": set(),
            "dbid": DBID,
        }
        #: how many LogMiner runs there were, and what is done after the next one
        self.runs = 0
        self.after_run: list[Any] = []

    # ---- what applications do ----

    def tick(self, scns: int = 1) -> int:
        self.scn += scns
        self.seconds += 1
        return self.scn

    @property
    def now(self) -> datetime:
        return _BEGIN + timedelta(seconds=self.seconds)

    def create(self, name: str, columns: list[Column], key: tuple[str, ...], **more: Any) -> Table:
        self.tick()
        table = Table("SHOP", name, columns, key, 100 + self.scn, self.now, self.scn, **more)
        self.tables[name] = table
        self.log("", 5, table=table, sql=f'CREATE TABLE "SHOP"."{name}" (...)')
        self.tick(5)
        return table

    def begin(self) -> Transaction:
        self.xids += 1
        transaction = Transaction(self, f"{self.xids:08X}{self.xids:08X}")
        self.open.append(transaction)
        return transaction

    def ddl(self, name: str, sql: str, *, columns: list[Column] | None = None) -> None:
        """A schema change; TRUNCATE and DROP are told by the statement."""
        table = self.tables[name]
        self.tick()
        self.log("", 5, table=table, sql=sql)
        table.altered = self.now
        if re.match(r"\s*(GRANT|CREATE INDEX)", sql, re.IGNORECASE):
            return
        table.altered_scn = self.scn
        before = [r for r in self.redo if r.object_id == table.object_id and r.op in (1, 2, 3)]
        if re.match(r"\s*(TRUNCATE|DROP)", sql, re.IGNORECASE):
            for record in before:
                record.owner, record.table, record.status = "UNKNOWN", f"OBJ# {record.object_id}", 2
            table.versions += [(self.scn, row_id, None) for row_id in table.at(self.scn)]
            if sql.upper().startswith("DROP"):
                del self.tables[name]
            else:
                table.object_id += 1
        else:
            for record in before:
                record.status, record.sql = 2, "update ... COL 1 = HEXTORAW('c102')"
        if columns is not None:
            table.columns = columns
        self.tick()

    def switch(self) -> None:
        """A log switch: the present file is archived."""
        self.tick()
        number, first, _, _ = self.files[-1]
        self.files[-1] = (number, first, self.scn, True)
        self.files.append((number + 1, self.scn, None, False))

    def remove_archived(self, number: int) -> None:
        self.files = [f for f in self.files if f[0] != number]

    def log(
        self, xid: str, op: int, *, scn: int | None = None, table: Table | None = None, **more: Any
    ) -> Record:
        if scn is None:
            self.tick()
        self.records_made += 1
        place = (f" 0x{self.files[-1][0]:06x}.{self.records_made:08x}.0010 ", 0)
        record = Record(
            xid, op, self.scn if scn is None else scn, place, self.now, parent=xid or None, **more
        )
        if table is not None:
            record.owner, record.table, record.object_id = table.owner, table.name, table.object_id
        self.redo.append(record)
        return record

    def log_change(
        self, xid: str, table: Table, row_id: str, before: dict | None, after: dict | None, *, undoes: int = 0
    ) -> None:
        op = 1 if before is None else 2 if after is None else 3
        sql = statement(table, before, after)
        pieces = [sql[at : at + PIECE] for at in range(0, len(sql), PIECE)]
        self.tick()
        self.records_made += 1
        for number, piece in enumerate(pieces):
            self.redo.append(
                Record(
                    xid,
                    op,
                    self.scn,
                    (f" 0x{self.files[-1][0]:06x}.{self.records_made:08x}.0010 ", 0),
                    self.now,
                    table.owner,
                    table.name,
                    table.object_id,
                    piece,
                    undoes,
                    int(number + 1 < len(pieces)),
                    row_id,
                    parent=xid,
                )
            )

    # ---- what it answers ----

    def connection(self) -> FakeConnection:
        return FakeConnection(self)

    def system(self, sql: str, values: list[Any]) -> list[tuple[Any, ...]] | None:
        """The answer to a statement about the database itself; None: it is none."""
        s = self.settings
        for view in s["denied"]:
            if view in sql:
                raise ora(942)
        if sql == catalog._DATABASE:
            row = (s["dbid"], RESETLOGS, self.scn, s["open_mode"], s["role"], s["log_mode"], s["minimal"])
            return [tuple(map(_number, (*row, s["all"], s["force"], s["cdb"])))]
        if sql == catalog._TABLES:
            return [
                (t.owner, t.name, str(t.object_id), f"{t.altered}", "10", "100", t.iot, None)
                for t in sorted(self.tables.values(), key=lambda t: t.name)
            ]
        if sql == catalog._COLUMNS.format(":1"):
            return [
                (t.owner, t.name, c.name, c.data_type, _text(c.length), _text(c.length), _text(c.precision),
                 _text(c.scale), "Y" if c.nullable else "N", c.collation)
                for t in self.tables.values() for c in t.columns if not c.virtual
            ]  # fmt: skip
        if sql == catalog._KEYS.format(":1"):
            return [(t.owner, t.name, name) for t in self.tables.values() for name in t.key]
        if sql == catalog._LOGGED.format(":1"):
            return [(t.owner, t.name) for t in self.tables.values() if t.logs_all]
        if sql == files._ONLINE:
            return [
                (
                    f"/redo{n}.log",
                    str(n),
                    str(first),
                    str(next_ or 1 << 63),
                    "INACTIVE" if next_ else "CURRENT",
                )
                for n, first, next_, archived in self.files
                if not archived or n == self.files[-1][0] - 1
            ]
        if sql == files._ARCHIVED:
            assert values[0] == RESETLOGS
            return [
                (f"/arch{n}.arc", str(n), str(first), str(next_))
                for n, first, next_, archived in self.files
                if archived and next_ > values[1]
            ]
        if sql == clock._OPEN:
            return [(_text(min((t.start for t in self.open), default=None)), str(len(self.open)))]
        answers = {
            clock._ZONE: "+00:00",
            clock._NOW: f"{self.now}.000000",
            table_checks._CHARACTER_SET: s["charset"],
            "SELECT DBTIMEZONE FROM DUAL": s["dbtimezone"],
            "SELECT VERSION_FULL FROM V$INSTANCE": s["version"],
            "SELECT COUNT(*) FROM V$THREAD WHERE ENABLED <> 'DISABLED'": str(s["threads"]),
            "SELECT VALUE FROM V$PARAMETER WHERE NAME = 'undo_retention'": s["undo_retention"],
            "SELECT COUNT(*) FROM ALL_PROCEDURES WHERE OWNER = 'SYS' AND OBJECT_NAME = 'DBMS_LOGMNR'": str(
                s["may_mine"]
            ),
        }
        if sql in answers:
            return [(answers[sql],)]
        if sql == "SELECT USER, SYS_CONTEXT('USERENV', 'CON_NAME') FROM DUAL":
            return [(s["user"], s["container"])]
        if sql == "SELECT USER FROM DUAL":
            return [(s["user"],)]
        if sql == miner._CONTAINER:
            return [(s["container"], "3")]
        if sql == "SELECT PRIVILEGE FROM SESSION_PRIVS":
            return [(p,) for p in s["privileges"]]
        if "FROM V$SESSION WHERE STATUS" in sql:
            return [("2",)]
        if sql.startswith("SELECT 1 FROM V$"):
            if "LOGMNR" in sql:
                raise ora(1306)
            return []
        return None

    def select(self, sql: str, values: list[Any]) -> list[tuple[Any, ...]]:
        """The answer to a query of a table."""
        found = re.search(r'"SHOP"\."(\w+)"(?: AS OF SCN (\d+))?', sql)
        assert found, f"unknown statement: {sql}"
        table = self.tables.get(found[1])
        if table is None:
            raise ora(942)
        scn = int(found[2] or self.scn)
        if found[2] and not table.may_flashback:
            raise ora(1031)
        if found[2] and scn < self.undo_from:
            raise ora(1555)
        if found[2] and scn < table.altered_scn:
            raise ora(1466)
        db = sqlite3.connect(":memory:")
        db.create_function("TO_CHAR", 2, _to_char)
        db.create_function("TO_DATE", 2, lambda text, _: text.strip())
        db.create_function("TO_TIMESTAMP", 2, lambda text, _: f"{text.strip():0<29}"[:29])
        db.create_function("HEXTORAW", 1, bytes.fromhex)
        db.create_function("RAWTOHEX", 1, lambda b: None if b is None else b.hex().upper())
        columns = [c for c in table.columns if not c.virtual]
        db.execute(f"CREATE TABLE t ({', '.join(f'{_quoted(c.name)}' for c in columns)})")
        places = ", ".join("?" * len(columns))
        for row in table.at(scn).values():
            db.execute(f"INSERT INTO t VALUES ({places})", [_stored(row.get(c.name), c) for c in columns])
        sql = sql.replace(found[0], "t")
        sql = re.sub(r"FETCH FIRST (\d+) ROWS ONLY", r"LIMIT \1", sql)
        sql = re.sub(r"OFFSET (\d+) ROWS FETCH NEXT (\d+) ROWS ONLY", r"LIMIT \2 OFFSET \1", sql)
        sql = re.sub(r":(\d+)", r"?\1", sql)
        bound = [float(v) if isinstance(v, Decimal) else v for v in values]
        try:
            return [tuple(map(_number, row)) for row in db.execute(sql, bound)]
        except sqlite3.OperationalError:
            raise ora(904) from None


class FakeConnection:
    """python-oracledb's connection, as far as it is used."""

    def __init__(self, server: OracleServer) -> None:
        self.server = server
        self.call_timeout = 0
        self.outputtypehandler = None
        self.added: list[str] = []
        self.range: tuple[int, int | None] | None = None

    def cursor(self) -> FakeCursor:
        return FakeCursor(self)

    def commit(self) -> None: ...

    def close(self) -> None: ...


class FakeCursor:
    def __init__(self, connection: FakeConnection) -> None:
        self.connection = connection
        self.server = connection.server
        self.rows: list[tuple[Any, ...]] = []
        self.arraysize = self.prefetchrows = 1

    def __enter__(self) -> FakeCursor:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self):
        return iter(self.rows)

    def execute(self, sql: str, values: Any) -> None:
        connection, server = self.connection, self.server
        if sql.startswith("ALTER SESSION"):
            return
        if sql in (miner._ADD.format("DBMS_LOGMNR.NEW"), miner._ADD.format("DBMS_LOGMNR.ADDFILE")):
            if ".NEW" in sql:
                connection.added = []
            connection.added.append(values["name"])
            return
        if sql in (miner._START, miner._START_UPTO):
            connection.range = (values["since"], values.get("upto"))
            return
        if sql == miner._END:
            assert connection.range is not None
            connection.range = None
            while server.after_run:
                server.after_run.pop(0)()
            return
        if sql == miner._HEADS:
            self.rows = self._heads()
            return
        if sql.startswith(miner._ROWS.partition("{")[0]):
            self.rows = self._records(list(values))
            return
        if sql.startswith("INSERT INTO heartbeat"):
            transaction = server.begin()
            transaction.commit()
            return
        found = server.system(sql, list(values))
        self.rows = server.select(sql, list(values)) if found is None else found

    def _mined(self) -> list[Record]:
        """The records that LogMiner shows: of the files that were added, within the range."""
        server, (since, upto) = self.server, self.connection.range or (None, None)
        assert since is not None, "LogMiner was not started"
        server.runs += 1
        spans = [
            (first, next_ or 1 << 63)
            for n, first, next_, archived in server.files
            if f"/redo{n}.log" in self.connection.added or f"/arch{n}.arc" in self.connection.added
        ]
        assert len(spans) == len(self.connection.added)
        if not any(first <= since < next_ for first, next_ in spans):
            raise ora(1291)
        return sorted(
            (
                r
                for r in server.redo
                if since <= r.scn
                and (upto is None or r.scn <= upto)
                and (server.written is None or r.scn <= server.written)
                and any(first <= r.scn < next_ for first, next_ in spans)
            ),
            key=lambda r: (r.scn, r.place),
        )

    def _heads(self) -> list[tuple[Any, ...]]:
        groups: dict[tuple[Any, ...], list[Record]] = {}
        for r in self._mined():
            if r.op in (5, 6, 7, 34, 36) or (r.op in (1, 2, 3, 255) and not r.undoes):
                own = r.place if r.op == 5 else None
                groups.setdefault((r.con, r.xid, r.op, r.owner, r.table, own), []).append(r)
        return [
            (str(con), xid, str(op), owner, table, str(min(r.scn for r in rs)), str(max(r.scn for r in rs)),
             max(r.place[0] for r in rs), "0", f"{min(r.at for r in rs)}", str(len(rs)),
             rs[0].sql if op == 5 else None)
            for (con, xid, op, owner, table, _), rs in groups.items()
        ]  # fmt: skip

    def _records(self, values: list[Any]) -> list[tuple[Any, ...]]:
        wanted = set(zip(values[::2], values[1::2], strict=True))
        return [
            (str(r.con), r.xid, r.parent, str(r.op), str(r.undoes), r.owner, r.table, str(r.scn), r.place[0],
             str(r.place[1]), str(r.csf), r.row_id, str(r.status), f"{r.at}", r.sql)
            for r in self._mined()
            if r.op in (1, 2, 3, 255) and (r.owner, r.table) in wanted
        ]  # fmt: skip


def statement(table: Table, before: dict | None, after: dict | None) -> str:
    """SQL_REDO of a change, with supplemental logging of all columns if the table has it."""
    columns = [c for c in table.columns if not c.virtual]
    name = f'"{table.owner}"."{table.name}"'
    if before is None:
        assert after is not None
        names = ",".join(_quoted(c.name) for c in columns)
        return f"insert into {name}({names}) values ({','.join(literal(after[c.name], c) for c in columns)})"
    changed = [] if after is None else [c for c in columns if after[c.name] != before[c.name]]
    logged = columns if table.logs_all else [c for c in columns if c in changed or c.name in table.key]
    where = " and ".join(
        f"{_quoted(c.name)} IS NULL"
        if before[c.name] is None
        else f"{_quoted(c.name)} = {literal(before[c.name], c)}"
        for c in logged
    )
    if after is None:
        return f"delete from {name} where {where}"
    sets = ", ".join(f"{_quoted(c.name)} = {literal(after[c.name], c)}" for c in changed or columns[:1])
    return f"update {name} set {sets} where {where}"


def literal(value: Any, column: Column) -> str:
    """A value as LogMiner prints it."""
    if value is None:
        return "NULL"
    kind = column.data_type
    if kind == "DATE":
        return f"TO_DATE('{_date(value)}', 'SYYYY-MM-DD HH24:MI:SS')"
    if kind.endswith("WITH TIME ZONE"):
        return f"TO_TIMESTAMP_TZ('{value}')"
    if kind.endswith("WITH LOCAL TIME ZONE"):
        return f"TO_TIMESTAMP_ITZ('{_stamp(value)}')"
    if kind.startswith("TIMESTAMP"):
        return f"TO_TIMESTAMP('{_stamp(value)}')"
    if kind == "RAW":
        return f"HEXTORAW('{value.hex()}')"
    if kind in ("NVARCHAR2", "NCHAR"):
        units = value.encode("utf-16-be").hex().upper()
        return "UNISTR('" + "".join(f"\\{units[i : i + 4]}" for i in range(0, len(units), 4)) + "')"
    return "'" + str(value).replace("'", "''") + "'"


def _date(value: datetime) -> str:
    return f" {value:%Y-%m-%d %H:%M:%S}"


def _stamp(value: datetime) -> str:
    return f" {value:%Y-%m-%d %H:%M:%S.%f}000"


def _stored(value: Any, column: Column) -> Any:
    if isinstance(value, datetime):
        return _date(value).strip() if column.data_type == "DATE" else _stamp(value).strip()
    if isinstance(value, Decimal):
        return str(value) if column.data_type == "NUMBER" and value != int(value) else int(value)
    return value


def _to_char(value: Any, format_: str) -> Any:
    return None if value is None else value if "TZH" in format_ else f" {value}"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _number(value: Any) -> Any:
    """Numbers come as text: `connection._exact_numbers`."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _text(value: Any) -> str | None:
    return None if value is None else str(value)

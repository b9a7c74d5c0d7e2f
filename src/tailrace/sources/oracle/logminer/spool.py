"""Statements put aside by transaction, on disk when they are many.

LogMiner returns the records of all transactions as they lie in the log. A range's changes are emitted in the
order of the commits, so they are put aside first. A record that undoes an earlier one removes it: ROLLBACK TO
SAVEPOINT, or a statement that failed, undoes the last changes of its transaction, the latest first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from tailrace.errors import DecodeError, SchemaMismatchError
from tailrace.model.table import TableId
from tailrace.sources.oracle.logminer.index import UNRESOLVED
from tailrace.sources.oracle.logminer.miner import DELETE, INSERT, UNSUPPORTED, UPDATE, RedoRecord

#: What a record undoes, by its operation.
_UNDONE = {INSERT: DELETE, DELETE: INSERT, UPDATE: UPDATE}
_CREATE = """\
CREATE TABLE statement (n INTEGER PRIMARY KEY, xid TEXT, operation INTEGER, owner TEXT, name TEXT,
                        scn INTEGER, row_id TEXT, status INTEGER, at TEXT, sql TEXT)"""
_INDEX = "CREATE INDEX by_row ON statement (xid, row_id)"
_COLUMNS = "operation, owner, name, scn, status, at, sql"


@dataclass(frozen=True, slots=True)
class WholeStatement:
    """A whole statement of LogMiner, as RedoRecord."""

    operation: int
    table: TableId
    scn: int
    status: int
    at: str
    sql: str


class Spool:
    """The statements of some transactions, in the order of the log."""

    def __init__(self) -> None:
        self._db = sqlite3.connect(
            "", isolation_level=None
        )  # a file of its own, once it is too large for memory
        self._db.execute(_CREATE)
        self._db.execute(_INDEX)
        self._db.execute("BEGIN")

    def take(self, records: Iterable[RedoRecord], xids: Iterable[str], behind: int) -> None:
        """Put the records of these transactions aside.

        Args:
            records: all of a range.
            xids: the transactions.
            behind: the SCN behind which LogMiner must know each record's transaction.

        Raises:
            DecodeError: they contradict each other.
            SchemaMismatchError: a change is of a kind that LogMiner does not describe.
        """
        wanted = frozenset(xids)
        first: RedoRecord | None = None
        parts: list[str] = []
        for record in records:
            if first is None:
                first = record
            elif (record.xid, record.place, record.operation) != (first.xid, first.place, first.operation):
                raise _contradiction("a statement on several rows is cut off", record)
            parts.append(record.sql)
            if record.continues:
                continue
            if first.xid.endswith(UNRESOLVED) and first.scn > behind:
                raise _contradiction("a change has no transaction", first)
            if first.xid in wanted:
                self._add(first, "".join(parts))
            first, parts = None, []
        if first is not None:
            raise _contradiction("a statement on several rows is cut off", first)

    def _add(self, record: RedoRecord, sql: str) -> None:
        if record.is_part or record.operation == UNSUPPORTED:
            what = "by parallel DML" if record.is_part else "in a way that LogMiner does not describe"
            raise SchemaMismatchError(
                f"table `{record.table}` was changed {what}",
                f"at SCN {record.scn}",
                "leave the table out; or start a new stream, and use ALTER SESSION DISABLE PARALLEL DML"
                if record.is_part
                else "leave the table out of `tables`; V$LOGMNR_CONTENTS.INFO says what it is",
                code="TR-4622",
                table=str(record.table),
            )
        if record.undoes:
            self._undo(record)
            return
        self._db.execute(
            "INSERT INTO statement VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.xid,
                record.operation,
                record.table.database,
                record.table.table,
                record.scn,
                record.row_id,
                record.status,
                record.at,
                sql,
            ),
        )

    def _undo(self, record: RedoRecord) -> None:
        """Remove the last change of the row that the transaction has not undone yet."""
        found = self._db.execute(
            "SELECT n, operation, owner, name FROM statement WHERE xid = ? AND row_id = ? "
            "ORDER BY n DESC LIMIT 1",
            (record.xid, record.row_id),
        ).fetchone()
        undone = (_UNDONE[record.operation], record.table.database, record.table.table)
        if found is None or tuple(found[1:]) != undone:
            raise _contradiction("a change is undone that is not the last one of its row", record)
        self._db.execute("DELETE FROM statement WHERE n = ?", (found[0],))

    def of(self, xid: str) -> Iterator[WholeStatement]:
        """The statements of a transaction, in order, without those that it has undone."""
        with closing(self._db.cursor()) as cursor:
            query = f"SELECT {_COLUMNS} FROM statement WHERE xid = ? ORDER BY n"
            for operation, owner, name, scn, status, at, sql in cursor.execute(query, (xid,)):
                yield WholeStatement(operation, TableId(owner, name), scn, status, at, sql)

    def close(self) -> None:
        """Remove them."""
        self._db.close()


def _contradiction(what: str, record: RedoRecord) -> DecodeError:
    return DecodeError(
        f"records of LogMiner contradict each other: {what}",
        f"table {record.table}, SCN {record.scn}, RS_ID {record.place[0].strip()}, SSN {record.place[1]}",
        "please report what V$LOGMNR_CONTENTS has there (values are in SQL_REDO and SQL_UNDO alone)",
        code="TR-4615",
    )

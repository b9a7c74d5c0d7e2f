"""One LogMiner session: a range of SCNs, its transactions in short, or its changes of rows.

LogMiner runs without COMMITTED_DATA_ONLY. With that option the server would hold each transaction in its
memory, and leave out what is not committed at the range's end, without saying from where to read it later. So
all records come in the order of the log, and transactions are put together here.

In a container database the log is that of the whole container: the session changes to the root, and records
of other containers are left out by their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.config.options import SourceOptions
from tailrace.model.table import TableId
from tailrace.sources.oracle import catalog
from tailrace.sources.oracle.connection import connect
from tailrace.sources.oracle.logminer import files as redo_files
from tailrace.sources.oracle.logminer.files import LogFile

#: Codes of OPERATION_CODE.
INSERT, DELETE, UPDATE, DDL, START, COMMIT, MISSING, ROLLBACK, UNSUPPORTED = 1, 2, 3, 5, 6, 7, 34, 36, 255
_ADD = "BEGIN DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => :name, OPTIONS => {}); END;"
_OPTIONS = (
    "DBMS_LOGMNR.DICT_FROM_ONLINE_CATALOG + DBMS_LOGMNR.NO_SQL_DELIMITER + DBMS_LOGMNR.NO_ROWID_IN_STMT"
)
_START = f"BEGIN DBMS_LOGMNR.START_LOGMNR(STARTSCN => :since, OPTIONS => {_OPTIONS}); END;"
_START_UPTO = (
    f"BEGIN DBMS_LOGMNR.START_LOGMNR(STARTSCN => :since, ENDSCN => :upto, OPTIONS => {_OPTIONS}); END;"
)
_END = "BEGIN DBMS_LOGMNR.END_LOGMNR; END;"
#: One row for each transaction and table; each COMMIT and schema change has a row of its own.
_HEADS = """\
SELECT SRC_CON_ID, RAWTOHEX(XID), OPERATION_CODE, SEG_OWNER, TABLE_NAME, MIN(SCN), MAX(SCN), MAX(RS_ID),
       MAX(SSN), TO_CHAR(MIN(TIMESTAMP), 'YYYY-MM-DD HH24:MI:SS'), COUNT(*),
       MAX(CASE WHEN OPERATION_CODE = 5 THEN SUBSTR(SQL_REDO, 1, 1000) END)
FROM V$LOGMNR_CONTENTS
WHERE OPERATION_CODE IN (5, 6, 7, 34, 36) OR (OPERATION_CODE IN (1, 2, 3, 255) AND ROLLBACK = 0)
GROUP BY SRC_CON_ID, XID, OPERATION_CODE, SEG_OWNER, TABLE_NAME,
         CASE WHEN OPERATION_CODE = 5 THEN RS_ID END, CASE WHEN OPERATION_CODE = 5 THEN SSN END"""
_ROWS = """\
SELECT SRC_CON_ID, RAWTOHEX(XID), RAWTOHEX(PXID), OPERATION_CODE, ROLLBACK, SEG_OWNER, TABLE_NAME, SCN, RS_ID,
       SSN, CSF, ROW_ID, STATUS, TO_CHAR(TIMESTAMP, 'YYYY-MM-DD HH24:MI:SS'), SQL_REDO
FROM V$LOGMNR_CONTENTS
WHERE OPERATION_CODE IN (1, 2, 3, 255) AND ({})"""
_ONE_TABLE = "(SEG_OWNER = :{} AND TABLE_NAME = :{})"
_CONTAINER = "SELECT SYS_CONTEXT('USERENV', 'CON_NAME'), SYS_CONTEXT('USERENV', 'CON_ID') FROM DUAL"


@dataclass(frozen=True, slots=True)
class Head:
    """The records of one kind of a transaction, in short.

    Args:
        xid: the transaction.
        operation: OPERATION_CODE.
        table: the table, None for records that are not about one.
        first: the least SCN.
        last: the greatest SCN.
        place: RS_ID and SSN of the last one.
        at: the time of the first one in the server's clock, `YYYY-MM-DD HH24:MI:SS`.
        count: how many there are.
        sql: of a schema change its statement.
        is_ours: whether it is of the container that is captured.
    """

    xid: str
    operation: int
    table: TableId | None
    first: int
    last: int
    place: tuple[str, int]
    at: str
    count: int
    sql: str
    is_ours: bool


@dataclass(frozen=True, slots=True)
class RedoRecord:
    """A change of a row, or a part of its statement.

    Args:
        xid: the transaction.
        is_part: whether another transaction commits it: parallel DML.
        operation: OPERATION_CODE.
        undoes: whether it undoes an earlier change: ROLLBACK TO SAVEPOINT, or a statement that failed.
        table: the table.
        scn: its SCN.
        place: RS_ID and SSN: rows of one statement that is too long for one row share them.
        continues: whether the next record continues its statement.
        row_id: the row.
        status: STATUS.
        at: its time in the server's clock.
        sql: the statement, or a part of it.
    """

    xid: str
    is_part: bool
    operation: int
    undoes: bool
    table: TableId
    scn: int
    place: tuple[str, int]
    continues: bool
    row_id: str
    status: int
    at: str
    sql: str


class Miner:
    """Reads the log by LogMiner; used by one thread.

    Args:
        options: the server.
        purpose: see `connect`.
    """

    def __init__(self, options: SourceOptions, purpose: str) -> None:
        self._connection = connect(options, purpose=purpose, rows=True)
        try:
            found = catalog.database(self._connection)
            self.database = found.identity
            self._container: int | None = None
            if found.is_container:
                ((_, number),) = self._connection.rows(_CONTAINER)
                self._container = int(number)
                self._connection.run("ALTER SESSION SET CONTAINER = CDB$ROOT")
                self._connection.set_formats()
        except BaseException:
            self._connection.close()
            raise

    def files(self, since: int) -> list[LogFile]:
        """The log's files from an SCN on. Raises as `files.read`."""
        return redo_files.read(self._connection, since, self.database.partition("/")[2])

    def heads(self, since: int, upto: int | None) -> list[Head]:
        """The transactions and schema changes from `since` to `upto`, in short; None: to the log's end.

        Raises:
            PositionLostError: the log is not there any more.
            TransientSourceError: a file was written over while it was read.
        """
        found = []
        for con, xid, operation, owner, table, first, last, rs_id, ssn, at, count, sql in self._mine(
            since, upto, _HEADS
        ):
            found.append(
                Head(
                    xid=xid or "",
                    operation=int(operation),
                    table=None if owner is None or table is None else TableId(owner, table),
                    first=int(first),
                    last=int(last),
                    place=(rs_id or "", int(ssn or 0)),
                    at=at,
                    count=int(count),
                    sql=sql or "",
                    is_ours=self._is_ours(con),
                )
            )
        return found

    def records(self, since: int, upto: int, tables: Sequence[TableId]) -> Iterator[RedoRecord]:
        """The changes of rows of `tables` from `since` to `upto`, in the order of the log.

        They count only once all of them were read without an error. Raises as `heads`.
        """
        if not tables:
            return
        places = " OR ".join(_ONE_TABLE.format(2 * i + 1, 2 * i + 2) for i in range(len(tables)))
        values = [name for table in tables for name in (table.database, table.table)]
        for row in self._mine(since, upto, _ROWS.format(places), values):
            con, xid, parent, op, undoes, owner, table, scn, rs_id, ssn, csf, row_id, status, at, sql = row
            if self._is_ours(con):
                yield RedoRecord(
                    xid=xid,
                    is_part=bool((parent or "").strip("0")) and parent != xid,
                    operation=int(op),
                    undoes=int(undoes or 0) == 1,
                    table=TableId(owner, table),
                    scn=int(scn),
                    place=(rs_id or "", int(ssn or 0)),
                    continues=int(csf or 0) == 1,
                    row_id=row_id or "",
                    status=int(status or 0),
                    at=at,
                    sql=sql or "",
                )

    def _is_ours(self, container: Any) -> bool:
        return self._container is None or (container is not None and int(container) == self._container)

    def _mine(
        self, since: int, upto: int | None, sql: str, values: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, ...]]:
        used = redo_files.between(self.files(since), since, upto)
        run = self._connection.run
        for number, file in enumerate(used):
            option = "DBMS_LOGMNR.ADDFILE" if number else "DBMS_LOGMNR.NEW"
            run(_ADD.format(option), {"name": file.name})
        if upto is None:
            run(_START, {"since": since})
        else:
            run(_START_UPTO, {"since": since, "upto": upto})
        yield from self._connection.each(sql, values)
        run(_END)
        redo_files.require_unchanged(self._connection, used)

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return self._connection.is_open

    def close(self) -> None:
        """Close the session, and LogMiner's with it."""
        self._connection.close()

"""Transactions of the log, block after block, without a Python object for any of them.

The kernel in `boundaries.py` finds them; this module decides which tables are captured, and what a statement
means. What counts as a transaction:

    GTID, BEGIN, ..., XID | COMMIT | ROLLBACK      the usual form
    GTID, statement                                DDL, GRANT ...: its own transaction
    MariaDB: GTID, ..., XID | COMMIT               the usual form: the GTID opens it, or is standalone
    GTID, BEGIN, CREATE ... , rows, XID            CREATE TABLE ... SELECT of 8.0.21 and later: DDL and rows
    GTID, XA START, ..., XA END, XA_PREPARE        prepared: rows that may be rolled back (PREPARED)
    GTID, XA COMMIT | XA ROLLBACK                  ends one that was prepared earlier (XA_END); its captured
                                                   rows count here
    GTID, TRANSACTION_PAYLOAD                      compressed: its tables are not read, so it counts as
                                                   captured; only whether it prepares is read
    PREVIOUS_GTIDS, MariaDB: GTID_LIST             no transaction, but a row (FILE_START), so that a position
                                                   can move out of a file that may be purged
    MariaDB: BINLOG_CHECKPOINT                     no transaction, but a row (CHECKPOINT): it may be the end
                                                   of the log for long, which must be reached

Statements that change rows by their text (binlog_format STATEMENT or MIXED, in some session) cannot be
captured: the first that may concern a captured table is an error, never skipped. That is one that names a
captured table, or any table of a database that holds one: triggers, functions, views and cascades change
tables that the text does not name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tailrace.errors import DecodeError, PositionLostError, SourceError
from tailrace.kernels.memory import SLACK
from tailrace.model.table import TableId
from tailrace.sources.mysql.gtid import GtidSource
from tailrace.sources.mysql.wire import mariadb
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.kernels.boundaries import (
    CLOSES,
    DONE,
    HAS_DDL,
    HAS_SIGNALS,
    HAS_WANTED,
    INCIDENT,
    INSIDE,
    NEW_PAYLOAD,
    NEW_PREPARED,
    NEW_SOURCE,
    NEW_STATEMENT,
    NEW_TABLE,
    OPENS,
    OUT_FULL,
    OUTSIDE,
    PACKED_ROWS,
    PASSES,
    S_ACTION,
    S_BEGAN,
    S_COUNT,
    S_FLAGS,
    S_PHASE,
    S_ROWS,
    S_USED,
    SLOT_WORDS,
    SOURCE_BYTES,
    UNKNOWN,
    XA_END,
    index,
)
from tailrace.sources.mysql.wire.kernels.events import QUERY_COMPRESSED
from tailrace.sources.mysql.wire.kernels.rowcount import count_event, plan_of
from tailrace.sources.mysql.wire.rare.payload import prepared_in
from tailrace.sources.mysql.wire.rare.statements import (
    Statement,
    classify,
    dropped_database,
    executed,
    refuse_statement,
    selects_rows,
    statement_of,
    table_created,
    tables_named,
)
from tailrace.sources.mysql.wire.rare.xa import XaMark, XaStep, end_of, prepare_of

#: Most known tables; then all are dropped: every ALTER and every start of the server uses new ids.
_MOST_TABLES = 1 << 16
_EXECUTE_LOAD_QUERY = 18


@dataclass(frozen=True)
class DdlStatement:
    """A statement that may change captured tables.

    Args:
        file: log file it is in.
        start: offset of its transaction's start.
        end: offset of its event's end.
        database: default database of the statement.
        text: the statement.
        tables: captured tables that it may concern; empty for a dropped database.
        ts_ms: when it was executed, milliseconds since 1970 UTC.
        pos: offset of its event's start.
        server_id: the server that executed it.
        gtid: its transaction's GTID, "" for none.
        ts_us: when its transaction was committed, microseconds since 1970 UTC; 0 if unknown.
        folds: whether the names in it stand for names in lower case (`statements.table_id`).
    """

    file: str
    start: int
    end: int
    database: str
    text: str
    tables: tuple[TableId, ...]
    ts_ms: int = 0
    pos: int = 0
    server_id: int = 0
    gtid: str = ""
    ts_us: int = 0
    folds: bool = False

    @property
    def dropped_database(self) -> str | None:
        """The database that it drops with all its tables."""
        found = dropped_database(self.text)
        return found.lower() if found and self.folds else found

    @property
    def created(self) -> TableId | None:
        """The table that it creates for certain."""
        return table_created(self.text, self.database, folds=self.folds)


@dataclass(frozen=True)
class Transactions:
    """Transactions that ended in one block.

    Args:
        file: the block's file.
        rows: int64 array of shape (n, 8): START, END, TS_US, SOURCE, GNO, WANTED, ROWS, FLAGS.
        ddl: schema changes among them, in log order.
        xa: those that prepare or end an XA transaction, in log order.
    """

    file: str
    rows: np.ndarray
    ddl: list[DdlStatement] = field(default_factory=list)
    xa: list[XaMark] = field(default_factory=list)


class TransactionIndex:
    """Indexes a log, block after block; an open transaction is carried over.

    Args:
        captures: whether a table is captured; called once for each table seen.
        count_rows: whether rows are counted.
        past: the log is searched, not captured: changes that it holds as statements only are skipped.
        holds_captured: whether a database holds captured tables; called where the log has a statement
            instead of rows.
        has_signals: whether a table is that of the signals: its rows are wanted, its statements are not.
        folds: whether the names in statements stand for names in lower case (`statements.table_id`); called
            at schema changes.

    Attributes:
        sources: the sources of GTIDs, by the index in the SOURCE column.
    """

    def __init__(
        self,
        captures: Callable[[TableId], bool],
        *,
        count_rows: bool = False,
        past: bool = False,
        holds_captured: Callable[[str], bool] = lambda _: False,
        has_signals: Callable[[TableId], bool] = lambda _: False,
        folds: Callable[[], bool] = lambda: False,
    ) -> None:
        self.sources: list[GtidSource] = []
        self._captures = captures
        self._counting = count_rows
        self._past = past
        self._holds_captured = holds_captured
        self._has_signals = has_signals
        self._folds = folds
        self._state = np.zeros(16, np.int64)
        self._scratch = np.zeros(SOURCE_BYTES + SLACK, np.uint8)
        self._source_table = np.zeros(4 * SOURCE_BYTES + SLACK, np.uint8)
        self._out = np.zeros((1 << 14, 8), np.int64)
        self._forget_tables()

    def _forget_tables(self) -> None:
        self._slots = np.zeros((1 << 10, SLOT_WORDS), np.int64)
        self._tables = 0
        self._kept: list[np.ndarray] = []

    @property
    def open_since(self) -> int | None:
        """Offset of the start of the open transaction, None between transactions."""
        return None if self._state[S_PHASE] == OUTSIDE else int(self._state[S_BEGAN])

    def feed(self, block: EventBlock) -> Transactions:
        """Index the next block.

        Raises:
            DecodeError: an event is malformed or of an unknown type.
            SourceError: the log lacks changes of a captured table, or has them as statements only.
        """
        if self._tables > _MOST_TABLES and self._state[S_PHASE] == OUTSIDE:
            self._forget_tables()
        done: list[np.ndarray] = []
        ddl: list[DdlStatement] = []
        xa: list[XaMark] = []
        base = block.buffer.ctypes.data
        at, pos = block.start, block.pos
        while True:
            status = index(
                base + at,
                base + block.end,
                pos,
                4 if block.checksum else 0,
                self._slots.ctypes.data,
                len(self._slots) - 1,
                self._source_table.ctypes.data,
                len(self.sources),
                self._scratch.ctypes.data,
                self._out.ctypes.data,
                len(self._out),
                int(self._counting),
                self._state.ctypes.data,
            )
            used, count = int(self._state[S_USED]), int(self._state[S_COUNT])
            at += used
            pos += used
            if count:
                done.append(self._out[:count].copy())
            if status == DONE:
                break
            if status == OUT_FULL:
                continue
            size = int.from_bytes(block.buffer[at + 9 : at + 13].tobytes(), "little")
            event = block.buffer[at : at + size - (4 if block.checksum else 0)].tobytes()
            if status == NEW_TABLE:
                self._learn_table(event[19:])
            elif status == NEW_SOURCE:
                self._learn_source()
            elif status == NEW_STATEMENT:
                change = self._judge(event, block.file, pos, size)
                if isinstance(change, DdlStatement):
                    ddl.append(change)
                elif change is not None:
                    xa.append(change)
            elif status == NEW_PREPARED:
                xid, _ = prepare_of(event[19:], f"`{block.file}:{pos}`")
                xa.append(self._prepares(xid, pos + size, int(self._state[S_ROWS])))
            elif status == NEW_PAYLOAD:
                self._state[S_ACTION] = CLOSES
                if prepared := prepared_in(event[19:], f"`{block.file}:{pos}`"):
                    xa.append(self._prepares(prepared, pos + size, int(self._counting), compressed=True))
            elif status == PACKED_ROWS:
                self._state[S_ACTION] = 1 + self._count_packed(event, f"`{block.file}:{pos}`")
            else:
                raise _error(status, int(block.buffer[at + 4]), f"`{block.file}:{pos}`")
        rows = done[0] if len(done) == 1 else np.concatenate([np.zeros((0, 8), np.int64), *done])
        return Transactions(block.file, rows, ddl, xa)

    def _prepares(self, xid: str, end: int, rows: int, *, compressed: bool = False) -> XaMark:
        """Note that the open transaction is a prepared one that ends at `end`."""
        self._state[S_ACTION] = PASSES
        has_rows = bool(self._state[S_FLAGS] & HAS_WANTED) or compressed
        return XaMark(XaStep.PREPARES, xid, int(self._state[S_BEGAN]), end, has_rows, rows)

    def _count_packed(self, event: bytes, where: str) -> int:
        """Rows in one of MariaDB's packed row events."""
        plain = mariadb.plain_rows(event, where)
        table, mask = int.from_bytes(event[19:25], "little"), len(self._slots) - 1
        i = table & mask
        while self._slots[i, 0] != table:  # it is there: the kernel has checked
            i = (i + 1) & mask
        plan, columns = self._slots[i, 5:7].tolist()
        buffer = np.frombuffer(plain + bytes(SLACK), np.uint8)
        address = buffer.ctypes.data
        rows = int(count_event(address, address + len(plain), columns, plan))
        if rows < 0:
            raise DecodeError(
                "an event of the log is malformed", f"type {event[4]} at {where}", code="TR-5201"
            )
        return rows

    def _learn_table(self, body: bytes) -> None:
        try:
            names = 8 + body[8] + 2
            database = body[9 : 9 + body[8]].decode()
            table = body[names + 1 : names + 1 + body[names]].decode()
            length = names + 1 + body[names] - 8
            if length > len(body) - 8:
                raise IndexError
        except (IndexError, UnicodeDecodeError) as error:
            raise DecodeError("a TABLE_MAP event of the log cannot be read", code="TR-5201") from error
        identity = np.frombuffer(body[8:] + bytes(SLACK), np.uint8).copy()
        self._kept.append(identity)
        plan = plan_of(body) if self._counting else np.zeros(2, np.int64)
        self._kept.append(plan)
        number = int.from_bytes(body[:6], "little")
        self._put(
            (
                number,
                identity.ctypes.data,
                len(body) - 8 if self._counting else length,
                int(self._counting),
                self._flags_of(TableId(database, table)),
                plan.ctypes.data,
                len(plan) - 1,
                0,
            )
        )

    def _flags_of(self, table: TableId) -> int:
        """The flags of a transaction with rows of a table."""
        signals = HAS_WANTED | HAS_SIGNALS if self._has_signals(table) else 0
        return signals | (HAS_WANTED if self._captures(table) else 0)

    def _put(self, slot: tuple[int, ...]) -> None:
        mask = len(self._slots) - 1
        i = slot[0] & mask
        while self._slots[i, 1] and self._slots[i, 0] != slot[0]:
            i = (i + 1) & mask
        self._tables += not self._slots[i, 1]
        self._slots[i] = slot
        if 2 * self._tables > len(self._slots):
            old = self._slots[self._slots[:, 1] != 0]
            self._slots = np.zeros((2 * len(self._slots), SLOT_WORDS), np.int64)
            self._tables = 0
            for row in old.tolist():
                self._put(tuple(row))

    def _learn_source(self) -> None:
        entry_ = self._scratch[:SOURCE_BYTES].tobytes()
        length = int.from_bytes(entry_[16:24], "little")
        at = len(self.sources) * SOURCE_BYTES
        if at + SOURCE_BYTES + SLACK > len(self._source_table):
            grown = np.zeros(2 * len(self._source_table), np.uint8)
            grown[:at] = self._source_table[:at]
            self._source_table = grown
        self._source_table[at : at + SOURCE_BYTES] = np.frombuffer(entry_, np.uint8)
        self.sources.append((entry_[:16], entry_[24 : 24 + length].decode("ascii", "replace")))

    def _judge(self, event: bytes, file: str, pos: int, size: int) -> DdlStatement | XaMark | None:
        """Apply the statement to the transaction."""
        if event[4] == QUERY_COMPRESSED:
            event = event[:19] + mariadb.plain_query(event[19:], f"`{file}:{pos}`")
        loads = event[4] == _EXECUTE_LOAD_QUERY
        database, text = statement_of(event[19:], loads=loads)
        text = executed(text)
        where = f"`{file}:{pos}`"
        state, kind = self._state, classify(text)
        if loads:
            state[S_ACTION] = PASSES
            self._refuse_rows(text, database, where)
            return None
        if state[S_PHASE] == OUTSIDE:
            state[S_FLAGS] = 0
        alone = PASSES if state[S_PHASE] == INSIDE else CLOSES
        began = pos if state[S_PHASE] == OUTSIDE else int(state[S_BEGAN])
        change: DdlStatement | XaMark | None = None
        match kind:
            case Statement.BEGIN:
                state[S_ACTION] = OPENS
            case Statement.INSIDE:
                state[S_ACTION] = PASSES
            case Statement.END:
                state[S_ACTION] = CLOSES
            case Statement.XA_END:
                state[S_ACTION] = CLOSES
                state[S_FLAGS] |= XA_END
                change = XaMark(*end_of(text, f"`{file}:{pos}`"), began, pos + size)
            case Statement.SCHEMA:
                state[S_ACTION] = alone
                if selects_rows(text):
                    self._refuse_rows(text, database, where)
                folds = self._folds()
                tables = tables_named(text, database, self._captures, folds=folds)
                if tables or dropped_database(text):
                    state[S_FLAGS] |= HAS_DDL
                    ts_ms = int.from_bytes(event[:4], "little") * 1000
                    server_id = int.from_bytes(event[5:9], "little")
                    change = DdlStatement(
                        file, began, pos + size, database, text, tables, ts_ms, pos, server_id, folds=folds
                    )
            case Statement.ROWS:
                state[S_ACTION] = alone
                self._refuse_rows(text, database, where)
            case Statement.OTHER:
                state[S_ACTION] = alone
        return change

    def _refuse_rows(self, text: str, database: str, where: str) -> None:
        """Raise SourceError if a statement that changes rows by its text may concern captured tables."""
        if not self._past:
            refuse_statement(text, database, where, self._captures, self._holds_captured)


def _error(status: int, kind: int, place: str) -> SourceError:
    if status == UNKNOWN:
        return DecodeError(f"the log has an event of the unknown type {kind}", f"at {place}", code="TR-4403")
    if status == INCIDENT:
        return PositionLostError(
            "the server says that its log lacks events (INCIDENT)",
            f"at {place}",
            "set onPositionLost: refresh (pipelines: on-position-lost: refresh): every table is read again, "
            "in place",
            code="TR-4108",
        )
    return DecodeError("an event of the log is malformed", f"type {kind} at {place}", code="TR-5201")

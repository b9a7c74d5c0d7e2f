"""Where transactions begin and end in the log, without a Python object for any of them.

The kernel `index` looks at event headers, at GTIDs and at the names in table maps, and writes one row of
int64 per finished transaction:

    START END     offsets in the file
    TS_US         commit time, microseconds since 1970 UTC
    SOURCE GNO    index of who numbered it (-1: nobody), and its number
    WANTED        bytes of row events of wanted tables
    ROWS          rows of them, where they are counted
    FLAGS         see below

It stops where Python has to decide, and is called again: a table or a source of GTIDs seen for the first
time, a statement. A busy log has few of these: BEGIN, COMMIT and SAVEPOINT are known to the kernel.

What counts as a transaction:

    GTID, BEGIN, ..., XID | COMMIT | ROLLBACK      the usual
    GTID, statement                                DDL, GRANT ...: its own transaction
    GTID, BEGIN, CREATE ... , rows, XID            CREATE TABLE ... SELECT of 8.0.21 and later: DDL and rows
    GTID, XA START, ..., XA END, XA_PREPARE        prepared: rows that may still vanish (PREPARED)
    GTID, XA COMMIT | XA ROLLBACK                  ends one that was prepared earlier (XA_END)
    GTID, TRANSACTION_PAYLOAD                      compressed: which tables is not looked at, so wanted
    PREVIOUS_GTIDS                                 no transaction; a row all the same (FILE_START), so that
                                                   a position can move out of a file that may be purged

Statements that change rows by their text (binlog_format STATEMENT or MIXED, in some session) cannot be
captured: the first that may concern a wanted table is an error, never skipped.

Kernels: memory rules in `memory.py`.
Source: MySQL internals manual, "Binlog Event"; `control_events.h` for the GTID events, of which the tagged
one is in the format of `mysql::serialization`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tailrace.errors import DecodeError, SourceError
from tailrace.model.table import TableId
from tailrace.sources.mysql.gtid import GtidSource
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.memory import SLACK, entry, inline, ld8, ld16, ld32, ld64, st8, st64
from tailrace.sources.mysql.wire.rowcount import count_rows, plan_of
from tailrace.sources.mysql.wire.statements import Statement, classify, drops_database, tables_named

START, END, TS_US, SOURCE, GNO, WANTED, ROWS, FLAGS = range(8)
#: Flags of a transaction.
HAS_WANTED, HAS_DDL, PREPARED, XA_END, COMPRESSED, FILE_START = 1, 2, 4, 8, 16, 32

# words of the state
_USED, _COUNT, _PHASE, _BEGAN, _TS, _SOURCE, _GNO, _WANTED, _ROWS, _FLAGS, _ACTION = range(11)
# phases: between transactions, behind a GTID, inside
_OUTSIDE, _NUMBERED, _INSIDE = 0, 1, 2
# what Python says about a statement
_ASK, _OPENS, _PASSES, _CLOSES = 0, 1, 2, 3
# why the kernel stops
_DONE, _FULL, _TABLE, _SOURCE_NEW, _STATEMENT, _BAD, _UNKNOWN, _INCIDENT = range(8)

# a table's slot: id, address and length of what must be equal, whether all of the body must, wanted,
# plan, columns
_SLOT = 8
# a source: uuid 16, length of the tag 8, tag 32, unused 8
_SOURCE_BYTES = 64
_DUMMY_TABLE = 0xFFFFFF
_MOST_TABLES = 1 << 16


@inline
def slot_of(table, slots, mask):
    """Address of the table id's slot, or of the free one it belongs in."""
    i = table & mask
    while ld64(slots + 8 * _SLOT * i + 8) != 0 and ld64(slots + 8 * _SLOT * i) != table:
        i = (i + 1) & mask
    return slots + 8 * _SLOT * i


@inline
def same(a, b, n):
    """Whether n bytes at two addresses are equal."""
    end = a + n
    while a + 8 <= end:
        if ld64(a) != ld64(b):
            return False
        a += 8
        b += 8
    while a < end:
        if ld8(a) != ld8(b):
            return False
        a += 1
        b += 1
    return True


@inline
def find_source(wanted, sources, count, last):
    """Index of the 56 bytes at `wanted` among the sources, -1: not there. `last` is tried first."""
    for k in range(-1, count):
        i = last if k < 0 else np.int64(k)
        if i < 0 or i >= count:
            continue
        s = sources + _SOURCE_BYTES * i
        equal = True
        for w in range(7):
            if ld64(s + 8 * w) != ld64(wanted + 8 * w):
                equal = False
                break
        if equal:
            return i
    return np.int64(-1)


@inline
def varint(p, end):
    """(value, address after it) of an integer of `mysql::serialization`; address -1 if it is cut off.

    The lowest bits that are set say how many bytes follow, the value lies above them.
    """
    if p >= end:
        return np.int64(0), np.int64(-1)
    first = ld8(p)
    extra = 0
    while extra < 8 and (first >> extra) & 1 == 1:
        extra += 1
    if p + 1 + extra > end:
        return np.int64(0), np.int64(-1)
    if extra >= 7:  # the value starts in the next byte
        value = np.int64(0)
        for j in range(extra):
            value |= ld8(p + 1 + j) << (8 * j)
        return value, p + 1 + extra
    value = np.int64(0)
    for j in range(extra + 1):
        value |= ld8(p + j) << (8 * j)
    return value >> (extra + 1), p + 1 + extra


@inline
def tagged_gtid(p, end, scratch, state):
    """Read a GTID_TAGGED event's body: source to `scratch`, number and time to `state`. False: malformed."""
    for _ in range(3):  # version, size, last field that must be known
        _, p = varint(p, end)
        if p < 0:
            return False
    for expected in range(4):  # flags, uuid, number, tag
        ident, p = varint(p, end)
        if p < 0 or ident != expected:
            return False
        if expected == 1:
            for j in range(16):
                value, p = varint(p, end)
                if p < 0:
                    return False
                st8(scratch + j, value)
            continue
        value, p = varint(p, end)
        if p < 0:
            return False
        if expected == 2:
            st64(state + 8 * _GNO, value >> 1)  # zigzag, never negative
        elif expected == 3:
            if value > 32 or p + value > end:
                return False
            st64(scratch + 16, value)
            for j in range(value):
                st8(scratch + 24 + j, ld8(p + j))
            p += value
    for _ in range(2):  # last committed, sequence number
        _, p = varint(p, end)
        if p < 0:
            return False
        _, p = varint(p, end)
        if p < 0:
            return False
    ident, p = varint(p, end)
    if p < 0 or ident != 6:
        return False
    value, p = varint(p, end)
    if p < 0:
        return False
    st64(state + 8 * _TS, value)
    return True


@inline
def starts_transaction(state, at, ts):
    """Forget the last transaction; one begins at offset `at`."""
    st64(state + 8 * _BEGAN, at)
    st64(state + 8 * _TS, ts)
    st64(state + 8 * _SOURCE, -1)
    for w in (_GNO, _WANTED, _ROWS, _FLAGS):
        st64(state + 8 * w, 0)


@inline
def ends_transaction(state, out, count, at):
    """Write the row of the transaction that ends at offset `at`."""
    row = out + 64 * count
    st64(row + 8 * START, ld64(state + 8 * _BEGAN))
    st64(row + 8 * END, at)
    st64(row + 8 * TS_US, ld64(state + 8 * _TS))
    st64(row + 8 * SOURCE, ld64(state + 8 * _SOURCE))
    st64(row + 8 * GNO, ld64(state + 8 * _GNO))
    st64(row + 8 * WANTED, ld64(state + 8 * _WANTED))
    st64(row + 8 * ROWS, ld64(state + 8 * _ROWS))
    st64(row + 8 * FLAGS, ld64(state + 8 * _FLAGS))
    st64(state + 8 * _PHASE, _OUTSIDE)


@inline
def statement_action(event, end, state):
    """What a QUERY event does to the transaction: what Python said, or what is known here."""
    action = ld64(state + 8 * _ACTION)
    if action != _ASK:
        st64(state + 8 * _ACTION, _ASK)
        return action
    if end - event < 19 + 13:
        return np.int64(-1)
    text = event + 19 + 13 + ld16(event + 19 + 11) + ld8(event + 19 + 8) + 1
    n = end - text
    if n < 0:
        return np.int64(-1)
    if n == 5 and ld32(text) == 0x49474542 and ld8(text + 4) == 0x4E:  # BEGIN
        return np.int64(_OPENS)
    if n == 6 and ld32(text) == 0x4D4D4F43 and ld16(text + 4) == 0x5449:  # COMMIT
        return np.int64(_CLOSES)
    if n > 10 and ld64(text) == 0x4E494F5045564153 and ld16(text + 8) == 0x2054:  # SAVEPOINT_
        return np.int64(_PASSES)
    return np.int64(_ASK)


@entry("int64(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def index(begin, end, position, trailer, slots, mask, sources, nsources, scratch, out, room, counting, state):
    """Index the events between two addresses; whole events only.

    Args:
        begin: address of the first event.
        end: address after the last.
        position: offset in the file of the first.
        trailer: bytes of checksum at each event's end.
        slots: address of the hash of known tables, `mask` + 1 slots.
        mask: see `slots`.
        sources: address of the known sources of GTIDs.
        nsources: how many there are.
        scratch: address of room for one source.
        out: address of room for rows.
        room: rows there is room for.
        counting: whether rows of wanted tables are counted.
        state: address of the state, kept from call to call.
    """
    p = begin
    count = np.int64(0)
    status = np.int64(_DONE)
    while p < end:
        if end - p < 19:
            status = np.int64(_BAD)
            break
        size = ld32(p + 9)
        if size < 19 + trailer or end - p < size:
            status = np.int64(_BAD)
            break
        if count >= room:
            status = np.int64(_FULL)
            break
        kind = ld8(p + 4)
        e = p + size - trailer
        at = position + (p - begin)
        after = at + size
        phase = ld64(state + 8 * _PHASE)
        if kind == 33 or kind == 34:
            if e - p < 19 + 25:
                status = np.int64(_BAD)
                break
            ts = ld32(p) * 1000000
            if e - p >= 68:
                ts = ld64(p + 61) & 0x7FFFFFFFFFFFFF
            starts_transaction(state, at, ts)
            if kind == 33:
                for w in range(2, 7):
                    st64(scratch + 8 * w, 0)
                st64(scratch, ld64(p + 20))
                st64(scratch + 8, ld64(p + 28))
                source = find_source(scratch, sources, nsources, np.int64(0))
                if source < 0:
                    status = np.int64(_SOURCE_NEW)
                    break
                st64(state + 8 * _SOURCE, source)
                st64(state + 8 * _GNO, ld64(p + 36))
            st64(state + 8 * _PHASE, _NUMBERED)
        elif kind == 42:
            starts_transaction(state, at, ld32(p) * 1000000)
            for w in range(7):
                st64(scratch + 8 * w, 0)
            if not tagged_gtid(p + 19, e, scratch, state):
                status = np.int64(_BAD)
                break
            source = find_source(scratch, sources, nsources, np.int64(0))
            if source < 0:
                status = np.int64(_SOURCE_NEW)
                break
            st64(state + 8 * _SOURCE, source)
            st64(state + 8 * _PHASE, _NUMBERED)
        elif kind == 19:
            if e - p < 19 + 8:
                status = np.int64(_BAD)
                break
            slot = slot_of(ld64(p + 19) & 0xFFFFFFFFFFFF, slots, mask)
            n = ld64(slot + 16)
            if (
                ld64(slot + 8) == 0
                or n > e - p - 27
                or (ld64(slot + 24) == 1 and n != e - p - 27)
                or not same(ld64(slot + 8), p + 27, n)
            ):
                status = np.int64(_TABLE)
                break
        elif (kind >= 30 and kind <= 32) or (kind >= 23 and kind <= 25) or kind == 39:
            if e - p < 19 + 8:
                status = np.int64(_BAD)
                break
            table = ld64(p + 19) & 0xFFFFFFFFFFFF
            slot = slot_of(table, slots, mask)
            if ld64(slot + 8) == 0:
                if table != _DUMMY_TABLE:
                    status = np.int64(_BAD)
                    break
            elif ld64(slot + 32) == 1:
                st64(state + 8 * _WANTED, ld64(state + 8 * _WANTED) + size)
                st64(state + 8 * _FLAGS, ld64(state + 8 * _FLAGS) | HAS_WANTED)
                if counting:
                    rows = np.int64(1)
                    if kind != 39:
                        rows = count_rows(p, e, ld64(slot + 48), ld64(slot + 40))
                    if rows < 0:
                        status = np.int64(_BAD)
                        break
                    st64(state + 8 * _ROWS, ld64(state + 8 * _ROWS) + rows)
        elif kind == 16:
            ends_transaction(state, out, count, after)
            count += 1
        elif kind == 2:
            action = statement_action(p, e, state)
            if action < 0:
                status = np.int64(_BAD)
                break
            if action == _ASK:
                status = np.int64(_STATEMENT)
                break
            if phase == _OUTSIDE and action != _PASSES:
                flags = ld64(state + 8 * _FLAGS)
                starts_transaction(state, at, ld32(p) * 1000000)
                if action == _CLOSES:
                    st64(state + 8 * _FLAGS, flags)
            if action == _OPENS:
                st64(state + 8 * _PHASE, _INSIDE)
            elif action == _CLOSES:
                ends_transaction(state, out, count, after)
                count += 1
        elif kind == 38:
            if e - p > 19 and ld8(p + 19) == 0:  # not ONE PHASE
                st64(state + 8 * _FLAGS, ld64(state + 8 * _FLAGS) | PREPARED)
            ends_transaction(state, out, count, after)
            count += 1
        elif kind == 40:
            st64(state + 8 * _WANTED, size)
            st64(state + 8 * _ROWS, 1)
            st64(state + 8 * _FLAGS, ld64(state + 8 * _FLAGS) | HAS_WANTED | COMPRESSED)
            ends_transaction(state, out, count, after)
            count += 1
        elif kind == 35:
            starts_transaction(state, at, np.int64(0))
            st64(state + 8 * _FLAGS, FILE_START)
            ends_transaction(state, out, count, after)
            count += 1
        elif kind == 26:
            status = np.int64(_INCIDENT)
            break
        elif not (
            kind == 3 or kind == 4 or kind == 5 or kind == 9 or kind == 11 or kind == 13
            or kind == 14 or kind == 15 or kind == 17 or kind == 18 or kind == 28 or kind == 29
            or kind == 36 or kind == 37 or ld16(p + 17) & 0x80 != 0
        ):  # fmt: skip
            status = np.int64(_UNKNOWN)
            break
        p += size
    st64(state + 8 * _USED, p - begin)
    st64(state + 8 * _COUNT, count)
    return status


@dataclass(frozen=True)
class SchemaChange:
    """A statement that may change captured tables.

    Args:
        file: log file it is in.
        start: offset of its transaction's start.
        end: offset of its event's end.
        database: default database of the statement.
        text: the statement.
        tables: captured tables that it may concern; empty for a dropped database.
    """

    file: str
    start: int
    end: int
    database: str
    text: str
    tables: tuple[TableId, ...]


@dataclass(frozen=True)
class Transactions:
    """Transactions that ended in one block.

    Args:
        file: the block's file.
        rows: int64 array of shape (n, 8): START, END, TS_US, SOURCE, GNO, WANTED, ROWS, FLAGS.
        ddl: schema changes among them, in log order.
    """

    file: str
    rows: np.ndarray
    ddl: list[SchemaChange] = field(default_factory=list)


class TransactionIndex:
    """Indexes a log, block after block; an open transaction is carried over.

    Args:
        wanted: whether a table is captured; asked once for each table met.
        count_rows: whether rows are counted.

    Attributes:
        sources: who numbered transactions, by the index in the SOURCE column.
    """

    def __init__(self, wanted: Callable[[TableId], bool], *, count_rows: bool = False) -> None:
        self.sources: list[GtidSource] = []
        self._wanted = wanted
        self._counting = count_rows
        self._state = np.zeros(16, np.int64)
        self._scratch = np.zeros(_SOURCE_BYTES + SLACK, np.uint8)
        self._source_table = np.zeros(4 * _SOURCE_BYTES + SLACK, np.uint8)
        self._out = np.zeros((1 << 14, 8), np.int64)
        self._forget_tables()

    def _forget_tables(self) -> None:
        self._slots = np.zeros((1 << 10, _SLOT), np.int64)
        self._tables = 0
        self._kept: list[np.ndarray] = []

    @property
    def open_since(self) -> int | None:
        """Offset of the start of the transaction that is open, None between transactions."""
        return None if self._state[_PHASE] == _OUTSIDE else int(self._state[_BEGAN])

    def feed(self, block: EventBlock) -> Transactions:
        """Index the next block.

        Raises:
            DecodeError: an event is malformed or of an unknown type.
            SourceError: the log lacks changes of a captured table, or has them as statements only.
        """
        if self._tables > _MOST_TABLES and self._state[_PHASE] == _OUTSIDE:
            self._forget_tables()  # every ALTER and server start uses new ids
        done: list[np.ndarray] = []
        ddl: list[SchemaChange] = []
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
            used, count = int(self._state[_USED]), int(self._state[_COUNT])
            at += used
            pos += used
            if count:
                done.append(self._out[:count].copy())
            if status == _DONE:
                break
            if status == _FULL:
                continue
            size = int.from_bytes(block.buffer[at + 9 : at + 13].tobytes(), "little")
            event = block.buffer[at : at + size - (4 if block.checksum else 0)].tobytes()
            if status == _TABLE:
                self._learn_table(event[19:])
            elif status == _SOURCE_NEW:
                self._learn_source()
            elif status == _STATEMENT:
                change = self._judge(event, block.file, pos, size)
                if change:
                    ddl.append(change)
            else:
                raise _error(status, int(block.buffer[at + 4]), f"`{block.file}:{pos}`")
        rows = done[0] if len(done) == 1 else np.concatenate([np.zeros((0, 8), np.int64), *done])
        return Transactions(block.file, rows, ddl)

    def _learn_table(self, body: bytes) -> None:
        try:
            names = 8 + body[8] + 2
            database = body[9 : 9 + body[8]].decode()
            table = body[names + 1 : names + 1 + body[names]].decode()
            length = names + 1 + body[names] - 8
            if length > len(body) - 8:
                raise IndexError
        except (IndexError, UnicodeDecodeError) as error:
            raise DecodeError("a TABLE_MAP event of the log cannot be read") from error
        identity = np.frombuffer(body[8:] + bytes(SLACK), np.uint8).copy()
        self._kept.append(identity)
        plan = plan_of(body) if self._counting else np.zeros(1, np.int64)
        self._kept.append(plan)
        number = int.from_bytes(body[:6], "little")
        self._put(
            (
                number,
                identity.ctypes.data,
                len(body) - 8 if self._counting else length,
                int(self._counting),
                int(self._wanted(TableId(database, table))),
                plan.ctypes.data,
                len(plan),
                0,
            )
        )

    def _put(self, slot: tuple[int, ...]) -> None:
        mask = len(self._slots) - 1
        i = slot[0] & mask
        while self._slots[i, 1] and self._slots[i, 0] != slot[0]:
            i = (i + 1) & mask
        self._tables += not self._slots[i, 1]
        self._slots[i] = slot
        if 2 * self._tables > len(self._slots):
            old = self._slots[self._slots[:, 1] != 0]
            self._slots = np.zeros((2 * len(self._slots), _SLOT), np.int64)
            self._tables = 0
            for row in old.tolist():
                self._put(tuple(row))

    def _learn_source(self) -> None:
        entry_ = self._scratch[:_SOURCE_BYTES].tobytes()
        length = int.from_bytes(entry_[16:24], "little")
        at = len(self.sources) * _SOURCE_BYTES
        if at + _SOURCE_BYTES + SLACK > len(self._source_table):
            grown = np.zeros(2 * len(self._source_table), np.uint8)
            grown[:at] = self._source_table[:at]
            self._source_table = grown
        self._source_table[at : at + _SOURCE_BYTES] = np.frombuffer(entry_, np.uint8)
        self.sources.append((entry_[:16], entry_[24 : 24 + length].decode("ascii", "replace")))

    def _judge(self, event: bytes, file: str, pos: int, size: int) -> SchemaChange | None:
        """Say what the statement does to the transaction."""
        variables = int.from_bytes(event[30:32], "little")
        length = event[27]
        database = event[32 + variables : 32 + variables + length].decode("utf-8", "replace")
        text = event[33 + variables + length :].decode("utf-8", "replace")
        state, kind = self._state, classify(text)
        if state[_PHASE] == _OUTSIDE:
            state[_FLAGS] = 0
        alone = _PASSES if state[_PHASE] == _INSIDE else _CLOSES
        change = None
        match kind:
            case Statement.BEGIN:
                state[_ACTION] = _OPENS
            case Statement.INSIDE:
                state[_ACTION] = _PASSES
            case Statement.END:
                state[_ACTION] = _CLOSES
            case Statement.XA_END:
                state[_ACTION] = _CLOSES
                state[_FLAGS] |= XA_END
            case Statement.SCHEMA:
                state[_ACTION] = alone
                tables = tables_named(text, database, self._wanted)
                if tables or drops_database(text):
                    state[_FLAGS] |= HAS_DDL
                    began = pos if state[_PHASE] == _OUTSIDE else int(state[_BEGAN])
                    change = SchemaChange(file, began, pos + size, database, text, tables)
            case Statement.ROWS:
                state[_ACTION] = alone
                if tables := tables_named(text, database, self._wanted):
                    raise SourceError(
                        f"the log has a statement instead of rows for `{tables[0]}`",
                        f"at `{file}:{pos}`: some session writes with binlog_format STATEMENT or MIXED",
                        "SET PERSIST binlog_format = 'ROW', and let no session change it; "
                        "then begin a new stream",
                    )
            case Statement.OTHER:
                state[_ACTION] = alone
        return change


def _error(status: int, kind: int, place: str) -> SourceError:
    if status == _UNKNOWN:
        return DecodeError(f"the log has an event of the unknown type {kind}", f"at {place}")
    if status == _INCIDENT:
        return SourceError(
            "the server says that its log lacks events (INCIDENT)",
            f"at {place}",
            "begin a new stream: changes were lost at the source",
        )
    return DecodeError("an event of the log is malformed", f"type {kind} at {place}")

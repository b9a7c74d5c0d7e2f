"""Kernel for the log's event headers: finds row events, their tables and their transactions.

`scan_events` walks whole events. It handles frequent ones (GTIDs, BEGIN, known table maps, rows) itself;
others it either skips, by ACTIONS, or leaves to Python by stopping at them.

Known table maps are in a hash table by table id. A table map that differs in one byte from the known one of
its id stops the scan: the id then stands for another schema.

Source: mysql libs/mysql/binlog/event/binlog_event.h, control_events.h.
"""

import numpy as np

from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import copy, ld8, ld16, ld32, ld64, same, st64
from tailrace.sources.mysql.wire.kernels.crc32 import crc32

HEADER = 19

#: Event types by their names in the server.
QUERY, STOP, ROTATE, INTVAR, APPEND_BLOCK, DELETE_FILE, RAND, USER_VAR = 2, 3, 4, 5, 9, 11, 13, 14
FORMAT_DESCRIPTION, XID, BEGIN_LOAD_QUERY, EXECUTE_LOAD_QUERY, TABLE_MAP = 15, 16, 17, 18, 19
WRITE_ROWS_V1, DELETE_ROWS_V1, INCIDENT, HEARTBEAT, IGNORABLE, ROWS_QUERY = 23, 25, 26, 27, 28, 29
WRITE_ROWS, DELETE_ROWS, GTID, ANONYMOUS_GTID, PREVIOUS_GTIDS = 30, 32, 33, 34, 35
TRANSACTION_CONTEXT, VIEW_CHANGE, XA_PREPARE, PARTIAL_UPDATE_ROWS = 36, 37, 38, 39
TRANSACTION_PAYLOAD, HEARTBEAT_V2, GTID_TAGGED = 40, 41, 42
#: The same of events that only MariaDB writes.
ANNOTATE_ROWS, BINLOG_CHECKPOINT, MARIADB_GTID, GTID_LIST, START_ENCRYPTION = range(160, 165)
QUERY_COMPRESSED, WRITE_ROWS_COMPRESSED_V1, DELETE_ROWS_COMPRESSED = 165, 166, 171

#: Actions for a type. ASK: stop at it; PACKED: stop at it if its table is captured; NOTED: rows that only
#: count as a change; TEXT: the statement of the row events behind it.
_ASK, _SKIP, _GTID, _QUERY, _COMMIT, _MAP, _ROWS, _DOMAIN_GTID, _PACKED, _NOTED, _TEXT = range(11)
ACTIONS = np.zeros(256, np.uint8)
for _type in (
    *(STOP, ROTATE, INTVAR, APPEND_BLOCK, DELETE_FILE, RAND, USER_VAR, FORMAT_DESCRIPTION, BEGIN_LOAD_QUERY),
    *(HEARTBEAT, IGNORABLE, ROWS_QUERY, PREVIOUS_GTIDS, TRANSACTION_CONTEXT, VIEW_CHANGE, HEARTBEAT_V2),
    *(ANNOTATE_ROWS, BINLOG_CHECKPOINT, GTID_LIST, START_ENCRYPTION),
):
    ACTIONS[_type] = _SKIP
ACTIONS[[GTID, ANONYMOUS_GTID]] = _GTID
ACTIONS[QUERY] = _QUERY
ACTIONS[XID] = _COMMIT
ACTIONS[TABLE_MAP] = _MAP
ACTIONS[MARIADB_GTID] = _DOMAIN_GTID
ACTIONS[WRITE_ROWS_COMPRESSED_V1 : DELETE_ROWS_COMPRESSED + 1] = _PACKED
ACTIONS[[*range(WRITE_ROWS_V1, DELETE_ROWS_V1 + 1), *range(WRITE_ROWS, DELETE_ROWS + 1)]] = _ROWS

#: The actions while an XA transaction is captured: an event that cannot be within one stops the scan.
CAPTURING = ACTIONS.copy()
CAPTURING[[GTID, ANONYMOUS_GTID, XID, MARIADB_GTID]] = _ASK
CAPTURING[ACTIONS == _ROWS] = _NOTED
CAPTURING[ACTIONS == _PACKED] = _NOTED
CAPTURING[PARTIAL_UPDATE_ROWS] = _NOTED
#: The actions for a transaction's events that count as part of the one that is open.
RECALLED = ACTIONS.copy()
RECALLED[[GTID, ANONYMOUS_GTID, GTID_TAGGED, MARIADB_GTID, XA_PREPARE]] = _SKIP
#: ACTIONS and RECALLED where row events are to know their statements.
WITH_TEXTS, RECALLED_WITH_TEXTS = ACTIONS.copy(), RECALLED.copy()
for _actions in (WITH_TEXTS, RECALLED_WITH_TEXTS):
    _actions[[ROWS_QUERY, ANNOTATE_ROWS]] = _TEXT

#: Why a scan ended: at the end of its input; at an event that Python handles; at a new table map; no room for
#: more events or transactions; or an error. PREPARES: behind a GTID of MariaDB whose transaction will only be
#: prepared.
AT_END, ASK, NEW_MAP, FULL, BAD_EVENT, BAD_CHECKSUM, NO_MAP, NO_TRANSACTION, PREPARES = range(9)
#: The flag of such a GTID.
_PREPARED_XA = 0x40

#: Words of the scan's state. Address to continue at; offset in the file of that address; counts of row events
#: and of transactions so far; whether a transaction is open; whether it has rows of captured tables; the
#: statement of the next row events, 0: not known. A statement is the address of its event, and in the highest
#: byte the bytes of the event's checksum.
SC_AT, SC_POS, SC_EVENTS, SC_TXNS, SC_OPEN, SC_DIRTY, SC_TEXT = range(7)
TEXT_CHECKSUM = 56
#: The flag of the last row event of a statement.
STATEMENT_END = 1

#: Words of a transaction's record: commit time in us, server id, thread (-1: unknown), whether it has a GTID
#: (DOMAIN: MariaDB's), its number, the tag's length; then the UUID (16 bytes; MariaDB: the domain) and the
#: tag (32 bytes).
TX_TS, TX_SERVER, TX_THREAD, TX_HAS_GTID, TX_GNO, TX_TAG_LENGTH, TX_UUID, TX_TAG = 0, 1, 2, 3, 4, 5, 6, 8
TX_WORDS = 16
DOMAIN = 2

#: Words of an entry of the hash table: table id + 1 (0: free), address and length of the table map's body,
#: slot (below 0: a table that is not captured).
MAP_ID, MAP_BODY, MAP_LENGTH, MAP_SLOT = range(4)

#: Table id of a row event that only ends a statement.
_DUMMY_TABLE_ID = 0xFFFFFF


@inline
def _find(maps, mask, id_):
    """Address of the hash table's entry of a table id, 0 if there is none."""
    i = id_ & mask
    while True:
        e = maps + 32 * i
        k = ld64(e)
        if k == id_ + 1:
            return e
        if k == 0:
            return np.int64(0)
        i = (i + 1) & mask


@inline
def _is_begin(ev, end):
    """Whether a QUERY event's text is BEGIN; -1: malformed."""
    if end - ev < HEADER + 13:
        return np.int64(-1)
    text = ev + HEADER + 13 + ld16(ev + HEADER + 11) + ld8(ev + HEADER + 8) + 1
    if text > end:
        return np.int64(-1)
    return np.int64(end - text == 5 and ld32(text) == 0x49474542 and ld8(text + 4) == 78)


@inline
def _open(tx, ev, end):
    """Record the transaction that a GTID event opens."""
    ts = ld32(ev) * 1000000
    if end - ev >= 68:
        ts = ld64(ev + 61) & 0x7FFFFFFFFFFFFF
    st64(tx, ts)
    st64(tx + 8, ld32(ev + 5))
    st64(tx + 16, -1)
    st64(tx + 24, ld8(ev + 4) == GTID)
    st64(tx + 32, ld64(ev + 36))
    st64(tx + 40, 0)
    copy(tx + 48, ev + 20, 16)


@entry("int64(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def scan_events(
    state, end, checksum, verify, actions, maps, mask, events, max_events, txs, max_txs, payload, kt
):
    """Walk events from state's SC_AT to `end`.

    Args:
        state: where to continue, and counts so far (SC_).
        end: address of the input's end.
        checksum: bytes of checksum at each event's end, 0 or 4.
        verify: whether to check them.
        actions: ACTIONS, CAPTURING or RECALLED.
        maps: hash table of known table maps, of `mask` + 1 entries, never full (MAP_).
        mask: see `maps`.
        events: where records of row events of captured tables go (`rowbatch`, EV_), `max_events` of them.
        max_events: see `events`.
        txs: where transactions go (TX_), `max_txs` of them.
        max_txs: see `txs`.
        payload: -1; for events unpacked from a payload, the payload event's offset in the file: the events
            get it as theirs, and SC_POS, which counts within the payload, numbers their rows.
        kt: TABLES.

    Returns:
        AT_END, ASK, NEW_MAP, FULL, PREPARES or an error; SC_AT is then at the event in question.
    """
    p = ld64(state)
    pos = ld64(state + 8)
    n = ld64(state + 16)
    ntx = ld64(state + 24)
    is_open = ld64(state + 32)
    dirty = ld64(state + 40)
    text = ld64(state + 48)
    result = np.int64(AT_END)
    while p < end:
        if end - p < HEADER + checksum:
            result = np.int64(BAD_EVENT)
            break
        size = ld32(p + 9)
        if size < HEADER + checksum or size > end - p:
            result = np.int64(BAD_EVENT)
            break
        e = p + size - checksum
        type_ = ld8(p + 4)
        if verify and checksum and type_ != FORMAT_DESCRIPTION and crc32(p, size - 4, kt) != ld32(e):
            result = np.int64(BAD_CHECKSUM)
            break
        action = ld8(actions + type_)
        if action == _ROWS:
            if e - p < HEADER + 8:
                result = np.int64(BAD_EVENT)
                break
            id_ = ld64(p + HEADER) & 0xFFFFFFFFFFFF
            m = _find(maps, mask, id_)
            if m == 0:
                if id_ != _DUMMY_TABLE_ID:
                    result = np.int64(NO_MAP)
                    break
            elif ld64(m + 24) >= 0:
                if is_open == 0:
                    result = np.int64(NO_TRANSACTION)
                    break
                if n >= max_events:
                    result = np.int64(FULL)
                    break
                x = events + 64 * n
                st64(x, p)
                st64(x + 8, e)
                st64(x + 16, type_)
                st64(x + 24, ld64(m + 24))
                st64(x + 32, ntx - 1)
                st64(x + 40, pos if payload < 0 else payload)
                st64(x + 48, 0 if payload < 0 else pos)
                st64(x + 56, text)
                n += 1
                dirty = np.int64(1)
            if text != 0 and ld16(p + HEADER + 6) & STATEMENT_END:
                text = np.int64(0)
        elif action == _MAP:
            if e - p < HEADER + 8:
                result = np.int64(BAD_EVENT)
                break
            m = _find(maps, mask, ld64(p + HEADER) & 0xFFFFFFFFFFFF)
            body = e - p - HEADER
            if m == 0 or ld64(m + 16) != body or not same(ld64(m + 8), p + HEADER, body):
                result = np.int64(NEW_MAP)
                break
        elif action == _GTID:
            if e - p < 44:
                result = np.int64(BAD_EVENT)
                break
            if ntx >= max_txs:
                result = np.int64(FULL)
                break
            _open(txs + 128 * ntx, p, e)
            ntx += 1
            is_open = np.int64(1)
            dirty = np.int64(0)
            text = np.int64(0)
        elif action == _DOMAIN_GTID:
            if e - p < HEADER + 13:
                result = np.int64(BAD_EVENT)
                break
            if ntx >= max_txs:
                result = np.int64(FULL)
                break
            tx = txs + 128 * ntx
            st64(tx, ld32(p) * 1000000)
            st64(tx + 8, ld32(p + 5))
            st64(tx + 16, -1)
            st64(tx + 24, DOMAIN)
            st64(tx + 32, ld64(p + HEADER))
            st64(tx + 40, 0)
            st64(tx + 48, ld32(p + HEADER + 8))
            ntx += 1
            is_open = np.int64(1)
            dirty = np.int64(0)
            text = np.int64(0)
            if ld8(p + HEADER + 12) & _PREPARED_XA:
                p += size
                pos += size
                result = np.int64(PREPARES)
                break
        elif action == _NOTED:
            if e - p < HEADER + 8:
                result = np.int64(BAD_EVENT)
                break
            id_ = ld64(p + HEADER) & 0xFFFFFFFFFFFF
            m = _find(maps, mask, id_)
            if m == 0:
                if id_ != _DUMMY_TABLE_ID:
                    result = np.int64(NO_MAP)
                    break
            elif ld64(m + 24) >= 0:
                dirty = np.int64(1)
        elif action == _PACKED:
            m = np.int64(0)
            if e - p >= HEADER + 8:
                m = _find(maps, mask, ld64(p + HEADER) & 0xFFFFFFFFFFFF)
            if m == 0 or ld64(m + 24) >= 0:
                result = np.int64(NO_MAP if m == 0 else ASK)
                break
            if ld16(p + HEADER + 6) & STATEMENT_END:
                text = np.int64(0)
        elif action == _QUERY:
            begin = _is_begin(p, e)
            if begin < 0:
                result = np.int64(BAD_EVENT)
                break
            if begin == 0:
                result = np.int64(ASK)
                break
            if is_open:
                st64(txs + 128 * (ntx - 1) + 16, ld32(p + HEADER))
        elif action == _COMMIT:
            is_open = np.int64(0)
        elif action == _TEXT:
            text = p | checksum << TEXT_CHECKSUM
        elif action != _SKIP:
            result = np.int64(ASK)
            break
        p += size
        pos += size
    st64(state, p)
    st64(state + 8, pos)
    st64(state + 16, n)
    st64(state + 24, ntx)
    st64(state + 32, is_open)
    st64(state + 40, dirty)
    st64(state + 48, text)
    return result

"""The kernel that finds transactions: events in, one row of int64 per finished transaction out.

    START END     offsets in the file
    TS_US         commit time, microseconds since 1970 UTC
    SOURCE GNO    index of its GTID's source (-1: none), and its number
    WANTED        bytes of row events of captured tables; 0 where they are only prepared (XA)
    ROWS          rows of captured tables, where they are counted
    FLAGS         HAS_WANTED ... below

It reads event headers, GTIDs, names in table maps and the first letters of statements. Where Python has to
decide it stops and is called again: at a new table or source of GTIDs, at a statement other than BEGIN,
COMMIT and SAVEPOINT, at an XA PREPARE and at a compressed transaction, which may be one. Its whole state is
in `state`, so a block may end after any event.

Kernels: memory rules in `memory.py`.
Source: MySQL internals manual, "Binlog Event"; `control_events.h` for the GTID events, of which the tagged
one is in the format of `mysql::serialization`.
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import ld8, ld16, ld32, ld64, same, st8, st64
from tailrace.sources.mysql.wire.kernels.rowcount import count_rows

START, END, TS_US, SOURCE, GNO, WANTED, ROWS, FLAGS = range(8)
#: Flags of a transaction.
HAS_WANTED, HAS_DDL, PREPARED, XA_END, COMPRESSED, FILE_START, CHECKPOINT = 1, 2, 4, 8, 16, 32, 64
HAS_SIGNALS = 128
#: Rows that are not transactions, but are positions too.
NO_TRANSACTION = FILE_START | CHECKPOINT

#: Words of the state; each call sets S_USED and S_COUNT: bytes used, rows written.
S_USED, S_COUNT, S_PHASE, S_BEGAN, S_TS, S_SOURCE = range(6)
S_GNO, S_WANTED, S_ROWS, S_FLAGS, S_ACTION, S_LAST = range(6, 12)
#: Phases: between transactions, behind a GTID, inside
OUTSIDE, NUMBERED, INSIDE = 0, 1, 2
#: Python's answer about a statement, in S_ACTION; about packed rows, their number plus one; about a prepared
#: or compressed transaction: PASSES if its rows do not count here, else CLOSES
ASK, OPENS, PASSES, CLOSES = 0, 1, 2, 3
#: Why the kernel stops.
DONE, OUT_FULL, NEW_TABLE, NEW_SOURCE, NEW_STATEMENT, BAD, UNKNOWN, INCIDENT, PACKED_ROWS = range(9)
NEW_PREPARED, NEW_PAYLOAD = 9, 10

#: A table's slot: id, address and length of the bytes that must be equal, whether all of the body must,
#: the flags of a transaction with its rows (0: not wanted), plan, columns
SLOT_WORDS = 8
#: A source: uuid (MariaDB: domain and server id) 16, length of the tag 8, tag 32, unused 8
SOURCE_BYTES = 64
_DUMMY_TABLE = 0xFFFFFF


@inline
def slot_of(table, slots, mask):
    """Address of the table id's slot, or of the free one it belongs in."""
    i = table & mask
    while ld64(slots + 8 * SLOT_WORDS * i + 8) != 0 and ld64(slots + 8 * SLOT_WORDS * i) != table:
        i = (i + 1) & mask
    return slots + 8 * SLOT_WORDS * i


@inline
def find_source(wanted, sources, count, last):
    """Index of the 56 bytes at `wanted` among the sources, -1: not found. `last` is tried first."""
    for k in range(-1, count):
        i = last if k < 0 else np.int64(k)
        if i < 0 or i >= count:
            continue
        s = sources + SOURCE_BYTES * i
        equal = True
        for w in range(7):
            if ld64(s + 8 * w) != ld64(wanted + 8 * w):
                equal = False
                break
        if equal:
            return i
    return np.int64(-1)


@inline
def names_source(wanted, sources, count, state):
    """Set the source at `wanted` as the transaction's, and as the last seen; return whether it is known."""
    source = find_source(wanted, sources, count, ld64(state + 8 * S_LAST))
    if source < 0:
        return False
    st64(state + 8 * S_SOURCE, source)
    st64(state + 8 * S_LAST, source)
    return True


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
            st64(state + 8 * S_GNO, value >> 1)  # zigzag, never negative
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
    st64(state + 8 * S_TS, value)
    return True


@inline
def starts_transaction(state, at, ts):
    """Begin a transaction at offset `at`."""
    st64(state + 8 * S_BEGAN, at)
    st64(state + 8 * S_TS, ts)
    st64(state + 8 * S_SOURCE, -1)
    for w in (S_GNO, S_WANTED, S_ROWS, S_FLAGS):
        st64(state + 8 * w, 0)


@inline
def ends_transaction(state, out, count, at):
    """Write the row of the transaction that ends at offset `at`."""
    row = out + 64 * count
    st64(row + 8 * START, ld64(state + 8 * S_BEGAN))
    st64(row + 8 * END, at)
    st64(row + 8 * TS_US, ld64(state + 8 * S_TS))
    st64(row + 8 * SOURCE, ld64(state + 8 * S_SOURCE))
    st64(row + 8 * GNO, ld64(state + 8 * S_GNO))
    st64(row + 8 * WANTED, ld64(state + 8 * S_WANTED))
    st64(row + 8 * ROWS, ld64(state + 8 * S_ROWS))
    st64(row + 8 * FLAGS, ld64(state + 8 * S_FLAGS))
    st64(state + 8 * S_PHASE, OUTSIDE)


@inline
def statement_action(event, end, state):
    """The effect of a QUERY event on the transaction: Python's answer, or what is known here."""
    action = ld64(state + 8 * S_ACTION)
    if action != ASK:
        st64(state + 8 * S_ACTION, ASK)
        return action
    if end - event < 19 + 13:
        return np.int64(-1)
    text = event + 19 + 13 + ld16(event + 19 + 11) + ld8(event + 19 + 8) + 1
    n = end - text
    if n < 0:
        return np.int64(-1)
    if n == 5 and ld32(text) == 0x49474542 and ld8(text + 4) == 0x4E:  # BEGIN
        return np.int64(OPENS)
    if n == 6 and ld32(text) == 0x4D4D4F43 and ld16(text + 4) == 0x5449:  # COMMIT
        return np.int64(CLOSES)
    if n > 10 and ld64(text) == 0x4E494F5045564153 and ld16(text + 8) == 0x2054:  # SAVEPOINT_
        return np.int64(PASSES)
    return np.int64(ASK)


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
        nsources: their number.
        scratch: address of room for one source.
        out: address of room for rows.
        room: rows there is room for.
        counting: whether rows of captured tables are counted.
        state: address of the state, kept from call to call.
    """
    p = begin
    count = np.int64(0)
    status = np.int64(DONE)
    while p < end:
        if end - p < 19:
            status = np.int64(BAD)
            break
        size = ld32(p + 9)
        if size < 19 + trailer or end - p < size:
            status = np.int64(BAD)
            break
        if count >= room:
            status = np.int64(OUT_FULL)
            break
        kind = ld8(p + 4)
        e = p + size - trailer
        at = position + (p - begin)
        after = at + size
        phase = ld64(state + 8 * S_PHASE)
        if kind == 33 or kind == 34:
            if e - p < 19 + 25:
                status = np.int64(BAD)
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
                if not names_source(scratch, sources, nsources, state):
                    status = np.int64(NEW_SOURCE)
                    break
                st64(state + 8 * S_GNO, ld64(p + 36))
            st64(state + 8 * S_PHASE, NUMBERED)
        elif kind == 42:
            starts_transaction(state, at, ld32(p) * 1000000)
            for w in range(7):
                st64(scratch + 8 * w, 0)
            if not tagged_gtid(p + 19, e, scratch, state):
                status = np.int64(BAD)
                break
            if not names_source(scratch, sources, nsources, state):
                status = np.int64(NEW_SOURCE)
                break
            st64(state + 8 * S_PHASE, NUMBERED)
        elif kind == 162:  # MariaDB's
            if e - p < 19 + 13:
                status = np.int64(BAD)
                break
            starts_transaction(state, at, ld32(p) * 1000000)
            for w in range(7):
                st64(scratch + 8 * w, 0)
            st64(scratch, ld32(p + 19 + 8))
            st64(scratch + 8, ld32(p + 5))
            st64(scratch + 16, 1)
            st64(scratch + 24, 45)  # DOMAIN of `gtid`
            if not names_source(scratch, sources, nsources, state):
                status = np.int64(NEW_SOURCE)
                break
            st64(state + 8 * S_GNO, ld64(p + 19))
            # it stands for BEGIN, unless a standalone statement follows
            st64(state + 8 * S_PHASE, NUMBERED if ld8(p + 19 + 12) & 1 else INSIDE)
        elif kind == 19:
            if e - p < 19 + 8:
                status = np.int64(BAD)
                break
            slot = slot_of(ld64(p + 19) & 0xFFFFFFFFFFFF, slots, mask)
            n = ld64(slot + 16)
            if (
                ld64(slot + 8) == 0
                or n > e - p - 27
                or (ld64(slot + 24) == 1 and n != e - p - 27)
                or not same(ld64(slot + 8), p + 27, n)
            ):
                status = np.int64(NEW_TABLE)
                break
        elif (kind >= 30 and kind <= 32) or (kind >= 23 and kind <= 25) or kind == 39:
            if e - p < 19 + 8:
                status = np.int64(BAD)
                break
            table = ld64(p + 19) & 0xFFFFFFFFFFFF
            slot = slot_of(table, slots, mask)
            if ld64(slot + 8) == 0:
                if table != _DUMMY_TABLE:
                    status = np.int64(BAD)
                    break
            elif ld64(slot + 32) != 0:
                st64(state + 8 * S_WANTED, ld64(state + 8 * S_WANTED) + size)
                st64(state + 8 * S_FLAGS, ld64(state + 8 * S_FLAGS) | ld64(slot + 32))
                if counting:
                    rows = count_rows(p, e, ld64(slot + 48), ld64(slot + 40))
                    if rows < 0:
                        status = np.int64(BAD)
                        break
                    st64(state + 8 * S_ROWS, ld64(state + 8 * S_ROWS) + rows)
        elif kind >= 166 and kind <= 171:  # MariaDB's, packed
            slot = slot_of(ld64(p + 19) & 0xFFFFFFFFFFFF, slots, mask)
            if e - p < 19 + 8 or ld64(slot + 8) == 0:
                status = np.int64(BAD)
                break
            if ld64(slot + 32) != 0:
                rows = ld64(state + 8 * S_ACTION) - 1  # counted by Python
                if counting and rows < 0:
                    status = np.int64(PACKED_ROWS)
                    break
                st64(state + 8 * S_ACTION, ASK)
                st64(state + 8 * S_WANTED, ld64(state + 8 * S_WANTED) + size)
                st64(state + 8 * S_FLAGS, ld64(state + 8 * S_FLAGS) | ld64(slot + 32))
                st64(state + 8 * S_ROWS, ld64(state + 8 * S_ROWS) + max(rows, 0))
        elif kind == 16:
            ends_transaction(state, out, count, after)
            count += 1
        elif kind == 2 or kind == 165:
            action = statement_action(p, e, state)
            if action < 0:
                status = np.int64(BAD)
                break
            if action == ASK:
                status = np.int64(NEW_STATEMENT)
                break
            if phase == OUTSIDE and action != PASSES:
                flags = ld64(state + 8 * S_FLAGS)
                starts_transaction(state, at, ld32(p) * 1000000)
                if action == CLOSES:
                    st64(state + 8 * S_FLAGS, flags)
            if action == OPENS:
                st64(state + 8 * S_PHASE, INSIDE)
            elif action == CLOSES:
                ends_transaction(state, out, count, after)
                count += 1
        elif kind == 18:  # LOAD DATA as a statement
            if ld64(state + 8 * S_ACTION) == ASK:
                status = np.int64(NEW_STATEMENT)
                break
            st64(state + 8 * S_ACTION, ASK)
        elif kind == 38:
            if e - p > 19 and ld8(p + 19) == 0:  # not ONE PHASE
                if ld64(state + 8 * S_ACTION) == ASK:
                    status = np.int64(NEW_PREPARED)
                    break
                st64(state + 8 * S_ACTION, ASK)
                st64(state + 8 * S_WANTED, 0)
                st64(state + 8 * S_ROWS, 0)
                st64(state + 8 * S_FLAGS, ld64(state + 8 * S_FLAGS) | PREPARED)
            ends_transaction(state, out, count, after)
            count += 1
        elif kind == 40:
            action = ld64(state + 8 * S_ACTION)
            if action == ASK:
                status = np.int64(NEW_PAYLOAD)
                break
            st64(state + 8 * S_ACTION, ASK)
            flags = ld64(state + 8 * S_FLAGS) | HAS_WANTED | COMPRESSED
            st64(state + 8 * S_WANTED, 0 if action == PASSES else size)
            st64(state + 8 * S_ROWS, 0 if action == PASSES else 1)
            st64(state + 8 * S_FLAGS, flags | PREPARED if action == PASSES else flags)
            ends_transaction(state, out, count, after)
            count += 1
        elif kind == 35 or kind == 163:
            starts_transaction(state, at, np.int64(0))
            st64(state + 8 * S_FLAGS, FILE_START)
            ends_transaction(state, out, count, after)
            count += 1
        elif kind == 161 and phase == OUTSIDE:
            starts_transaction(state, at, np.int64(0))
            st64(state + 8 * S_FLAGS, CHECKPOINT)
            ends_transaction(state, out, count, after)
            count += 1
        elif kind == 26:
            status = np.int64(INCIDENT)
            break
        elif not (
            kind == 3 or kind == 4 or kind == 5 or kind == 9 or kind == 11 or kind == 13
            or kind == 14 or kind == 15 or kind == 17 or kind == 28 or kind == 29
            or kind == 36 or kind == 37 or kind == 160 or kind == 161 or kind == 164
            or ld16(p + 17) & 0x80 != 0
        ):  # fmt: skip
            status = np.int64(UNKNOWN)
            break
        p += size
    st64(state + 8 * S_USED, p - begin)
    st64(state + 8 * S_COUNT, count)
    return status

"""The kernel that finds transactions: a replication stream's bytes in, one row of int64 per transaction out.

    FROM TO       offsets in the stream of its first message and behind its last
    COMMIT_LSN    of its commit record
    END_LSN       behind that: positions at or above it have the transaction before them
    TS_US         commit time, microseconds since 1970 UTC
    XID
    BYTES ROWS    of the changes of captured tables, as the stream has them
    FLAGS         HAS_WANTED ... below

It reads only the fronts of messages: B, C, and the relation of I, U and D. At any other message it stops, and
Python continues behind it. Its whole state is in `state`, so a piece may end after any byte.

Kernels are C-like; the rules are in `kernels.memory`.

Source: PostgreSQL manual, "Logical Replication Message Formats".
"""

from __future__ import annotations

import numpy as np

from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import be32, be64, ld8, ld64, st64
from tailrace.sources.postgres.wire.kernels.messages import (
    BEGIN,
    COMMIT,
    DELETE,
    EPOCH_US,
    FRAME,
    INSERT,
    UPDATE,
    XLOG,
    slot_of,
)

FROM, TO, COMMIT_LSN, END_LSN, TS_US, XID, BYTES, ROWS, FLAGS = range(9)
COLUMNS = 10
#: Flags of a transaction: it changes a captured table, truncates one, has a Relation message of one with a
#: new schema, a logical message, came in blocks while it was running or was prepared.
HAS_WANTED, HAS_TRUNCATE, HAS_RELATION, HAS_MESSAGE, HELD, HAS_SIGNALS = 1, 2, 4, 8, 16, 32

#: Why it stopped.
DONE, FULL, ASK, MALFORMED, NO_RELATION = range(5)
#: Words of the state: the open transaction's row (FROM ... FLAGS), then whether one is open, whether its
#: messages have an xid each; out: offset of the message, rows written, the server's end of log, whether it
#: requests an answer.
S_OPEN, S_STREAMED, S_AT, S_COUNT, S_WAL_END, S_REPLY = range(COLUMNS, COLUMNS + 6)
STATE_WORDS = COLUMNS + 6


@inline
def _close(state, out, count, to, lsn, end, ts, xid):
    """Write the open transaction's row."""
    row = out + 8 * COLUMNS * count
    for j in range(COLUMNS):
        st64(row + 8 * j, ld64(state + 8 * j))
    st64(row + 8 * TO, to)
    st64(row + 8 * COMMIT_LSN, lsn)
    st64(row + 8 * END_LSN, end)
    st64(row + 8 * TS_US, ts + EPOCH_US)
    st64(row + 8 * XID, xid)
    st64(state + 8 * S_OPEN, 0)


@entry("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def index(start, end, base, slots, mask, out, room, state):
    """Index whole messages between two addresses.

    Args:
        start: address of the byte at offset `base`.
        end: address behind the last byte.
        base: offset in the stream.
        slots: address of the relations' hash table, `mask` + 1 entries; a slot is -1: not captured, or what
            a transaction with its rows gets as flags besides HAS_WANTED.
        mask: see `slots`.
        out: address of room for rows.
        room: rows there is room for.
        state: address of the state.
    """
    p = start + ld64(state + 8 * S_AT) - base
    count = np.int64(0)
    status = np.int64(DONE)
    while end - p >= FRAME:
        kind = ld8(p)
        n = be32(p + 1)
        if n < 4:
            status = np.int64(MALFORMED)
            break
        if end - p - 1 < n:
            break
        stop = p + 1 + n
        if kind != 100:
            if kind != 78 and kind != 83 and kind != 65:
                status = np.int64(ASK)
                break
            p = stop
            continue
        what = ld8(p + FRAME)
        if what == 107 and stop - p >= FRAME + 18:
            st64(state + 8 * S_WAL_END, be64(p + FRAME + 1))
            st64(state + 8 * S_REPLY, ld64(state + 8 * S_REPLY) | ld8(p + FRAME + 17))
            p = stop
            continue
        if what != 119 or stop - p <= FRAME + XLOG:
            status = np.int64(MALFORMED)
            break
        m = p + FRAME + XLOG
        what = ld8(m)
        if what == INSERT or what == UPDATE or what == DELETE:
            b = m + 1 + 4 * ld64(state + 8 * S_STREAMED)
            if stop - b < 5 or ld64(state + 8 * S_OPEN) == 0:
                status = np.int64(MALFORMED)
                break
            slot = slot_of(be32(b), slots, mask)
            if ld64(slot) == 0:
                status = np.int64(NO_RELATION)
                break
            if ld64(slot + 8) >= 0:
                st64(state + 8 * BYTES, ld64(state + 8 * BYTES) + n + 1)
                st64(state + 8 * ROWS, ld64(state + 8 * ROWS) + 1)
                st64(state + 8 * FLAGS, ld64(state + 8 * FLAGS) | HAS_WANTED | ld64(slot + 8))
        elif what == BEGIN:
            if stop - m < 21 or ld64(state + 8 * S_OPEN) != 0:
                status = np.int64(MALFORMED)
                break
            for j in range(COLUMNS):
                st64(state + 8 * j, 0)
            st64(state + 8 * FROM, base + (p - start))
            st64(state + 8 * XID, be32(m + 17))
            st64(state + 8 * S_OPEN, 1)
        elif what == COMMIT:
            if stop - m < 26 or ld64(state + 8 * S_OPEN) == 0 or ld64(state + 8 * S_STREAMED) != 0:
                status = np.int64(MALFORMED)
                break
            if count >= room:
                status = np.int64(FULL)
                break
            to = base + (stop - start)
            xid = ld64(state + 8 * XID)
            _close(state, out, count, to, be64(m + 2), be64(m + 10), be64(m + 18), xid)
            count += 1
        else:
            status = np.int64(ASK)
            break
        p = stop
    st64(state + 8 * S_AT, base + (p - start))
    st64(state + 8 * S_COUNT, count)
    return status

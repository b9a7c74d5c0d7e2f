"""The kernel that finds changes: a replication stream's bytes in, one record per change out.

    CopyData    d, length 4; then w, the change's LSN 8, the server's end of log 8, its clock 8, a message
                or k, the server's end of log 8, its clock 8, whether it requests an answer 1
    message     B begin        commit's LSN 8, time 8, xid 4          C commit
                I U D          [xid 4] relation 4, tuples             [within a streamed block]
                R Y O T M      relation, type, origin, truncate, message
                S E c A        a block of a running transaction, its end; the transaction's commit, abort
                b P K r p      prepared transactions

It handles B, C, I, U and D itself; at any other message it stops, and Python continues behind it. Its whole
state is in `state`, so a piece of the stream may end after any message.

Kernels are C-like; the rules are in `kernels.memory`.

Source: PostgreSQL manual, "Logical Streaming Replication Protocol", "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct

import numpy as np

from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import be32, be64, ld8, ld64, st64
from tailrace.sources.postgres.position import lsn_text
from tailrace.sources.wire.kernels import rowbatch as rb

#: Letters of messages.
BEGIN, COMMIT, INSERT, UPDATE, DELETE = (ord(c) for c in "BCIUD")
RELATION, TYPE, ORIGIN, TRUNCATE, MESSAGE = (ord(c) for c in "RYOTM")
STREAM_START, STREAM_STOP, STREAM_COMMIT, STREAM_ABORT = (ord(c) for c in "SEcA")
BEGIN_PREPARE, PREPARE, COMMIT_PREPARED, ROLLBACK_PREPARED, STREAM_PREPARE = (ord(c) for c in "bPKrp")

#: Bytes of a CopyData message before its payload, and of XLogData before its message.
FRAME, XLOG = 5, 25
#: Why `scan` stopped: at the end, or an incomplete message; no room for more records; a message for Python; a
#: malformed one; a change of a relation that has not been described; a change outside a transaction.
AT_END, FULL, ASK, MALFORMED, NO_RELATION, NO_TRANSACTION = range(6)

#: Words of the state, kept from call to call. AT: address of the message. OPEN: whether a transaction is
#: open, SKIP: whether its changes are skipped. NUMBER: its changes so far. EVENTS, TXNS: records written; the
#: last transaction is the open one.
AT, OPEN, SKIP, NUMBER, EVENTS, TXNS = range(6)
STATE_WORDS = 8

#: Words of a transaction's record: LSN of its commit, commit time in microseconds since 1970 UTC, xid.
TX_LSN, TX_TS, TX_XID = range(3)
TX_WORDS = 4

#: Microseconds from 1970 to 2000.
EPOCH_US = 946_684_800_000_000


def place(message: bytes) -> str:
    """Type and LSN of a CopyData message, for errors."""
    letter = message[FRAME + XLOG : FRAME + XLOG + 1]
    (lsn,) = struct.unpack_from(">Q", message.ljust(FRAME + XLOG, b"\0"), FRAME + 1)
    return f"type {letter.decode('latin1')!r} at {lsn_text(lsn)}"


@inline
def slot_of(relation, slots, mask):
    """Address of the entry (relation + 1, slot) of a relation, or of the free one it belongs in."""
    i = relation & mask
    while True:
        at = slots + 16 * i
        known = ld64(at)
        if known == 0 or known == relation + 1:
            return at
        i = (i + 1) & mask


@inline
def _is_aborted(xid, aborted, count):
    for i in range(count):
        if ld64(aborted + 8 * i) == xid:
            return True
    return False


@entry("int64(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def scan(state, end, after, streamed, slots, mask, aborted, naborted, events, max_events, txs, max_txs):
    """Record the changes between the state's address and `end`.

    Args:
        state: address of the state.
        end: address behind the last byte.
        after: transactions whose commit lies below this LSN are skipped.
        streamed: whether these are a streamed block's messages, which have an xid each.
        slots: address of the relations' hash table, `mask` + 1 entries; slot -1: not captured.
        mask: see `slots`.
        aborted: address of the xids whose changes do not count.
        naborted: their number.
        events: address of room for records of changes.
        max_events: number of records there is room for.
        txs: address of room for records of transactions.
        max_txs: number of records there is room for.
    """
    p = ld64(state + 8 * AT)
    open_ = ld64(state + 8 * OPEN)
    skip = ld64(state + 8 * SKIP)
    number = ld64(state + 8 * NUMBER)
    count = ld64(state + 8 * EVENTS)
    txns = ld64(state + 8 * TXNS)
    status = np.int64(AT_END)
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
            if kind != 78 and kind != 83 and kind != 65:  # notice, parameter, notification
                status = np.int64(ASK)
                break
            p = stop
            continue
        what = ld8(p + FRAME)
        if stop - p > FRAME and what == 107:
            p = stop
            continue
        if stop - p <= FRAME + XLOG or what != 119:
            status = np.int64(MALFORMED)
            break
        m = p + FRAME + XLOG
        what = ld8(m)
        if what == INSERT or what == UPDATE or what == DELETE:
            b = m + 5 if streamed else m + 1
            if stop - b < 5:
                status = np.int64(MALFORMED)
                break
            if open_ == 0:
                status = np.int64(NO_TRANSACTION)
                break
            if not (streamed and naborted and _is_aborted(be32(m + 1), aborted, naborted)):
                slot = slot_of(be32(b), slots, mask)
                if ld64(slot) == 0:
                    status = np.int64(NO_RELATION)
                    break
                if skip == 0 and ld64(slot + 8) >= 0:
                    if count >= max_events:
                        status = np.int64(FULL)
                        break
                    x = events + 8 * rb.EV_WORDS * count
                    st64(x, b)
                    st64(x + 8 * rb.EV_END, stop)
                    st64(x + 8 * rb.EV_TYPE, what)
                    st64(x + 8 * rb.EV_SLOT, ld64(slot + 8))
                    st64(x + 8 * rb.EV_TXN, txns - 1)
                    st64(x + 8 * rb.EV_POS, be64(p + FRAME + 1))
                    st64(x + 8 * rb.EV_ROW, number)
                    count += 1
                number += 1
        elif what == BEGIN and not streamed:
            if stop - m < 21:
                status = np.int64(MALFORMED)
                break
            if txns >= max_txs:
                status = np.int64(FULL)
                break
            x = txs + 8 * TX_WORDS * txns
            st64(x, be64(m + 1))
            st64(x + 8 * TX_TS, be64(m + 9) + EPOCH_US)
            st64(x + 8 * TX_XID, be32(m + 17))
            txns += 1
            open_ = np.int64(1)
            skip = np.int64(1 if be64(m + 1) < after else 0)
            number = np.int64(0)
        elif what == COMMIT and not streamed:
            open_ = np.int64(0)
        else:
            status = np.int64(ASK)
            break
        p = stop
    st64(state + 8 * AT, p)
    st64(state + 8 * OPEN, open_)
    st64(state + 8 * SKIP, skip)
    st64(state + 8 * NUMBER, number)
    st64(state + 8 * EVENTS, count)
    st64(state + 8 * TXNS, txns)
    return status


@entry("int64(int64,int64,int64)")
def seek(p, end, wanted):
    """Address of the first message of a letter between two addresses, else of the first incomplete one."""
    while end - p >= FRAME:
        n = be32(p + 1)
        if n < 4 or end - p - 1 < n:
            break
        if n > 4 + XLOG and ld8(p) == 100 and ld8(p + FRAME) == 119 and ld8(p + FRAME + XLOG) == wanted:
            break
        p += 1 + n
    return p


@entry("int64(int64,int64,int64,int64)")
def seek_use(p, end, slots, mask):
    """Address of the first message that describes, truncates or awaits a relation; else of an incomplete one.

    Args:
        p: address of a message, of no streamed block.
        end: address behind the last byte.
        slots: address of the relations' hash table, `mask` + 1 entries; slot 1: its changes are awaited.
        mask: see `slots`.
    """
    while end - p >= FRAME:
        n = be32(p + 1)
        if n < 4 or end - p - 1 < n:
            break
        if n >= 4 + XLOG + 5 and ld8(p) == 100 and ld8(p + FRAME) == 119:
            what = ld8(p + FRAME + XLOG)
            if what == RELATION or what == TRUNCATE:
                break
            if what == INSERT or what == UPDATE or what == DELETE:
                slot = slot_of(be32(p + FRAME + XLOG + 1), slots, mask)
                if ld64(slot) != 0 and ld64(slot + 8) == 1:
                    break
        p += 1 + n
    return p

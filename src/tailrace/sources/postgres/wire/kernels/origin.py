"""Kernels for ORIGIN's columns.

    seq     see `position.seq_of`
    txn     xid
    file    ""
    pos     LSN of the change
    row     number of the change in its transaction, of all changes that the slot sends

Kernels are C-like; the rules are in `kernels.memory`.
"""

from __future__ import annotations

from tailrace.kernels.declarations import entry
from tailrace.kernels.memory import ld32, ld64, st8, st32, st64
from tailrace.kernels.text import write_integer
from tailrace.sources.postgres.wire.kernels.messages import TX_LSN, TX_TS, TX_WORDS, TX_XID
from tailrace.sources.postgres.wire.kernels.names import hex_digit

_EPOCH_DIGITS, _LSN_DIGITS, _NUMBER_DIGITS = 4, 16, 12
SEQ_DIGITS = _EPOCH_DIGITS + _LSN_DIGITS + _NUMBER_DIGITS
#: Most bytes of an xid's text.
MAX_XID = 20


@entry("void(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def write_origin(rows, pos, number, txn, txn_list, txs, prefix, seq, ts_us, server_id, thread, tables):
    """Per row: seq's digits, and its transaction's commit time; PostgreSQL logs no server id and no thread.

    Args:
        rows: number of rows.
        pos: not used.
        number: number of the change in its transaction, int32 per row.
        txn: index into `txn_list`, int32 per row.
        txn_list: index into `txs`, int32 each.
        txs: transactions (TX_ of `messages`).
        prefix: the epoch's digits.
        seq: SEQ_DIGITS bytes per row.
        ts_us: int64 per row.
        server_id: int64 per row, 0.
        thread: not written: no thread is known.
        tables: not used.
    """
    epoch = ld32(prefix)
    for i in range(rows):
        x = txs + 8 * TX_WORDS * ld32(txn_list + 4 * ld32(txn + 4 * i))
        st32(seq, epoch)
        v = ld64(x + 8 * TX_LSN)
        for j in range(_LSN_DIGITS):
            st8(seq + _EPOCH_DIGITS + j, hex_digit((v >> (4 * (_LSN_DIGITS - 1 - j))) & 15))
        v = 2 * (ld32(number + 4 * i) + 1)
        at = seq + _EPOCH_DIGITS + _LSN_DIGITS
        for j in range(_NUMBER_DIGITS):
            st8(at + j, hex_digit((v >> (4 * (_NUMBER_DIGITS - 1 - j))) & 15))
        seq += SEQ_DIGITS
        st64(ts_us + 8 * i, ld64(x + 8 * TX_TS))
        st64(server_id + 8 * i, 0)


@entry("int64(int64,int64,int64,int64,int64,int64)")
def write_xids(count, txn_list, txs, offsets, text, tables):
    """The xids of `count` transactions as Arrow string buffers; returns the text's length."""
    o = text
    for i in range(count):
        st32(offsets + 4 * i, o - text)
        o = write_integer(o, ld64(txs + 8 * TX_WORDS * ld32(txn_list + 4 * i) + 8 * TX_XID), tables)
    st32(offsets + 4 * count, o - text)
    return o - text

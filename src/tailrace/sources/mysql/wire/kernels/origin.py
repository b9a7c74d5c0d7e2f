"""Kernels for ORIGIN's columns, and for the statements that the log has before their row events."""

from tailrace.kernels.declarations import entry, inline
from tailrace.kernels.memory import copy, ld8, ld16, ld32, ld64, set_bit, st8, st16, st32, st64
from tailrace.kernels.text import write_integer
from tailrace.sources.mysql.wire.kernels.events import DOMAIN, HEADER, ROWS_QUERY, TEXT_CHECKSUM
from tailrace.sources.mysql.wire.kernels.lookup import T_HEX

#: Digits of `seq` that are the same in a whole block: epoch and file number.
SEQ_PREFIX = 12
#: Most bytes of a GTID's text: UUID, tag, number, two colons; and the width of the last store.
MAX_GTID = 36 + 1 + 32 + 1 + 20 + 16


@entry("void(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def write_origin(rows, pos, row, txn, txn_list, txs, prefix, seq, ts_us, server_id, thread, kt):
    """Per row: seq's digits, and its transaction's commit time, server and thread.

    Args:
        rows: number of rows.
        pos: offset of the row's event in the file, int64 per row.
        row: number of the row within it, int32 per row.
        txn: index into `txn_list`, int32 per row.
        txn_list: index into `txs`, int32 each.
        txs: transactions (TX_).
        prefix: the first SEQ_PREFIX digits.
        seq: 32 bytes per row.
        ts_us: int64 per row.
        server_id: int64 per row.
        thread: values, int64 per row, and behind them the zeroed bitmap of those that are known.
        kt: TABLES.
    """
    head = ld64(prefix)
    tail = ld32(prefix + 8)
    known = thread + 8 * rows
    for i in range(rows):
        st64(seq, head)
        st32(seq + 8, tail)
        v = ld64(pos + 8 * i)
        for j in range(6):
            st16(seq + 12 + 2 * j, ld16(kt + T_HEX + 2 * ((v >> (40 - 8 * j)) & 255)))
        v = 2 * ld32(row + 4 * i)
        for j in range(4):
            st16(seq + 24 + 2 * j, ld16(kt + T_HEX + 2 * ((v >> (24 - 8 * j)) & 255)))
        seq += 32
        x = txs + 128 * ld32(txn_list + 4 * ld32(txn + 4 * i))
        st64(ts_us + 8 * i, ld64(x))
        st64(server_id + 8 * i, ld64(x + 8))
        st64(thread + 8 * i, ld64(x + 16))
        if ld64(x + 16) >= 0:
            set_bit(known, i)


@entry("int64(int64,int64,int64,int64,int64,int64)")
def write_gtids(count, txn_list, txs, offsets, text, kt):
    """The GTIDs of `count` transactions as Arrow string buffers, "" for none.

    MySQL's are `uuid:number` or `uuid:tag:number`, MariaDB's `domain-server-number`.

    Returns the text's length; it needs `count` times MAX_GTID bytes.
    """
    o = text
    for i in range(count):
        st32(offsets + 4 * i, o - text)
        x = txs + 128 * ld32(txn_list + 4 * i)
        if ld64(x + 24) == 0:
            continue
        if ld64(x + 24) == DOMAIN:
            o = write_integer(o, ld64(x + 48), kt)
            st8(o, 45)
            o = write_integer(o + 1, ld64(x + 8), kt)
            st8(o, 45)
            o = write_integer(o + 1, ld64(x + 32), kt)
            continue
        for j in range(16):
            if j == 4 or j == 6 or j == 8 or j == 10:
                st8(o, 45)
                o += 1
            st16(o, ld16(kt + T_HEX + 2 * ld8(x + 48 + j)))
            o += 2
        st8(o, 58)
        o += 1
        n = ld64(x + 40)
        if n:
            copy(o, x + 64, n)
            st8(o + n, 58)
            o += n + 1
        o = write_integer(o, ld64(x + 32), kt)
    st32(offsets + 4 * count, o - text)
    return o - text


@inline
def _text(event):
    """Address of the text in an event."""
    if ld8(event + 4) == ROWS_QUERY:  # a byte that should be the length, and cannot hold it
        return event + HEADER + 1
    return event + HEADER


@inline
def _event(word):
    """Address of a statement's event."""
    return word & ((1 << TEXT_CHECKSUM) - 1)


@inline
def _length(word):
    """Bytes of a statement's text."""
    event = _event(word)
    return max(0, event + ld32(event + 9) - (word >> TEXT_CHECKSUM) - _text(event))


@entry("void(int64,int64,int64)")
def measure_texts(count, statements, lengths):
    """The bytes of the texts of `count` statements, which are as `events.SC_TEXT`; int64 each."""
    for i in range(count):
        st64(lengths + 8 * i, _length(ld64(statements + 8 * i)))


@entry("void(int64,int64,int64)")
def write_texts(count, statements, text):
    """The texts of `count` statements, one after the other, which may not be UTF-8; SLACK behind."""
    for i in range(count):
        word = ld64(statements + 8 * i)
        length = _length(word)
        copy(text, _text(_event(word)), length)
        text += length

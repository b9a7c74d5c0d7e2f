"""Where changes come from: ORIGIN's columns, and `seq`, by which a stream's rows sort.

    seq     epoch 4, LSN of the commit 16, twice the change's number in its transaction plus two 12 hex digits
    txn     xid
    file    ""
    pos     LSN of the change
    row     number of the change in its transaction, of all changes that the slot sends

Transactions come in the order of their commits, their changes are interleaved in the log: so the commit's LSN
sorts first. A snapshot as of P has P and zeros: a transaction that is in it commits below P, one that is not
at P or above.

Kernels are C-like; the rules are in `kernels.memory`.
"""

# mypy: disable-error-code="call-arg"
# (mypy takes intrinsics to want their typing context)

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.kernels.memory import SLACK, entry, ld32, ld64, st8, st32, st64
from tailrace.kernels.tables import TABLES
from tailrace.kernels.text import write_integer
from tailrace.model.change import ORIGIN
from tailrace.sources.postgres.wire.kernels import tuples
from tailrace.sources.postgres.wire.kernels.messages import TX_LSN, TX_TS, TX_WORDS, TX_XID
from tailrace.sources.postgres.wire.kernels.names import hex_digit

_EPOCH_DIGITS, _LSN_DIGITS, _NUMBER_DIGITS = 4, 16, 12
SEQ_DIGITS = _EPOCH_DIGITS + _LSN_DIGITS + _NUMBER_DIGITS
_MOST_XID_DIGITS = 20


def seq_of(lsn: int, row: int = 0, epoch: int = 0) -> str:
    """The `seq` of change `row` - 1 of the transaction that commits at `lsn`; row 0: of a snapshot."""
    return f"{epoch:04x}{lsn:016x}{2 * row:012x}"


@entry("void(int64,int64,int64,int64,int64,int64,int64,int64)")
def _write_origin(rows, number, txn, txn_list, txs, prefix, seq, ts_us):
    """Per row: seq's digits, and its transaction's commit time.

    Args:
        rows: number of rows.
        number: number of the change in its transaction, int32 per row.
        txn: index into `txn_list`, int32 per row.
        txn_list: index into `txs`, int32 each.
        txs: transactions (TX_ of `messages`).
        prefix: the epoch's digits.
        seq: SEQ_DIGITS bytes per row.
        ts_us: int64 per row.
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


@entry("int64(int64,int64,int64,int64,int64,int64)")
def _write_xids(count, txn_list, txs, offsets, text, tables):
    """The xids of `count` transactions as Arrow string buffers; returns the text's length."""
    o = text
    for i in range(count):
        st32(offsets + 4 * i, o - text)
        o = write_integer(o, ld64(txs + 8 * TX_WORDS * ld32(txn_list + 4 * i) + 8 * TX_XID), tables)
    st32(offsets + 4 * count, o - text)
    return o - text


class RowColumns:
    """What `decode_changes` writes per row, and ORIGIN made of it; reused from batch to batch.

    Args:
        max_rows: most rows of a batch.
        epoch: the stream's epoch.

    Attributes:
        out: the kernel's output block; whoever calls it fills in the bitmaps' addresses.
    """

    def __init__(self, max_rows: int, epoch: int) -> None:
        self._op = np.zeros(max_rows, np.int8)
        self._txn = np.zeros(max_rows, np.int32)
        self._lsn = np.zeros(max_rows, np.int64)
        self._number = np.zeros(max_rows, np.int32)
        self._txns = np.zeros(max_rows, np.int32)
        self.out = np.zeros(8, np.int64)
        for word, array in (
            (tuples.OUT_OP, self._op),
            (tuples.OUT_TXN, self._txn),
            (tuples.OUT_LSN, self._lsn),
            (tuples.OUT_NUMBER, self._number),
            (tuples.OUT_TXNS, self._txns),
        ):
            self.out[word] = array.ctypes.data
        self._prefix = np.frombuffer(f"{epoch:04x}".encode() + bytes(SLACK), np.uint8)
        self._seq_offsets = pa.py_buffer(np.arange(max_rows + 1, dtype=np.int32) * SEQ_DIGITS)
        self._zeros = pa.py_buffer(np.zeros(max_rows, np.int64))
        self._no_file = pa.array([""])

    def arrays(self, rows: int, txns: int, txs: np.ndarray) -> tuple[pa.Array, pa.RecordBatch]:
        """`op` and ORIGIN of the first `rows` rows, which are of the first `txns` listed transactions."""
        seq = np.empty(rows * SEQ_DIGITS + SLACK, np.uint8)
        ts_us = np.empty(rows, np.int64)
        _write_origin(
            rows,
            self._number.ctypes.data,
            self._txn.ctypes.data,
            self._txns.ctypes.data,
            txs.ctypes.data,
            self._prefix.ctypes.data,
            seq.ctypes.data,
            ts_us.ctypes.data,
        )
        origin = pa.RecordBatch.from_arrays(
            [
                pa.Array.from_buffers(pa.string(), rows, [None, self._seq_offsets, pa.py_buffer(seq)]),
                _plain(ts_us),
                self._xids(rows, txns, txs),
                pa.DictionaryArray.from_arrays(
                    pa.Array.from_buffers(pa.int32(), rows, [None, self._zeros]), self._no_file
                ),
                _plain(self._lsn[:rows].copy()),
                _plain(self._number[:rows].copy()),
                pa.Array.from_buffers(pa.int64(), rows, [None, self._zeros]),
                pa.nulls(rows, pa.int64()),
            ],
            schema=ORIGIN,
        )
        return _plain(self._op[:rows].copy()), origin

    def _xids(self, rows: int, txns: int, txs: np.ndarray) -> pa.DictionaryArray:
        offsets, text = np.empty(txns + 1, np.int32), np.empty(txns * _MOST_XID_DIGITS + SLACK, np.uint8)
        size = _write_xids(
            txns, self._txns.ctypes.data, txs.ctypes.data, offsets.ctypes.data, text.ctypes.data, TABLES
        )
        values = pa.Array.from_buffers(
            pa.string(), txns, [None, pa.py_buffer(offsets), pa.py_buffer(text[:size].copy())]
        )
        return pa.DictionaryArray.from_arrays(_plain(self._txn[:rows].copy()), values)


def _plain(values: np.ndarray) -> pa.Array:
    """An array without nulls over a numpy array's memory."""
    type_ = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)], null_count=0)

"""What each decoded row gets beside its images: the operation and ORIGIN's columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.model.change import ORIGIN
from tailrace.sources.mysql.wire.kernels import events as ev
from tailrace.sources.mysql.wire.kernels import rows as rw
from tailrace.sources.mysql.wire.kernels.origin import MAX_GTID, SEQ_DIGITS, write_gtids, write_origin
from tailrace.sources.mysql.wire.lookup import TABLES


class RowColumns:
    """What `decode_rows` writes per row, and ORIGIN made of it; reused from batch to batch.

    Attributes:
        out: the kernel's output block (OUT_ words of `rows`); the decoder fills in the bitmaps' addresses.
    """

    def __init__(self, max_rows: int) -> None:
        self._op = np.zeros(max_rows, np.int8)
        self._txn = np.zeros(max_rows, np.int32)
        self._pos = np.zeros(max_rows, np.int64)
        self._row = np.zeros(max_rows, np.int32)
        self._txns = np.zeros(max_rows, np.int32)
        self.out = np.zeros(8, np.int64)
        for word, array in (
            (rw.OUT_OP, self._op),
            (rw.OUT_TXN, self._txn),
            (rw.OUT_POS, self._pos),
            (rw.OUT_ROW, self._row),
            (rw.OUT_TXNS, self._txns),
        ):
            self.out[word] = array.ctypes.data
        self._seq_offsets = pa.py_buffer(np.arange(max_rows + 1, dtype=np.int32) * SEQ_DIGITS)
        self._zeros = pa.py_buffer(np.zeros(max_rows, np.int32))

    def arrays(
        self, rows: int, txns: int, txs: np.ndarray, prefix: np.ndarray, file: pa.StringArray
    ) -> tuple[pa.Array, pa.RecordBatch]:
        """`op` and ORIGIN of the first `rows` rows, which are of the first `txns` listed transactions."""
        seq = np.empty(rows * SEQ_DIGITS, np.uint8)
        ts_us, server_id = np.empty(rows, np.int64), np.empty(rows, np.int64)
        thread = np.zeros(8 * rows + rows // 8 + 1, np.uint8)
        write_origin(
            rows,
            self._pos.ctypes.data,
            self._row.ctypes.data,
            self._txn.ctypes.data,
            self._txns.ctypes.data,
            txs.ctypes.data,
            prefix.ctypes.data,
            seq.ctypes.data,
            ts_us.ctypes.data,
            server_id.ctypes.data,
            thread.ctypes.data,
            TABLES,
        )
        threads = pa.py_buffer(thread)
        files = pa.Array.from_buffers(pa.int32(), rows, [None, self._zeros])
        origin = pa.RecordBatch.from_arrays(
            [
                pa.Array.from_buffers(
                    pa.string(), rows, [None, self._seq_offsets, pa.py_buffer(seq)], null_count=0
                ),
                _plain(ts_us),
                self._gtids(rows, txns, txs),
                pa.DictionaryArray.from_arrays(files, file),
                _plain(self._pos[:rows].copy()),
                _plain(self._row[:rows].copy()),
                _plain(server_id),
                pa.Array.from_buffers(pa.int64(), rows, [threads.slice(8 * rows), threads]),
            ],
            schema=ORIGIN,
        )
        return _plain(self._op[:rows].copy()), origin

    def _gtids(self, rows: int, txns: int, txs: np.ndarray) -> pa.DictionaryArray:
        offsets, text = np.empty(txns + 1, np.int32), np.empty(txns * MAX_GTID, np.uint8)
        size = write_gtids(
            txns, self._txns.ctypes.data, txs.ctypes.data, offsets.ctypes.data, text.ctypes.data, TABLES
        )
        values = pa.Array.from_buffers(
            pa.string(), txns, [None, pa.py_buffer(offsets), pa.py_buffer(text[:size].copy())]
        )
        index = self._txn[:rows].copy()
        known = txs[self._txns[:txns], ev.TX_HAS_GTID] != 0
        indices = _plain(index) if known.all() else pa.array(index, mask=~known[index])
        return pa.DictionaryArray.from_arrays(indices, values)


def _plain(values: np.ndarray) -> pa.Array:
    """An array without nulls over a numpy array's memory."""
    type_ = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)], null_count=0)

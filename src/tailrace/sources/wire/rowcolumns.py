"""The columns of a batch next to its images: the operation and ORIGIN."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tailrace.kernels.memory import SLACK
from tailrace.model.change import ORIGIN, SEQ_DIGITS
from tailrace.sources.wire.kernels import rowbatch as rb


class RowColumns:
    """What a row kernel writes per row, and ORIGIN made of it; reused from batch to batch.

    Args:
        max_rows: most rows of a batch.
        write_origin: a kernel that writes per row seq's digits and what is known of its transaction.
            Arguments, addresses all but the first: rows; of each row its position in the log, its number and
            its index in the list of transactions; that list; the transactions' records; the first digits of
            `seq`; the output: `seq`, commit time (us), server id, thread (values, and behind them the
            zeroed bitmap of the known ones); `tables`.
        write_ids: a kernel that writes the transactions' ids as Arrow string buffers, "" for none, and
            returns the text's length. Arguments: their number, their list, their records, offsets, text,
            `tables`.
        id_bytes: most bytes that it writes for one transaction.
        tables: address of the kernels' table of constants.

    Attributes:
        out: the row kernel's output block; the caller fills in the bitmaps' addresses.
    """

    def __init__(
        self,
        max_rows: int,
        *,
        write_origin: Callable[..., None],
        write_ids: Callable[..., int],
        id_bytes: int,
        tables: int,
    ) -> None:
        self._write_origin, self._write_ids = write_origin, write_ids
        self._id_bytes = id_bytes
        self._tables = tables
        self._op = np.zeros(max_rows, np.int8)
        self._txn = np.zeros(max_rows, np.int32)
        self._pos = np.zeros(max_rows, np.int64)
        self._row = np.zeros(max_rows, np.int32)
        self._txns = np.zeros(max_rows, np.int32)
        self.out = np.zeros(rb.OUT_WORDS, np.int64)
        for word, array in (
            (rb.OUT_OP, self._op),
            (rb.OUT_TXN, self._txn),
            (rb.OUT_POS, self._pos),
            (rb.OUT_ROW, self._row),
            (rb.OUT_TXNS, self._txns),
        ):
            self.out[word] = array.ctypes.data
        self._seq_offsets = pa.py_buffer(np.arange(max_rows + 1, dtype=np.int32) * SEQ_DIGITS)
        self._zeros = pa.py_buffer(np.zeros(max_rows, np.int32))
        self.enter("", "")

    def enter(self, file: str, seq_prefix: str) -> None:
        """Set what all rows have in common from now on.

        Args:
            file: their log file, "" where the log has none.
            seq_prefix: the first digits of their `seq`.
        """
        self._file = pa.array([file])
        self._prefix = np.frombuffer(seq_prefix.encode() + bytes(SLACK), np.uint8)

    def arrays(self, rows: int, txns: int, txs: np.ndarray) -> tuple[pa.Array, pa.RecordBatch]:
        """`op` and ORIGIN of the first `rows` rows, which are of the first `txns` listed transactions."""
        seq = np.empty(rows * SEQ_DIGITS, np.uint8)
        ts_us, server_id = np.empty(rows, np.int64), np.empty(rows, np.int64)
        thread = np.zeros(8 * rows + rows // 8 + 1, np.uint8)
        self._write_origin(
            rows,
            self._pos.ctypes.data,
            self._row.ctypes.data,
            self._txn.ctypes.data,
            self._txns.ctypes.data,
            txs.ctypes.data,
            self._prefix.ctypes.data,
            seq.ctypes.data,
            ts_us.ctypes.data,
            server_id.ctypes.data,
            thread.ctypes.data,
            self._tables,
        )
        threads = pa.py_buffer(thread)
        files = pa.Array.from_buffers(pa.int32(), rows, [None, self._zeros])
        origin = pa.RecordBatch.from_arrays(
            [
                pa.Array.from_buffers(
                    pa.string(), rows, [None, self._seq_offsets, pa.py_buffer(seq)], null_count=0
                ),
                _plain(ts_us),
                self._ids(rows, txns, txs),
                pa.DictionaryArray.from_arrays(files, self._file),
                _plain(self._pos[:rows].copy()),
                _plain(self._row[:rows].copy()),
                _plain(server_id),
                pa.Array.from_buffers(pa.int64(), rows, [threads.slice(8 * rows), threads]),
            ],
            schema=ORIGIN,
        )
        return _plain(self._op[:rows].copy()), origin

    def _ids(self, rows: int, txns: int, txs: np.ndarray) -> pa.DictionaryArray:
        """The transactions' ids; null for a transaction that has none."""
        offsets, text = np.empty(txns + 1, np.int32), np.empty(txns * self._id_bytes + SLACK, np.uint8)
        size = self._write_ids(
            txns, self._txns.ctypes.data, txs.ctypes.data, offsets.ctypes.data, text.ctypes.data, self._tables
        )
        values = pa.Array.from_buffers(
            pa.string(), txns, [None, pa.py_buffer(offsets), pa.py_buffer(text[:size].copy())]
        )
        index = self._txn[:rows].copy()
        known = np.diff(offsets) > 0
        indices = _plain(index) if known.all() else pa.array(index, mask=~known[index])
        return pa.DictionaryArray.from_arrays(indices, values)


def _plain(values: np.ndarray) -> pa.Array:
    """An array without nulls over a numpy array's memory."""
    type_ = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)], null_count=0)

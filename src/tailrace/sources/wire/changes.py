"""Row events that a scan has collected, to batches of changes: what both databases' decoders do alike.

A decoder scans the log and notes row events and transactions in `_events` and `_txs`; `_decode` turns the row
events of one layout into batches, by the database's row kernel (`kernels.rowbatch` says how that is called).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np

from tailrace.errors import concerning
from tailrace.kernels.imagebuffers import ImageBuffers, Layout
from tailrace.model.change import ChangeBatch
from tailrace.sources.wire.kernels import rowbatch as rb
from tailrace.sources.wire.rowcolumns import RowColumns

#: Row events and transactions collected before they are decoded.
MAX_EVENTS = 16384


class ChangeDecoder(ABC):
    """The part of a decoder that makes batches of row events.

    Args:
        decode_rows: the row kernel.
        rows: what it writes next to the images.
        tx_words: words of a transaction's record.
        tables: address of the kernel's table of constants.
        max_rows: most rows of a batch.
        max_bytes: bytes of events after which a batch ends; one row may be larger.
    """

    def __init__(
        self,
        decode_rows: Callable[..., int],
        rows: RowColumns,
        *,
        tx_words: int,
        tables: int,
        max_rows: int,
        max_bytes: int,
    ) -> None:
        self._decode_rows = decode_rows
        self._rows = rows
        self._tables = tables
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._events = np.zeros((MAX_EVENTS, rb.EV_WORDS), np.int64)
        self._txs = np.zeros((MAX_EVENTS, tx_words), np.int64)
        # asking an array for its address takes as long as a small kernel
        self._events_at, self._txs_at = self._events.ctypes.data, self._txs.ctypes.data
        self._buffers = ImageBuffers()
        self._layouts: list[Layout] = []

    def _decode(self, slot: int, chosen: np.ndarray) -> Iterator[ChangeBatch]:
        """Decode the chosen row events, all of the layout in `slot`."""
        layout = self._layouts[slot]
        with concerning(layout.plan.schema.id):
            yield from self._decoded(layout, slot, chosen)

    def _decoded(self, layout: Layout, slot: int, chosen: np.ndarray) -> Iterator[ChangeBatch]:
        plan = layout.plan
        columns = len(plan.schema.columns)
        cursor = np.zeros(rb.CU_WORDS, np.int64)
        scratch = self._scratch(columns)
        scratch_at = scratch.ctypes.data
        status = rb.NO_ROOM
        while status != rb.DONE:
            self._rows.out[rb.OUT_BEFORE : rb.OUT_AFTER + 1] = self._buffers.bind(layout)
            status = self._decode_rows(
                self._events_at,
                chosen.ctypes.data,
                len(chosen),
                cursor.ctypes.data,
                plan.descriptors.ctypes.data,
                columns,
                plan.variable.ctypes.data,
                len(plan.variable),
                self._rows.out.ctypes.data,
                self._max_rows,
                self._max_bytes,
                scratch_at,
                self._tables,
            )
            rows = int(cursor[rb.CU_ROWS])
            images = int(cursor[rb.CU_BEFORE]), int(cursor[rb.CU_AFTER])
            before, after = self._buffers.arrays(layout, rows, images)
            if rows:
                op, origin = self._rows.arrays(rows, int(cursor[rb.CU_TXNS]), self._txs)
                if layout.trim(2 * self._max_bytes):
                    self._buffers.drop_data()
                yield self._marked(ChangeBatch(plan.schema, op, before, after, origin), slot, cursor, scratch)
            if status in (rb.DONE, rb.BATCH_FULL):
                continue
            event = self._events[chosen[cursor[rb.CU_EVENT]]]
            if status != rb.NO_ROOM or not self._make_room(layout, cursor, event, first=not rows):
                self._refuse_row(status, layout, cursor, event)

    def _make_room(self, layout: Layout, cursor: np.ndarray, event: np.ndarray, *, first: bool) -> bool:
        """Give the column that did not fit more room: all that its row may need if that was the first.

        Returns False if even that was too little.
        """
        need = self._room(layout, int(event[rb.EV_END] - event[rb.EV_START])) if first else 0
        return layout.grow(int(cursor[rb.CU_COLUMN]), need, 2 * self._max_bytes) or not first

    @abstractmethod
    def _scratch(self, columns: int) -> np.ndarray:
        """Scratch memory for the kernel, for rows of so many columns."""

    @abstractmethod
    def _room(self, layout: Layout, size: int) -> int:
        """Bytes that a value may need of a row event of `size` bytes."""

    @abstractmethod
    def _marked(self, batch: ChangeBatch, slot: int, cursor: np.ndarray, scratch: np.ndarray) -> ChangeBatch:
        """`batch` with the columns named that its images lack."""

    @abstractmethod
    def _refuse_row(self, status: int, layout: Layout, cursor: np.ndarray, event: np.ndarray) -> NoReturn:
        """Raise the error for a row that cannot be decoded."""

"""The statement of each change, where the server logs it (Debezium's `include.query`).

The log has a statement's text in an event before those of its rows: ROWS_QUERY, or MariaDB's ANNOTATE_ROWS.
The scan notes with each row event the last such event of the same statement. The text is as the session sent
it, in its character set; as in Debezium, what is not UTF-8 is replaced by U+FFFD.

A statement may change thousands of rows, and the messages of all repeat its text. So a batch ends before
these texts take more than MOST_TEXT.

Source: mysql libs/mysql/binlog/event/rows_event.h, class Rows_query_event; MariaDB sql/log_event.h, class
Annotate_rows_log_event.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace.kernels.memory import SLACK
from tailrace.model.change import ChangeBatch
from tailrace.sources.mysql.wire.kernels.origin import measure_texts, write_texts
from tailrace.sources.wire.kernels import rowbatch as rb

#: Most bytes of the texts of a batch, counted once for each row; one row may have more.
MOST_TEXT = 32 << 20


def with_queries(batch: ChangeBatch, events: np.ndarray) -> Iterator[ChangeBatch]:
    """`batch` with the statements of its rows, cut where their texts take too much.

    Args:
        batch: the changes.
        events: the records of row events in log order that it was decoded from, and maybe others; EV_OWN is
            the statement, 0 where the log has none.
    """
    statements = events[_events_of(batch, events), rb.EV_OWN]
    begins = np.flatnonzero(np.r_[True, statements[1:] != statements[:-1]])
    run = np.repeat(np.arange(len(begins)), np.diff(np.r_[begins, len(batch)]))
    distinct = statements[begins]
    upto = np.cumsum(_lengths(distinct)[run])
    start = 0
    while start < len(batch):
        taken = upto[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(upto, taken + MOST_TEXT, side="right")))
        first, last = run[start], run[end - 1] + 1
        query = _dictionary(distinct[first:last], run[start:end] - first)
        yield replace(batch.slice(start, end - start), query=query)
        start = end


def _events_of(batch: ChangeBatch, events: np.ndarray) -> np.ndarray:
    """For each row the index of its event: the last one that does not begin behind it."""
    row, pos = (batch.origin.column(name).to_numpy() for name in ("row", "pos"))
    places, place = np.unique(events[:, rb.EV_POS], return_inverse=True)
    begins = place.reshape(-1) << 32 | events[:, rb.EV_ROW]
    index: np.ndarray = (
        np.searchsorted(begins, np.searchsorted(places, pos) << 32 | row.astype(np.int64), side="right") - 1
    )
    return index


def _lengths(statements: np.ndarray) -> np.ndarray:
    """Bytes of the texts; 0 where there is none."""
    lengths = np.zeros(len(statements), np.int64)
    known = statements != 0
    asked, found = np.ascontiguousarray(statements[known]), np.zeros(known.sum(), np.int64)
    measure_texts(len(asked), asked.ctypes.data, found.ctypes.data)
    lengths[known] = found
    return lengths


def _dictionary(statements: np.ndarray, index: np.ndarray) -> pa.DictionaryArray:
    """The texts of some rows.

    Args:
        statements: the statements, 0 for none.
        index: of each row the index of its statement.
    """
    known = statements != 0
    asked = np.ascontiguousarray(statements[known])
    offsets = np.r_[0, np.cumsum(_lengths(asked))].astype(np.int32)
    text = np.empty(int(offsets[-1]) + SLACK, np.uint8)
    write_texts(len(asked), asked.ctypes.data, text.ctypes.data)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    texts = _decoded(pa.Array.from_buffers(pa.binary(), len(asked), buffers))
    indices = (np.cumsum(known, dtype=np.int32) - 1)[index]
    return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32), mask=~known[index]), texts)


def _decoded(texts: pa.BinaryArray) -> pa.StringArray:
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8
        return pa.array([text.decode("utf-8", "replace") for text in texts.to_pylist()], pa.string())

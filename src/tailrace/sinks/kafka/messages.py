"""Messages of changes: which change each is of, and how large it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.formats.encodings.json_documents import operations
from tailrace.model.change import OP_DELETE, ChangeBatch

#: Most bytes that Kafka adds to key, value and headers (record batch and record headers).
_OVERHEAD = 128


def change_of(batch: ChangeBatch, messages: int) -> np.ndarray:
    """The row of the change that each of a batch's messages belongs to; a delete may have a tombstone."""
    rows = np.arange(len(batch))
    return rows if messages == len(batch) else np.repeat(rows, 1 + (operations(batch) == OP_DELETE))


def by_topic(messages: pa.RecordBatch) -> Iterator[tuple[str, np.ndarray]]:
    """The topics of messages, and the rows of each topic's messages in their order."""
    topics = messages.column("topic").dictionary_encode()
    of = topics.indices.to_numpy()
    rows = np.argsort(of, kind="stable")
    starts = np.flatnonzero(np.diff(of[rows], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        yield topics.dictionary[int(of[rows[start]])].as_py(), rows[start:end]


def timestamps_of(messages: pa.RecordBatch) -> np.ndarray | None:
    """The timestamps of messages, 0 where none is given; None if that is so of all."""
    at = messages.schema.get_field_index("timestamp")
    if at < 0 or messages.column(at).null_count == messages.num_rows:
        return None
    return np.ascontiguousarray(messages.column(at).fill_null(0).to_numpy(), np.int64)


def sizes(messages: pa.RecordBatch) -> np.ndarray:
    """Most bytes of each message, as a record batch of its own."""
    total = np.full(messages.num_rows, _OVERHEAD, np.int64)
    for name in ("key", "value"):
        total += pc.fill_null(pc.binary_length(messages.column(name)), 0).to_numpy()
    headers = messages.column("headers")
    if headers.null_count < len(headers):
        entries = headers.values
        each = np.zeros(len(entries) + 1, np.int64)
        lengths = [pc.fill_null(pc.binary_length(entries.field(i)), 0).to_numpy() for i in (0, 1)]
        np.cumsum(lengths[0] + lengths[1] + 10, out=each[1:])
        starts = headers.offsets.to_numpy()
        total += np.where(headers.is_valid().to_numpy(zero_copy_only=False), np.diff(each[starts]), 0)
    return total

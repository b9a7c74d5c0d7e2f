"""The messages of changes for systems other than Kafka: what each is made of, and what tells it from others.

    key     bytes of the key, null for a table without one
    value   bytes of the value
    seq     of the change
    op      r, c, u or d
    row     of a table without a key: tells rows apart that were read at one position; else null

A message is known by its table and (seq, op, key, row): they are the same whenever its batch comes again.
Rows of a snapshot have one `seq`, so it takes the key to tell them apart, and where there is none the whole
row: the hash of its columns, and the number of its occurrence, for equal rows are possible there.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.formats.base import MessageFormat
from tailrace.formats.row import op_letters
from tailrace.kernels.rowhash import hash_rows
from tailrace.model.change import ChangeBatch

#: The columns of messages.
OUTGOING = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("seq", pa.string()),
        ("op", pa.string()),
        ("row", pa.string()),
    ]
)


class MessageMaker:
    """Makes the messages of one writer.

    Args:
        format: encodes keys and values.
        now_ms: processing time, milliseconds since 1970 UTC.
    """

    def __init__(self, format: MessageFormat, now_ms: int) -> None:  # noqa: A002 - the format
        self._format = format
        self._now_ms = now_ms
        #: How often a row was met, by table, seq and hash.
        self._met: Counter[tuple[str, str, int]] = Counter()

    def of(self, batch: ChangeBatch) -> pa.RecordBatch:
        """The messages of changes, in their order, one for each.

        Raises:
            SinkError: a change cannot be encoded.
        """
        made = self._format.messages(batch, self._now_ms)
        values = made.column("value")
        if len(values) > len(batch):  # without the tombstones
            made = made.filter(values.is_valid())
        rows = pa.nulls(len(batch), pa.string()) if batch.table.key else self._rows(batch)
        columns = [
            made.column("key"),
            made.column("value"),
            batch.origin.column("seq"),
            op_letters(batch),
            rows,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=OUTGOING)

    def _rows(self, batch: ChangeBatch) -> pa.StringArray:
        """What tells the rows of a table without a key apart."""
        if not batch.is_read:  # each has a `seq` of its own
            return pa.repeat(pa.scalar("0"), len(batch))
        hashes = hash_rows(batch.image("after").flatten(), len(batch)).tolist()
        table, seqs = str(batch.table.id), batch.origin.column("seq").to_pylist()
        found = []
        for seq, hash_ in zip(seqs, hashes, strict=True):
            number = self._met[table, seq, hash_]
            self._met[table, seq, hash_] += 1
            found.append(f"{hash_:016x}.{number}")
        return pa.array(found, pa.string())


def identities(messages: pa.RecordBatch, table: str) -> pa.StringArray:
    """What tells each message from all others of its batch.

    Args:
        messages: messages with the columns of OUTGOING.
        table: their table.
    """
    key = pc.coalesce(messages.column("key").cast(pa.string()), messages.column("row"))
    parts = [messages.column("seq"), messages.column("op"), key]
    return pc.binary_join_element_wise(pa.scalar(table), *parts, "\n")


def owned(messages: pa.RecordBatch, mine: np.ndarray | None) -> pa.RecordBatch:
    """The messages that are a writer's own; `mine`: a boolean for each, None: all are."""
    return messages if mine is None else messages.filter(pa.array(mine))

"""The shares of a batch: the changes of each writer, split by key.

All changes of a key, from all cells of a batch, go to one writer. A key update is a delete and a create in
one cell, whose keys may belong to two writers. The message of each half names the other half's key in a
header, so each of the two writers gets both halves, and writes its own only (`owned_by`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tailrace.errors import concerning
from tailrace.formats.base import MessageFormat, SchemaIds
from tailrace.formats.debezium.headers import key_updates
from tailrace.kernels.rowhash import hash_rows
from tailrace.model.cell import decode_cell, encode_cell
from tailrace.model.change import ChangeBatch
from tailrace.reader.log import keys_of
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.cluster import Topic
from tailrace.sinks.kafka.division import NO_DIVISION, Division
from tailrace.sinks.kafka.markers import Marker
from tailrace.sinks.kafka.skipped import DEFAULT, SkippedOperations
from tailrace.sinks.kafka.truncations import parted

#: Columns of the rows of `cut_cells`.
SHARES = "writer int, seq string, cell binary"
_SHARES = pa.schema([("writer", pa.int32()), ("seq", pa.string()), ("cell", pa.binary())])
#: An empty cell, sorted before all others of a writer, stops the writer before it begins.
STOP = pa.py_buffer(b"")


@dataclass(frozen=True)
class Share:
    """The settings of one batch's tasks; pickled to them.

    Args:
        client: how to reach the cluster.
        format: makes messages.
        ids: the registry's ids of the format's schemas.
        topics: topics by source table name.
        writers: the number of writers.
        undivided: tables that go to one writer undivided: their key has several schemas in the batch.
        now_ms: processing time, milliseconds since 1970 UTC.
        tombstones: whether to write messages without a value.
        quarantine: the topic for changes that are refused; None: they are an error.
        most_quarantined: how many changes of a table may be in quarantine.
        quarantined: how many there are, by table.
        name: prefix of transactional ids; None: no transactions.
        marker: the marker to write with the messages.
        marker_topic: the topic of the markers.
        marker_end: the driver knows the markers up to this offset.
        tokens: the token of the producer that wrote last, by writer.
        schemas: the table schemas that the batch may hold, as `TableSchema.text`; None: any.
        truncated: the places of the batch's TRUNCATEs by table (`truncations.places`), sorted.
        skipped: the operations that are left out.
        division: what decides keys, partitions and writers.
        content_topics: the topics that rows name, by name.
    """

    client: Client
    format: MessageFormat
    ids: SchemaIds
    topics: Mapping[str, Topic]
    writers: int
    undivided: frozenset[str]
    now_ms: int
    tombstones: bool
    quarantine: Topic | None
    most_quarantined: int
    quarantined: Mapping[str, int]
    name: str | None
    marker: Marker
    marker_topic: str
    marker_end: int
    tokens: Mapping[int, str]
    schemas: frozenset[bytes] | None = None
    truncated: Mapping[str, Sequence[str]] = field(default_factory=dict)
    skipped: SkippedOperations = DEFAULT
    division: Division = NO_DIVISION
    content_topics: Mapping[str, Topic] = field(default_factory=dict)

    def expects(self, batch: ChangeBatch) -> bool:
        """Whether the batch may be written in one pass: its schema and its topics are known."""
        if self.schemas is None:
            return True
        if batch.table.text not in self.schemas:
            return False
        names_topics = self.division.names_topics(batch.table.id)
        return not names_topics or self.division.topics(batch) <= self.content_topics.keys()

    def transactional_id(self, writer: int) -> str:
        """The id that only one producer at a time may have."""
        return f"tailrace.{self.name}.{writer}"


def cut_cells(share: Share, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of (min_seq, cell) as rows of SHARES."""
    for rows in batches:
        for seq, cell in zip(rows.column(0), rows.column(1), strict=True):
            given = decode_cell(cell.as_buffer())
            with concerning(given.table.id, sink=True):
                batch = share.division.batch(given)
                if not share.expects(batch):
                    yield from (_row(writer, "", STOP) for writer in range(share.writers))
                    return
                if at := share.truncated.get(str(batch.table.id)):  # its changes have one writer
                    writer = int(writers_of(share, batch)[0])
                    for place, part in parted(batch, at, share.skipped.connector):
                        yield _row(writer, place, encode_cell(part))
                    continue
                parts = list(cut(share, batch))
            for writer, part in parts:
                yield _row(writer, seq, cell.as_buffer() if part is given else encode_cell(part))


def _row(writer: int, seq: str | pa.StringScalar, data: pa.Buffer) -> pa.RecordBatch:
    ends = pa.py_buffer(np.array([0, data.size], np.int32))
    one = pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])
    arrays = [pa.array([writer], pa.int32()), pa.array([seq], pa.string()), one]
    return pa.RecordBatch.from_arrays(arrays, schema=_SHARES)


def cut(share: Share, batch: ChangeBatch) -> Iterator[tuple[int, ChangeBatch]]:
    """The changes of each writer, in their order; both halves of a key update for either writer."""
    writers = writers_of(share, batch)
    if (writers == writers[0]).all():
        yield int(writers[0]), batch
        return
    rows = np.arange(len(batch))
    first = key_updates(batch)
    if len(first):
        first = first[writers[first] != writers[first + 1]]
        rows = np.concatenate([rows, first, first + 1])
        writers = np.concatenate([writers, writers[first + 1], writers[first]])
    order = np.lexsort((rows, writers))
    rows, writers = rows[order], writers[order]
    sorted_ = batch.take(pa.array(rows))
    starts = np.flatnonzero(np.diff(writers, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        yield int(writers[start]), sorted_.slice(int(start), int(end - start))


def writers_of(share: Share, batch: ChangeBatch) -> np.ndarray:
    """The writer of each change."""
    table = str(batch.table.id)
    ordered = share.division.ordered(batch)
    if share.writers == 1 or table in share.undivided or not ordered.table.key:
        return np.full(len(batch), zlib.crc32(table.encode()) % share.writers, np.int64)
    hashes = hash_rows(keys_of(ordered).flatten(), len(batch))
    return np.asarray((hashes % np.uint64(share.writers)).astype(np.int64))


def owned_by(share: Share, writer: int, batch: ChangeBatch) -> np.ndarray | None:
    """Which changes the writer has to write: not the other halves of key updates; None: all of them."""
    if share.writers == 1 or not len(key_updates(batch)):
        return None
    return np.asarray(writers_of(share, batch) == writer)

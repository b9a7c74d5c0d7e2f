"""What the tasks of a batch need to write to Kafka, and the cells of each (`sinks.messages.shares`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tailrace.errors import concerning
from tailrace.formats.base import MessageFormat, SchemaIds
from tailrace.model.cell import decode_cell, encode_cell
from tailrace.model.change import ChangeBatch
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.cluster import Topic
from tailrace.sinks.kafka.division import NO_DIVISION, Division
from tailrace.sinks.kafka.markers import Marker
from tailrace.sinks.kafka.skipped import DEFAULT, SkippedOperations
from tailrace.sinks.kafka.truncations import parted
from tailrace.sinks.messages.shares import STOP, cut, share_row, writers_of
from tailrace.spark.unread import cells_in


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

    def ordered(self, batch: ChangeBatch) -> ChangeBatch:
        """See `Dividing`."""
        return self.division.ordered(batch)

    def transactional_id(self, writer: int) -> str:
        """The id that only one producer at a time may have."""
        return f"tailrace.{self.name}.{writer}"


def whole_batch(share: Share, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, ChangeBatch | None]]:
    """Rows of (min_seq, cell) that one task reads, as `Turns.write` takes them; None where they must be cut.

    They must if there is a schema that is not expected, or if a table's cells are not in order.
    """
    last: dict[str, str] = {}
    for rows in cells_in(batches, ["min_seq", "cell"]):
        for seq, cell in zip(rows.column(0).to_pylist(), rows.column(1), strict=True):
            given = decode_cell(cell.as_buffer())
            with concerning(given.table.id, sink=True):
                batch = share.division.batch(given)
                is_expected = share.expects(batch)
            if not is_expected or seq < last.get(str(batch.table.id), ""):
                yield 0, None
                return
            last[str(batch.table.id)] = seq
            yield 0, batch


def cut_cells(share: Share, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of (min_seq, cell) as rows of SHARES."""
    for rows in cells_in(batches, ["min_seq", "cell"]):
        for seq, cell in zip(rows.column(0), rows.column(1), strict=True):
            given = decode_cell(cell.as_buffer())
            with concerning(given.table.id, sink=True):
                batch = share.division.batch(given)
                if not share.expects(batch):
                    yield from (share_row(writer, "", STOP) for writer in range(share.writers))
                    return
                if at := share.truncated.get(str(batch.table.id)):  # its changes have one writer
                    writer = int(writers_of(share, batch)[0])
                    for place, part in parted(batch, at, share.skipped.connector):
                        yield share_row(writer, place, encode_cell(part))
                    continue
                parts = list(cut(share, batch))
            for writer, part in parts:
                yield share_row(writer, seq, cell.as_buffer() if part is given else encode_cell(part))

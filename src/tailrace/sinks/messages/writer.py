"""The tasks of sinks that write messages: each writer sends its share of a batch, in order.

    cells ──cut_share()──► (writer, seq, cell) ──shuffle, sort──► write_share() ──► MessageChannel

As in the Kafka sink: all changes of a key go to one writer, in the order of `seq`. If `MessageShare.schemas`
names the table schemas that the batch is expected to hold, and it holds another one, all writers are stopped
before the first of them has begun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext

from tailrace.errors import SinkError, TransientSinkError
from tailrace.failpoints import failpoint
from tailrace.formats.base import MessageFormat
from tailrace.model.cell import decode_cell, encode_cell
from tailrace.model.change import ChangeBatch
from tailrace.sinks.messages.outgoing import MessageMaker, owned
from tailrace.sinks.messages.reports import failed_report, written_report
from tailrace.sinks.messages.shares import STOP, cut, owned_by, share_row
from tailrace.sinks.messages.turns import Turns, of_shares
from tailrace.spark.unread import cells_in


class MessageChannel(Protocol):
    """The way of one writer's messages to their system."""

    def send(self, table: str, messages: pa.RecordBatch) -> None:
        """Send messages after all those before them.

        Args:
            table: the table.
            messages: columns of `outgoing.OUTGOING`, none of which is empty.

        Raises:
            SinkError: the system refuses one.
            TransientSinkError: the system does not answer.
        """

    def finish(self) -> None:
        """Return once all messages are durable; see `send`."""

    def close(self) -> None:
        """Release connections."""


class Channels(Protocol):
    """Opens channels; pickled to tasks."""

    def open(self, share: MessageShare, writer: int, *, may_repeat: bool) -> MessageChannel:
        """The channel of a writer.

        Args:
            share: the batch's settings.
            writer: the writer's number.
            may_repeat: whether messages of the batch may have been sent before.
        """


@dataclass(frozen=True)
class MessageShare:
    """The settings of one batch's tasks; pickled to them.

    Args:
        channels: opens the way to the system.
        targets: the names of targets by source table.
        format: encodes keys and values.
        writers: the number of writers.
        undivided: tables that go to one writer undivided: their key has several schemas in the batch.
        now_ms: processing time, milliseconds since 1970 UTC.
        stream: identifies the stream, and the sink among those of its pipeline.
        batch: the batch's number.
        may_repeat: whether messages of the batch may have been sent before.
        schemas: the table schemas that the batch may hold, as `TableSchema.text`; None: any.
    """

    channels: Channels
    targets: Mapping[str, str]
    format: MessageFormat
    writers: int
    undivided: frozenset[str]
    now_ms: int
    stream: str
    batch: int
    may_repeat: bool
    schemas: frozenset[bytes] | None = None

    def ordered(self, batch: ChangeBatch) -> ChangeBatch:
        """See `Dividing`: the tables' keys decide."""
        return batch

    def expects(self, batch: ChangeBatch) -> bool:
        """Whether the batch may hold changes with this schema."""
        return self.schemas is None or batch.table.text in self.schemas


def cut_share(share: MessageShare, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of (min_seq, cell) as rows of `shares.SHARES`."""
    for rows in cells_in(batches, ["min_seq", "cell"]):
        for seq, cell in zip(rows.column(0), rows.column(1), strict=True):
            batch = decode_cell(cell.as_buffer())
            if not share.expects(batch):
                yield from (share_row(writer, "", STOP) for writer in range(share.writers))
                return
            for writer, part in cut(share, batch):
                yield share_row(writer, seq, cell.as_buffer() if part is batch else encode_cell(part))


def write_share(share: MessageShare, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send rows of `shares.SHARES`, each writer's in order; a row of `reports.REPORT` for each writer.

    A failure is reported, not raised: Spark would retry the task at once.
    """
    turns = Turns(lambda number: _Writer(share, number))
    try:
        yield from turns.write(of_shares(batches))
    except SinkError as error:
        yield failed_report(error)
    finally:
        if turns.present is not None:
            with suppress(TransientSinkError):
                turns.present.close()


class _Writer:
    """One writer.

    Args:
        share: the batch's settings.
        number: the writer's.
    """

    def __init__(self, share: MessageShare, number: int) -> None:
        self._number = number
        self._share = share
        self._changes: Counter[tuple[str, str]] = Counter()
        self._messages = MessageMaker(share.format, share.now_ms)
        context = TaskContext.get()
        is_retried = context is not None and context.attemptNumber() > 0
        self._channel = share.channels.open(share, number, may_repeat=share.may_repeat or is_retried)

    def write(self, batch: ChangeBatch) -> None:
        """Send the messages of one cell's changes."""
        table = str(batch.table.id)
        messages = owned(self._messages.of(batch), owned_by(self._share, self._number, batch))
        if not messages.num_rows:
            return
        self._changes[table, batch.kind] += messages.num_rows
        self._channel.send(table, messages)

    def finish(self) -> pa.RecordBatch:
        """Return once all messages are durable; the row of REPORT."""
        self._channel.finish()
        self._channel.close()
        failpoint("sink.task")
        return written_report(self._number, "", {}, self._changes)

    def close(self) -> None:
        """Give up."""
        self._channel.close()

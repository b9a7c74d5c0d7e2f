"""What tasks do: changes of keys that fall to one writer become messages, in one transaction.

A batch's cells are cut by key: all changes of a key, of whatever cell, go to one writer, in `seq` order. So
many producers may write to one partition, and the changes of a key stand in it in their order.

    cells ──cut_cells()──► (writer, seq, cell) ──shuffle, sort──► write_share() ──► topics, marker

Where `Share.shapes` says what the batch is expected to hold, and it holds anything else, all writers are told
to stop before the first of them has begun: a shuffle lies between.

A key update's halves fall to two writers, and each half's message names the other's key in a header. Then the
cell of either writer holds both halves, and each writes its own only.

Who may write is decided by Kafka: the transactional id names pipeline and writer, `init_transactions` shuts
out whoever had it before. A producer is kept by its Python process for the batches to come. It may be used
again if the driver names it as the last that wrote this share; in any other case (another process wrote
meanwhile, this task is the second attempt of one that died) a new one takes over, and reads from the marker
topic whether the share is written already.
"""

from __future__ import annotations

import time
import uuid
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import SinkError, TransientSinkError
from tailrace.failpoints import failpoint
from tailrace.formats.base import MessageFormat, SchemaIds
from tailrace.formats.debezium.headers import key_updates
from tailrace.formats.encodings.json_documents import operations
from tailrace.kernels.murmur import partitions_of
from tailrace.kernels.rowhash import hash_rows
from tailrace.model.cell import LOG, SNAPSHOT, decode_cell, encode_cell
from tailrace.model.change import OP_DELETE, ChangeBatch
from tailrace.reader.log import keys_of
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.cluster import Topic
from tailrace.sinks.kafka.failure import FENCED, overdue, sink_error
from tailrace.sinks.kafka.librdkafka import KafkaError, MessageColumns, Producer
from tailrace.sinks.kafka.markers import Marker, Record, read_markers

#: Columns of what `cut_cells` gives.
SHARES = "writer int, seq string, cell binary"
_SHARES = pa.schema([("writer", pa.int32()), ("seq", pa.string()), ("cell", pa.binary())])
#: A cell that comes before all others of a writer that must not begin.
_STOP = pa.py_buffer(b"")
#: Columns of what `write_share` gives; `met`, null of a writer that was told to stop: table, kind, changes.
REPORT = (
    "writer int, token string, refused bigint, failure string, detail string, hint string,"
    " met array<struct<table string, kind string, changes bigint>>"
)
_MET = pa.struct([("table", pa.string()), ("kind", pa.string()), ("changes", pa.int64())])
_REPORT = pa.schema(
    [
        ("writer", pa.int32()),
        ("token", pa.string()),
        ("refused", pa.int64()),
        ("failure", pa.string()),
        ("detail", pa.string()),
        ("hint", pa.string()),
        ("met", pa.list_(_MET)),
    ]
)
#: Most bytes sent at once to a partition, where topics take as many.
_BATCH_BYTES = 1_000_000
#: Longest time without any progress, seconds.
_PATIENCE_S = 90.0
#: Bytes of a message beside key, value and headers, at most (record batch and record headers).
_OVERHEAD = 128


@dataclass(frozen=True)
class Share:
    """What the tasks of one batch must know; pickled to them.

    Args:
        client: how to reach the cluster.
        format: makes messages.
        ids: the registry's ids of the format's schemas.
        topics: by the source table's name.
        writers: how many writers there are.
        whole: tables that go to one writer as they are: the batch holds several forms of their key.
        now_ms: processing time, milliseconds since 1970 UTC.
        tombstones: whether messages without a value are written.
        quarantine: where messages go that their topic does not take; None: they are an error.
        name: begins transactional ids; None: no transactions.
        marker: what is written with the messages.
        marker_topic: where to.
        marker_end: markers from there on are not known to the driver.
        tokens: the producer that wrote last, by writer.
        shapes: the shapes that changes may have, as `TableSchema.text`; None: any.
    """

    client: Client
    format: MessageFormat
    ids: SchemaIds
    topics: Mapping[str, Topic]
    writers: int
    whole: frozenset[str]
    now_ms: int
    tombstones: bool
    quarantine: Topic | None
    name: str | None
    marker: Marker
    marker_topic: str
    marker_end: int
    tokens: Mapping[int, str]
    shapes: frozenset[bytes] | None = None

    def transactional_id(self, writer: int) -> str:
        """The id that only one producer at a time may have."""
        return f"tailrace.{self.name}.{writer}"


# ---- cells by writer ---------------------------------------------------------------------------------


def cut_cells(share: Share, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of (min_seq, cell) as rows of SHARES."""
    for rows in batches:
        for seq, cell in zip(rows.column(0), rows.column(1), strict=True):
            batch = decode_cell(cell.as_buffer())
            if share.shapes is not None and batch.table.text not in share.shapes:
                yield from (_piece(writer, "", _STOP) for writer in range(share.writers))
                return
            for writer, piece in _cut(share, batch):
                yield _piece(writer, seq, cell.as_buffer() if piece is batch else encode_cell(piece))


def _piece(writer: int, seq: str | pa.StringScalar, data: pa.Buffer) -> pa.RecordBatch:
    ends = pa.py_buffer(np.array([0, data.size], np.int32))
    one = pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])
    arrays = [pa.array([writer], pa.int32()), pa.array([seq], pa.string()), one]
    return pa.RecordBatch.from_arrays(arrays, schema=_SHARES)


def _cut(share: Share, batch: ChangeBatch) -> Iterator[tuple[int, ChangeBatch]]:
    writers = _writers(share, batch)
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


def _writers(share: Share, batch: ChangeBatch) -> np.ndarray:
    """The writer of each change."""
    table = str(batch.table.id)
    if share.writers == 1 or not batch.table.key or table in share.whole:
        return np.full(len(batch), zlib.crc32(table.encode()) % share.writers, np.int64)
    hashes = hash_rows(keys_of(batch).flatten(), len(batch))
    return np.asarray((hashes % np.uint64(share.writers)).astype(np.int64))


# ---- messages ----------------------------------------------------------------------------------------


def write_share(share: Share, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of SHARES to Kafka, each writer's in one go and in order; a row of REPORT for each writer.

    What Kafka refuses for good is reported and not raised, as Spark would try the task again at once.
    """
    transaction: _Writing | None = None
    try:
        for rows in batches:
            for writer, cell in zip(rows.column(0).to_pylist(), rows.column(2), strict=True):
                if not len(cell.as_buffer()):
                    yield _row([writer, None, None, None, None, None, None])
                    return
                if transaction is not None and transaction.writer != writer:
                    yield transaction.finish()
                    transaction = None
                if transaction is None:
                    transaction = _open(share, writer)
                transaction.write(decode_cell(cell.as_buffer()))
        if transaction is not None:
            yield transaction.finish()
    except KafkaError as error:
        _drop(transaction)
        ours = sink_error(error.name, error.said, error.topic)
        limit_s = share.client.transaction_s
        if transaction is not None and transaction.lasted_s > limit_s and ours.retryable:
            ours = overdue(limit_s, error.name, error.said)
        elif error.name in FENCED:
            # Should this be the attempt that Spark has given up, nobody must hear of it.
            raise ours from error
        yield _failed(ours)
    except SinkError as error:
        _drop(transaction)
        yield _failed(error)
    except BaseException:
        _drop(transaction)
        raise


def _row(report: list[object]) -> pa.RecordBatch:
    arrays = [pa.array([v], f.type) for v, f in zip(report, _REPORT, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_REPORT)


def _failed(error: SinkError) -> pa.RecordBatch:
    kind = "transient" if isinstance(error, TransientSinkError) else "definite"
    return _row([None, kind, None, error.message, error.detail, error.hint, []])


@dataclass
class _Kept:
    """A producer, the most bytes it sends at once and the last batch that it committed."""

    producer: Producer
    token: str
    batch_bytes: int
    batch: int = -1


#: This process's producers, by transactional id (or settings, where there are no transactions).
_producers: dict[str, _Kept] = {}


class _Writing:
    """One writer's transaction, or what stands for it where there are none.

    Args:
        share: the batch.
        writer: the writer's number.
        kept: its producer.
        done: the share is in Kafka already.
    """

    def __init__(self, share: Share, writer: int, kept: _Kept, *, done: bool) -> None:
        self.writer = writer
        self.refused = 0
        self._met: Counter[tuple[str, str]] = Counter()
        self._share = share
        self.kept = kept
        self._done = done
        #: When the transaction began, by `time.monotonic`; None: there is none.
        self._began: float | None = None
        if share.name is not None and not done:
            kept.producer.begin()
            self._began = time.monotonic()

    @property
    def lasted_s(self) -> float:
        """How long the transaction has been open, seconds."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def write(self, batch: ChangeBatch) -> None:
        """Queue the messages of one cell's changes."""
        own = int(np.count_nonzero(self._own(batch, len(batch))))
        self._met[str(batch.table.id), SNAPSHOT if batch.is_snapshot else LOG] += own
        if self._done:
            return
        share = self._share
        made = share.format.messages(batch, share.now_ms, share.ids)
        keys, values, headers = (made.column(name) for name in ("key", "value", "headers"))
        topic = share.topics[str(batch.table.id)]
        wanted = self._own(batch, len(values))
        if not share.tombstones:
            wanted &= values.is_valid().to_numpy(zero_copy_only=False)
        if (too_large := wanted & (sizes(made) > topic.limit)).any():
            self._refuse(batch, made, topic, too_large)
            wanted &= ~too_large
        partitions = partitions_of(keys, topic.partitions)
        messages = MessageColumns(keys, values, headers, partitions, wanted.astype(np.uint8))
        self.kept.producer.produce(topic.name, messages, _PATIENCE_S)

    def _refuse(self, batch: ChangeBatch, made: pa.RecordBatch, topic: Topic, too_large: np.ndarray) -> None:
        """Put aside messages that `topic` does not take, with the reason in headers.

        Raises:
            SinkError: they are not to be put aside.
        """
        rows = np.flatnonzero(too_large)
        change = int(change_of(batch, made.num_rows)[rows[0]])
        (origin,) = batch.origin.slice(change, 1).to_pylist()
        place = self._share.quarantine
        if place is None:
            raise SinkError(
                f"a message of table `{batch.table.id}` is larger than topic `{topic.name}` takes",
                f"{sizes(made)[rows[0]]} bytes with what Kafka adds, the topic's `max.message.bytes` is "
                f"{topic.limit}; the change stands at {origin['file']}:{origin['pos']} of the log",
                f"kafka-configs.sh --alter --entity-type topics --entity-name {topic.name} --add-config "
                "max.message.bytes=...; or set `sink.on-refused-row: quarantine`",
            )
        refused = made.take(pa.array(rows))
        fits = pa.array(sizes(refused) <= place.limit)
        said = {
            "__tailrace.refused.topic": topic.name,
            "__tailrace.refused.reason": f"larger than the topic's max.message.bytes ({topic.limit})",
        }
        entries = [list(said.items())] * len(rows)
        headers = pa.array(
            [[(k, v.encode()) for k, v in entry] for entry in entries], made.column("headers").type
        )
        keys = refused.column("key")
        values = pc.if_else(fits, refused.column("value"), pa.scalar(None, pa.binary()))
        partitions, wanted = partitions_of(keys, place.partitions), np.ones(len(rows), np.uint8)
        messages = MessageColumns(keys, values, headers, partitions, wanted)
        self.kept.producer.produce(place.name, messages, _PATIENCE_S)
        self.refused += len(rows)

    def finish(self) -> pa.RecordBatch:
        """Make it durable; a row of REPORT."""
        if not self._done:
            self._commit()
        met = [{"table": t, "kind": kind, "changes": n} for (t, kind), n in self._met.items()]
        return _row([self.writer, self.kept.token, self.refused, None, None, None, met])

    def _commit(self) -> None:
        producer, share = self.kept.producer, self._share
        if share.name is None:
            producer.deliver(_PATIENCE_S)
            failpoint("sink.task")
            return
        key, value = (pa.array([side]) for side in Record(str(self.writer), share.marker).pair())
        partition, wanted = np.zeros(1, np.int32), np.ones(1, np.uint8)
        producer.produce(share.marker_topic, MessageColumns(key, value, None, partition, wanted), _PATIENCE_S)
        failpoint("sink.produced")
        producer.commit(_PATIENCE_S)
        self.kept.batch = share.marker.batch
        failpoint("sink.task")

    def _own(self, batch: ChangeBatch, messages: int) -> np.ndarray:
        """Which messages are the writer's own: not the other half of a key update."""
        if self._share.writers == 1 or not len(key_updates(batch)):
            return np.ones(messages, bool)
        own = _writers(self._share, batch) == self.writer
        return np.asarray(own[change_of(batch, messages)])

    def drop(self) -> None:
        """Let go of the producer: its transaction is aborted by its successor, or by Kafka in time."""
        self.kept.producer.close()


def change_of(batch: ChangeBatch, messages: int) -> np.ndarray:
    """The number of the change that each of a batch's messages is of."""
    rows = np.arange(len(batch))
    return rows if messages == len(batch) else np.repeat(rows, 1 + (operations(batch) == OP_DELETE))


def sizes(made: pa.RecordBatch) -> np.ndarray:
    """Bytes of each message as a batch of its own, at most."""
    total = np.full(made.num_rows, _OVERHEAD, np.int64)
    for name in ("key", "value"):
        total += pc.fill_null(pc.binary_length(made.column(name)), 0).to_numpy()
    headers = made.column("headers")
    if headers.null_count < len(headers):
        entries = headers.values
        each = np.zeros(len(entries) + 1, np.int64)
        lengths = [pc.fill_null(pc.binary_length(entries.field(i)), 0).to_numpy() for i in (0, 1)]
        np.cumsum(lengths[0] + lengths[1] + 10, out=each[1:])
        starts = headers.offsets.to_numpy()
        total += np.where(headers.is_valid().to_numpy(zero_copy_only=False), np.diff(each[starts]), 0)
    return total


def _open(share: Share, writer: int) -> _Writing:
    given = (share.client.bootstrap_servers, sorted(share.client.properties.items()))
    name = str(given) if share.name is None else share.transactional_id(writer)
    batch_bytes = min([_BATCH_BYTES, *(topic.limit for topic in share.topics.values())])
    kept = _producers.pop(name, None)
    if kept is not None and not _may_go_on(share, writer, kept, batch_bytes):
        kept.producer.close()
        kept = None
    if kept is not None:
        done = share.name is not None and kept.batch == share.marker.batch
    else:
        id_ = None if share.name is None else share.transactional_id(writer)
        producer = Producer(share.client.producer_settings(id_, batch_bytes))
        kept = _Kept(producer, uuid.uuid4().hex, batch_bytes)
        done = share.name is not None and _take_over(share, writer, producer)
    writing = _Writing(share, writer, kept, done=done)
    _producers[name] = kept
    return writing


def _may_go_on(share: Share, writer: int, kept: _Kept, batch_bytes: int) -> bool:
    """Whether a producer of an earlier batch may write this one."""
    is_the_last = share.name is None or kept.token == share.tokens.get(writer)
    return is_the_last and kept.batch_bytes <= batch_bytes


def _take_over(share: Share, writer: int, producer: Producer) -> bool:
    """Become the writer; whether its share of the batch is written already."""
    try:
        producer.init_transactions(_PATIENCE_S)
        marker = read_markers(share.client, share.marker_topic, share.marker_end).last.get(str(writer))
    except BaseException:
        producer.close()
        raise
    if marker is None or marker.batch < share.marker.batch:
        return False
    if marker.writers != share.writers:
        raise TransientSinkError(
            "the batch was begun by another number of writers",
            f"found a marker of {marker.writers}, now there are {share.writers}",
        )
    return True


def _drop(writing: _Writing | None) -> None:
    if writing is not None:
        for name, kept in list(_producers.items()):
            if kept is writing.kept:
                del _producers[name]
        writing.drop()

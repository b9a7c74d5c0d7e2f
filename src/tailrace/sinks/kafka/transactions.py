"""The transactions of a batch's writers, and the producers that each Python process keeps for them.

Kafka decides who may write: the transactional id names the pipeline and the writer, and `init_transactions`
fences the previous producer with that id. A process keeps its producers for later batches. A producer may
write again if the driver names it as the last that wrote this share. In any other case (another process has
written in between, or this task is the second attempt of one that died) a new producer takes over, and reads
from the marker topic whether the share is written already.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.config.outbox import InvalidOperation
from tailrace.errors import SinkError, TransientSinkError
from tailrace.failpoints import failpoint
from tailrace.formats.debezium.outbox import Outbox
from tailrace.kernels.murmur import partitions_of
from tailrace.model.change import ChangeBatch
from tailrace.sinks.kafka.cluster import Topic
from tailrace.sinks.kafka.librdkafka import MessageColumns, Producer
from tailrace.sinks.kafka.markers import Record, read_markers, record_messages
from tailrace.sinks.kafka.messages import by_topic, change_of, sizes, timestamps_of
from tailrace.sinks.kafka.quarantine import is_of_a_change, too_large, unencodable
from tailrace.sinks.kafka.shares import Share
from tailrace.sinks.kafka.truncations import is_truncation, keyless
from tailrace.sinks.messages.reports import written_report
from tailrace.sinks.messages.shares import owned_by
from tailrace.sinks.quarantine import too_many

#: Most bytes sent at once to a partition, if its topic allows as many.
_BATCH_BYTES = 1_000_000
#: Longest time without any progress, seconds.
STALL_TIMEOUT_S = 90.0


@dataclass
class _KeptProducer:
    """A producer, kept for later batches.

    Args:
        producer: the producer.
        token: identifies it to the driver.
        batch_bytes: most bytes that it sends at once.
        batch: the last batch that it committed.
    """

    producer: Producer
    token: str
    batch_bytes: int
    batch: int = -1


#: This process's producers, by transactional id (or by settings, without transactions).
_producers: dict[str, _KeptProducer] = {}


def _named_partitions(batch: ChangeBatch, named: pa.Array, by_key: np.ndarray, topic: Topic) -> np.ndarray:
    """The partitions that messages name, and where they name none those of their keys.

    Raises:
        SinkError: the topic does not have one of them.
    """
    highest, lowest = pc.max(named).as_py(), pc.min(named).as_py()
    if lowest < 0 or highest >= topic.partitions:
        raise SinkError(
            f"a row of outbox `{batch.table.id}` names a partition that its topic does not have",
            f"found {lowest if lowest < 0 else highest}; topic `{topic.name}` has {topic.partitions}",
            "correct the application, or add partitions: kafka-topics.sh --alter --partitions ...",
            code="TR-7615",
        )
    has_own = named.is_valid().to_numpy(zero_copy_only=False)
    return np.where(has_own, named.fill_null(0).to_numpy(), by_key).astype(by_key.dtype)


class WriterTransaction:
    """One writer's transaction; without transactions, its messages until they are delivered.

    Args:
        share: the batch's settings.
        writer: the writer's number.
        kept: its producer.
        done: whether the share is in Kafka already.
    """

    def __init__(self, share: Share, writer: int, kept: _KeptProducer, *, done: bool) -> None:
        self.writer = writer
        self.refused: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()
        self._changes: Counter[tuple[str, str]] = Counter()
        self._share = share
        self._kept = kept
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
        """Queue the messages of one cell's changes.

        Raises:
            SinkError: a message is too large for its topic, or a change cannot be encoded, and there is no
                quarantine, or no room in it.
        """
        share = self._share
        owned = owned_by(share, self.writer, batch)
        self._changes[str(batch.table.id), batch.kind] += len(batch) if owned is None else int(owned.sum())
        if self._done:
            return
        if share.skipped.skips_rows:
            kept = share.skipped.kept(batch)
            owned = kept if owned is None else owned & kept
        if (outbox := share.division.outbox_of(batch.table.id)) is not None:
            batch = self._events(batch, outbox, owned)
            if not len(batch):
                return
            owned = None
        names_topics = share.division.names_topics(batch.table.id)
        own = share.format.topic(batch.table.id)
        topic = Topic(own, 1, 0) if names_topics else share.topics[str(batch.table.id)]
        try:
            messages = self._encoded(batch)
        except SinkError as error:
            refused = self._unencodable(batch, error)
            self._put_aside(batch, {n: e for n, e in refused.items() if owned is None or owned[n]}, topic)
            kept = np.setdiff1d(np.arange(len(batch)), list(refused))
            if not len(kept):
                return
            batch, owned = batch.take(pa.array(kept)), None if owned is None else owned[kept]
            messages = self._encoded(batch)
        if not names_topics:
            self._send(batch, messages, topic, owned)
            return
        changes = change_of(batch, messages.num_rows)
        for name, rows in by_topic(messages):
            part = np.unique(changes[rows])  # with the tombstones of deletes
            topic, of_part = share.content_topics[name], None if owned is None else owned[part]
            self._send(batch.take(pa.array(part)), messages.take(pa.array(rows)), topic, of_part)

    def _events(self, batch: ChangeBatch, outbox: Outbox, owned: np.ndarray | None) -> ChangeBatch:
        """The events among the changes of an outbox that are this writer's.

        Raises:
            SinkError: a row was updated, and that is an error.
        """
        mine = np.ones(len(batch), bool) if owned is None else owned
        if updates := int(np.count_nonzero(outbox.is_invalid(batch) & mine)):
            if outbox.settings.table_op_invalid_behavior is InvalidOperation.FATAL:
                raise SinkError(
                    f"a row of outbox `{batch.table.id}` was updated",
                    f"{updates} updates; rows of an outbox are inserted, and deleted later",
                    "correct the application, then set `table-op-invalid-behavior: warn` in the section "
                    "`outbox`, which leaves updates out",
                    code="TR-7608",
                )
            self._ignored[str(batch.table.id)] += updates
        return batch.take(pa.array(np.flatnonzero(outbox.is_event(batch) & mine)))

    def _encoded(self, batch: ChangeBatch) -> pa.RecordBatch:
        """The messages of changes.

        Raises:
            SinkError: a change cannot be encoded.
        """
        share = self._share
        if (outbox := share.division.outbox_of(batch.table.id)) is not None:
            return outbox.messages(batch)
        shown = keyless(batch) if is_truncation(batch) else batch
        messages = share.format.messages(shown, share.now_ms, share.ids)
        if (topics := share.division.topic_column(batch)) is None:
            return messages
        topics = topics.take(pa.array(change_of(batch, messages.num_rows)))
        return messages.set_column(0, messages.schema.field(0), topics)

    def _send(
        self, batch: ChangeBatch, messages: pa.RecordBatch, topic: Topic, owned: np.ndarray | None
    ) -> None:
        """Queue messages of one topic.

        Args:
            batch: the changes.
            messages: their messages.
            topic: the topic.
            owned: the changes that are this writer's; None: all.

        Raises:
            SinkError: a message is too large for its topic, and there is no quarantine, or no room in it.
        """
        share = self._share
        keys, values, headers = (messages.column(name) for name in ("key", "value", "headers"))
        selected = np.ones(len(values), bool) if owned is None else owned[change_of(batch, len(values))]
        if not share.tombstones:
            selected &= values.is_valid().to_numpy(zero_copy_only=False)
        if (large := selected & (sizes(messages) > topic.limit)).any():
            self._refuse(batch, messages, topic, large)
            selected &= ~large
        by = None if is_truncation(batch) else share.division.partition_keys(batch)
        if by is not None:
            by = by.take(pa.array(change_of(batch, len(values))))
        partitions = partitions_of(keys if by is None else by, topic.partitions)
        named = messages.column("partition")
        if named.null_count < len(named):
            partitions = _named_partitions(batch, named, partitions, topic)
        columns = MessageColumns(
            keys, values, headers, partitions, selected.astype(np.uint8), timestamps=timestamps_of(messages)
        )
        self._kept.producer.produce(topic.name, columns, STALL_TIMEOUT_S)

    def _unencodable(self, batch: ChangeBatch, error: SinkError) -> dict[int, SinkError]:
        """The changes that the format has no form for, by their numbers.

        Args:
            batch: the changes.
            error: the format's error for them.

        Raises:
            SinkError: there is no quarantine, or the error is not about single changes.
        """
        if self._share.quarantine is None or not is_of_a_change(error):
            raise error
        if len(batch) == 1:
            return {0: error}
        found: dict[int, SinkError] = {}
        middle = len(batch) // 2
        for first, half in ((0, batch.slice(0, middle)), (middle, batch.slice(middle))):
            try:
                self._encoded(half)
            except SinkError as of_half:
                found |= {first + n: e for n, e in self._unencodable(half, of_half).items()}
        return found

    def _refuse(self, batch: ChangeBatch, messages: pa.RecordBatch, topic: Topic, large: np.ndarray) -> None:
        """Put messages that are too large for `topic` into quarantine.

        Raises:
            SinkError: there is no quarantine, or no room in it.
        """
        rows = np.flatnonzero(large)
        quarantine = self._share.quarantine
        if quarantine is None:
            change = int(change_of(batch, messages.num_rows)[rows[0]])
            (origin,) = batch.origin.slice(change, 1).to_pylist()
            raise SinkError(
                f"a message of table `{batch.table.id}` is larger than topic `{topic.name}` takes",
                f"{sizes(messages)[rows[0]]} bytes with what Kafka adds, the topic's `max.message.bytes` is "
                f"{topic.limit}; the change stands at {origin['file']}:{origin['pos']} of the log",
                f"kafka-configs.sh --alter --entity-type topics --entity-name {topic.name} --add-config "
                "max.message.bytes=...; or set `sink.on-refused-row: quarantine`",
                code="TR-7407",
            )
        self._note_refused(batch, len(rows), "a message is larger than its topic allows")
        columns = too_large(batch, messages, rows, topic, quarantine, marker=self._share.marker)
        self._kept.producer.produce(quarantine.name, columns, STALL_TIMEOUT_S)

    def _put_aside(self, batch: ChangeBatch, refused: dict[int, SinkError], topic: Topic) -> None:
        """Put changes that the format has no form for into quarantine.

        Raises:
            SinkError: there is no room in it.
        """
        quarantine = self._share.quarantine
        assert quarantine is not None
        if refused:
            self._note_refused(batch, len(refused), next(iter(refused.values())).message)
            columns = unencodable(batch, refused, topic, quarantine, marker=self._share.marker)
            self._kept.producer.produce(quarantine.name, columns, STALL_TIMEOUT_S)

    def _note_refused(self, batch: ChangeBatch, count: int, reason: str) -> None:
        table, most = str(batch.table.id), self._share.most_quarantined
        self.refused[table] += count
        if self._share.quarantined.get(table, 0) + self.refused[table] > most:
            raise too_many(table, most, reason)

    def finish(self) -> pa.RecordBatch:
        """Make the share durable; its row of REPORT."""
        if not self._done:
            self._commit()
        return written_report(self.writer, self._kept.token, self.refused, self._changes, self._ignored)

    def _commit(self) -> None:
        producer, share = self._kept.producer, self._share
        if share.name is None:
            producer.deliver(STALL_TIMEOUT_S)
            failpoint("sink.task")
            return
        marker = Record(str(self.writer), share.marker)
        producer.produce(share.marker_topic, record_messages([marker]), STALL_TIMEOUT_S)
        failpoint("sink.produced")
        producer.commit(STALL_TIMEOUT_S)
        self._kept.batch = share.marker.batch
        failpoint("sink.task")

    def drop(self) -> None:
        """Close the producer: its successor, or Kafka's timeout, aborts the transaction."""
        for name, kept in list(_producers.items()):
            if kept is self._kept:
                del _producers[name]
        self._kept.producer.close()


def open_transaction(share: Share, writer: int) -> WriterTransaction:
    """Begin a writer's transaction, with a kept producer or a new one.

    Raises:
        KafkaError: the cluster does not allow it.
        SinkError: the markers cannot be read, or the batch was begun by another number of writers.
    """
    given = (share.client.bootstrap_servers, sorted(share.client.properties.items()))
    name = str(given) if share.name is None else share.transactional_id(writer)
    batch_bytes = min(
        [_BATCH_BYTES, *(topic.limit for topic in (*share.topics.values(), *share.content_topics.values()))]
    )
    kept = _producers.pop(name, None)
    if kept is not None and not _may_continue(share, writer, kept, batch_bytes):
        kept.producer.close()
        kept = None
    if kept is not None:
        done = share.name is not None and kept.batch == share.marker.batch
    else:
        id_ = None if share.name is None else share.transactional_id(writer)
        producer = Producer(share.client.producer_settings(id_, batch_bytes))
        kept = _KeptProducer(producer, uuid.uuid4().hex, batch_bytes)
        done = share.name is not None and _take_over(share, writer, producer)
    transaction = WriterTransaction(share, writer, kept, done=done)
    _producers[name] = kept
    return transaction


def _may_continue(share: Share, writer: int, kept: _KeptProducer, batch_bytes: int) -> bool:
    """Whether a producer of an earlier batch may write this one."""
    wrote_last = share.name is None or kept.token == share.tokens.get(writer)
    return wrote_last and kept.batch_bytes <= batch_bytes


def _take_over(share: Share, writer: int, producer: Producer) -> bool:
    """Fence the writer's previous producer; whether its share of the batch is written already."""
    try:
        producer.init_transactions(STALL_TIMEOUT_S)
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
            code="TR-7413",
        )
    return True

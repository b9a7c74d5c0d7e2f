"""The topic of refused changes, `<topic-prefix>.__quarantine`: what its messages say, and reading them.

A message that is too large for its topic is there as it is, or without its value if that is too large even
there. A change that cannot be encoded is there as JSON: its key's columns, and all of its columns.

    __tailrace.refused.topic       the topic that lacks it
    __tailrace.refused.reason      why
    __tailrace.refused.code        the condition's code
    __tailrace.refused.remedy      what makes the topic accept it
    __tailrace.refused.table       the source table
    __tailrace.refused.stream      the stream: its checkpoint's id
    __tailrace.refused.batch       the batch
    __tailrace.refused.op          r, c, u or d
    __tailrace.refused.position    of the change in the source's log

Messages of earlier versions have the first two only. A message with `__tailrace.cleared.table` says that all
messages of a table before it, of the stream in `__tailrace.cleared.stream`, have been dealt with (`tailrace
quarantine --clear`): they are not counted.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tailrace.config.kafka import KafkaSettings
from tailrace.errors import SinkError, TransientSinkError
from tailrace.formats.connect.topics import legal
from tailrace.formats.row import to_rows
from tailrace.kernels.murmur import partitions_of
from tailrace.model.change import OP_LETTERS, ChangeBatch
from tailrace.model.moments import rows_to_python
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.cluster import Topic
from tailrace.sinks.kafka.failure import sink_error
from tailrace.sinks.kafka.librdkafka import MessageColumns, Producer
from tailrace.sinks.kafka.markers import Marker
from tailrace.sinks.kafka.messages import change_of, sizes
from tailrace.sinks.quarantine import QuarantinedRow, plain

_REFUSED, _CLEARED, _STREAM = "__tailrace.refused.", "__tailrace.cleared.table", "__tailrace.cleared.stream"
#: Conditions of single changes that the format has no form for.
_OF_A_CHANGE = frozenset({"TR-4405", "TR-7604", "TR-7607"})
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TIMEOUT_S = 60.0
_RECORDS = 1000


def quarantine_topic(settings: KafkaSettings) -> str:
    """The topic's name."""
    return legal(f"{settings.topic_prefix}.__quarantine")


# ---- writing -----------------------------------------------------------------------------------------


def too_large(
    batch: ChangeBatch,
    messages: pa.RecordBatch,
    rows: np.ndarray,
    topic: Topic,
    quarantine: Topic,
    *,
    marker: Marker,
) -> MessageColumns:
    """Messages for the quarantine of those that are too large for their topic.

    Args:
        batch: the changes.
        messages: their messages.
        rows: the numbers of those that are too large.
        topic: their topic.
        quarantine: the quarantine topic; a value too large for it is left out.
        marker: names the batch.
    """
    refused = messages.take(pa.array(rows))
    fits = pa.array(sizes(refused) <= quarantine.limit)
    changes = change_of(batch, messages.num_rows)[rows]
    error = SinkError(
        f"larger than the topic's max.message.bytes ({topic.limit})",
        None,
        f"kafka-configs.sh --alter --entity-type topics --entity-name {topic.name} --add-config "
        "max.message.bytes=...",
        code="TR-7407",
    )
    headers = [_described(batch, int(change), error, topic, marker) for change in changes]
    values = pc.if_else(fits, refused.column("value"), pa.scalar(None, pa.binary()))
    return _messages(refused.column("key"), values, headers, quarantine)


def unencodable(
    batch: ChangeBatch, refused: Mapping[int, SinkError], topic: Topic, quarantine: Topic, *, marker: Marker
) -> MessageColumns:
    """Messages for the quarantine of changes that cannot be encoded.

    Args:
        batch: the changes.
        refused: the errors, by the number of the change.
        topic: the topic that lacks them.
        quarantine: the quarantine topic.
        marker: names the batch.
    """
    table = batch.table
    images = to_rows(batch.take(pa.array(list(refused)))).select(table.arrow.names)
    keys, values = [], []
    for row in rows_to_python(images):
        known = {name: value for name, value in row.items() if name not in batch.absent_after}
        keys.append(_json({name: row[name] for name in table.key}) if table.key else None)
        value = _json(known)
        values.append(value if len(value) < quarantine.limit // 2 else None)
    headers = [_described(batch, number, error, topic, marker) for number, error in refused.items()]
    return _messages(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), headers, quarantine)


def is_of_a_change(error: SinkError) -> bool:
    """Whether an error of a format is about single changes."""
    return error.code in _OF_A_CHANGE


def _described(
    batch: ChangeBatch, change: int, error: SinkError, topic: Topic, marker: Marker
) -> list[tuple[str, bytes]]:
    (origin,) = batch.origin.select(["file", "pos"]).slice(change, 1).to_pylist()
    reason = error.message if error.detail is None else f"{error.message}: {error.detail}"
    parts = {
        "topic": topic.name,
        "reason": reason,
        "code": error.code or "",
        "remedy": error.hint or "",
        "table": str(batch.table.id),
        "stream": marker.stream,
        "batch": str(marker.batch),
        "op": OP_LETTERS[batch.op[change].as_py()],
        "position": f"{origin['file']}:{origin['pos']}",
    }
    return [(f"{_REFUSED}{name}", text.encode()) for name, text in parts.items()]


def _messages(
    keys: pa.Array, values: pa.Array, headers: Sequence[list[tuple[str, bytes]]], quarantine: Topic
) -> MessageColumns:
    partitions = partitions_of(keys, quarantine.partitions)
    listed = pa.array(headers, _HEADERS)
    return MessageColumns(keys, values, listed, partitions, np.ones(len(keys), np.uint8))


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, default=plain, ensure_ascii=False).encode()


# ---- reading -----------------------------------------------------------------------------------------


def quarantined(client: Client, topic: Topic, stream: str) -> list[QuarantinedRow]:
    """The changes of a stream that are in quarantine, without those that are cleared.

    Raises:
        SinkError: the topic cannot be read.
    """
    found: list[QuarantinedRow] = []
    for key, value, headers in _read(client, topic):
        if headers.get(f"{_REFUSED}stream", headers.get(_STREAM, stream)) != stream:
            continue  # another source of the pipeline, or a former stream
        if _CLEARED in headers:
            found = [row for row in found if row.table != headers[_CLEARED]]
        elif f"{_REFUSED}topic" in headers:
            found.append(_row(key, value, headers))
    return found


def counts(client: Client, topic: Topic, stream: str) -> Counter[str]:
    """How many changes of each table of a stream are in quarantine."""
    return Counter(row.table for row in quarantined(client, topic, stream))


def clear(client: Client, topic: Topic, stream: str, table: str) -> None:
    """Note that all messages of a table of a stream have been dealt with."""
    producer = Producer(client.producer_settings(None))
    try:
        headers = pa.array([[(_CLEARED, table.encode()), (_STREAM, stream.encode())]], _HEADERS)
        nothing = pa.nulls(1, pa.binary())
        cleared = MessageColumns(nothing, nothing, headers, np.zeros(1, np.int32), np.ones(1, np.uint8))
        producer.produce(topic.name, cleared, _TIMEOUT_S)
        producer.deliver(_TIMEOUT_S)
    finally:
        producer.close()


def _row(key: bytes | None, value: bytes | None, headers: Mapping[str, str]) -> QuarantinedRow:
    def part(name: str) -> str:
        return headers.get(f"{_REFUSED}{name}", "")

    return QuarantinedRow(
        part("table"),
        part("topic"),
        int(part("batch") or -1),
        part("op"),
        part("position"),
        part("code") or None,
        part("reason"),
        part("remedy") or None,
        _object(key),
        _object(value),
    )


def _object(text: bytes | None) -> dict[str, Any] | None:
    """A message's key or value, if it is a JSON object."""
    try:
        value = None if text is None else json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _read(client: Client, topic: Topic) -> Iterator[tuple[bytes | None, bytes | None, dict[str, str]]]:
    """Key, value and headers of the committed messages of the topic."""
    consumer = Consumer(
        {
            **client.settings(),
            "group.id": topic.name,
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": "10",
        }
    )
    deadline, open_ = time.monotonic() + _TIMEOUT_S, set(range(topic.partitions))
    try:
        consumer.assign([TopicPartition(topic.name, number, 0) for number in open_])
        while open_:
            for message in consumer.consume(_RECORDS, 0.2):
                error = message.error()
                if error is None:
                    headers = {name: (text or b"").decode() for name, text in message.headers() or []}
                    yield message.key(), message.value(), headers
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    open_.discard(message.partition())
                elif not error.retriable():
                    raise sink_error(error.name(), error.str(), topic.name)
            if time.monotonic() > deadline:
                raise TransientSinkError(
                    f"topic `{topic.name}` cannot be read",
                    f"no answer within {_TIMEOUT_S:.0f} s",
                    code="TR-7412",
                )
    except KafkaException as error:
        raise sink_error(error.args[0].name(), error.args[0].str(), topic.name) from error
    finally:
        consumer.close()

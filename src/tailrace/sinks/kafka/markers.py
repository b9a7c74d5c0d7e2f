"""Markers of the batches in Kafka: small records, in the same transactions as the messages.

    topic   __tailrace.<pipeline>.<topic prefix>      one partition, compacted

    key                value                                 written by
    <writer's number>  {"v", "stream", "batch", "writers"}   each writer, with its share of a batch
    beside             the same                              the driver, with a batch's side topics
    owner              the same, batch -1                    the driver, before anything else
    shape:<table>      {"v", "stream", "shape"}              the driver, with a schema change

    With settings that decide which writer has which changes (`division`), the value has "division", too, and
    its version is 2. Without them it is 1, as always before.

`stream` is Spark's id of the checkpoint. The owner record names the stream that writes under the pipeline's
name, and its number of writers.

Why not a consumer group's offsets (`send_offsets_to_transaction`): brokers drop the offsets of a group that
has been idle for a week (`offsets.retention.minutes`), and a pipeline stopped in the middle of a batch may be
idle for longer. A compacted topic keeps the last record of a key permanently.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tailrace.errors import StateError, TransientSinkError
from tailrace.formats.connect.topics import legal
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.failure import sink_error
from tailrace.sinks.kafka.librdkafka import MessageColumns

#: Keys of the driver's markers. They are stored: "beside" is the key of the side topics' marker.
OWNER, SIDE_TOPICS = "owner", "beside"
_SHAPE = "shape:"
#: Versions of the values: without and with `division`.
_VERSION, _DIVIDED = 1, 2
_TIMEOUT_S = 60.0
#: Most records read at once.
_RECORDS = 10_000


@dataclass(frozen=True)
class Marker:
    """The last batch that a writer, or the driver, has written.

    Args:
        stream: Spark's id of the stream's checkpoint.
        batch: the batch's number; -1 in the owner record.
        writers: the number of writers that share the batch.
        division: stands for the settings that divide a batch among them; empty: by the tables' keys.
    """

    stream: str
    batch: int
    writers: int
    division: str = ""


@dataclass(frozen=True)
class AnnouncedSchema:
    """The last announced schema of a table.

    Args:
        stream: Spark's id of the stream's checkpoint.
        shape: the schema's fingerprint.
    """

    stream: str
    shape: str


@dataclass(frozen=True)
class Record:
    """One record of the topic.

    Args:
        key: the record's key.
        value: the record's content.
    """

    key: str
    value: Marker | AnnouncedSchema

    @classmethod
    def of_schema(cls, table: str, schema: AnnouncedSchema) -> Record:
        """The record of a table's announced schema."""
        return cls(_SHAPE + table, schema)

    def pair(self) -> tuple[bytes, bytes]:
        """Key and value as bytes."""
        fields = {"v": _VERSION, **asdict(self.value)}
        if isinstance(self.value, Marker):
            if self.value.division:
                fields["v"] = _DIVIDED
            else:
                del fields["division"]
        return self.key.encode(), json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Markers:
    """The last record of each key, and the offset of the next one.

    Args:
        last: markers by key.
        schemas: fingerprints of the announced schemas, by table.
        end: offset of the next record.
    """

    last: Mapping[str, Marker] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)
    end: int = 0


def record_messages(records: Sequence[Record]) -> MessageColumns:
    """Records as messages of the marker topic."""
    keys, values = (pa.array(list(column)) for column in zip(*map(Record.pair, records), strict=True))
    partitions, selected = np.zeros(len(records), np.int32), np.ones(len(records), np.uint8)
    return MessageColumns(keys, values, None, partitions, selected)


def marker_topic(name: str) -> str:
    """The marker topic of the sink called `name`."""
    return legal(f"__tailrace.{name}")


def of_same_prefix(topics: Iterable[str], own: str, prefix: str) -> list[str]:
    """The marker topics of other pipelines' sinks with the same topic prefix.

    A pipeline with a dot in its name is not found: where the name ends and the prefix begins is ambiguous.
    """
    pattern = re.compile(re.escape(marker_topic("")) + r"[^.]+" + re.escape(legal(f".{prefix}")))
    return [topic for topic in topics if topic != own and pattern.fullmatch(topic)]


def read_markers(client: Client, topic: str, start: int = 0) -> Markers:
    """The committed records from offset `start` on.

    To see all that a predecessor has committed, call `init_transactions` first: an open transaction is not
    visible.

    Raises:
        SinkError: the records cannot be read.
        StateError: another version of Tailrace wrote them.
    """
    consumer = Consumer(
        {
            **client.settings(),
            "group.id": topic,
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": "10",
        }
    )
    last: dict[str, Marker] = {}
    schemas: dict[str, str] = {}
    end, deadline = start, time.monotonic() + _TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, 0, start)])
        while True:
            # one at first: it waits until it has as many as it is asked for
            for message in consumer.consume(1, 0.2) + consumer.consume(_RECORDS, 0):
                error = message.error()
                if error is None:
                    key = message.key().decode()
                    value = _parsed(topic, message.value())
                    if isinstance(value, Marker):
                        last[key] = value
                    else:
                        schemas[key.removeprefix(_SHAPE)] = value.shape
                    end = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    return Markers(last, schemas, max(end, message.offset()))
                elif not error.retriable():
                    raise sink_error(error.name(), error.str(), topic)
            if time.monotonic() > deadline:
                raise TransientSinkError(
                    f"the markers in topic `{topic}` cannot be read",
                    f"no answer within {_TIMEOUT_S:.0f} s",
                    code="TR-7412",
                )
    except KafkaException as error:
        raise sink_error(error.args[0].name(), error.args[0].str(), topic) from error
    finally:
        consumer.close()


def _parsed(topic: str, value: bytes) -> Marker | AnnouncedSchema:
    fields = json.loads(value)
    if fields.pop("v") not in (_VERSION, _DIVIDED):
        raise StateError(
            f"topic `{topic}` was written by another version of Tailrace",
            f"version {_DIVIDED} is needed, or less",
            "continue with the version that wrote it",
            code="TR-6105",
        )
    return AnnouncedSchema(**fields) if "shape" in fields else Marker(**fields)

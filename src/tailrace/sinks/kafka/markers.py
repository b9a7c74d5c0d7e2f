"""What is in Kafka already: small records, in the same transactions as the messages they speak of.

    topic   __tailrace.<pipeline>.<topic prefix>      one partition, compacted

    key                value                                 written by
    <writer's number>  {"v", "stream", "batch", "writers"}   each writer, with its share of a batch
    beside             the same                              the driver, with what goes with a batch
    owner              the same, batch -1                    the driver, before anything else
    shape:<table>      {"v", "stream", "shape"}              the driver, with a schema change

`stream` is Spark's id of the checkpoint. The owner says which stream writes under the pipeline's name and
with how many writers.

Records of their own and not a consumer group's offsets (`send_offsets_to_transaction`): brokers forget the
offsets of a group that has been idle for a week (`offsets.retention.minutes`), and a pipeline that was
stopped half way through a batch may well be idle for longer. A compacted topic keeps the last record of a
key for ever.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tailrace.errors import StateError, TransientSinkError
from tailrace.formats.connect.topics import legal
from tailrace.sinks.kafka.client import Client
from tailrace.sinks.kafka.failure import sink_error

OWNER, BESIDE = "owner", "beside"
_SHAPE = "shape:"
_VERSION = 1
_TIMEOUT_S = 60.0
#: How many records are taken at once.
_RECORDS = 10_000


@dataclass(frozen=True)
class Marker:
    """What a writer, or the driver, has written last.

    Args:
        stream: Spark's id of the stream's checkpoint.
        batch: the batch; -1 in the owner's.
        writers: how many writers share the batch.
    """

    stream: str
    batch: int
    writers: int


@dataclass(frozen=True)
class AnnouncedSchema:
    """The shape of a table that was announced last.

    Args:
        stream: Spark's id of the stream's checkpoint.
        shape: its fingerprint.
    """

    stream: str
    shape: str


@dataclass(frozen=True)
class Record:
    """One record of the topic.

    Args:
        key: its key.
        value: what it says.
    """

    key: str
    value: Marker | AnnouncedSchema

    @classmethod
    def of_shape(cls, table: str, shape: AnnouncedSchema) -> Record:
        """That a table's shape was announced."""
        return cls(_SHAPE + table, shape)

    def pair(self) -> tuple[bytes, bytes]:
        """Key and value as bytes."""
        said = {"v": _VERSION, **asdict(self.value)}
        return self.key.encode(), json.dumps(said, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Markers:
    """The last record of each key, and where the next one will stand.

    Args:
        last: markers by key.
        shapes: fingerprints by table.
        end: offset of the next record.
    """

    last: Mapping[str, Marker] = field(default_factory=dict)
    shapes: Mapping[str, str] = field(default_factory=dict)
    end: int = 0


def marker_topic(name: str) -> str:
    """The topic of the records of the sink called `name`."""
    return legal(f"__tailrace.{name}")


def of_same_prefix(topics: Iterable[str], own: str, prefix: str) -> list[str]:
    """Topics of the records of other pipelines' sinks with the same topic prefix.

    A pipeline with a dot in its name is left out: where that ends and the prefix begins cannot be told.
    """
    pattern = re.compile(re.escape(marker_topic("")) + r"[^.]+" + re.escape(legal(f".{prefix}")))
    return [topic for topic in topics if topic != own and pattern.fullmatch(topic)]


def read_markers(client: Client, topic: str, start: int = 0) -> Markers:
    """The committed records from offset `start` on.

    Who wants to know what its own predecessor has committed calls `init_transactions` first: a transaction
    that is still open is not seen.

    Raises:
        SinkError: they cannot be read.
        StateError: they were written by another version.
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
    shapes: dict[str, str] = {}
    end, deadline = start, time.monotonic() + _TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, 0, start)])
        while True:
            for message in consumer.consume(_RECORDS, 0.2):
                error = message.error()
                if error is None:
                    key = message.key().decode()
                    said = _parsed(topic, message.value())
                    if isinstance(said, Marker):
                        last[key] = said
                    else:
                        shapes[key.removeprefix(_SHAPE)] = said.shape
                    end = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    return Markers(last, shapes, max(end, message.offset()))
                elif not error.retriable():
                    raise sink_error(error.name(), error.str(), topic)
            if time.monotonic() > deadline:
                raise TransientSinkError(
                    f"the markers in topic `{topic}` cannot be read", f"no answer within {_TIMEOUT_S:.0f} s"
                )
    except KafkaException as error:
        raise sink_error(error.args[0].name(), error.args[0].str(), topic) from error
    finally:
        consumer.close()


def _parsed(topic: str, value: bytes) -> Marker | AnnouncedSchema:
    said = json.loads(value)
    if said.pop("v") != _VERSION:
        raise StateError(
            f"topic `{topic}` was written by another version of Tailrace",
            f"version {_VERSION} is needed",
            "go on with the version that wrote it",
        )
    return AnnouncedSchema(**said) if "shape" in said else Marker(**said)

"""Which batches are in Kafka already: one small record per writer, in the same transaction as its messages.

    topic   __tailrace.<pipeline>         one partition, compacted
    key     <writer's number>, or `owner`
    value   {"v": 1, "stream": Spark's id of the checkpoint, "batch": 7, "writers": 2}

A record of its own and not a consumer group's offset (`send_offsets_to_transaction`): brokers forget the
offsets of a group that has been idle for a week (`offsets.retention.minutes`), and a pipeline that was
stopped half way through a batch may well be idle for longer. A compacted topic keeps the last record of a
key for ever.

The owner's record says which stream writes under the pipeline's name, and with how many writers; it is
written before any of them writes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tailrace.errors import StateError, TransientSinkError
from tailrace.sinks.kafka.client import Client, legal
from tailrace.sinks.kafka.failure import sink_error

OWNER = "owner"
_VERSION = 1
_TIMEOUT_S = 60.0
#: How many records are taken at once.
_RECORDS = 10_000


@dataclass(frozen=True)
class Marker:
    """What a writer, or the owner, has written last.

    Args:
        stream: Spark's id of the stream's checkpoint.
        batch: the batch; -1 in the owner's.
        writers: how many writers share the batch.
    """

    stream: str
    batch: int
    writers: int

    def value(self) -> bytes:
        """The record's value."""
        return json.dumps({"v": _VERSION, **asdict(self)}, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Markers:
    """The last marker of each key, and where the next one will stand.

    Args:
        last: by key.
        end: offset of the next record.
    """

    last: Mapping[str, Marker]
    end: int


def marker_topic(pipeline: str) -> str:
    """The topic of a pipeline's markers."""
    return f"__tailrace.{legal(pipeline)}"[:249]


def read_markers(client: Client, topic: str, start: int = 0) -> Markers:
    """The committed markers from offset `start` on.

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
    end, deadline = start, time.monotonic() + _TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, 0, start)])
        while True:
            for message in consumer.consume(_RECORDS, 0.2):
                error = message.error()
                if error is None:
                    last[message.key().decode()] = _parsed(topic, message.value())
                    end = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    return Markers(last, max(end, message.offset()))
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


def _parsed(topic: str, value: bytes) -> Marker:
    said = json.loads(value)
    if said.get("v") != _VERSION:
        raise StateError(
            f"topic `{topic}` was written by another version of Tailrace",
            f"found version {said.get('v')}, needed {_VERSION}",
            "go on with the version that wrote it",
        )
    return Marker(said["stream"], said["batch"], said["writers"])

"""The tasks of the RocketMQ sink: messages of a writer to the queues of their topics.

A queue is chosen by the key. At most one request for a queue is under way, so the messages of a key keep
their order; requests for different queues are sent at once.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import TransientSinkError
from tailrace.failpoints import failpoint
from tailrace.kernels.murmur import partitions_of
from tailrace.sinks.messages.outgoing import identities
from tailrace.sinks.messages.writer import MessageShare
from tailrace.sinks.rocketmq import frames
from tailrace.sinks.rocketmq.failure import failure
from tailrace.sinks.rocketmq.frames import Reply
from tailrace.sinks.rocketmq.messages import encoded, tag_of
from tailrace.sinks.rocketmq.remoting import Access, BrokerConnections, Call
from tailrace.sinks.rocketmq.tail import sent
from tailrace.sinks.rocketmq.topics import Queue, RocketTopic

#: Most bytes of a request, if a message may have as many.
_REQUEST_BYTES = 512 << 10
#: Pauses before a busy broker is asked again. It has not stored the messages.
_PAUSES_S = (0.1, 0.5, 2, 5)
_BUSY = (frames.SYSTEM_BUSY, frames.SERVICE_NOT_AVAILABLE)


@dataclass(frozen=True)
class RocketChannels:
    """See `Channels`.

    Args:
        access: how to reach the cluster.
        topics: the topics by name.
        most_bytes: most bytes of a message, with its properties.
    """

    access: Access
    topics: Mapping[str, RocketTopic]
    most_bytes: int

    def open(self, share: MessageShare, writer: int, *, may_repeat: bool) -> RocketChannel:  # noqa: ARG002 - all writers are alike
        """See `Channels`."""
        return RocketChannel(self, share, may_repeat=may_repeat)


class RocketChannel:
    """See `MessageChannel`.

    Args:
        to: the topics.
        share: the batch's settings.
        may_repeat: whether messages of the batch may have been sent before.
    """

    def __init__(self, to: RocketChannels, share: MessageShare, *, may_repeat: bool) -> None:
        self._to = to
        self._share = share
        self._connections = BrokerConnections(to.access)
        self._may_repeat = may_repeat
        #: What topics had of the batch before.
        self._sent: dict[str, pa.StringArray] = {}

    def send(self, table: str, messages: pa.RecordBatch) -> None:
        """See `MessageChannel`."""
        share, tag = self._share, tag_of(table)
        topic = self._to.topics[share.targets[table]]
        if self._may_repeat:
            messages = self._unsent(topic, tag, messages)
        if not messages.num_rows:
            return
        body = encoded(messages, tag, share.stream, share.batch, self._to.most_bytes)
        keys = messages.column("key")
        chosen = partitions_of(keys, len(topic.queues))
        if keys.null_count:
            of_table = zlib.crc32(tag.encode()) % len(topic.queues)
            chosen[keys.is_null().to_numpy(zero_copy_only=False)] = of_table
        most = min(_REQUEST_BYTES, self._to.most_bytes)
        waiting = {
            queue: list(_bodies(body.take(pa.array(np.flatnonzero(chosen == n))), most))
            for n, queue in enumerate(topic.queues)
            if (chosen == n).any()
        }
        while waiting:
            self._send(topic, {queue: bodies.pop(0) for queue, bodies in waiting.items()})
            waiting = {queue: bodies for queue, bodies in waiting.items() if bodies}
            failpoint("sink.produced")

    def _unsent(self, topic: RocketTopic, tag: str, messages: pa.RecordBatch) -> pa.RecordBatch:
        """The messages that the topic does not have yet."""
        if topic.name not in self._sent:
            share = self._share
            self._sent[topic.name] = sent(self._connections, topic, share.stream, share.batch)
        known = self._sent[topic.name]
        if not len(known):
            return messages
        return messages.filter(pc.invert(pc.is_in(identities(messages, tag), known)))

    def _send(self, topic: RocketTopic, bodies: Mapping[Queue, bytes]) -> None:
        """Send one request to each queue, and again while brokers are busy."""
        left = dict(bodies)
        for pause in (*_PAUSES_S, None):
            busy: dict[Queue, Reply] = {}
            for address in sorted({queue.address for queue in left}):
                queues = [queue for queue in left if queue.address == address]
                requests = [_request(topic, queue, left[queue]) for queue in queues]
                answers = self._connections.to(address).ask_all(requests)
                for queue, answer in zip(queues, answers, strict=True):
                    if answer.code in _BUSY:
                        busy[queue] = answer
                    elif answer.code != frames.SUCCESS:
                        raise failure(answer, f"sending to topic `{topic.name}`")
            if not busy:
                return
            left = {queue: left[queue] for queue in busy}
            if pause is not None:
                time.sleep(pause)
        raise TransientSinkError(
            "RocketMQ's brokers are too busy",
            failure(next(iter(busy.values())), "sending").detail,
            "see the broker's log; make batches smaller: `source.max-bytes-per-trigger`",
            code="TR-7807",
        )

    def finish(self) -> None:
        """See `MessageChannel`: each answer says that its messages are stored."""

    def close(self) -> None:
        """See `MessageChannel`."""
        self._connections.close()


def _bodies(messages: pa.BinaryArray, most: int) -> Sequence[bytes]:
    """Messages as the bodies of requests, each of at most so many bytes, or of one message."""
    _, offsets, data = messages.buffers()
    ends = np.frombuffer(offsets, np.int32)[messages.offset : messages.offset + len(messages) + 1]
    bodies, first = [], 0
    while first < len(messages):
        within = int(np.searchsorted(ends, int(ends[first]) + most, "right")) - 1
        last = max(within, first + 1)
        bodies.append(data.slice(int(ends[first]), int(ends[last] - ends[first])).to_pybytes())
        first = last
    return bodies


def _request(topic: RocketTopic, queue: Queue, body: bytes) -> Call:
    fields = {
        "a": "tailrace",
        "b": topic.name,
        "c": "TBW102",
        "d": "4",
        "e": str(queue.number),
        "f": "0",
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "m": "true",
        "n": queue.broker,
    }
    return Call(frames.SEND_BATCH_MESSAGE, fields, body)

"""What queues already have of a batch, read back from their ends.

A batch that comes again may have been sent in part. RocketMQ has neither transactions that could tell, nor
sequence numbers of producers. But each message says which stream has sent it, with which batch. So a queue is
read from its end until a message of this stream from an earlier batch comes: what stands before it is older
still. Messages of other producers are passed over, however many there are.

A message that an earlier attempt has sent may arrive later still: then it is there twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tailrace.errors import TransientSinkError
from tailrace.sinks.rocketmq import frames
from tailrace.sinks.rocketmq import messages as form
from tailrace.sinks.rocketmq.failure import failure, unavailable
from tailrace.sinks.rocketmq.frames import Reply
from tailrace.sinks.rocketmq.messages import Stored, stored
from tailrace.sinks.rocketmq.remoting import BrokerConnections, Call
from tailrace.sinks.rocketmq.topics import Queue, RocketTopic

#: A group that every broker has, for tools.
_GROUP = "TOOLS_CONSUMER"
#: Messages that are read first, and at most at once. (Brokers return 32 at most, or 8 from disk.)
_FIRST, _MOST = 32, 4096
#: The pull has a filter.
_HAS_SUBSCRIPTION = 4


def sent(connections: BrokerConnections, topic: RocketTopic, stream: str, batch: int) -> pa.StringArray:
    """What a topic has of a batch: the identities of messages (`outgoing.identities`), with their tags.

    Raises:
        TransientSinkError: a broker does not answer.
        SinkError: it does not allow reading.
    """
    found: list[str] = []
    for queue in topic.queues:
        end = _offset(connections, topic, queue, frames.GET_MAX_OFFSET)
        begin = _offset(connections, topic, queue, frames.GET_MIN_OFFSET)
        width = _FIRST
        while end > begin:
            start = max(begin, end - width)
            numbers = []
            for message in _read(connections, topic, queue, start, end):
                if message.properties.get(form.STREAM) != stream:
                    continue
                number = int(message.properties[form.BATCH])
                numbers.append(number)
                if number == batch:
                    found.append(_identity(message))
            if numbers and min(numbers) < batch:
                break
            end, width = start, min(2 * width, _MOST)
    return pa.array(found, pa.string())


def _identity(message: Stored) -> str:
    names = (form.TAG, form.SEQ, form.OP, form.KEY if form.KEY in message.properties else form.ROW)
    return "\n".join(message.properties[name] for name in names)


def _offset(connections: BrokerConnections, topic: RocketTopic, queue: Queue, code: int) -> int:
    fields = {"topic": topic.name, "queueId": str(queue.number), "bname": queue.broker}
    answer = connections.to(queue.address).ask(Call(code, fields))
    if answer.code != frames.SUCCESS:
        raise failure(answer, f"reading topic `{topic.name}`")
    return int(answer.fields["offset"])


def _read(
    connections: BrokerConnections, topic: RocketTopic, queue: Queue, start: int, end: int
) -> Iterator[Stored]:
    """The messages of a queue with offsets from `start` to `end`."""
    while start < end:
        answer = _pull(connections, topic, queue, start, end - start)
        following = int(answer.fields.get("nextBeginOffset", 0))
        if answer.code == frames.SUCCESS:
            try:
                yield from (message for message in stored(answer.body) if message.offset < end)
            except ValueError as error:
                raise unavailable(queue.address, str(error)) from error
        elif answer.code == frames.PULL_NOT_FOUND:
            return
        elif answer.code not in (frames.PULL_RETRY_IMMEDIATELY, frames.PULL_OFFSET_MOVED):
            raise failure(answer, f"reading topic `{topic.name}`")
        if following <= start:
            raise TransientSinkError(
                f"RocketMQ does not go on reading topic `{topic.name}`",
                f"offset {start} of queue {queue.number} at `{queue.address}` is followed by {following}",
                "see the broker's log",
                code="TR-7801",
            )
        start = following


def _pull(connections: BrokerConnections, topic: RocketTopic, queue: Queue, start: int, count: int) -> Reply:
    fields = {
        "consumerGroup": _GROUP,
        "topic": topic.name,
        "queueId": str(queue.number),
        "queueOffset": str(start),
        "maxMsgNums": str(min(count, _MOST)),
        "sysFlag": str(_HAS_SUBSCRIPTION),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
        "bname": queue.broker,
    }
    return connections.to(queue.address).ask(Call(frames.PULL_MESSAGE, fields))

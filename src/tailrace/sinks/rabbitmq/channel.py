"""The tasks of the RabbitMQ sink: messages of a writer to the exchange.

Many messages are on their way at once, but only one of each key: if a queue refuses one, or its answer is
lost, no later message of its key has overtaken it. The server takes a message that comes again for another
one; who reads it knows it by its `message-id`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pika import BasicProperties, DeliveryMode

from tailrace.errors import SinkError, TransientSinkError
from tailrace.failpoints import failpoint
from tailrace.sinks.messages.outgoing import identities
from tailrace.sinks.messages.portions import portions
from tailrace.sinks.messages.writer import MessageShare
from tailrace.sinks.rabbitmq.client import RabbitMqAccess, RabbitMqConnection
from tailrace.sinks.rabbitmq.confirms import Confirms, Message

#: Most messages, and bytes of values, that wait for their answers.
_MESSAGES, _BYTES = 1000, 1 << 20


@dataclass(frozen=True)
class RabbitMqChannels:
    """See `Channels`.

    Args:
        access: how to reach the servers.
        exchange: where to.
        creates_queues: whether the sink creates the queues of targets.
    """

    access: RabbitMqAccess
    exchange: str
    creates_queues: bool

    def open(self, share: MessageShare, writer: int, *, may_repeat: bool) -> RabbitMqChannel:  # noqa: ARG002 - nobody tells
        """See `Channels`."""
        return RabbitMqChannel(self, share)


class RabbitMqChannel:
    """See `MessageChannel`.

    Args:
        to: the exchange.
        share: the batch's settings.
    """

    def __init__(self, to: RabbitMqChannels, share: MessageShare) -> None:
        self._to = to
        self._share = share
        self._connection = RabbitMqConnection(to.access)
        self._confirms = Confirms(self._connection)

    def send(self, table: str, messages: pa.RecordBatch) -> None:
        """See `MessageChannel`."""
        key = self._share.targets[table]
        for portion in portions(self._messages(table, messages), _MESSAGES, _BYTES):
            published = self._confirms.publish(self._to.exchange, key, portion)
            refused, returned = self._connection.run(published)
            if returned:
                raise self._unroutable(key)
            if refused:
                raise _refused(key, refused)
            failpoint("sink.produced")

    def _messages(self, table: str, messages: pa.RecordBatch) -> Iterator[Message]:
        share = self._share
        stream = share.stream.partition("/")[0]  # without the sink's name, which may be long
        columns = [messages.column(name).to_pylist() for name in ("key", "value", "seq", "op", "row")]
        for id_, key, value, seq, op, row in zip(
            identities(messages, table).to_pylist(), *columns, strict=True
        ):
            digest = hashlib.sha256(f"{share.stream}\n{id_}".encode()).hexdigest()[:16]
            headers = {"_seq": seq, "batch": share.batch, "op": op, "table": table}
            if key is not None:
                headers["key"] = key.decode()
            # rows of a snapshot are in no order among themselves
            order = key if key is not None else row if op == "r" else None
            yield (
                order,
                BasicProperties(
                    content_type="application/json",
                    delivery_mode=DeliveryMode.Persistent.value,
                    message_id=f"{stream}:{share.batch}:{seq}:{digest}",
                    app_id="tailrace",
                    headers=headers,
                ),
                value,
            )

    def _unroutable(self, key: str) -> SinkError:
        exchange = self._to.exchange
        message = f"no queue takes messages with routing key `{key}`"
        detail = f"exchange `{exchange}` has no queue bound to it for that key"
        if self._to.creates_queues:
            hint = "its queue was deleted or unbound: the batch is written again, and the queue bound anew"
            return TransientSinkError(message, detail, hint, code="TR-7846")
        return SinkError(
            message,
            detail,
            f"bind a durable queue to exchange `{exchange}` with the routing key `{key}`, or `#` for all; or "
            "let the sink create a queue for each target: queue-type: quorum",
            code="TR-7846",
        )

    def finish(self) -> None:
        """See `MessageChannel`: each answer says that its message is stored."""

    def close(self) -> None:
        """See `MessageChannel`."""
        self._connection.close()


def _refused(key: str, count: int) -> TransientSinkError:
    return TransientSinkError(
        f"a queue of RabbitMQ has refused messages with routing key `{key}`",
        f"{count} were not confirmed",
        "a queue with `x-overflow: reject-publish` is full until consumers have caught up; a quorum queue "
        "takes nothing while most of its servers are away",
        code="TR-7848",
    )

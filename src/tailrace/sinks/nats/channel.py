"""The tasks of the NATS sink: messages of a writer to their subjects.

Many messages are on their way at once, but only one of each key: if the server refuses one, or its answer is
lost, no later message of its key has overtaken it. Each message has an id: within the stream's window for
duplicates the server takes a message that comes again for what it is.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.failpoints import failpoint
from tailrace.sinks.messages.outgoing import identities
from tailrace.sinks.messages.portions import portions
from tailrace.sinks.messages.writer import MessageShare
from tailrace.sinks.nats.client import NatsAccess, NatsConnection

#: Most messages, and bytes of values, that wait for their answers.
_MESSAGES, _BYTES = 500, 1 << 20
#: (key, headers, value)
_Message = tuple[Hashable, dict[str, str], bytes]


@dataclass(frozen=True)
class NatsChannels:
    """See `Channels`.

    Args:
        access: how to reach the servers.
        stream: the stream that must take the messages.
    """

    access: NatsAccess
    stream: str

    def open(self, share: MessageShare, writer: int, *, may_repeat: bool) -> NatsChannel:  # noqa: ARG002 - the server tells
        """See `Channels`."""
        return NatsChannel(self, share)


class NatsChannel:
    """See `MessageChannel`.

    Args:
        to: the stream.
        share: the batch's settings.
    """

    def __init__(self, to: NatsChannels, share: MessageShare) -> None:
        self._to = to
        self._share = share
        self._connection = NatsConnection(to.access)

    def send(self, table: str, messages: pa.RecordBatch) -> None:
        """See `MessageChannel`."""
        subject = self._share.targets[table]
        for portion in portions(self._messages(table, messages), _MESSAGES, _BYTES):
            self._connection.run(self._publish(subject, portion))
            failpoint("sink.produced")

    def _messages(self, table: str, messages: pa.RecordBatch) -> Iterator[_Message]:
        share = self._share
        begin = f"{share.stream}\n{share.batch}\n"
        columns = [messages.column(name).to_pylist() for name in ("key", "value", "seq", "op")]
        for id_, key, value, seq, op in zip(identities(messages, table).to_pylist(), *columns, strict=True):
            digest = hashlib.sha256((begin + id_).encode()).hexdigest()[:32]
            headers = {"Nats-Msg-Id": f"{share.batch}:{digest}", "table": table, "op": op, "seq": seq}
            if key is not None:
                headers["key"] = key.decode()
            yield key, headers, value

    async def _publish(self, subject: str, portion: Sequence[_Message]) -> None:
        streams: Any = self._connection.streams
        waiting = [
            await streams.publish_async(subject, value, stream=self._to.stream, headers=headers)
            for _, headers, value in portion
        ]
        await asyncio.gather(*waiting)

    def finish(self) -> None:
        """See `MessageChannel`: each answer says that its message is stored."""

    def close(self) -> None:
        """See `MessageChannel`."""
        self._connection.close()

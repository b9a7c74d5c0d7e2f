"""The tasks of the Redis sink: messages of a writer into the streams of their targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.failpoints import failpoint
from tailrace.sinks.messages.outgoing import identities
from tailrace.sinks.messages.writer import MessageShare
from tailrace.sinks.redis.client import RedisAccess
from tailrace.sinks.redis.scripts import APPEND, keys

#: Most messages, and bytes of values, of one call: Redis does nothing else meanwhile.
_MESSAGES, _BYTES = 500, 1 << 20


@dataclass(frozen=True)
class RedisChannels:
    """See `Channels`.

    Args:
        access: how to reach the server.
        stream: who writes.
        lease: the number of the lease under which it writes (`sinks.lease`); 0: no server runs it.
        most_entries: most entries of a stream; 0: any number.
    """

    access: RedisAccess
    stream: str
    lease: int
    most_entries: int

    def open(self, share: MessageShare, writer: int, *, may_repeat: bool) -> RedisChannel:  # noqa: ARG002 - the script tells
        """See `Channels`."""
        return RedisChannel(self, share)


class RedisChannel:
    """See `MessageChannel`.

    Args:
        to: the streams.
        share: the batch's settings.
    """

    def __init__(self, to: RedisChannels, share: MessageShare) -> None:
        self._to = to
        self._share = share

    def send(self, table: str, messages: pa.RecordBatch) -> None:
        """See `MessageChannel`."""
        sizes = np.cumsum(pc.binary_length(messages.column("value")).to_numpy())
        with self._to.access.client() as client:
            append = client.register_script(APPEND)
            first = 0
            while first < messages.num_rows:
                before = int(sizes[first - 1]) if first else 0
                within = int(np.searchsorted(sizes, before + _BYTES, "right"))
                last = min(max(within, first + 1), first + _MESSAGES, messages.num_rows)
                self._append(append, table, messages.slice(first, last - first))
                first = last
                failpoint("sink.produced")

    def _append(self, append: Any, table: str, messages: pa.RecordBatch) -> None:
        share = self._share
        columns = [
            identities(messages, table).to_pylist(),
            [table] * messages.num_rows,
            messages.column("op").to_pylist(),
            messages.column("seq").to_pylist(),
            pc.fill_null(messages.column("key"), b"").to_pylist(),
            messages.column("value").to_pylist(),
        ]
        arguments = [value for row in zip(*columns, strict=True) for value in row]
        append(
            keys=list(keys(share.targets[table])),
            args=[self._to.stream, share.batch, self._to.lease, self._to.most_entries, *arguments],
        )

    def finish(self) -> None:
        """See `MessageChannel`: each answer says that its messages are stored."""

    def close(self) -> None:
        """See `MessageChannel`: connections last as long as a call."""

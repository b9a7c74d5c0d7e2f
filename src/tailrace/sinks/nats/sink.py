"""NATS JetStream: one stream, a subject for each target, each change a message.

The server leaves out messages that come again, within the stream's window for duplicates: so a change comes
once if the pipeline goes on within it, and at least once later.
"""

from __future__ import annotations

from collections.abc import Collection

from nats.js import errors
from nats.js.api import StreamConfig

from tailrace.config.message_sinks import NatsSettings
from tailrace.model.table import TableId
from tailrace.sinks.base import CellBatch, Delivery
from tailrace.sinks.nats.channel import NatsChannels
from tailrace.sinks.nats.client import NatsAccess, NatsConnection
from tailrace.sinks.nats.names import stream_name, subject
from tailrace.sinks.route import Router


class NatsSubjects:
    """See `System`.

    Args:
        settings: the sink's.
        router: names the targets.
    """

    def __init__(self, settings: NatsSettings, router: Router) -> None:
        self._settings = settings
        self._router = router
        self._access = NatsAccess.of(settings)
        self._stream = stream_name(settings.topic_prefix)

    @property
    def delivery(self) -> Delivery:
        """See `System`: what comes after the window for duplicates is there twice."""
        return Delivery.AT_LEAST_ONCE

    def target(self, table: TableId) -> str:
        """See `System`."""
        return subject(self._settings.topic_prefix, self._router.target(table))

    def existing(self, targets: Collection[str]) -> Collection[str]:
        """See `System`: the stream has the subjects of all targets."""
        connection = NatsConnection(self._access)
        try:
            return targets if self._exists(connection) else ()
        finally:
            connection.close()

    def _exists(self, connection: NatsConnection) -> bool:
        async def ask() -> bool:
            try:
                await connection.streams.stream_info(self._stream)
            except errors.NotFoundError:
                return False
            return True

        return connection.run(ask())

    def begin(self, batch: CellBatch, writers: int, *, is_first: bool) -> int:  # noqa: ARG002 - nothing is noted
        """See `System`."""
        return writers

    def channels(self, targets: Collection[str], missing: Collection[str]) -> NatsChannels:  # noqa: ARG002
        """See `System`."""
        settings = self._settings
        if missing:
            config = StreamConfig(
                name=self._stream,
                subjects=[f"{settings.topic_prefix}.>"],
                num_replicas=settings.replicas,
                duplicate_window=float(settings.duplicate_window),
            )
            connection = NatsConnection(self._access)
            try:
                connection.run(connection.streams.add_stream(config))
            finally:
                connection.close()
        return NatsChannels(self._access, self._stream)

    def close(self) -> None:
        """See `System`: connections last as long as a batch."""

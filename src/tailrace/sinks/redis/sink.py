"""Redis streams: one per target, each change an entry, exactly once (`scripts`)."""

from __future__ import annotations

from collections.abc import Collection

from tailrace.config.message_sinks import RedisSettings
from tailrace.model.table import TableId
from tailrace.sinks.base import CellBatch, Delivery
from tailrace.sinks.redis.channel import RedisChannels
from tailrace.sinks.redis.client import RedisAccess
from tailrace.sinks.redis.names import stream_name
from tailrace.sinks.redis.scripts import ADVANCE, CHECK, CREATE, keys
from tailrace.sinks.route import Router


class RedisStreams:
    """See `System`.

    Args:
        settings: the sink's.
        router: names the targets.
    """

    def __init__(self, settings: RedisSettings, router: Router) -> None:
        self._settings = settings
        self._router = router
        self._access = RedisAccess.of(settings)
        #: Who writes which batch under which lease: what scripts need.
        self._writer: tuple[str, int, int] = ("", 0, 0)
        #: The targets of the batch before.
        self._written: set[str] = set()

    @property
    def delivery(self) -> Delivery:
        """See `System`."""
        return Delivery.EXACTLY_ONCE

    def target(self, table: TableId) -> str:
        """See `System`."""
        return stream_name(self._settings.topic_prefix, self._router.target(table))

    def existing(self, targets: Collection[str]) -> Collection[str]:
        """See `System`."""
        names = sorted(targets)
        with self._access.client() as client:
            pipe = client.pipeline(transaction=False)
            for name in names:
                pipe.exists(name)
            return {name for name, found in zip(names, pipe.execute(), strict=True) if found}

    def begin(self, batch: CellBatch, writers: int, *, is_first: bool) -> int:
        """See `System`: what streams have of the batch before need not be known any longer."""
        self._writer = batch.stream.query, batch.id, batch.stream.lease
        if self._written and not is_first:
            with self._access.client() as client:
                advance = client.register_script(ADVANCE)
                for name in sorted(self._written):
                    advance(keys=list(keys(name)), args=list(self._writer))
        self._written = set()
        return writers

    def channels(self, targets: Collection[str], missing: Collection[str]) -> RedisChannels:
        """See `System`.

        Raises:
            StateError: a stream is another's.
            LeaseLostError: another owner has written a stream.
        """
        with self._access.client() as client:
            create, check = (client.register_script(script) for script in (CREATE, CHECK))
            for name in sorted(targets):
                run = create if name in missing else check
                run(keys=list(keys(name)), args=list(self._writer))
        self._written |= set(targets)
        stream, _, lease = self._writer
        return RedisChannels(self._access, stream, lease, self._settings.max_entries or 0)

    def close(self) -> None:
        """See `System`: connections last as long as a batch."""

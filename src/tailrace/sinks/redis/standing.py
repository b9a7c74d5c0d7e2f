"""What Redis holds of a stream."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.config.message_sinks import RedisSettings
from tailrace.model.table import TableId
from tailrace.sinks.base import StreamId
from tailrace.sinks.redis.client import RedisAccess
from tailrace.sinks.redis.names import stream_name
from tailrace.sinks.redis.scripts import keys
from tailrace.sinks.route import Router
from tailrace.sinks.standing import TargetStanding


def targets(
    settings: RedisSettings, router: Router, tables: Sequence[TableId], stream: StreamId
) -> dict[str, TargetStanding]:
    """The newest batch that each target has something of, by the target's name."""
    names = sorted({router.target(table) for table in tables})
    found = {}
    with RedisAccess.of(settings).client() as client:
        for name in names:
            _, beside, _ = keys(stream_name(settings.topic_prefix, name))
            owner, batch = client.hmget(beside, "stream", "batch")
            is_own = owner is not None and owner.decode() == stream.query and batch is not None
            found[name] = TargetStanding(int(batch) if is_own else None)
    return found

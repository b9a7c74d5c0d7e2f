"""Removes what a stream has made on a PostgreSQL server."""

from __future__ import annotations

from dataclasses import replace

from tailrace.config.options import SourceOptions
from tailrace.sources.postgres.connection import Connection, ReconnectingConnection
from tailrace.sources.postgres.replication import publication, slot

#: A slot that is read is not removed; a process that has just ended lets go of it within this time.
_PATIENCE_MS = 5_000


def drop(options: SourceOptions) -> list[str]:
    """Remove the replication slot, and the publication if a stream made it; a line for each.

    Raises:
        TransientSourceError: a stream still reads the slot.
        TailraceError: the server refuses.
    """

    def remove(connection: Connection) -> list[str]:
        lines = []
        if slot.drop(connection, options.slot):
            lines.append(f"dropped replication slot {options.slot}")
        if publication.drop(connection, options.publication):
            lines.append(f"dropped publication {options.publication}")
        return lines

    asking = ReconnectingConnection(
        replace(options, retry_timeout_ms=_PATIENCE_MS), "removing slot and publication"
    )
    try:
        return asking.run(remove, f"removing replication slot `{options.slot}`")
    finally:
        asking.close()

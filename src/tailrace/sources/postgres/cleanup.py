"""Removes what a stream has made on a PostgreSQL server: by its mark, see `mark`."""

from __future__ import annotations

from dataclasses import replace

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError
from tailrace.sources.postgres.connection import Connection, ReconnectingConnection
from tailrace.sources.postgres.replication import mark, publication, slot
from tailrace.sources.postgres.replication.starting import system_identifier

#: A slot that is read is not removed; a process that has just ended lets go of it within this time.
_PATIENCE_MS = 5_000


def drop(options: SourceOptions, *, unmarked: bool = False) -> list[str]:
    """Remove the replication slot and the publication that a stream made; a line for each.

    Args:
        options: name them.
        unmarked: whether to remove a slot without the mark of a stream too, if it is of a stream's kind.

    Raises:
        ConfigError: the slot is not a stream's; nothing is removed then.
        TransientSourceError: a stream still reads the slot.
        TailraceError: the server refuses.
    """
    system = system_identifier(replace(options, retry_timeout_ms=_PATIENCE_MS))

    def remove(connection: Connection) -> list[str]:
        lines = []
        there = slot.read(connection, options.slot)
        if there is not None:
            marked = mark.read(connection, options.publication)
            _require_ours(
                there, options, (marked is not None and marked.names(there.name, system)) or unmarked
            )
            slot.drop(connection, there.name)
            lines.append(f"dropped replication slot {options.slot}")
        mark.remove(connection, options.publication, options.slot)
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


def _require_ours(there: slot.Slot, options: SourceOptions, is_marked: bool) -> None:
    by_hand = f"{slot.dropping(there.name)}; -- if nobody needs it"
    if there.temporary or not slot.is_of_a_stream(there, options):
        raise ConfigError(
            f"replication slot `{there.name}` is not this pipeline's, and stays",
            f"found {slot.described(there)}, needed a logical one with plugin {slot.PLUGIN} of database "
            f"`{options.database}`",
            by_hand,
        )
    if not is_marked:
        raise ConfigError(
            f"replication slot `{there.name}` bears no mark of a stream, and stays",
            "it was made by hand, by an earlier version of Tailrace, or beside a publication that somebody "
            "else made",
            f"tailrace drop --unmarked PIPELINE.YAML, or {by_hand}",
        )

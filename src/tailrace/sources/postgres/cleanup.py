"""Removes the objects that a stream created on a PostgreSQL server, by their mark: see `replication.mark`."""

from __future__ import annotations

from dataclasses import replace

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError
from tailrace.sources.postgres.connection import Connection, ReconnectingConnection
from tailrace.sources.postgres.replication import mark, publication, slot
from tailrace.sources.postgres.starting import system_identifier

#: A slot in use is not removed; a process that has just ended releases it within this time.
_PATIENCE_MS = 5_000


def drop(options: SourceOptions, *, unmarked: bool = False) -> list[str]:
    """Remove the replication slot and the publication that a stream created.

    Args:
        options: with their names.
        unmarked: whether to also remove a slot without a stream's mark, if it is of a stream's kind.

    Returns:
        A line for each removed object.

    Raises:
        ConfigError: the slot is not a stream's; nothing is removed.
        TransientSourceError: a stream still uses the slot.
        TailraceError: the server refuses.
    """
    system = system_identifier(replace(options, retry_timeout_ms=_PATIENCE_MS))

    def remove(connection: Connection) -> list[str]:
        lines = []
        existing = slot.read(connection, options.slot)
        if existing is not None:
            marked = mark.read(connection, options.publication)
            _require_ours(
                existing, options, (marked is not None and marked.names(existing.name, system)) or unmarked
            )
            slot.drop(connection, existing.name)
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


def _require_ours(existing: slot.Slot, options: SourceOptions, is_marked: bool) -> None:
    by_hand = f"{slot.dropping(existing.name)}; -- if nobody needs it"
    if existing.temporary or not slot.is_of_a_stream(existing, options):
        raise ConfigError(
            f"replication slot `{existing.name}` is not this pipeline's and was not removed",
            f"found {slot.described(existing)}, needed a logical one with plugin {slot.PLUGIN} of database "
            f"`{options.database}`",
            by_hand,
            code="TR-4204",
        )
    if not is_marked:
        raise ConfigError(
            f"replication slot `{existing.name}` has no mark of a stream and was not removed",
            "it was created by hand, by an earlier version of Tailrace, or for a publication that somebody "
            "else created",
            f"tailrace drop --unmarked PIPELINE.YAML, or {by_hand}",
            code="TR-4204",
        )

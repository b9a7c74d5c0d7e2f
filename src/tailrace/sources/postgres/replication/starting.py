"""The start of a new stream, by the option `startingPosition`, and the creation of its slot.

initial    at an exported snapshot, which the first batch reads
snapshot   the same, without a slot: no log is read
latest     at the end of the log
earliest   at the start of the slot, which was created beforehand
lsn:X/Y    at this position, if the slot holds it
"""

from __future__ import annotations

from dataclasses import replace

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError
from tailrace.sources import network
from tailrace.sources.postgres.connection import Connection, connect, retrying
from tailrace.sources.postgres.position import PostgresPosition, parse_lsn
from tailrace.sources.postgres.replication import mark, slot, timeline
from tailrace.sources.postgres.snapshot.snapshots import Snapshots

#: Time limit of the first snapshot, which waits for writing transactions.
_FIRST_SNAPSHOT_S = 3600.0


def starting_position(options: SourceOptions, snapshots: Snapshots) -> PostgresPosition:
    """The position at which a new stream starts.

    Raises:
        ConfigError: the slot does not hold the position, or cannot serve the stream.
        TailraceError: the server refuses, or cannot be reached.
    """
    start = options.starting_position
    if start != "snapshot":
        made = retrying(options, _Slot(options).begin, "making the replication slot")
    if start in ("initial", "snapshot"):
        first = snapshots.next(_FIRST_SNAPSHOT_S)
        if first is None:
            raise ConfigError(
                "no snapshot could be taken within an hour",
                "a snapshot waits for all writing transactions",
                "end the oldest ones: SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY "
                "xact_start",
                code="TR-2209",
            )
        return snapshots.use(first).position
    if start == "latest":
        return log_end_position(options)
    if start == "earliest":
        return made
    at = parse_lsn(start.partition(":")[2])
    if at < made.lsn:
        raise ConfigError(
            f"startingPosition `{start}` is not in the log",
            f"replication slot `{options.slot}` begins at {made}",
            f"set it to lsn:{made} or later",
            code="TR-4002",
        )
    return replace(made, lsn=at, timeline="")


def log_end_position(options: SourceOptions) -> PostgresPosition:
    """The present end of the log: above every commit, and certain to be flushed."""
    return retrying(options, lambda: _log_end(options), "asking for the log's end")


def _log_end(options: SourceOptions) -> PostgresPosition:
    with connect(options, purpose="asking for the log's end", replication=True) as connection:
        end = barrier(connection)
        return timeline.read(connection, options).position(end)


@network.sensible("the log's end")
def barrier(connection: Connection) -> int:
    """An LSN above every acknowledged commit; the log is on disk up to it.

    A commit under `synchronous_commit = off` may still be in memory, and possibly nothing flushes
    it: committing a message of our own puts an end behind it and flushes both.
    """
    if slot.in_recovery(connection):
        return parse_lsn(connection.value("SELECT pg_last_wal_replay_lsn()::text"))
    connection.rows("SET synchronous_commit = local")
    connection.rows("SELECT pg_logical_emit_message(true, 'tailrace', '')")
    return parse_lsn(connection.value("SELECT pg_current_wal_flush_lsn()::text"))


def system_identifier(options: SourceOptions) -> str:
    """The identifier that a cluster shares with all its standbys."""
    doing = "asking for the system identifier"

    def ask() -> str:
        with connect(options, purpose=doing, replication=True) as connection:
            return str(connection.value("IDENTIFY_SYSTEM"))

    return retrying(options, ask, doing)


class _Slot:
    """The slot of a new stream.

    Args:
        options: with its name.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._tried = False

    def begin(self) -> PostgresPosition:
        """The slot's start. Creates the slot if it does not exist."""
        options = self._options
        with connect(options, purpose="making the replication slot", replication=True) as connection:
            history = timeline.read(connection, options)
            existing = slot.read(connection, options.slot)
            if existing is None:
                mark.add(connection, options.publication, options.slot, history.server)
                self._tried = True
                return history.position(slot.create(connection, options.slot))
            slot.require_ours(existing, options)
            if options.starting_position in ("initial", "latest") and not self._tried:
                self._require_mark(mark.read(connection, options.publication), history.server)
            if existing.is_lost or existing.confirmed is None:
                raise slot.lost(options.slot, "the server has invalidated it")
            return history.position(existing.confirmed)

    def _require_mark(self, found: mark.Mark | None, system: str) -> None:
        """Refuse a slot without a mark. A stream that crashed before its first batch left a marked one."""
        name = self._options.slot
        if found is None or not found.names(name, system):
            raise ConfigError(
                f"replication slot `{name}` already exists, and this stream did not create it",
                "it has no mark of a stream: its reader would lose what this stream reads",
                f"{slot.dropping(name)}; -- if nobody needs it; or set slotName to another name; or, to read "
                "a slot that was created for this stream, set startingPosition to earliest",
                code="TR-4202",
            )

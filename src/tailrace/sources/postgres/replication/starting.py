"""Where a new stream starts, by the option `startingPosition`; the slot is made here.

initial    at an exported snapshot, which the first batch reads under
snapshot   the same, without a slot: no log is read
latest     at the end of the log
earliest   where the slot begins: a slot that was made beforehand
lsn:X/Y    there, if the slot holds it
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

#: How long the first snapshot may take: transactions that write have to end first.
_FIRST_SNAPSHOT_S = 3600.0


def starting_position(options: SourceOptions, snapshots: Snapshots) -> PostgresPosition:
    """Where a new stream starts.

    Raises:
        ConfigError: the slot does not hold the place, or cannot serve the stream.
        TailraceError: the server refuses, or stayed away.
    """
    wanted = options.starting_position
    if wanted != "snapshot":
        made = retrying(options, _Slot(options).begin, "making the replication slot")
    if wanted in ("initial", "snapshot"):
        first = snapshots.next(_FIRST_SNAPSHOT_S)
        if first is None:
            raise ConfigError(
                "no snapshot could be made within an hour",
                "a snapshot waits for all transactions that write",
                "end the oldest ones: SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY "
                "xact_start",
            )
        return snapshots.use(first).position
    if wanted == "latest":
        return log_end_position(options)
    if wanted == "earliest":
        return made
    at = parse_lsn(wanted.partition(":")[2])
    if at < made.lsn:
        raise ConfigError(
            f"startingPosition `{wanted}` is not in the log",
            f"replication slot `{options.slot}` begins at {made}",
            f"set it to lsn:{made} or later",
        )
    return replace(made, lsn=at, timeline="")


def log_end_position(options: SourceOptions) -> PostgresPosition:
    """The log's end now: all that has been committed lies below, and it will be written out."""
    return retrying(options, lambda: _log_end(options), "asking for the log's end")


def _log_end(options: SourceOptions) -> PostgresPosition:
    with connect(options, purpose="asking for the log's end", replication=True) as connection:
        end = barrier(connection)
        return timeline.read(connection, options).position(end)


@network.sensible("the log's end")
def barrier(connection: Connection) -> int:
    """An LSN above every commit that anybody was told of; the log is on disk up to it.

    A commit under `synchronous_commit = off` may be in memory still, and nothing may ever write out what
    follows
    it: a message of our own, committed, does both.
    """
    if slot.in_recovery(connection):
        return parse_lsn(connection.value("SELECT pg_last_wal_replay_lsn()::text"))
    connection.rows("SET synchronous_commit = local")
    connection.rows("SELECT pg_logical_emit_message(true, 'tailrace', '')")
    return parse_lsn(connection.value("SELECT pg_current_wal_flush_lsn()::text"))


def system_identifier(options: SourceOptions) -> str:
    """What the server's cluster and all its standbys have in common."""
    doing = "asking for the system identifier"

    def ask() -> str:
        with connect(options, purpose=doing, replication=True) as connection:
            return str(connection.value("IDENTIFY_SYSTEM"))

    return retrying(options, ask, doing)


class _Slot:
    """The slot of a new stream.

    Args:
        options: name it.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._tried = False

    def begin(self) -> PostgresPosition:
        """Where it begins; it is made if it is not there."""
        options = self._options
        with connect(options, purpose="making the replication slot", replication=True) as connection:
            history = timeline.read(connection, options)
            there = slot.read(connection, options.slot)
            if there is None:
                mark.add(connection, options.publication, options.slot, history.server)
                self._tried = True
                return history.position(slot.create(connection, options.slot))
            slot.require_ours(there, options)
            if options.starting_position in ("initial", "latest") and not self._tried:
                self._require_mark(mark.read(connection, options.publication), history.server)
            if there.is_lost or there.confirmed is None:
                raise slot.lost(options.slot, "the server has invalidated it")
            return history.position(there.confirmed)

    def _require_mark(self, found: mark.Mark | None, system: str) -> None:
        """A stream that crashed before its first batch has left its slot; another one has its readers."""
        name = self._options.slot
        if found is None or not found.names(name, system):
            raise ConfigError(
                f"replication slot `{name}` is there already, and this stream did not make it",
                "it bears no mark of a stream: who reads it would lose what this stream reads",
                f"{slot.dropping(name)}; -- if nobody needs it; or set slotName to another name; or, to read "
                "a slot that was made for this stream, set startingPosition to earliest",
            )

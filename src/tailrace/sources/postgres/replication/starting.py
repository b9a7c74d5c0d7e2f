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
from tailrace.sources.postgres.connection import Connection, connect, retrying
from tailrace.sources.postgres.position import PostgresPosition, parse_lsn
from tailrace.sources.postgres.replication import slot, timeline
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
        made = retrying(options, lambda: _slot(options), "making the replication slot")
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


def _slot(options: SourceOptions) -> PostgresPosition:
    """Where the stream's slot begins; it is made if it is not there."""
    with connect(options, purpose="making the replication slot", replication=True) as connection:
        history = timeline.read(connection, options)
        there = slot.read(connection, options.slot)
        if there is None:
            return history.position(slot.create(connection, options.slot))
        slot.require_ours(there, options)
        if there.is_lost or there.confirmed is None:
            raise slot.lost(options.slot, "the server has invalidated it")
        return history.position(there.confirmed)

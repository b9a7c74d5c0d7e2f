"""The start of a new stream, by the option `startingPosition`, and the creation of its slot.

initial    at an exported snapshot, which the first batch reads
snapshot   the same, without a slot: no log is read
latest     at the end of the log
earliest   at the start of the slot, which was created beforehand
lsn:X/Y    at this position, if the slot or the archive holds it
timestamp  at the first transaction in the archive that was committed then or later

With an archive, `earliest` is where that begins, and a new slot is a copy of the archive's.
"""

from __future__ import annotations

import json
from dataclasses import replace

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, PositionLostError, TransientSourceError
from tailrace.sources import network
from tailrace.sources.postgres.connection import Connection, connect, retrying
from tailrace.sources.postgres.position import PostgresPosition, parse_lsn
from tailrace.sources.postgres.replication import mark, slot, timeline
from tailrace.sources.postgres.replication.archive.archived import archived_log
from tailrace.sources.postgres.replication.archive.starting import archived_start
from tailrace.sources.postgres.replication.waiting import Watch
from tailrace.sources.postgres.snapshot.snapshots import Snapshots

#: How long the slot, and then the first snapshot, waits for transactions that write, seconds. Then an error
#: says who they are; it is transient.
START_WAIT_S = 30.0


def starting_position(options: SourceOptions, snapshots: Snapshots) -> PostgresPosition:
    """The position at which a new stream starts.

    Raises:
        ConfigError: the slot does not hold the position, or cannot serve the stream.
        TailraceError: the server refuses, or cannot be reached.
    """
    start = options.starting_position
    if (archived := archived_start(options)) is not None:
        return archived
    if start != "snapshot":
        made = begin_slot(options)
    if start in ("initial", "snapshot"):
        return snapshots.use(snapshots.within(START_WAIT_S)).position
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


def begin_slot(options: SourceOptions) -> PostgresPosition:
    """Where the slot begins; it is created if there is none.

    Raises:
        ConfigError: it cannot serve the stream.
        PositionLostError: the server has invalidated it.
        TailraceError: the server refuses, or cannot be reached.
    """
    waits, made = retrying(options, _Slot(options).begin, "creating the replication slot")
    if waits is not None:  # each further try would wait as long without a word
        raise waits
    return made


def drop_lost_slot(options: SourceOptions) -> None:
    """Remove the stream's slot if the server has invalidated it: it cannot be read again.

    Raises:
        ConfigError: a slot of another kind, or without the stream's mark, has its name.
        TailraceError: the server refuses, or cannot be reached.
    """

    def run() -> None:
        with connect(options, purpose="removing the lost replication slot", replication=True) as connection:
            existing = slot.read(connection, options.slot)
            if existing is None or not existing.is_lost:
                return
            slot.require_ours(existing, options)
            system = timeline.read(connection, options).server
            mark.require(mark.read(connection, options.publication), options.slot, system)
            slot.drop(connection, options.slot)

    retrying(options, run, "removing the lost replication slot")


def holds_log(options: SourceOptions, position: PostgresPosition) -> bool:
    """Whether the server's log has a position, and its slot or the archive holds the log from there on."""

    def run() -> bool:
        with connect(options, purpose="asking for the slot", replication=True) as connection:
            history = timeline.read(connection, options)
            try:
                history.require(position, options)
            except PositionLostError:
                return False
            try:
                slot.require_from(connection, options, position, history)
            except PositionLostError:
                return (
                    options.archive is not None
                    and archived_log(connection, options, position).end is not None
                )
            return True

    return retrying(options, run, "asking for the slot")


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


def ending_position(options: SourceOptions, text: str, position: PostgresPosition) -> PostgresPosition:
    """The position that the option `endingPosition` names.

    Args:
        options: the server.
        text: the option; not a time.
        position: the stream's.

    Raises:
        ConfigError: the log does not reach to it yet, or it is another server's.
        TailraceError: the server refuses, or cannot be reached.
    """
    end = log_end_position(options)
    if text == "latest":
        return end
    if text.startswith("{"):
        given = json.loads(text)
        lsn, server = parse_lsn(given["lsn"]), given.get("server", "")
    else:
        lsn, server = parse_lsn(text.partition(":")[2]), ""
    if lsn > end.lsn or server not in ("", position.server):
        raise ConfigError(
            f"the stream cannot end at `{text}`",
            f"the log ends at {end}" if lsn > end.lsn else f"it is a position of system `{server}`",
            "set endingPosition to a position that the log has, or to a time, which may lie ahead",
            code="TR-4007",
        )
    return replace(end, lsn=lsn, timeline="")


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

    def begin(self) -> tuple[TransientSourceError | None, PostgresPosition]:
        """The slot's start, or why there is none yet. Creates the slot if it does not exist."""
        options = self._options
        with connect(options, purpose="making the replication slot", replication=True) as connection:
            history = timeline.read(connection, options)
            existing = slot.read(connection, options.slot)
            if existing is None:
                mark.add(connection, options.publication, options.slot, history.server)
                self._tried = True
                try:
                    with Watch(
                        options, connection, f"creating replication slot `{options.slot}`", START_WAIT_S
                    ):
                        return None, history.position(slot.create(connection, options.slot))
                except TransientSourceError as error:
                    return error, history.position(0)
            slot.require_ours(existing, options)
            if existing.confirmed is None and existing.active_pid is not None:
                raise TransientSourceError(
                    f"replication slot `{options.slot}` is being created by process {existing.active_pid}",
                    "another stream starts with this slot, or the server has not noticed yet that one ended",
                    f"SELECT pg_terminate_backend({existing.active_pid}); -- if no other stream starts",
                    code="TR-4205",
                )
            if options.starting_position in ("initial", "latest") and not self._tried:
                mark.require(mark.read(connection, options.publication), options.slot, history.server)
            if existing.is_lost or existing.confirmed is None:
                raise slot.lost(options.slot, "the server has invalidated it")
            return None, history.position(existing.confirmed)

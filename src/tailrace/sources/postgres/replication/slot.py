"""Replication slots: create, copy, query, drop.

    the stream's slot    holds the log from the last batch that is in the sink
    a copy               temporary; a task reads a range of the log from it, next to the driver
    a kept copy          temporary; holds the log for readers outside the stream (verify), which copy it
    a snapshot's slot    temporary; its consistent point is the position of an exported snapshot (`snapshots`)

Source: PostgreSQL manual, "Streaming Replication Protocol", "Replication Management Functions",
"pg_replication_slots".
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass

from pg8000.exceptions import DatabaseError

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, PositionLostError
from tailrace.sources import network
from tailrace.sources.postgres.connection import Connection, connect, sqlstate
from tailrace.sources.postgres.position import PostgresPosition, lsn_text, parse_lsn
from tailrace.sources.postgres.protocol.literal import identifier, string
from tailrace.sources.postgres.replication.timeline import History

PLUGIN = "pgoutput"


@dataclass(frozen=True)
class Slot:
    """The state of a slot.

    Args:
        name: its name.
        plugin: its output plugin, "" for a physical one.
        database: its database.
        temporary: whether it ends with its connection.
        active_pid: the process that reads it; None: no process.
        restart: where decoding starts; None once it is lost.
        confirmed: everything below is confirmed.
        wal_status: reserved, extended, unreserved or lost.
        left_bytes: WAL that may be written before it is lost; None: no limit.
        held_bytes: WAL that it holds back.
        end: the log's end.
        reason: why it was invalidated, "" if it was not.
        failover: whether standbys that copy slots copy it.
    """

    name: str
    plugin: str
    database: str
    active_pid: int | None
    restart: int | None
    confirmed: int | None
    wal_status: str
    left_bytes: int | None
    held_bytes: int
    end: int
    reason: str = ""
    failover: bool = False
    temporary: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether the server has removed WAL that the slot should hold."""
        return self.wal_status == "lost" or bool(self.reason) or self.restart is None


@network.sensible("the replication slot")
def read(connection: Connection, name: str) -> Slot | None:
    """The slot called `name`, None if there is none. Raises pg8000's errors."""
    reason = "coalesce(invalidation_reason, '')" if connection.version >= 17 else "''"
    failover = "failover" if connection.version >= 17 else "false"
    end = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END"
    found = connection.rows(
        "SELECT slot_name::text, coalesce(plugin, '')::text, coalesce(database, '')::text, active_pid,"
        " restart_lsn::text, confirmed_flush_lsn::text, coalesce(wal_status, '')::text, safe_wal_size::text,"
        f" coalesce(pg_wal_lsn_diff({end}, restart_lsn), 0)::text, ({end})::text, {reason}::text,"
        f" {failover}, temporary"
        f" FROM pg_catalog.pg_replication_slots WHERE slot_name = {string(name)}"
    )
    if not found:
        return None
    name, plugin, database, pid, restart, confirmed, status, left, held, end, why, survives, temporary = (
        found[0]
    )
    return Slot(
        name,
        plugin,
        database,
        pid,
        parse_lsn(restart) if restart else None,
        parse_lsn(confirmed) if confirmed else None,
        status,
        int(left) if left else None,
        int(held),
        parse_lsn(end),
        why,
        survives,
        temporary,
    )


def create(connection: Connection, name: str) -> int:
    """Create the stream's slot over a replication connection; returns its start.

    Waits for all current writing transactions. From 17 on the slot survives a failover to a standby that
    synchronizes slots. The function is used, not the replication command: a server that executes that does
    not notice that its client is gone, and the half-made slot stays until the last transaction has ended.

    Raises pg8000's errors.
    """
    failover = ", failover => true" if connection.version >= 17 and not in_recovery(connection) else ""
    with contextlib.suppress(DatabaseError):  # not every system of a server can do that
        connection.rows("SET client_connection_check_interval = '1s'")
    given = f"{string(name)}, {string(PLUGIN)}{failover}"
    rows = connection.wait_for(f"SELECT lsn::text FROM pg_create_logical_replication_slot({given})")
    return parse_lsn(rows[0][0])


def create_for_snapshot(connection: Connection) -> tuple[int, str]:
    """Create a temporary slot that exports a snapshot; returns its consistent point and the snapshot's name.

    The snapshot can be imported until the connection is used again or ends. Waits for all current writing
    transactions.

    Raises pg8000's errors.
    """
    how = "(SNAPSHOT 'export')" if connection.version >= 15 else "EXPORT_SNAPSHOT"
    name = f"tailrace_snapshot_{uuid.uuid4().hex[:12]}"
    row = connection.wait_for(f"CREATE_REPLICATION_SLOT {identifier(name)} TEMPORARY LOGICAL {PLUGIN} {how}")[
        0
    ]
    return parse_lsn(row[1]), str(row[2])


def copy(connection: Connection, name: str, to: str | None = None) -> str:
    """Create a copy of a slot; returns its name.

    Args:
        connection: a replication connection.
        name: the slot.
        to: the copy's name; None: a temporary one, for this connection to read.

    Raises:
        PositionLostError: the slot does not exist, or no longer.
    """
    copied = to or f"tailrace_copy_{uuid.uuid4().hex[:12]}"
    is_temporary = "false" if to else "true"
    try:
        connection.wait_for(
            f"SELECT pg_copy_logical_replication_slot({string(name)}, {string(copied)}, {is_temporary})"
        )
        if to and connection.version >= 17 and not in_recovery(connection):
            connection.rows(f"ALTER_REPLICATION_SLOT {identifier(to)} (FAILOVER true)")
    except DatabaseError as error:
        if sqlstate(error) in ("42704", "55000", "0A000"):
            raise lost(name, str(error.args[0].get("M", ""))) from error
        raise
    return copied


@dataclass(frozen=True)
class Kept:
    """A temporary copy of the stream's slot that is not read, for others to copy.

    Args:
        name: its name.
        connection: keeps it.
    """

    name: str
    connection: Connection


def keep(options: SourceOptions) -> Kept:
    """Copy the stream's slot, from its present start.

    Raises:
        PositionLostError: the slot does not exist, or no longer.
    """
    connection = connect(options, purpose="keeping the log")
    try:
        return Kept(copy(connection, options.slot), connection)
    except BaseException:
        connection.close()
        raise


def in_recovery(connection: Connection) -> bool:
    """Whether the server is a standby."""
    return bool(connection.value("SELECT pg_is_in_recovery()"))


def require_from(
    connection: Connection, options: SourceOptions, start: PostgresPosition, history: History
) -> Slot:
    """The stream's slot, which holds the log from `start` on.

    Args:
        connection: to the server.
        options: with the slot's name.
        start: the stream's position.
        history: the server's timelines.

    Raises:
        PositionLostError: it does not hold the log.
        ConfigError: a slot of another kind has its name.
    """
    name = options.slot
    slot = read(connection, name)
    if slot is None:
        why = "it does not exist, or no longer"
        if history.goes_beyond(start):
            why += (
                ": the server has been promoted, and a standby has the slot only if it copied it "
                "earlier (PostgreSQL 17 and later, sync_replication_slots = on)"
            )
        raise lost(name, why)
    require_ours(slot, options)
    if slot.is_lost:
        why = slot.reason or "it would have held more WAL than max_slot_wal_keep_size allows"
        raise lost(name, f"the server has invalidated it: {why}")
    if slot.confirmed is not None and slot.confirmed > start.lsn:
        raise lost(
            name,
            f"it begins at {lsn_text(slot.confirmed)}, the stream is at {start}: it was created anew, or "
            "another process has read from it",
        )
    return slot


def require_ours(slot: Slot, options: SourceOptions) -> None:
    """Raises ConfigError if `slot` cannot serve the stream."""
    if not is_of_a_stream(slot, options):
        raise ConfigError(
            f"replication slot `{slot.name}` cannot be used",
            f"found {described(slot)}, needed a logical one with plugin {PLUGIN} of database "
            f"`{options.database}`",
            "set the option slotName to another name",
            code="TR-4203",
        )


def is_of_a_stream(slot: Slot, options: SourceOptions) -> bool:
    """Whether it is of the kind that streams of this database read."""
    return slot.plugin == PLUGIN and slot.database == options.database


def described(slot: Slot) -> str:
    """The slot's kind, for messages."""
    if not slot.plugin:
        return "a physical one"
    kind = "a temporary" if slot.temporary else "a logical"
    return f"{kind} one with plugin `{slot.plugin}` of database `{slot.database}`"


def lost(name: str, why: str) -> PositionLostError:
    """The error to raise when the slot does not hold the log that the stream needs."""
    return PositionLostError(
        f"replication slot `{name}` no longer holds the log at the stream's position",
        why,
        "set onPositionLost: refresh to read every table again, into the same targets; a lost slot is "
        "created anew",
        code="TR-4201",
    )


def drop(connection: Connection, name: str) -> None:
    """Remove the slot. Raises pg8000's errors."""
    connection.rows(dropping(name))


def dropping(name: str) -> str:
    """The statement that removes a slot."""
    return f"SELECT pg_drop_replication_slot({string(name)})"

"""How long the server keeps the WAL that a stream's slot needs.

`max_slot_wal_keep_size` limits how much WAL a slot may hold back; from PostgreSQL 18 on,
`idle_replication_slot_timeout` limits how long a slot may be without a reader. A slot that exceeds a limit is
invalidated, and the stream has lost its position.
"""

from __future__ import annotations

from tailrace.sources import network
from tailrace.sources.base import LogRetention
from tailrace.sources.postgres.connection import Connection
from tailrace.sources.postgres.protocol.literal import string
from tailrace.sources.postgres.replication.slot import read


@network.sensible("how long it keeps its log")
def retention(connection: Connection, name: str) -> LogRetention | None:
    """How long the server keeps the log for the slot called `name`; None: there is no such slot."""
    slot = read(connection, name)
    if slot is None:
        return None
    limits = {}
    if slot.left_bytes is not None:
        limits["max_slot_wal_keep_size"] = _setting(connection, "max_slot_wal_keep_size")
    left_s = None
    if connection.version >= 18 and slot.active_pid is None and (idle := _idle_s(connection, name)):
        limits["idle_replication_slot_timeout"] = _setting(connection, "idle_replication_slot_timeout")
        left_s = idle
    if slot.wal_status:
        limits["wal_status"] = slot.wal_status
    if slot.is_lost:
        return LogRetention(slot.held_bytes, 0, 0.0, slot.end, limits)
    return LogRetention(slot.held_bytes, slot.left_bytes, left_s, slot.end, limits)


def _setting(connection: Connection, name: str) -> str:
    ((value,),) = connection.rows(f"SELECT current_setting({string(name)})")
    return str(value)


def _idle_s(connection: Connection, name: str) -> float | None:
    """Seconds until a slot without a reader is invalidated; None: no limit."""
    rows = connection.rows(
        "SELECT (setting::float8 * CASE unit WHEN 'min' THEN 60 WHEN 'ms' THEN 0.001 ELSE 1 END"
        " - extract(epoch FROM clock_timestamp() - inactive_since))::text"
        " FROM pg_catalog.pg_settings, pg_catalog.pg_replication_slots"
        f" WHERE name = 'idle_replication_slot_timeout' AND setting <> '0' AND slot_name = {string(name)}"
        " AND inactive_since IS NOT NULL"
    )
    return max(float(rows[0][0]), 0.0) if rows else None

"""How busy a PostgreSQL server is, for the limits of reading tables (`snapshotMax…`)."""

from __future__ import annotations

from tailrace.errors import SourceError
from tailrace.model.table import TableId
from tailrace.sources.base import Activity
from tailrace.sources.postgres.connection import Connection

_SESSIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
#: Physical standbys: a logical slot belongs to a reader of the log, such as this stream.
_LAG = """
SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'),
       (SELECT max(extract(epoch FROM r.replay_lag))
        FROM pg_stat_replication r LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid
        WHERE s.slot_type IS DISTINCT FROM 'logical')
"""
_ROW_BYTES = """
SELECT sum(pg_table_size(l.oid)), sum(greatest(l.reltuples, 0))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN LATERAL pg_partition_tree(c.oid) t ON t.isleaf
    JOIN pg_class l ON l.oid = coalesce(t.relid, c.oid)
WHERE n.nspname = $1 AND c.relname = $2
"""


def activity(connection: Connection, *, with_lag: bool) -> Activity:
    """The sessions that run a statement; with `with_lag` also the lag of the standby that is furthest behind.

    Raises:
        SourceError: the user may not see the state of others' sessions.
        TransientSourceError: the server does not answer.
    """
    ((can_see, lag),) = connection.rows(_LAG)
    if not can_see:
        ((user,),) = connection.rows("SELECT quote_ident(current_user)")
        raise SourceError(
            "asking how busy the server is failed: a privilege is missing",
            "PostgreSQL hides other users' sessions and the lag of standbys from this user",
            f"GRANT pg_monitor TO {user}; or leave out snapshotMaxActiveSessions and snapshotMaxReplicaLag",
            code="TR-3102",
        )
    ((sessions,),) = connection.rows(_SESSIONS)
    return Activity(int(sessions), float(lag) if with_lag and lag is not None else None)


def row_bytes(connection: Connection, table: TableId) -> int | None:
    """The mean size of a row, with what is stored out of line; None before the table's first ANALYZE."""
    ((size, rows),) = connection.rows(_ROW_BYTES, table.database, table.table)
    return max(1, round(float(size) / float(rows))) if size and rows else None

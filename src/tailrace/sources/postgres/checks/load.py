"""What others do on a PostgreSQL server, so that reading tables does not slow them down.

With the privileges of pg_read_all_stats the state of every session shows. Without them the server's counters
of busy time count all sessions together: what is not ours belongs to others. They grow when a transaction
ends, once a second, so that only their mean over some seconds means something.

Sessions of Tailrace have its application_name.
"""

from __future__ import annotations

import time
from dataclasses import replace

from tailrace.config.options import SourceOptions
from tailrace.sources.postgres.connection import Connection, ReconnectingConnection

_DOING = "asking what others do on the server"
#: A server that answers later is a busy one; the next look may tell more.
_TIMEOUT_MS = 3_000
#: Least seconds between two readings of the counters.
_COUNTED_S = 1.0
#: Sessions that wait for a lock, for their client or for a time use nothing.
_SESSIONS = """
SELECT count(*) FILTER (WHERE application_name <> 'tailrace')::int4,
       count(*) FILTER (WHERE application_name = 'tailrace')::int4,
       pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
FROM pg_catalog.pg_stat_activity
WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid()
  AND coalesce(wait_event_type, '') NOT IN ('Client', 'Lock', 'Timeout')
"""


class PostgresLoadWatch:
    """See `sources.base.LoadWatch`.

    Args:
        options: the server.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = replace(
            options,
            connect_timeout_ms=min(options.connect_timeout_ms, _TIMEOUT_MS),
            query_timeout_ms=min(options.query_timeout_ms, _TIMEOUT_MS),
            retry_timeout_ms=0,
        )
        self._connection = ReconnectingConnection(self._options, "watching the load")
        #: The counters when they were read last, seconds, and when that was.
        self._counted: tuple[float, float] | None = None
        self._by_counters: float | None = None

    def others(self) -> float | None:
        """See `LoadWatch`."""
        return self._connection.run(self._others, _DOING)

    def _others(self, connection: Connection) -> float | None:
        ((others, own, sees_all),) = connection.rows(_SESSIONS)
        if sees_all:
            return float(others)
        now = time.monotonic()
        if self._counted is not None and now - self._counted[1] < _COUNTED_S:
            return self._by_counters
        total = float(
            connection.value("SELECT sum(active_time)::float8 / 1000 FROM pg_catalog.pg_stat_database")
        )
        if self._counted is not None:
            before, at = self._counted
            self._by_counters = max(0.0, (total - before) / (now - at) - own)
        self._counted = total, now
        return self._by_counters

    def close(self) -> None:
        """See `LoadWatch`."""
        self._connection.close()

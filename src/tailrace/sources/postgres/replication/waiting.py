"""Statements that wait for other transactions: creating a slot, or a snapshot, waits for all that write.

Such a transaction may be open for hours, or be a prepared one that nobody remembers. So the wait is watched
from another connection: it names the transactions that hold it up, and can end the wait.
"""

from __future__ import annotations

import contextlib
import threading

from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.errors import TailraceError, TransientSourceError
from tailrace.printable import printable
from tailrace.sources.postgres.connection import Connection, connect, sqlstate
from tailrace.sources.postgres.protocol.literal import string
from tailrace.sources.postgres.waits.notices import say

#: When to name the transactions that hold up a statement, and how often again, seconds.
SAY_AFTER_S = 5.0
SAY_EVERY_S = 60.0
_CANCELLED = "57014"
_WAITED_FOR_QUERY = """\
SELECT DISTINCT h.pid, coalesce(a.usename::text, p.owner::text, ''), coalesce(a.application_name, ''),
       coalesce(a.datname::text, p.database::text, ''), coalesce(a.state, ''),
       coalesce(extract(epoch FROM now() - coalesce(a.xact_start, p.prepared)), 0)::int8, p.gid
FROM pg_catalog.pg_locks w JOIN pg_catalog.pg_locks h
  ON h.granted AND h.locktype = w.locktype AND h.transactionid IS NOT DISTINCT FROM w.transactionid
  AND h.virtualxid IS NOT DISTINCT FROM w.virtualxid
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = h.pid
LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = h.transactionid
WHERE w.pid = $1 AND NOT w.granted
"""


class Watch:
    """Watches a statement that may wait; a context around it.

    Args:
        options: the server.
        connection: executes the statement.
        doing: what it does, as in "creating replication slot `shop`".
        most_s: how long it may wait for others; None: no limit.

    Attributes:
        waits_for: who it waits for, and the statements that end that; None until it has waited for a while.
    """

    def __init__(
        self, options: SourceOptions, connection: Connection, doing: str, most_s: float | None = None
    ) -> None:
        self._options = options
        self._pid = connection.pid
        self._doing = doing
        self._most_s = most_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tailrace-waiting", daemon=True)
        self.waits_for: tuple[str, str] | None = None
        self._has_cancelled = False

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._has_cancelled and isinstance(error, DatabaseError) and sqlstate(error) == _CANCELLED:
            raise self.error() from error

    def error(self) -> TransientSourceError:
        """The error when the wait is given up."""
        detail, hint = self.waits_for or ("a transaction that writes", "end the oldest ones")
        return TransientSourceError(
            f"{self._doing} waits for other transactions", detail, hint, code="TR-2209"
        )

    def _watch(self) -> None:
        if self._ended.wait(SAY_AFTER_S):
            return
        # whatever fails here must not end what is watched
        with contextlib.suppress(TailraceError, DatabaseError, InterfaceError, OSError):
            self._report()

    def _report(self) -> None:
        waited = SAY_AFTER_S
        while True:
            with connect(self._options, purpose="looking up open transactions") as connection:
                found = connection.rows(_WAITED_FOR_QUERY, self._pid)
                if found:
                    self.waits_for = _described(found)
                    say(f"{self._doing} waits for {self.waits_for[0]}. To end it: {self.waits_for[1]}")
                if self._most_s is not None and waited >= self._most_s:
                    self._has_cancelled = True
                    connection.rows("SELECT pg_cancel_backend($1::int4)", self._pid)
                    return
            pause = SAY_EVERY_S if self._most_s is None else min(SAY_EVERY_S, self._most_s - waited)
            if self._ended.wait(pause):
                return
            waited += pause


def _described(rows: list[list[object]]) -> tuple[str, str]:
    found, remedies = [], []
    for pid, user, application, database, state, seconds, gid in rows:
        if gid is not None:
            found.append(
                f"prepared transaction `{printable(str(gid))}` of user {user} in database `{database}`, "
                f"prepared {seconds} s ago"
            )
            name = string(printable(str(gid)))
            remedies.append(f"COMMIT PREPARED {name}; or ROLLBACK PREPARED {name}; -- in that database")
        else:
            program = f" ({application})" if application else ""
            found.append(
                f"the transaction of process {pid}, user {user}{program}, database `{database}`, {state}, "
                f"open for {seconds} s"
            )
            remedies.append(f"SELECT pg_terminate_backend({pid}); -- ends it")
    return "; ".join(found), "\n".join(remedies)

"""Failover: the same point of the stream in another server's log.

Every position carries the GTIDs of all transactions before it. When another server answers at the address
(a promoted replica, a restored primary), its log is searched for the point by that set:

    position on S1 (file, pos, GTIDs)  ──GTIDs──▶  position on S2 (its file, its pos, same GTIDs), epoch + 1

The epoch is the first part of `_seq`, so changes read from S2 sort after all changes read from S1. Positions
of S1 in offsets and splits stay as they are; each reader locates them again: a batch planned on S1 and
replayed on S2 holds the same transactions. XA transactions that are prepared and open at the point are
searched for in the log of S2 before it.

Of a stream that gives the transactions of some servers only (`model.gtid_sources`), these alone count.

The log of S2 must have the same transactions before the point. It does on a replica that keeps its source's
order (replica_preserve_commit_order, the default since 8.0.27) and has no transactions of its own among
them; else the stream ends with a StateError rather than skip or repeat one.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace

from tailrace.config.options import SourceOptions
from tailrace.errors import ServerChangedError, StateError, TailraceError
from tailrace.sources.mysql.binlog.history import require_history
from tailrace.sources.mysql.checks import preflight
from tailrace.sources.mysql.connection import (
    connect,
    is_mariadb,
    one,
    retrying,
    server_changed,
    server_facts,
)
from tailrace.sources.mysql.gtid import GtidSet
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.start.starting import position_by_gtids
from tailrace.sources.mysql.xa.prepared import prepared_again

#: Located positions that are remembered: the ends of a batch, and of the one before.
_REMEMBERED = 8
_POLL_S = 0.5
#: How many threads apply another server's log: for MySQL, for MariaDB (whose performance schema is off).
_APPLIERS = (
    "SELECT COUNT(*) FROM performance_schema.replication_applier_status WHERE SERVICE_STATE = 'ON'",
    "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND = 'Slave_SQL'",
)


class ServerPositions:
    """Positions of a stream on the server that answers now.

    Args:
        options: the server, and how long to wait for one that lags behind the stream.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._server: str | None = None
        self._found: dict[MySqlPosition, MySqlPosition] = {}

    def forget(self) -> None:
        """Forget the server: another one answers."""
        self._server = None
        self._found.clear()

    def require_same(self, connection: BoundedConnection) -> None:
        """Remember the server of the first connection, and accept no other.

        Raises:
            ServerChangedError: this connection leads to another server.
        """
        found = server_facts(connection).server_uuid
        if self._server is None:
            self._server = found
        elif found != self._server:
            raise server_changed(self._options, self._server, found)

    def locate(self, position: MySqlPosition) -> MySqlPosition:
        """`position` in the log of the server that answers; itself if that is its server.

        Raises:
            PreflightError: another server answers, and it is not set up for capture.
            PositionLostError: that server's log does not reach back far enough, or the server has lost
                transactions before the position.
            StateError: it lacks transactions, has them in another order, or there are no GTIDs.
            TransientSourceError: no server answers.
        """
        if self._server is None:
            self._server = retrying(
                self._options, lambda: self._ask_server(position), "asking which server answers"
            )
        if position.server == self._server:
            return position
        if position not in self._found:
            if len(self._found) >= _REMEMBERED:
                self._found.pop(next(iter(self._found)))
            self._found[position] = _find(self._options, position, self._server)
        return self._found[position]

    def _ask_server(self, position: MySqlPosition) -> str:
        """The server that answers. If it is the position's, it must still have the position's history."""
        with closing(connect(self._options, purpose="asking which server answers")) as connection:
            found = server_facts(connection).server_uuid
            if found == position.server:
                require_history(connection, GtidSet.parse(position.gtids))
            return found


def _find(options: SourceOptions, position: MySqlPosition, server: str) -> MySqlPosition:
    preflight.require(options)
    changed = server_changed(options, position.server, server)
    if not position.gtids:
        raise StateError(
            changed.message,
            f"{changed.detail}; without GTIDs a position means nothing on another server",
            "point the stream to the server it was reading, or start a new stream; with gtid_mode = ON "
            "a stream follows a failover by itself",
            code="TR-4105",
        )
    gtids = GtidSet.parse(position.gtids).of(options.gtid_sources)
    deadline = time.monotonic() + options.retry_timeout_ms / 1000
    while True:
        is_behind = _is_behind(options, gtids)  # asked first: it may catch up at any moment
        try:
            found = position_by_gtids(options, gtids, options.gtid_sources)
        except StateError as error:  # a replica may still apply the missing ones
            if not is_behind or time.monotonic() > deadline:
                raise StateError(
                    f"the stream cannot continue here: {error.message}",
                    "; ".join(filter(None, (changed.message, changed.detail, error.detail))),
                    error.hint,
                    code="TR-4105",
                ) from error
            time.sleep(_POLL_S)
            continue
        if found.server != server:
            raise server_changed(options, server, found.server)
        return replace(
            found,
            epoch=position.epoch + 1,
            ts_ms=max(found.ts_ms, position.ts_ms),
            prepared=prepared_again(options, found, position.prepared),
        )


def _is_behind(options: SourceOptions, gtids: GtidSet) -> bool:
    """Whether the server lacks some of `gtids` and has a replication thread that may apply them."""

    def ask() -> bool:
        with (
            closing(connect(options, purpose="asking for executed GTIDs")) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(server_facts(connection).executed_gtids_sql)
            executed = GtidSet.parse(str(one(cursor)[0]))
            cursor.execute(_APPLIERS[is_mariadb(connection)])
            applying = bool(one(cursor)[0])
        return applying and not gtids.is_subset(executed)

    try:
        return bool(retrying(options, ask, "asking for executed GTIDs"))
    except ServerChangedError:
        raise
    except TailraceError:
        return False  # the user may not see replication: no reason to wait

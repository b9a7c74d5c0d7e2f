"""MySQL and MariaDB as a source: the driver's side, assembled from the other modules of this package."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, TypeVar

import pymysql

from tailrace.config.option_values import AUTO
from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, SourceError, TableLockedError, TailraceError, TransientSourceError
from tailrace.model.schema_change import SchemaEvent
from tailrace.model.source_type import SourceType
from tailrace.model.split import Key, LogSplit, SnapshotSplit
from tailrace.model.table import TableId, TableSchema
from tailrace.model.types import ColumnType
from tailrace.sources.base import Activity, FrozenTables, Log, LogClock, LogRange, LogRetention, Page, Source
from tailrace.sources.mysql import catalog
from tailrace.sources.mysql.binlog import typed_ddl
from tailrace.sources.mysql.binlog.archived import all_logs
from tailrace.sources.mysql.binlog.follower import BinlogFollower, BinlogRange
from tailrace.sources.mysql.binlog.held import pack_blocks
from tailrace.sources.mysql.binlog.logfiles import end_of_log
from tailrace.sources.mysql.binlog.retention import retention
from tailrace.sources.mysql.checks import preflight
from tailrace.sources.mysql.checks.activity import activity, row_bytes
from tailrace.sources.mysql.checks.load import MySqlLoadWatch
from tailrace.sources.mysql.checks.row_server_checks import rows_held
from tailrace.sources.mysql.connection import (
    MARIADB,
    ReconnectingConnection,
    one,
    server_facts,
    translate,
    waiting_briefly,
)
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot import keys
from tailrace.sources.mysql.snapshot.chunk_ends import ChunkEnds
from tailrace.sources.mysql.snapshot.literal import table_name
from tailrace.sources.mysql.snapshot.row_server import RowServer, row_server_options
from tailrace.sources.mysql.start.ending import ending_position
from tailrace.sources.mysql.start.failover import ServerPositions
from tailrace.sources.mysql.start.starting import log_end_position, position_in_file, starting_position
from tailrace.sources.mysql.wire.rare.xa import XaMark
from tailrace.sources.mysql.wire.schema.declarations import source_type
from tailrace.sources.mysql.xa.xa_visibility import EndingTransactions

T = TypeVar("T")

#: A range of at most this many bytes travels to its task inside the split.
INLINE_BYTES = 8 << 20
#: With AUTO, a slice of the log has at least so many bytes, and a range at most so many slices.
SLICE_BYTES, MOST_SLICES = 16 << 20, 4
#: Snapshot chunks are planned while the log's end is at most this far ahead.
CAUGHT_UP_BYTES = 64 << 20
#: Most seconds for which planning waits for a lock on a table: other tables wait meanwhile.
PLANNING_WAIT_S = 1.0


class MySqlSource(Source):
    """See `tailrace.sources.base.Source`. Safe to use from several threads; serves one at a time."""

    logs_statements = True

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planning = ReconnectingConnection(options, "planning")
        self._rows = None if options.snapshot_url is None else RowServer(options)
        self._rows_lock = threading.Lock()
        self._lock = threading.Lock()
        self._positions = ServerPositions(options)
        self._ending = EndingTransactions(options)
        self._follower: BinlogFollower | None = None
        self._refused: Mapping[str, TailraceError] = {}
        limited = options.snapshot_max_rows_per_second or options.snapshot_max_bytes_per_second
        self._chunk_end = keys.boundary if limited else ChunkEnds().find

    def require(self) -> Mapping[str, TailraceError]:
        """Check every precondition."""
        return preflight.require(self._options)

    def refusals(self) -> Mapping[str, TailraceError]:
        """The tables that the last call of `tables` left out, with the reasons."""
        return self._refused

    def position(self, value: Mapping[str, Any]) -> MySqlPosition:
        """The position that `to_json` wrote, on the server that answers now."""
        return self._positions.locate(MySqlPosition.from_json(value))

    def server_changed(self) -> None:
        """Forget what was found out about the server: another one answers."""
        with self._lock:
            self._positions.forget()
            self._ending.forget()
            self._follower = None
            self._planning.close()

    def starting_position(self) -> MySqlPosition:
        """Where a new stream starts."""
        return starting_position(self._options)

    def rejoin(self, lost: Mapping[str, Any]) -> MySqlPosition:
        """The log's present end; the next epoch, as file names may have begun anew."""
        end = starting_position(replace(self._options, starting_position="latest"))
        return replace(end, epoch=lost["epoch"] + 1)

    def has_log(self, position: MySqlPosition) -> bool:
        """Whether the server still has the file of `position`."""
        files = self._run(lambda c: all_logs(self._options, c), "listing the binary log files")
        return any(file.name == position.file for file in files)

    def position_problem(self, position: MySqlPosition) -> str | None:
        """Why no stream can go on from `position`: it is not in the log, or not between two transactions."""
        files = self._run(lambda c: all_logs(self._options, c), "listing the binary log files")
        size = next((file.size for file in files if file.name == position.file), None)
        if size is None:
            return f"the server has the files {files[0].name} to {files[-1].name}"
        if position.pos > size:
            return f"the file has {size} bytes"
        try:
            position_in_file(self._options, position.file, position.pos)
        except ConfigError as error:
            return f"it is within a transaction: {error.detail}"
        return None

    def ending_position(self, text: str, position: MySqlPosition) -> MySqlPosition:
        """The position that `endingPosition` names, in the epoch of the stream."""
        return replace(ending_position(self._options, text, position), epoch=position.epoch)

    def log_end(self) -> MySqlPosition:
        """The log's end now."""
        return log_end_position(self._options)

    def tables(self) -> list[catalog.CatalogTable]:
        """The captured tables that exist now."""
        refused: dict[str, TailraceError] = {}
        found = self._run(
            lambda c: catalog.tables(
                c,
                self._options.captures,
                self._options.zero_dates.of,
                refused if self._options.max_parked else None,
                self._options.columns,
            ),
            "reading the catalog",
        )
        self._refused = refused
        return found

    def schema_events(
        self, found: LogRange, before: Mapping[str, TableSchema], after: Mapping[str, TableSchema]
    ) -> Sequence[SchemaEvent]:
        """The schema changes of a range of the log, typed by their text and the catalog."""
        assert isinstance(found, BinlogRange)
        known = {schema.id for schemas in (before, after) for schema in schemas.values()}

        def captures(table: TableId) -> bool:
            # a namesake of a captured table is one that the user may not read
            return self._options.captures(str(table)) and not any(map(table.is_namesake, known))

        return typed_ddl.events(found, before, after, captures)

    def as_of(self, position: MySqlPosition) -> Mapping[str, Any]:
        """The position is all a split needs.

        Tasks wait until transactions are visible, except for XA transactions without a GTID: the driver waits
        for those here.
        """
        if position.server.startswith(MARIADB) or not position.gtids:
            with self._lock:
                self._ending.wait(position, self._xa_between)
        return position.to_json()

    def _xa_between(self, start: MySqlPosition, end: MySqlPosition) -> list[XaMark] | None:
        return None if self._follower is None else self._follower.xa_between(start, end)

    def log_clock(self, position: MySqlPosition) -> LogClock | None:
        """The server's clock, then its log's end."""
        return self._run(lambda c: _log_clock(c, position), "asking for the time")

    def log_retention(self, position: MySqlPosition) -> LogRetention:
        """How long the server keeps the log from `position` on."""
        return self._run(lambda c: retention(c, position, self._options), "asking how long the log is kept")

    def activity(self) -> Activity:
        """How busy the server is."""
        with_lag = self._options.snapshot_max_replica_lag is not None
        return self._run(lambda c: activity(c, with_lag=with_lag), "asking how busy the server is")

    def load_watch(self) -> MySqlLoadWatch:
        """What looks at the load of the server, or of the replica that rows are read from."""
        is_apart = self._options.snapshot_url is not None
        return MySqlLoadWatch(row_server_options(self._options) if is_apart else self._options)

    def rows_held(self) -> str:
        """Why no rows can be read now from the replica."""
        if self._rows is None:
            return ""
        with self._rows_lock:
            return rows_held(self._rows, self._options)

    def row_bytes(self, table: TableId) -> int | None:
        """The mean size of a row."""
        return self._run(lambda c: row_bytes(c, table), f"reading the size of {table}")

    def heartbeat(self, statement: str) -> None:
        """Run a statement that writes something to the log."""
        self._run(lambda c: _write(c, statement), "running heartbeat.action.query")

    def boundary(self, table: TableSchema, after: Key | None, rows: int) -> Key | None:
        """The key `rows` rows after `after`: on the replica, if there is one, as it reads what is between.

        Any key is a good one: it may be some rows nearer or farther, unless rows or bytes per second are
        limited. Where the replica does not know, the server says it.

        Raises:
            TableLockedError: others hold a lock on the table.
        """
        if not table.key:
            return None  # it is one chunk
        if self._rows is not None:
            with suppress(SourceError), self._rows_lock:
                return self._rows.run(
                    lambda c: self._chunk_end(c, table, after, rows), f"planning chunks of {table.id}"
                )

        def ask(connection: BoundedConnection) -> Key | TableLockedError | None:
            try:
                with waiting_briefly(connection, PLANNING_WAIT_S):
                    return self._chunk_end(connection, table, after, rows)
            except TableLockedError as error:
                return error  # to be raised behind the retries

        found = self._run(ask, f"planning chunks of {table.id}")
        if isinstance(found, TableLockedError):
            raise found
        return found

    def source_type(self, type_: ColumnType, declared: str | None) -> SourceType:
        """See `Session.source_type`."""
        return source_type(type_, declared)

    def condition_problem(self, table: TableSchema, condition: str) -> str | None:
        """Why the server refuses a condition of a table's rows."""

        def ask(connection: BoundedConnection) -> str | None:
            try:
                with connection.cursor() as cursor:
                    cursor.execute(f"EXPLAIN SELECT 1 FROM {table_name(table.id)} WHERE ({condition})")
            except pymysql.err.MySQLError as error:
                if isinstance(translate(error, "checking a condition"), TransientSourceError):
                    raise
                return f"the server refuses the condition: error {error.args[0]}"
            return None

        return self._run(ask, f"checking a condition of {table.id}")

    def follow(self, start: MySqlPosition, knows: Callable[[TableId], bool]) -> MySqlLog:
        """Follow the log from `start` on."""
        self._follower = BinlogFollower(self._options, start, knows)
        return MySqlLog(self._follower)

    def read_table(self, table: TableSchema, page_rows: int) -> Iterator[Page]:
        """All rows of a table as they are now."""
        # not above: the driver of a stream does not load the row decoders
        from tailrace.sources.mysql.session import MySqlSession  # noqa: PLC0415

        with closing(MySqlSession(self._options)) as session:
            yield from session.pages(SnapshotSplit(table, None, None, {}, page_rows))

    def frozen(self, connections: int) -> FrozenTables:
        """All tables as they are now, by consistent snapshots."""
        from tailrace.sources.mysql.snapshot.frozen import MySqlFrozenTables  # noqa: PLC0415

        return MySqlFrozenTables(self._options, connections)

    def close(self) -> None:
        """Drop the connection."""
        with self._lock:
            self._follower = None
            self._planning.close()
            self._ending.close()
        with self._rows_lock:
            if self._rows is not None:
                self._rows.close()

    def _run(self, operation: Callable[[BoundedConnection], T], doing: str) -> T:
        with self._lock:
            return self._planning.run(operation, doing)


class MySqlLog(Log):
    """See `tailrace.sources.base.Log`."""

    def __init__(self, follower: BinlogFollower) -> None:
        self._follower = follower

    def range_after(
        self,
        start: MySqlPosition,
        *,
        upto: MySqlPosition | None,
        max_bytes: int | None,
        max_rows: int | None,
        for_rows: bool = False,  # noqa: ARG002 - rows can be read as of any position
        before_us: int | None = None,
    ) -> LogRange | None:
        """The next batch's share of the log after `start`; with `upto`, None only when that is reached."""

        def find() -> LogRange | None:
            return self._follower.end_after(
                start, max_bytes=max_bytes, max_rows=max_rows, upto=upto, before_us=before_us
            )

        found = find()
        while found is None and upto is not None and self.head().order < upto.order:
            if before_us is not None and self._follower.is_late_after(start, before_us):
                return None
            self._follower.wait(1.0)
            found = find()
        return found

    def head(self) -> MySqlPosition:
        """The last position known to be in the log."""
        return self._follower.head()

    def wait(self, timeout_s: float) -> None:
        """Wait until there is more of the log that concerns the stream."""
        self._follower.wait_for_changes(timeout_s)

    def read_upto(self) -> MySqlPosition:
        """The end of the last event read."""
        return self._follower.read_upto()

    def is_caught_up(self, position: MySqlPosition) -> bool:
        """Whether the log's end is at most CAUGHT_UP_BYTES ahead of `position`."""
        return self._follower.lag_bytes(position) <= CAUGHT_UP_BYTES

    def splits(self, split: LogSplit, slices: int) -> list[LogSplit]:
        """`split` with its events in it if they are held and small, else slices of it."""
        start, end = MySqlPosition.from_json(split.start), MySqlPosition.from_json(split.end)
        blocks = self._follower.blocks(start, end)
        if blocks is not None and sum(len(b.data) for b in blocks) <= INLINE_BYTES:
            return [replace(split, events=pack_blocks(blocks))]
        if slices == AUTO:
            slices = min(self._follower.relayed_bytes(start, end) // SLICE_BYTES, MOST_SLICES)
            slices = min(slices, len(os.sched_getaffinity(0))) if slices > 1 else 1
        ends = self._follower.boundaries(start, end, slices)
        starts = [start, *ends[:-1]]
        return [
            replace(split, start=s.to_json(), end=e.to_json(), relayed=self._follower.relayed(s, e))
            for s, e in zip(starts, ends, strict=True)
        ]

    def close(self) -> None:
        """Stop following."""
        self._follower.close()


def _log_clock(connection: BoundedConnection, position: MySqlPosition) -> LogClock | None:
    if server_facts(connection).server_uuid != position.server:
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))")
        ts_us = int(one(cursor)[0])
    file, pos = end_of_log(connection)
    return LogClock(ts_us, replace(position, file=file, pos=pos))


def _write(connection: BoundedConnection, statement: str) -> None:
    with waiting_briefly(connection), connection.cursor() as cursor:
        cursor.execute(statement)
    connection.commit()


source = MySqlSource

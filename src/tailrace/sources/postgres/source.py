"""PostgreSQL as a source: the driver's side, assembled from the other modules of this package."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pg8000.exceptions import DatabaseError

from tailrace.config.options import SourceOptions
from tailrace.errors import SourceError, TableLockedError, TailraceError, TransientSourceError, coded
from tailrace.model.schema_change import SchemaEvent, TableTruncated
from tailrace.model.source_type import SourceType
from tailrace.model.split import Key, LogSplit, SnapshotSplit
from tailrace.model.table import TableId, TableSchema
from tailrace.model.types import ColumnType
from tailrace.sources.base import (
    GONE,
    Activity,
    FrozenTables,
    Log,
    LogClock,
    LogRange,
    LogRetention,
    Page,
    Reshaped,
    Source,
)
from tailrace.sources.postgres import catalog
from tailrace.sources.postgres.checks import preflight
from tailrace.sources.postgres.checks.activity import activity, row_bytes
from tailrace.sources.postgres.checks.gaps import gaps_of, rewrites_of
from tailrace.sources.postgres.checks.load import PostgresLoadWatch
from tailrace.sources.postgres.checks.reshaping import Reshaping
from tailrace.sources.postgres.connection import (
    Connection,
    ReconnectingConnection,
    connect,
    retrying,
    sqlstate,
)
from tailrace.sources.postgres.position import PostgresPosition, parse_lsn, seq_of, seq_of_truncate
from tailrace.sources.postgres.protocol.literal import source_of, table_name
from tailrace.sources.postgres.replication import publication, slot
from tailrace.sources.postgres.replication.follower import WalFollower, WalRange
from tailrace.sources.postgres.replication.release import Release
from tailrace.sources.postgres.replication.retention import retention
from tailrace.sources.postgres.replication.timeline import another_server
from tailrace.sources.postgres.snapshot import keys
from tailrace.sources.postgres.snapshot.blocks import by_blocks, is_read_as_it_is
from tailrace.sources.postgres.snapshot.snapshots import Snapshot, Snapshots
from tailrace.sources.postgres.starting import (
    drop_lost_slot,
    ending_position,
    holds_log,
    log_end_position,
    starting_position,
    system_identifier,
)
from tailrace.sources.postgres.waits import locks
from tailrace.sources.postgres.waits.locks import within_limit
from tailrace.sources.postgres.waits.notices import error_text, say
from tailrace.sources.postgres.wire.declarations import source_type
from tailrace.sources.postgres.wire.shapes import Shape
from tailrace.sources.postgres.wire.types import has_binary

T = TypeVar("T")

#: Snapshot chunks are planned while the log's end is at most this far ahead.
CAUGHT_UP_BYTES = 64 << 20
#: How long a batch waits for a snapshot before it proceeds without rows.
SNAPSHOT_WAIT_S = 0.25
#: How long a snapshot may serve batches while nothing changes: it holds back vacuum.
SNAPSHOT_AGE_S = 30.0
#: How long a repeated batch waits for a snapshot: it cannot proceed without one.
REPLAY_WAIT_S = 3600.0
#: A log's end this near is not reported: every commit writes more than its changes.
IDLE_BYTES = 64 << 10
STATUS_AGE_S = 1.0
#: Classes of errors by which a condition is refused: data exceptions, syntax and names, not supported.
_REFUSED_CONDITION = frozenset({"22", "42", "0A"})
#: The clock comes first: what commits between the two lies below the LSN.
_LOG_CLOCK = """
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text
"""


class PostgresSource(Source):
    """See `tailrace.sources.base.Source`. Safe to use from several threads; serves one at a time."""

    holds_snapshots = True

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._planning = ReconnectingConnection(options, "planning")
        self._snapshots = Snapshots(options)
        self._server: str | None = None
        self._found: dict[TableId, catalog.CatalogTable] = {}
        self._published: publication.Publication | None = None
        #: The tables that the stream reads again, as their rows have changed without an entry in the log.
        self._rewritten: Collection[str] = ()
        #: Locked tables that were named last.
        self._said_locked: set[str] = set()
        #: The table of signals that is published, and what was said of one that cannot be.
        self._signals_published: str | None = None
        self._said_signals: str | None = None
        #: Whether the stream has begun with snapshots: a table that is added later is read first.
        self._reads_new_tables = options.starting_position == "initial"
        #: The tables that the stream follows, by name with their oids, and the other way round.
        self._oids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._reshaping = Reshaping(options.unfit, is_followed=options.former_columns == "follow")
        self._log: PostgresLog | None = None
        self._kept: slot.Kept | None = None
        self._confirmed: PostgresPosition | None = None

    def require(self) -> Mapping[str, TailraceError]:
        """Check every precondition."""
        return preflight.require(self._options)

    def refusals(self) -> Mapping[str, TailraceError]:
        """The tables that must not or cannot be published, each with the reason and the remedy."""
        if self._options.starting_position == "snapshot":
            return {}
        refused = self.unpublishable(list(self._found.values()))
        rest = [id_ for id_ in self._found if id_ not in refused]
        refused |= self._run(
            lambda c: publication.refusals(c, self._options.publication, self._published, rest),
            "reading the catalog",
        )
        return {str(table): error for table, error in refused.items()}

    def position(self, value: Mapping[str, Any]) -> PostgresPosition:
        """The position that `to_json` wrote.

        Raises:
            PositionLostError: the server is not the one it belongs to, nor a standby of it.
        """
        position = PostgresPosition.from_json(value)
        if self._server is None:
            self._server = system_identifier(self._options)
        if position.server != self._server:
            raise another_server(self._options, position.server, self._server)
        return position

    def server_changed(self) -> None:
        """Forget what was found out about the server: another one answers."""
        self._server = None
        self._snapshots.discard()
        with self._lock:
            self._planning.close()

    def starting_position(self) -> PostgresPosition:
        """Where a new stream starts."""
        return starting_position(self._options, self._snapshots)

    def rejoin(self, lost: Mapping[str, Any]) -> PostgresPosition:
        """The position of a new snapshot, and a new slot if the stream's own is lost."""
        self.position(lost)  # refuses another system: its log need not sort behind the stream's
        self._snapshots.discard()
        drop_lost_slot(self._options)
        return starting_position(replace(self._options, starting_position="initial"), self._snapshots)

    def has_log(self, position: PostgresPosition) -> bool:
        """Whether the server's log has the position, and its slot or the archive holds it from there on."""
        return holds_log(self._options, position)

    def ending_position(self, text: str, position: PostgresPosition) -> PostgresPosition:
        """The position that `endingPosition` names: any LSN is a boundary."""
        return ending_position(self._options, text, position)

    def log_end(self) -> PostgresPosition:
        """The log's end now."""
        return log_end_position(self._options)

    def log_clock(self, position: PostgresPosition) -> LogClock | None:
        """The server's clock, then its log's end."""
        ((ts_us, lsn),) = self._run(lambda c: c.rows(_LOG_CLOCK), "asking for the time")
        return LogClock(int(ts_us), replace(position, lsn=parse_lsn(lsn)))

    def log_retention(self, position: PostgresPosition) -> LogRetention | None:  # noqa: ARG002 - the slot's
        """How long the server keeps the log for the stream's slot."""
        if self._options.starting_position == "snapshot":
            return None
        return self._run(lambda c: retention(c, self._options.slot), "asking how long the log is kept")

    def activity(self) -> Activity:
        """How busy the server is."""
        with_lag = self._options.snapshot_max_replica_lag is not None
        return self._run(lambda c: activity(c, with_lag=with_lag), "asking how busy the server is")

    def load_watch(self) -> PostgresLoadWatch:
        """What looks at the load of the server."""
        return PostgresLoadWatch(self._options)

    def row_bytes(self, table: TableId) -> int | None:
        """The mean size of a row."""
        return self._run(lambda c: row_bytes(c, table), f"reading the size of {table}")

    def heartbeat(self, statement: str) -> None:
        """Run a statement that writes something to the log."""
        self._run(lambda c: c.rows(statement), "running heartbeat.action.query")

    def tables(self) -> list[catalog.CatalogTable]:
        """The captured tables that exist now."""
        self._published, found = self._run(self._read_catalog, "reading the catalog")
        self._found = {t.schema.id: t for t in found}
        return found

    def _read_catalog(
        self, connection: Connection
    ) -> tuple[publication.Publication | None, list[catalog.CatalogTable]]:
        published = publication.read(connection, self._options.publication)
        return published, catalog.captured(connection, self._options, published=published)

    def identities(self) -> Mapping[str, str]:
        """The tables by oid, by the publication's entry and by their key; the publication by its version."""
        if self._options.starting_position == "snapshot":
            return {}
        ids = {str(t.schema.id): GONE if t.unlogged else t.identity_text for t in self._found.values()}
        return ids if self._published is None else {"": self._published.identity, **ids}

    def schema_events(
        self, found: LogRange, before: Mapping[str, TableSchema], after: Mapping[str, TableSchema]
    ) -> Sequence[SchemaEvent]:
        """The TRUNCATEs of a range of the log; it has no others."""
        assert isinstance(found, WalRange)
        return [
            SchemaEvent(
                str(table),
                (TableTruncated(),),
                seq=seq_of_truncate(truncation.commit_lsn, truncation.lsn),
                ts_ms=truncation.ts_us // 1000,
                origin={"ts_us": truncation.ts_us, "txn": str(truncation.xid), "pos": truncation.lsn},
                shown=before.get(str(table)) or after.get(str(table)),
            )
            for truncation in found.truncations
            for table in truncation.tables
        ]

    def gaps(self, ids: Mapping[str, str], reading: Collection[str]) -> Mapping[str, str]:
        """The tables whose changes the log lacks since they had these identities, with the reason."""
        if self._options.starting_position == "snapshot":
            return {}
        oids = {name: int(id_.partition("/")[0]) for name, id_ in ids.items() if id_[:1].isdigit() and name}
        self._oids, self._names = oids, {oid: name for name, oid in oids.items()}
        return gaps_of(self._found.values(), self._published, ids, reading)

    def rewrites(
        self, ids: Mapping[str, str], shapes: Mapping[str, Any], reading: Collection[str]
    ) -> Mapping[str, str]:
        """The tables whose rows a schema change, or TRUNCATE, has changed since they had these identities."""

        def are_told(table: catalog.CatalogTable) -> bool:
            name = str(table.schema.id)
            return self._reshaping.are_told(table, shapes.get(name), is_read=name in reading)

        self._reshaping.know(shapes)
        found = rewrites_of(self._found.values(), self._published, ids, are_told)
        self._rewritten = found.keys()
        return found

    def shapes(self) -> Mapping[str, Any]:
        """The numbers, names and types of the columns."""
        if self._options.starting_position == "snapshot":
            return {}
        return {str(t.schema.id): t.shape.to_json() for t in self._found.values() if t.shape is not None}

    def reshaped(self, found: LogRange, shapes: Mapping[str, Any]) -> Collection[str]:
        """The tables of which a Relation message has other columns."""
        assert isinstance(found, WalRange)
        return self._reshaping.in_log(found, shapes).keys()

    def placed(
        self, found: LogRange, shapes: Mapping[str, Any], reading: Collection[str]
    ) -> Mapping[str, Reshaped]:
        """What Relation messages and the catalog tell together."""
        assert isinstance(found, WalRange)
        tables = {str(t.schema.id): t for t in self._found.values()}
        self._reshaping.know(shapes)
        return self._reshaping.placed(found, shapes, tables, reading)

    def reshaping(self, name: str, before: Any, position: PostgresPosition, why: str) -> SchemaEvent | None:
        """The event of a table that has the catalog's columns from `position` on."""
        table = next((t for t in self._found.values() if str(t.schema.id) == name), None)
        known = Shape.from_json(before)
        if known is None or table is None or table.shape is None:
            return None
        return self._reshaping.event(table, known, table.shape, seq_of(position.lsn), why)

    def _contradicted(self, oid: int, table: TableId) -> tuple[str, ...]:
        """The followed tables that a relation in the log shows to be no longer the same."""
        by_oid = self._names.get(oid)
        names = {str(table)} if self._oids.get(str(table), oid) != oid else set()
        return tuple(names if by_oid in (None, str(table)) else {by_oid, *names})

    def altered(self, tables: Collection[str]) -> bool:
        """Whether one of these tables was altered since the catalog was read."""
        found = [t for t in self._found.values() if str(t.schema.id) in tables]
        return bool(found) and self._run(lambda c: catalog.altered(c, found), "reading the catalog")

    def locked(self, tables: Collection[str]) -> Mapping[str, str]:
        """Those of `tables` that cannot be read now."""
        found = {t.oid: str(t.schema.id) for t in self._found.values() if str(t.schema.id) in tables}
        pids = self._run(lambda c: locks.against_readers(c, list(found)), "asking for locks")
        held = {found[oid]: f"by process {pid}" if pid else "by a prepared transaction" for oid, pid in pids}
        for name, holder in held.items():
            if name not in self._said_locked:
                say(f"the snapshot of table `{name}` waits: it is locked {holder}")
        self._said_locked = set(held)
        return held

    def publish(self, tables: Sequence[TableSchema]) -> Sequence[TableId]:
        """Add the missing tables to the publication. Snapshots requested before do not count for them."""
        if self._options.starting_position == "snapshot":
            return ()
        found = [self._found[t.id] for t in tables]
        if refused := self.unpublishable(found):
            raise _all_refused(refused)
        ids = [t.id for t in tables]
        publication.require_whole(self._published, ids)
        added, locked = self._run(
            lambda c: publication.ensure(c, self._options.publication, ids), "publishing the captured tables"
        )
        if added:
            self._snapshots.discard()
            self.tables()  # for the publication's entries
        for table, error in locked.items():
            if not self._reads_new_tables:
                raise error  # where a stream starts without a snapshot, its changes would be missing
            say(f"table {table.quoted} waits to be added to the publication: {error_text(error)}")
        self._publish_signals()
        return list(locked)

    def _publish_signals(self) -> None:
        """Add the table of the signals to the publication; what keeps it from that is said, and no error."""
        name = self._options.signal_data_collection
        if name is None or name == self._signals_published:
            return
        named = self._options.capturing_only(name)
        found = self._run(lambda c: catalog.captured(c, named), "reading the catalog")
        if not found:
            return  # it may be created later
        problem: SourceError | None = self._refusal(found[0])
        if problem is None:
            try:
                _, locked = self._run(
                    lambda c: publication.ensure(c, self._options.publication, [found[0].schema.id]),
                    "publishing the table of signals",
                )
            except SourceError as error:
                if error.retryable:
                    raise
                problem = error
            else:
                problem = next(iter(locked.values()), None)
        if problem is None:
            self._signals_published = name
        elif self._said_signals != problem.message:
            self._said_signals = problem.message
            say(f"signals of table `{name}` are not received: {error_text(problem)}")

    def unpublishable(self, tables: Sequence[catalog.CatalogTable]) -> dict[TableId, SourceError]:
        """The tables that must not or cannot be published, each with the reason and the remedy."""
        return {t.schema.id: why for t in tables if (why := self._refusal(t)) is not None}

    def _refusal(self, table: catalog.CatalogTable) -> SourceError | None:
        id_ = table.schema.id
        if table.unlogged:
            return SourceError(
                f"table `{id_}` cannot be published: it is UNLOGGED",
                "its changes are not in the log",
                f"ALTER TABLE {id_.sql} SET LOGGED; -- or leave it out of `tables`",
                code="TR-2212",
            )
        captured = self._options.columns
        if names := captured.left_out(id_, table.schema.key):
            return SourceError(
                f"table `{id_}` cannot be captured without its key column `{names[0]}`",
                f"{captured.text} leaves it out; rows are known by their key",
                captured.key_hint(id_, names),
                code="TR-5014",
            )
        for column in map(table.schema.column, table.schema.key):
            if column.type.kind in keys.WITHOUT_ORDER:
                return SourceError(
                    f"table `{id_}` cannot be captured: its key has column `{column.name}` of type "
                    f"{column.type.native}",
                    "keys of such a type are captured as text only",
                    keys.as_text_hint(table.schema, column),
                    code="TR-5008",
                )
        if "n" not in table.identity and (table.schema.key or table.has_whole_images):
            return None
        which, found = [id_], "it has no primary key, or REPLICA IDENTITY NOTHING"
        if table.kind == "p":
            lacking = self._run(lambda c: catalog.without_identity(c, table.oid), "reading the catalog")
            if lacking:
                which = lacking
                found = f"of its partitions {', '.join(f'`{t}`' for t in lacking)} have no replica identity"
        return SourceError(
            f"table `{id_}` cannot be published: its updates and deletes would then fail",
            found,
            " ".join(f"ALTER TABLE {t.sql} REPLICA IDENTITY FULL;" for t in which)
            + " -- or give it a primary key, or leave it out of `tables`",
            code="TR-2210",
        )

    def shows(self, position: PostgresPosition) -> bool:
        """Whether a snapshot as of that position is kept."""
        current = self._snapshots.current()
        return current is not None and current.shows(position)

    def as_of(self, position: PostgresPosition) -> Mapping[str, Any]:
        """The position, the snapshot to read under and the snapshot's position.

        The positions are equal except for a batch that is repeated after a crash: its snapshot is gone, and
        its rows are reconstructed from a later one.

        Raises:
            PositionLostError: the server was replaced by one that does not have the log up to `position`.
        """
        current = self._snapshots.current()
        if current is None or not current.shows(position):
            made = self._snapshots.next(REPLAY_WAIT_S)
            if made is None:
                raise self._snapshots.waits() or TransientSourceError(
                    "no snapshot could be exported within an hour",
                    "a snapshot waits for all transactions that write",
                    "end the oldest ones: SELECT pid, xact_start FROM pg_stat_activity ORDER BY xact_start",
                    code="TR-2209",
                )
            current = self._snapshots.use(made)
        kept = {} if self._kept is None else {"slot": self._kept.name}
        # without a slot there is no log to rewind by: the rows are as the later snapshot shows them
        seen = position
        if self._options.starting_position != "snapshot":
            seen = current.position
            current.history.require(position, self._options, seen.lsn)
        return {
            **position.to_json(),
            "snapshot": current.name,
            "kept_by": current.history.started,
            "seen": seen.to_json(),
            **kept,
        }

    def confirm(self, position: PostgresPosition) -> None:
        """Advance the slot to `position`."""
        if self._confirmed is None or position.lsn > self._confirmed.lsn:
            self._confirmed = position
        if self._log is not None:
            self._log.confirm(self._confirmed)

    def keep_log(self) -> None:
        """Keep the log from the slot's current begin, by a copy of the slot, while the stream continues."""
        if self._options.starting_position != "snapshot" and self._kept is None:
            self._kept = retrying(self._options, lambda: slot.keep(self._options), "keeping the log")

    def boundary(self, table: TableSchema, after: Key | None, rows: int) -> Key | None:
        """The key `rows` rows after `after`; a table without a key is one chunk.

        Raises:
            TableLockedError: others hold a lock on the table.
        """
        partitioned = self._found[table.id].kind == "p"

        def ask(connection: Connection) -> Key | TableLockedError | None:
            try:
                if table.key:
                    return within_limit(
                        connection,
                        table.id,
                        lambda: keys.boundary(connection, table, after, rows, partitioned=partitioned),
                    )
                statement = f"SELECT 1 FROM {source_of(table, partitioned)} LIMIT 0"
                within_limit(connection, table.id, lambda: connection.rows(statement))
            except TableLockedError as error:
                return error  # to be raised behind the retries
            return None

        found = self._run(ask, f"planning chunks of {table.id}")
        if isinstance(found, TableLockedError):
            raise found
        return found

    def source_type(self, type_: ColumnType, declared: str | None) -> SourceType:
        """See `Session.source_type`."""
        return source_type(type_, declared)

    def condition_problem(self, table: TableSchema, condition: str) -> str | None:
        """Why the server refuses a condition of a table's rows; nothing is known of a locked table."""

        def ask(connection: Connection) -> str | None:
            statement = f"EXPLAIN SELECT 1 FROM {table_name(table.id)} WHERE ({condition})"
            try:
                within_limit(connection, table.id, lambda: connection.rows(statement))
            except TableLockedError:
                return None
            except DatabaseError as error:
                state = sqlstate(error)
                if state is None or state[:2] not in _REFUSED_CONDITION:
                    raise
                return f"the server refuses the condition: SQLSTATE {state}"
            return None

        return self._run(ask, f"checking a condition of {table.id}")

    def divided(self, split: SnapshotSplit, tasks: int) -> list[SnapshotSplit]:
        """`split` by the blocks of its table, if the table has no key and is large.

        The splits name the table as the catalog has it: their tasks compare.
        """
        found = self._found[split.table.id]
        planned = {
            "oid": found.oid,
            "columns": [list(numbers) for numbers in found.described],
            "rewritten": str(split.table.id) in self._rewritten,
        }
        split = replace(split, as_of={**split.as_of, "table": planned})
        if split.table.key or not is_read_as_it_is(split):
            return [split]
        return self._run(
            lambda c: within_limit(c, split.table.id, lambda: by_blocks(c, split, tasks)),
            f"planning reads of {split.table.id}",
        )

    def follow(self, start: PostgresPosition, knows: Callable[[TableId], bool]) -> PostgresLog:
        """Follow the log from `start` on."""
        binary = all(has_binary(c.type) for t in self._found.values() for c in t.whole.columns)
        follower = WalFollower(
            self._options,
            start,
            knows,
            binary=binary,
            connected=self._snapshots.keep_those_of,
            contradicted=self._contradicted,
            differs=self._reshaping.differs,
        )
        self._log = PostgresLog(self._options, follower, self._snapshots)
        return self._log

    def read_table(self, table: TableSchema, page_rows: int) -> Iterator[Page]:
        """All rows of a table as they are now, in one snapshot."""
        # not above: the driver of a stream does not load the row decoders
        from tailrace.sources.postgres.snapshot.select import (  # noqa: PLC0415
            copy_pages,
            is_partitioned,
        )

        connection = connect(self._options, purpose="reading a table", rows=True)
        try:
            yield from copy_pages(
                connection,
                SnapshotSplit(table, None, None, {}, page_rows),
                table,
                partitioned=is_partitioned(connection, table),
            )
        finally:
            connection.break_off()

    def frozen(self, connections: int) -> FrozenTables:
        """All tables as they are now, by repeatable reads."""
        from tailrace.sources.postgres.snapshot.frozen import PostgresFrozenTables  # noqa: PLC0415

        return PostgresFrozenTables(self._options, connections)

    def close(self) -> None:
        """Drop the connections, and with them the snapshots and what `keep_log` keeps."""
        self._log = None  # closed by whom it was given to: it must not open connections again
        self._snapshots.discard()
        if self._kept is not None:
            self._kept.connection.break_off()
            self._kept = None
        with self._lock:
            self._planning.close()

    def _run(self, operation: Callable[[Connection], T], doing: str) -> T:
        with self._lock:
            return self._planning.run(operation, doing)


class PostgresLog(Log):
    """See `tailrace.sources.base.Log`."""

    def __init__(self, options: SourceOptions, follower: WalFollower, snapshots: Snapshots) -> None:
        self._options = options
        self._follower = follower
        self._snapshots = snapshots
        self._status = ReconnectingConnection(options, "asking for the slot")
        self._status_lock = threading.Lock()
        #: By an end of the log that a replaced server had: the log's end that counts instead.
        self._ends: dict[PostgresPosition, PostgresPosition] = {}
        self._slot_read: tuple[float, slot.Slot | None] | None = None
        self._release = Release(options)
        #: Up to where the log was known when `range_after` was called last.
        self._known_lsn = 0

    def range_after(
        self,
        start: PostgresPosition,
        *,
        upto: PostgresPosition | None,
        max_bytes: int | None,
        max_rows: int | None,
        for_rows: bool = False,
        before_us: int | None = None,
    ) -> LogRange | None:
        """The next batch's share of the log after `start`; with `upto`, None only when that is reached."""
        self._known_lsn = self._follower.head().lsn
        self._follower.check()  # after the server was replaced there may never be anything new
        limit = None if upto is None else self._reachable(upto).lsn
        snapshot: Snapshot | None = None
        if for_rows:
            if self._still_shows(start, limit):
                return None
            snapshot = self._next_snapshot(start)
            if snapshot is not None:
                limit = snapshot.lsn
        if limit is not None and start.lsn >= limit:
            return None
        if snapshot is not None:
            self._follower.wait_until(snapshot.lsn, SNAPSHOT_WAIT_S)
        ends = {"max_bytes": max_bytes, "max_rows": max_rows, "before_us": before_us}
        found = self._follower.end_after(start, upto=limit, **ends)
        while found is None and upto is not None and limit is not None:
            if before_us is not None and self._follower.is_late_after(start, before_us):
                return None
            self._follower.wait_until(start.lsn + 1, 1.0)
            limit = self._reachable(upto).lsn if snapshot is None else limit
            found = self._follower.end_after(start, upto=limit, **ends)
        if found is None:
            return None
        if snapshot is not None and found.end.lsn == snapshot.lsn:
            self._snapshots.use(snapshot)
        return found

    def _reachable(self, upto: PostgresPosition) -> PostgresPosition:
        """`upto`; or the log's end, if only a server that was replaced had the log up to `upto`."""
        if self._follower.leads_to(upto):
            return upto
        if upto not in self._ends:
            self._ends[upto] = log_end_position(self._options)
        return self._ends[upto]

    def _still_shows(self, start: PostgresPosition, limit: int | None) -> bool:
        """Whether the batch can read rows as of `start`, the end of the last batch, and needs no log."""
        current = self._snapshots.current()
        if current is None or current.lsn != start.lsn:
            return False
        if limit is not None and start.lsn >= limit:
            return True
        young = time.monotonic() - current.made_at < SNAPSHOT_AGE_S
        return young and not self._follower.has_changes_after(start)

    def _next_snapshot(self, start: PostgresPosition) -> Snapshot | None:
        """A snapshot above `start`, None while it is being exported or the log's end is far ahead."""
        if not self.is_caught_up(start):
            return None
        current = self._snapshots.current()
        if current is not None and current.lsn > start.lsn:
            return current
        found = self._snapshots.next(SNAPSHOT_WAIT_S)
        if found is not None and found.lsn <= start.lsn:  # the stream advanced while it was exported
            self._snapshots.discard()
            found = self._snapshots.next(SNAPSHOT_WAIT_S)
        return found

    def head(self) -> PostgresPosition:
        """The last position known to be in the log, with the WAL that the slot holds back, for progress."""
        head = self._follower.head()
        found = self._slot()
        if found is None:
            return head
        is_far = found.end - head.lsn > IDLE_BYTES  # the follower waits for batches
        lsn = found.end if is_far else head.lsn
        return replace(head, lsn=lsn, held_bytes=found.held_bytes, left_bytes=found.left_bytes)

    def wait(self, timeout_s: float) -> None:
        """Wait until there is more of the log."""
        self._follower.wait_until(self._known_lsn + 1, timeout_s)

    def read_upto(self) -> PostgresPosition:
        """The position up to which the server has decoded the log."""
        return self._follower.head()

    def is_caught_up(self, position: PostgresPosition) -> bool:
        """Whether the log's end is at most CAUGHT_UP_BYTES ahead of `position`."""
        found = self._slot()
        return found is not None and found.end - position.lsn <= CAUGHT_UP_BYTES

    def _slot(self) -> slot.Slot | None:
        """The slot as it was at most STATUS_AGE_S ago."""
        with self._status_lock:
            if self._slot_read is None or time.monotonic() - self._slot_read[0] > STATUS_AGE_S:
                found = self._status.run(lambda c: slot.read(c, self._options.slot), "asking for the slot")
                self._slot_read = (time.monotonic(), found)
            return self._slot_read[1]

    def confirm(self, position: PostgresPosition) -> None:
        """Confirm that the stream no longer needs the log below `position`."""
        self._follower.confirm(position)
        found = self._slot()
        if found is not None:
            self._release.request(found.held_bytes)

    def splits(self, split: LogSplit, slices: int) -> list[LogSplit]:  # noqa: ARG002 - slots decode in order
        """`split` with its events in it if they are held; else its task reads a copy of the slot."""
        start, end = PostgresPosition.from_json(split.start), PostgresPosition.from_json(split.end)
        return [replace(split, events=self._follower.events(start, end))]

    def close(self) -> None:
        """Stop following."""
        self._follower.close()
        with self._status_lock:
            self._status.close()


def _all_refused(refused: Mapping[TableId, SourceError]) -> SourceError:
    """One error for all tables that cannot be published."""
    first = next(iter(refused.values()))
    if len(refused) == 1:
        return first
    return SourceError(
        f"tables {', '.join(f'`{t}`' for t in refused)} cannot be published",
        "; ".join(f"{coded(error.message, error.code)}: {error.detail}" for error in refused.values()),
        "\n".join(error.hint or "" for error in refused.values()),
        code="TR-2001",
    )


source = PostgresSource

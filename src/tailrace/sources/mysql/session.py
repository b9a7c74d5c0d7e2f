"""A task's connections to MySQL: SELECTs of a key range, changes of a log range, comparisons of keys."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from tailrace.config.option_values import AUTO
from tailrace.config.options import SourceOptions
from tailrace.errors import SchemaMismatchError, SourceError, TransientSourceError
from tailrace.model.change import ChangeBatch, origin_of_rows
from tailrace.model.key import key_changed, key_of
from tailrace.model.source_type import SourceType
from tailrace.model.split import Key, LogSplit, SnapshotSplit
from tailrace.model.table import TableId, TableSchema
from tailrace.model.types import ColumnType
from tailrace.sources.base import Page, S, Session
from tailrace.sources.mysql import catalog
from tailrace.sources.mysql.binlog.dump import read_log, read_prepared
from tailrace.sources.mysql.binlog.held import unpack_blocks
from tailrace.sources.mysql.binlog.keyless import KeylessRead
from tailrace.sources.mysql.binlog.relay import RelayedEvents, is_relayed
from tailrace.sources.mysql.binlog.visibility import high_watermark, wait_visible
from tailrace.sources.mysql.connection import (
    MARIADB,
    ReconnectingConnection,
    folds_names,
    server_changed,
)
from tailrace.sources.mysql.position import MySqlPosition, Prepared, seq_of
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot import keys as key_sql
from tailrace.sources.mysql.snapshot.literal import table_name
from tailrace.sources.mysql.snapshot.row_server import RowServer, executed, require_executed
from tailrace.sources.mysql.snapshot.select import select_pages
from tailrace.sources.mysql.start.failover import ServerPositions
from tailrace.sources.mysql.wire.block import EventBlock
from tailrace.sources.mysql.wire.decoder import EventDecoder
from tailrace.sources.mysql.wire.kernels.boundaries import START, TS_US
from tailrace.sources.mysql.wire.rare.rewrites import rewrites_rows
from tailrace.sources.mysql.wire.schema.declarations import source_type
from tailrace.sources.mysql.wire.transactions import DdlStatement, TransactionIndex
from tailrace.sources.pausing import pauses

_log = logging.getLogger(__name__)
T = TypeVar("T")

#: How long a transaction may be in the log before a SELECT sees it; then the wait is retried.
VISIBLE_TIMEOUT_S = 60.0
#: Code of the error for a statement that took too long: a smaller page may not.
_TOO_SLOW = "TR-3018"
#: The positions in a split.
_POSITIONS: dict[type, tuple[str, ...]] = {SnapshotSplit: ("as_of",), LogSplit: ("start", "end")}


class MySqlSession(Session):
    """See `tailrace.sources.base.Session`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connection = ReconnectingConnection(options, "task")
        self._row_server = None if options.snapshot_url is None else RowServer(options)
        #: Whether rows are read from the replica: it shows the position that was waited for.
        self._reads_replica = False
        #: The GTIDs that pages of the replica may show.
        self._replica_has: str | None = None
        self._thread: int | None = None
        self._positions = ServerPositions(options)
        #: The position that a table without a key was read as of.
        self._read_at: MySqlPosition | None = None
        #: The end of the last range of the log that was read, its tables, and the XA transactions open there.
        self._left: tuple[tuple[object, ...], tuple[Prepared, ...]] | None = None

    def located(self, split: S) -> S:
        """`split` with its positions on the server that answers; from then on no other server is read.

        Raises:
            ServerChangedError: the split is one of several slices of the log: they must come from one server.
            TailraceError: see `ServerPositions.locate`.
        """
        if isinstance(split, LogSplit) and (split.events is not None or is_relayed(split.relayed)):
            return split  # nothing is asked of a server
        self._run(lambda _: None, "asking which server answers")
        positions: dict[str, Any] = {name: self._locate(split, name) for name in _POSITIONS[type(split)]}
        return replace(split, **positions)

    def _locate(self, split: SnapshotSplit | LogSplit, name: str) -> dict[str, Any]:
        planned = MySqlPosition.from_json(getattr(split, name))
        found = self._positions.locate(planned)
        if found != planned and isinstance(split, LogSplit) and self._may_be_slice(split):
            raise server_changed(self._options, planned.server, found.server)
        return found.to_json()

    def _may_be_slice(self, split: LogSplit) -> bool:
        """Whether other tasks may read other parts of the batch's log."""
        tasks = self._options.log_parallelism
        return split.relayed is not None if tasks == AUTO else tasks > 1

    def wait_visible(self, position: Mapping[str, Any]) -> None:
        """Return once every transaction up to `position` is visible to this session's SELECTs."""
        at = MySqlPosition.from_json(position)
        if self._row_server is not None and at.gtids and self._row_server.shows(at):
            self._reads_replica = True
            return
        self._run(lambda c: wait_visible(c, self._options, at, VISIBLE_TIMEOUT_S), f"waiting for {at}")

    def pages(self, split: SnapshotSplit) -> Iterator[Page]:
        """The rows of the split's range as they are now, page by page.

        A table that was altered since the split was planned is read as it is: columns that are gone are
        missing from its rows, a table that is gone has no page.

        Raises:
            KeyChangedError: the key that orders the pages is gone. It is looked up after each page: whatever
                changed before the SELECT shows.
        """
        if not split.table.key:
            yield from self._pages_without_key(split)
            return
        reading = _Reading(split)
        while self._reads_replica:
            found = self._replica_page(reading, split)
            if found is not None:
                yield found
                if found.upto == split.upto:
                    return
        while True:
            try:
                page = self._run(reading.next_page, f"reading {split.table.id}")
            except SchemaMismatchError as error:
                altered = self._run(lambda c: _altered(c, split.table), f"reading {split.table.id}")
                if altered is None:
                    return
                reading.continue_with(altered, error)
                continue
            self._run(lambda c: _altered(c, split.table), f"reading {split.table.id}")
            yield page
            if page.upto == split.upto:
                return

    def _pages_without_key(self, split: SnapshotSplit) -> Iterator[Page]:
        """The rows of a table without a key, as of one position; from the server, which has the log."""
        doing, id_ = f"reading {split.table.id}", split.table.id
        folds = partial(self._run, folds_names, "asking for the case of names")
        read = KeylessRead(self._options, id_, MySqlPosition.from_json(split.as_of), folds)
        try:
            self._positions.require_same(read.connection)
            while True:
                read.begin()
                found = self._run(lambda c: catalog.table(c, id_, self._options.zero_dates.of), doing)
                if found is None:
                    return
                if found.engine.lower() != "innodb":
                    raise _is_not_consistent(id_, found.engine)
                names = {c.name for c in split.table.columns}
                columns = tuple(c for c in found.schema.columns if c.name in names)
                self._read_at = read.position
                pages = read.pages(TableSchema(id_, columns, ()), split.page_rows)
                try:
                    first = next(pages)
                except SchemaMismatchError:  # altered just now: an altered table has another snapshot
                    if self._run(lambda c: catalog.table(c, id_), doing) == found:
                        raise
                    continue
                yield first
                yield from pages
                return
        finally:
            read.close()

    def _replica_page(self, reading: _Reading, split: SnapshotSplit) -> Page | None:
        """The next page from the replica; None if the rest is to be read from the server."""
        server = self._row_server
        assert server is not None

        def page_and_gtids(connection: BoundedConnection) -> tuple[Page, str]:
            page = reading.next_page(connection)
            found = _altered(connection, split.table)
            if (
                found != split.table
            ):  # a schema change has not come here, or nothing behind it has on the server
                raise SchemaMismatchError("the replica's table has other columns", code="TR-5002")
            return page, executed(connection)

        before = reading.after
        try:
            page, self._replica_has = server.run(
                lambda c: reading.going_back(lambda: page_and_gtids(c)), f"reading {split.table.id}"
            )
        except (SchemaMismatchError, TransientSourceError) as error:
            _log.warning("rows of `%s` are read from the server: %s", split.table.id, error.message)
        else:
            return page
        reading.go_back_to(before)
        self._reads_replica = False
        at = MySqlPosition.from_json(split.as_of)
        self._run(lambda c: wait_visible(c, self._options, at, VISIBLE_TIMEOUT_S), f"waiting for {at}")
        return None

    def rewritten_since(self, split: SnapshotSplit, *, keys: bool) -> bool:
        """Whether the log, behind the split's position, has a schema change that rewrites its table."""
        start = MySqlPosition.from_json(split.as_of)
        return any(
            change.dropped_database is not None or keys or rewrites_rows(change.text)
            for change, _ in self._alterations(split, start)
        )

    def altered_behind(self, split: SnapshotSplit) -> bool:
        """Whether the log, behind the stream's end, has a schema change of the split's table."""
        assert split.until is not None
        until_us = split.until.get("us")
        start = MySqlPosition.from_json(split.until.get("log") or split.as_of)
        return any(until_us is None or ts_us > until_us for _, ts_us in self._alterations(split, start))

    def _alterations(self, split: SnapshotSplit, start: MySqlPosition) -> Iterator[tuple[DdlStatement, int]]:
        """The schema changes of the split's table from a position on, with the times of their commits."""
        index = TransactionIndex(
            lambda table: table == split.table.id,
            past=True,
            folds=lambda: self._run(folds_names, "asking for the case of names"),
        )
        for block in read_log(self._options, start, self.log_end(split.as_of)):
            done = index.feed(block)
            for change in done.ddl:
                dropped = change.dropped_database == split.table.id.database
                if dropped or change.tables:
                    at = np.searchsorted(done.rows[:, START], change.start, "right") - 1
                    yield change, int(done.rows[at, TS_US])

    def source_type(self, type_: ColumnType, declared: str | None) -> SourceType:
        """See `Session.source_type`."""
        return source_type(type_, declared)

    def log_end(self, after: Mapping[str, Any]) -> MySqlPosition:
        """The log's end now, without the XA transactions open there: `changes` finds them as it reads."""
        if self._read_at is not None:
            at = self._read_at
            return replace(MySqlPosition.from_json(after), file=at.file, pos=at.pos, prepared=())
        if (gtids := self._replica_has) is not None:
            self._run(lambda c: require_executed(c, gtids, self._options), "waiting for what the replica has")
            self._replica_has = None
        file, pos = self._run(high_watermark, "asking for the log's end")
        return replace(MySqlPosition.from_json(after), file=file, pos=pos, prepared=())

    def changes(self, split: LogSplit) -> Iterator[ChangeBatch]:
        """Every change of captured tables in `split`'s range of the log.

        A range may begin where the last one that was read ended, at a position of `log_end`.
        """
        start, end = MySqlPosition.from_json(split.start), MySqlPosition.from_json(split.end)
        if self._left is not None and self._left[0] == (start.file, start.pos, split.finished):
            start = replace(start, prepared=self._left[1])
        decoder = EventDecoder(
            captures=lambda t: self._options.captures(str(t)) and split.concerns(t),
            epoch=end.epoch,
            keys=split.keys,
            schema_of=self._schema_of,
            holds_captured=self._holds_captured,
            zero_dates=self._options.zero_dates.of,
            mariadb=end.server.startswith(MARIADB),
            prepared=start.prepared,
            recall=lambda prepared: read_prepared(self._options, prepared, start.server),
            sources=self._options.gtid_sources,
            queries=self._options.include_query,
        )
        if split.events is not None:
            for batch in decoder.feed_all(unpack_blocks(split.events)):
                yield self._captured(batch, split)
            return
        for block in self._blocks(split.relayed, start, end):
            for batch in decoder.feed(block):
                yield self._captured(batch, split)
        self._left = (end.file, end.pos, split.finished), decoder.open

    def _blocks(
        self, relayed: bytes | None, start: MySqlPosition, end: MySqlPosition
    ) -> Iterator[EventBlock]:
        """The events in (start, end]; a block is valid until the next."""
        events = RelayedEvents.of(relayed)
        if events is None:
            yield from read_log(self._options, start, end)
            return
        with events:
            yield from events.blocks()

    def _captured(self, batch: ChangeBatch, split: LogSplit) -> ChangeBatch:
        """A batch of the log without the columns that are left out, whenever the table had them."""
        return self._options.columns.batch(batch).without(split.left_out.get(batch.table.id, ()))

    def _holds_captured(self, database: str) -> bool:
        """Whether a database holds captured tables."""
        return self._run(
            lambda c: catalog.holds_captured(c, database, self._options.captures), f"reading {database}"
        )

    def _schema_of(self, table: TableId) -> TableSchema | None:
        """A table's schema in the catalog as the log has it, None if it is not there."""
        found = self._run(lambda c: catalog.table(c, table, self._options.zero_dates.of), f"reading {table}")
        return None if found is None else found.logged

    def within(
        self, table: TableSchema, keys: pa.StructArray, after: Key | None, upto: Key | None
    ) -> pa.BooleanArray:
        """For each key whether it lies in `(after, upto]`."""
        if not len(keys) or (after is None and upto is None):
            return pa.array(np.ones(len(keys), bool))
        return self._run(lambda c: key_sql.within(c, table, keys, after, upto), "comparing keys")

    def read_origin(self, position: Mapping[str, Any], rows: int) -> pa.RecordBatch:
        """The origin of `rows` snapshot rows as of `position`."""
        at = MySqlPosition.from_json(position)
        return origin_of_rows(rows, seq=seq_of(at), ts_us=at.ts_ms * 1000, file=at.file, pos=at.pos)

    def close(self) -> None:
        """Drop the connection."""
        self._connection.close()
        if self._row_server is not None:
            self._row_server.close()

    def _run(self, operation: Callable[[BoundedConnection], T], doing: str) -> T:
        def on_the_same_server(connection: BoundedConnection) -> T:
            result = operation(connection)
            thread = connection.thread_id()
            if thread != self._thread:  # reopened, by us or by a reader
                self._positions.require_same(connection)
                self._thread = thread
            return result

        return self._connection.run(on_the_same_server, doing)


class _Reading:
    """The progress of a split's pages; continues on another connection or with another schema."""

    def __init__(self, split: SnapshotSplit) -> None:
        self._split = split
        self._table = split.table
        self._after, self._where = split.after, split.where
        self._page_rows = split.page_rows
        self._pauses = pauses(split.time_share)
        self._pages: tuple[BoundedConnection, Iterator[Page]] | None = None

    @property
    def after(self) -> Key | None:
        """The key behind which the next page begins."""
        return self._after

    def go_back_to(self, after: Key | None) -> None:
        """Read again what follows a key."""
        self._after, self._pages = after, None

    def going_back(self, read: Callable[[], T]) -> T:
        """What `read` returns; if it fails, the page that it read is read again."""
        before = self._after
        try:
            return read()
        except BaseException:
            self.go_back_to(before)
            raise

    def next_page(self, connection: BoundedConnection) -> Page:
        if self._pages is None or self._pages[0] is not connection:
            split = self._split
            pages = select_pages(
                connection,
                self._table,
                self._after,
                split.upto,
                self._page_rows,
                where=self._where,
                pauses=self._pauses,
            )
            self._pages = (connection, pages)
        try:
            page = next(self._pages[1])
        except TransientSourceError as error:
            self._pages = None  # it has ended
            if error.code == _TOO_SLOW:
                self._page_rows = max(1, self._page_rows // 2)
            raise
        self._after = page.upto
        return page

    def continue_with(self, altered: TableSchema, error: SchemaMismatchError) -> None:
        """Continue with the table's new schema. Raises `error` if it is the one that was read already."""
        if altered == self._table:
            raise error
        self._table, self._pages = altered, None
        self._where = None  # it may name columns that are gone; more rows do no harm


def _is_not_consistent(table: TableId, engine: str) -> SourceError:
    return SourceError(
        f"table `{table}` cannot be read exactly: it has no key",
        f"its storage engine {engine} has no consistent reads",
        f"ALTER TABLE {table_name(table)} ENGINE = InnoDB; or give it a primary key",
        code="TR-5001",
    )


def _altered(connection: BoundedConnection, planned: TableSchema) -> TableSchema | None:
    """The columns of `planned` that the catalog still has; None if the table is gone.

    Raises:
        KeyChangedError: its key is gone.
    """
    zero_dates = {f"{planned.id}.{c.name}": c.type.zero_dates for c in planned.columns}
    found = catalog.table(connection, planned.id, zero_dates.get)
    if found is None:
        return None
    if (error := key_changed(key_of(planned), found.schema, found.keys)) is not None:
        raise error
    names = {c.name for c in planned.columns}
    columns = tuple(c for c in found.schema.columns if c.name in names)
    return TableSchema(planned.id, columns, planned.key)


session = MySqlSession

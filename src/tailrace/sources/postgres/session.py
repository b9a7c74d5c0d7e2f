"""A task's connections to PostgreSQL: rows under a snapshot, changes of a log range, comparisons of keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pg8000.exceptions import DatabaseError, InterfaceError

from tailrace.config.options import SourceOptions
from tailrace.model.change import ChangeBatch, origin_of_rows
from tailrace.model.source_type import SourceType
from tailrace.model.split import Key, LogSplit, SnapshotSplit
from tailrace.model.table import TableId, TableSchema
from tailrace.model.types import ColumnType
from tailrace.sources.base import Page, Session
from tailrace.sources.postgres import catalog
from tailrace.sources.postgres.connection import (
    Connection,
    ReconnectingConnection,
    connect,
    retrying,
    sqlstate,
    translate,
)
from tailrace.sources.postgres.position import PostgresPosition, seq_of
from tailrace.sources.postgres.replication.logreader import LogReader
from tailrace.sources.postgres.replication.timeline import History
from tailrace.sources.postgres.snapshot import keys as key_sql
from tailrace.sources.postgres.snapshot.images import Images
from tailrace.sources.postgres.snapshot.select import (
    as_it_is,
    copy_pages,
    hold_still,
    import_snapshot,
    is_altered,
    snapshot_gone,
)
from tailrace.sources.postgres.wire.declarations import source_type
from tailrace.sources.postgres.wire.pgoutput import LogDecoder
from tailrace.sources.postgres.wire.problems import BinaryFormError
from tailrace.sources.postgres.wire.types import PostgresTypes

#: What a worker has read from a database's catalog, kept from task to task: types, and schemas of tables.
_TYPES: dict[str, PostgresTypes] = {}
_SCHEMAS: dict[Any, dict[TableId, TableSchema | None]] = {}


class PostgresSession(Session):
    """See `tailrace.sources.base.Session`."""

    #: Unless a table has REPLICA IDENTITY FULL.
    keys_only = True

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._database = f"{options.host}:{options.port}/{options.database}"
        self._connection = ReconnectingConnection(options, "task")
        #: Position of the current split's snapshot.
        self._seen: PostgresPosition | None = None
        #: Names the columns of rows in the log as the current snapshot split does.
        self._images: Images | None = None
        #: Options to read the log: from the stream's slot, or from the copy of it that is kept for readers.
        self._log_options = options

    def pages(self, split: SnapshotSplit) -> Iterator[Page]:
        """The rows of the split's range, under the snapshot of its batch."""
        doing = f"reading {split.table.id}"
        if "slot" in split.as_of:
            self._log_options = replace(
                self._options, slot_name=split.as_of["slot"], publication_name=self._options.publication
            )
        self._seen = PostgresPosition.from_json(split.as_of["seen"])
        try:
            yield from self._read(split)
        except (DatabaseError, InterfaceError, OSError) as error:
            if sqlstate(error) == "42P01":
                return  # the table is gone
            if isinstance(error, DatabaseError) and (renamed := key_sql.label_error(split.table, error)):
                raise renamed from error
            if split.where is not None and (sqlstate(error) or "")[:2] in ("22", "42", "0A"):
                # by a value that no check of the condition has met: more rows than it asks for do no harm
                yield from self.pages(replace(split, where=None))
                return
            # rows were passed on already: a new task reads the whole split again
            raise translate(error, doing) from error

    def _read(self, split: SnapshotSplit) -> Iterator[Page]:
        table = named = split.table
        doing = f"reading {table.id}"
        connection = retrying(self._options, lambda: connect(self._options, purpose=doing, rows=True), doing)
        try:
            import_snapshot(connection, split.as_of["snapshot"], split.as_of["kept_by"])
            partitioned = hold_still(connection, table)
            if "table" in split.as_of:
                planned = split.as_of["table"]
                table, named = as_it_is(connection, table, planned["columns"], planned["oid"])
                self._images = Images(split.table, [number for number, *_ in planned["columns"]])
            # a condition names columns as they were; more rows than it asks for do no harm
            is_same = [c.name for c in table.columns] == [c.name for c in split.table.columns]
            where = split.where if is_same else None
            yield from copy_pages(connection, split, table, partitioned=partitioned, named=named, where=where)
        finally:
            connection.break_off()

    def rewritten_since(self, split: SnapshotSplit, *, keys: bool) -> bool:  # noqa: ARG002
        """Whether the catalog shows that the table was altered behind the split's position.

        The stream stores a digest of what is compared here, and reads the table again once it notices.
        """
        planned = split.as_of.get("table")
        if planned is None:
            return False
        doing = f"comparing {split.table.id} with what was planned"
        return bool(planned["rewritten"]) or self._connection.run(
            lambda c: is_altered(c, split.table, planned["columns"], planned["oid"]), doing
        )

    def altered_behind(self, split: SnapshotSplit) -> bool:
        """Whether the catalog shows that the table was altered since the batch was planned.

        The log does not say when. Before the time at which the stream ends, the stream will notice it.
        """
        assert split.until is not None
        planned, until_us = split.as_of.get("table"), split.until.get("us")
        if planned is None:
            return False

        def ask(connection: Connection) -> bool:
            if until_us is not None:
                now_us = connection.value("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
                if int(now_us) <= until_us:
                    return False
            try:
                return is_altered(connection, split.table, planned["columns"], planned["oid"])
            except DatabaseError as error:
                if sqlstate(error) != "42P01":
                    raise
                return True

        return self._connection.run(ask, f"comparing {split.table.id} with what was planned")

    def is_behind_end(self, split: SnapshotSplit, changes: ChangeBatch) -> pa.BooleanArray:
        """For each change whether its transaction lies behind the stream's end."""
        assert split.until is not None
        if "us" in split.until:
            return pc.greater(changes.origin.column("ts_us"), split.until["us"])
        end = PostgresPosition.from_json(split.until["log"])
        return pc.greater_equal(changes.origin.column("seq"), seq_of(end.lsn))

    def source_type(self, type_: ColumnType, declared: str | None) -> SourceType:
        """See `Session.source_type`."""
        return source_type(type_, declared)

    def log_end(self, after: Mapping[str, Any]) -> PostgresPosition:
        """The snapshot's position: it shows the transactions below it, and no others."""
        at = PostgresPosition.from_json(after)
        return at if self._seen is None or self._seen.lsn <= at.lsn else self._seen

    def changes(self, split: LogSplit) -> Iterator[ChangeBatch]:
        """Every change of captured tables in `split`'s range of the log.

        If the split has no events in it, they are read through a copy of the slot. The same happens when a
        value came in binary form that is read as text: its column was added after the driver's stream began.
        """
        batches = map(self._options.columns.batch, self._changes(split))
        return batches if self._images is None else map(self._images.named, batches)

    def _changes(self, split: LogSplit) -> Iterator[ChangeBatch]:
        start, end = PostgresPosition.from_json(split.start), PostgresPosition.from_json(split.end)
        if end.lsn <= start.lsn:
            return  # the snapshot is at the batch's end: there is nothing between them
        if split.events is not None:
            try:
                batches = list(self._decoder(split, start, end).feed(split.events))
            except BinaryFormError:
                pass
            else:
                yield from batches
                return
        with closing(LogReader(self._log_options, start, end, binary=split.events is None)) as reader:
            self._require(reader.history, end)
            decoder = self._decoder(split, start, end)
            for piece in reader:
                yield from decoder.feed(piece)

    def _require(self, history: History, end: PostgresPosition) -> None:
        """Check that the log that is read is the one of `end`: the server may have been replaced."""
        if end == self._seen and not history.has(end):
            raise snapshot_gone("the server that kept it was replaced")
        history.require(end, self._options)

    def _decoder(self, split: LogSplit, start: PostgresPosition, end: PostgresPosition) -> LogDecoder:
        return LogDecoder(
            captures=lambda t: self._options.captures(str(t)) and split.concerns(t),
            types=_TYPES.get(self._database, PostgresTypes()),
            learn=self._learn,
            keys=split.keys,
            schema_of=self._schema_of,
            unfit=self._options.unfit,
            wants_message=self._options.wants_message,
            after=start.lsn,
            end=end.lsn,
        )

    def _learn(self) -> PostgresTypes:
        """The types of the captured tables' columns."""
        found = self._connection.run(lambda c: catalog.types(c, self._options.captures), "reading the types")
        _TYPES[self._database] = found
        return found

    def _schema_of(self, table: TableId) -> TableSchema | None:
        """A table's schema in the catalog, None if it is not there.

        A cached one may be old: it counts only where it has the columns that the log names. All captured
        tables are read at once: the log has changes of many.
        """
        key = (self._database, self._options.choice, self._options.text_columns)
        schemas = _SCHEMAS.setdefault(key, {})
        if table not in schemas:
            found = self._connection.run(
                lambda c: catalog.captured(c, self._options), f"reading the catalog for {table}"
            )
            schemas.update({t.schema.id: t.whole for t in found})
            schemas.setdefault(table, None)
        return schemas[table]

    def within(
        self, table: TableSchema, keys: pa.StructArray, after: Key | None, upto: Key | None
    ) -> pa.BooleanArray:
        """For each key whether it lies in `(after, upto]`."""
        if not len(keys) or (after is None and upto is None):
            return pa.array(np.ones(len(keys), bool))
        if after == key_sql.NOTHING:
            return pa.array(np.zeros(len(keys), bool))
        return self._connection.run(lambda c: key_sql.within(c, table, keys, after, upto), "comparing keys")

    def read_origin(self, position: Mapping[str, Any], rows: int) -> pa.RecordBatch:
        """The origin of `rows` snapshot rows as of `position`."""
        at = PostgresPosition.from_json(position)
        return origin_of_rows(rows, seq=seq_of(at.lsn), ts_us=at.ts_ms * 1000, file="", pos=at.lsn)

    def close(self) -> None:
        """Drop the connections."""
        self._connection.close()


session = PostgresSession

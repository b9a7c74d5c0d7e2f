"""A task's connections to Oracle: rows as of an SCN, changes of a log range, comparisons of keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import oracledb
import pyarrow as pa

from tailrace.config.options import SourceOptions
from tailrace.model.change import ChangeBatch, origin_of_rows
from tailrace.model.key import key_of
from tailrace.model.split import Key, LogSplit, SnapshotSplit
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.base import Page, Session
from tailrace.sources.oracle import catalog, clock
from tailrace.sources.oracle.catalog import CatalogTable
from tailrace.sources.oracle.connection import (
    Connection,
    ReconnectingConnection,
    connect,
    ora_number,
    retrying,
    translate,
)
from tailrace.sources.oracle.logminer.changes import FILE, LogChanges
from tailrace.sources.oracle.logminer.follower import another_database
from tailrace.sources.oracle.logminer.index import LogIndex
from tailrace.sources.oracle.logminer.miner import Miner
from tailrace.sources.oracle.position import OraclePosition, seq_of
from tailrace.sources.oracle.snapshot import select
from tailrace.sources.oracle.wire.ddl import Ddl
from tailrace.sources.oracle.wire.values import sortable, sortable_rows

#: A table that is not there, and conditions that a value breaks.
_NO_TABLE = 942
_REFUSED_CONDITION = frozenset([904, 920, 932, 1722, 1839, 1841, 1843, 1858, 1861])


class OracleSession(Session):
    """See `tailrace.sources.base.Session`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connection = ReconnectingConnection(options, "task")
        self._miner: Miner | None = None

    def pages(self, split: SnapshotSplit) -> Iterator[Page]:
        """The rows of the split's range, exactly as of its position."""
        doing = f"reading {split.table.id}"
        scn = OraclePosition.from_json(split.as_of).scn
        connection = retrying(self._options, lambda: connect(self._options, purpose=doing, rows=True), doing)
        try:
            yield from select.pages(
                connection,
                split.table,
                scn,
                after=split.after,
                upto=split.upto,
                page_rows=split.page_rows,
                where=split.where,
            )
        except (oracledb.Error, OSError) as error:
            if ora_number(error) == _NO_TABLE and not self._exists(split.table.id):
                return  # it was dropped
            if split.where is not None and ora_number(error) in _REFUSED_CONDITION:
                # by a value that no check of the condition has met: more rows than it asks for do no harm
                yield from select.pages(
                    connection,
                    split.table,
                    scn,
                    after=split.after,
                    upto=split.upto,
                    page_rows=split.page_rows,
                )
                return
            # rows were passed on already: a new task reads the whole split again
            raise translate(error, doing) from error
        finally:
            connection.close()

    def _exists(self, table: TableId) -> bool:
        return any(t.schema.id == table for t in self._tables())

    def rewritten_since(self, split: SnapshotSplit, *, keys: bool) -> bool:  # noqa: ARG002
        """Whether the log has a schema change of the table behind the split's position."""
        return any(d.alters and d.table == split.table.id for d in self._ddls(split))

    def altered_behind(self, split: SnapshotSplit) -> bool:
        """Whether the log has a schema change of the table behind the stream's end."""
        assert split.until is not None
        ddls = [d for d in self._ddls(split) if d.alters and d.table == split.table.id]
        if "us" in split.until:
            return any(d.ts_us > split.until["us"] for d in ddls)
        return any(d.scn > OraclePosition.from_json(split.until["log"]).scn for d in ddls)

    def _ddls(self, split: SnapshotSplit) -> Sequence[Ddl]:
        """The schema changes behind a split's position."""
        scn = OraclePosition.from_json(split.as_of).scn

        def read() -> list[Ddl]:
            miner, to_us = self._logminer()
            index = LogIndex(scn + 1, lambda t: self._options.captures(str(t)), to_us)
            index.add(miner.heads(scn + 1, None), None)
            return index.ddls

        return retrying(self._options, read, "looking for schema changes in the log")

    def log_end(self, after: Mapping[str, Any]) -> OraclePosition:
        """The position itself: rows are read as of it, and no later."""
        return OraclePosition.from_json(after)

    def changes(self, split: LogSplit) -> Iterator[ChangeBatch]:
        """Every change of captured tables in `split`'s range of the log."""
        end = OraclePosition.from_json(split.end)
        doing = "reading the log by LogMiner"
        miner, to_us = retrying(self._options, self._logminer, doing)
        if miner.database != end.database:
            raise another_database(end.database, miner.database)
        try:
            changes = LogChanges(self._options, miner, self._tables, to_us).read(split)
            yield from map(self._options.columns.batch, changes)
        except (oracledb.Error, OSError) as error:
            raise translate(error, doing) from error

    def _logminer(self) -> tuple[Miner, Any]:
        if self._miner is None or not self._miner.is_open:
            self._miner = Miner(self._options, "reading the log")
        return self._miner, self._connection.run(clock.to_us, "asking for the time")

    def _tables(self) -> list[CatalogTable]:
        def read(connection: Connection) -> list[CatalogTable]:
            return catalog.captured(connection, self._options)

        return self._connection.run(read, "reading the catalog")

    def within(
        self, table: TableSchema, keys: pa.StructArray, after: Key | None, upto: Key | None
    ) -> pa.BooleanArray:
        """For each key whether it lies in `(after, upto]`: keys are of types that sort here as there."""
        if not len(keys) or (after is None and upto is None):
            return pa.array(np.ones(len(keys), bool))
        columns = key_of(table)
        low = None if after is None else sortable(after, columns)
        high = None if upto is None else sortable(upto, columns)
        return pa.array(
            [
                (low is None or key > low) and (high is None or key <= high)
                for key in sortable_rows(keys, columns)
            ],
            pa.bool_(),
        )

    def read_origin(self, position: Mapping[str, Any], rows: int) -> pa.RecordBatch:
        """The origin of `rows` snapshot rows as of `position`."""
        at = OraclePosition.from_json(position)
        return origin_of_rows(rows, seq=seq_of(at.scn + 1), ts_us=at.ts_ms * 1000, file=FILE, pos=at.scn)

    def close(self) -> None:
        """Drop the connections."""
        self._connection.close()
        if self._miner is not None:
            self._miner.close()
            self._miner = None


session = OracleSession

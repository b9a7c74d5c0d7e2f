"""Tables without a key: read as a whole, by one consistent read whose place in the log is known.

The rewind of keys (`reader.rewind`) takes rows from any moment. Rows without a key can only be counted
(`reader.rewind_rows`), and then it must be known of each logged change of the table whether they show it:

    MariaDB        START TRANSACTION WITH CONSISTENT SNAPSHOT tells its position of the log
    MySQL, GTIDs   G = @@gtid_executed ─▶ START TRANSACTION WITH CONSISTENT SNAPSHOT ─▶ H = the log's end
    MySQL          G = log_status      ─▶ the same

What is in G is visible, and nothing behind H is. What is in the log up to H and not in G was being
committed meanwhile: nothing tells whether it is visible. If none of that touches the table, the read is
exactly as of H. Else another one is tried: a snapshot costs a millisecond. So a table is read exactly, and
without a lock, unless it is written to without a gap between two commits; then it is an error. The proof is
in docs/design/0010-tables-without-a-key.md.

XA transactions commit in the engine outside of the log's order: only GTIDs tell that they are visible.
Without those, one that ends in the range is an error.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pymysql

from tailrace.config.options import SourceOptions
from tailrace.errors import SourceError
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.base import Page
from tailrace.sources.mysql.binlog.dump import read_log
from tailrace.sources.mysql.binlog.logfiles import end_of_log, log_name
from tailrace.sources.mysql.binlog.visibility import log_status
from tailrace.sources.mysql.connection import connect, is_mariadb, one, server_facts, translate
from tailrace.sources.mysql.gtid import GtidSet, GtidSource
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot.literal import identifier, table_name
from tailrace.sources.mysql.snapshot.statement import Selection
from tailrace.sources.mysql.wire.kernels.boundaries import (
    COMPRESSED,
    END,
    FLAGS,
    GNO,
    HAS_DDL,
    HAS_WANTED,
    NO_TRANSACTION,
    SOURCE,
    XA_END,
)
from tailrace.sources.mysql.wire.rare.xa import OpenTransactions
from tailrace.sources.mysql.wire.transactions import TransactionIndex

#: How long snapshots are tried, seconds, and the longest pause between two.
TRIES_S = 60.0
_LONGEST_PAUSE_S = 0.05
#: Seconds for which the server may wait until more rows are taken from it: sinks may be slow.
_WRITE_TIMEOUT_S = 86_400
#: Flags of transactions that touch the table, or may.
_TOUCHES = HAS_WANTED | HAS_DDL | COMPRESSED | XA_END

#: A transaction that touches the table: its GTID, if there is one, and where it ends.
_Touching = tuple[GtidSource | None, int, tuple[int, int]]


class KeylessRead:
    """A consistent read of one table, and the position of the log that it is as of.

    Args:
        options: the server.
        table: the table.
        after: the position as of which rows are to be reconstructed; every transaction up to it is visible.
        folds: whether names in statements stand for names in lower case.
        clock: monotonic seconds.

    Attributes:
        position: the position; of `after` before `begin`.
    """

    def __init__(
        self,
        options: SourceOptions,
        table: TableId,
        after: MySqlPosition,
        folds: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options, self._table, self._folds, self._clock = options, table, folds, clock
        self.position = after
        self._open = OpenTransactions(after.prepared)
        self._connection = connect(options, purpose="reading a table without a key")
        try:
            self._execute(f"SET SESSION net_write_timeout = {_WRITE_TIMEOUT_S}")
        except BaseException:
            self._connection.close()
            raise

    @property
    def connection(self) -> BoundedConnection:
        """The connection that the snapshot belongs to."""
        return self._connection

    def begin(self) -> None:
        """Take a snapshot whose position is known.

        Raises:
            SourceError: there is none, as the table is written to all the time, or the server does not tell.
            TransientSourceError: the connection is lost.
            PositionLostError: the log behind `after` is gone.
        """
        if is_mariadb(self._connection):
            self._advance_to(*self._mariadb_snapshot(), is_certain=True)
            return
        by_gtid = bool(server_facts(self._connection).gtid_mode)
        unclear: list[_Touching] = []
        deadline = self._clock() + TRIES_S
        while True:
            is_visible = self._visible(by_gtid=by_gtid)
            self._execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            unclear += self._advance_to(*end_of_log(self._connection), is_certain=not by_gtid)
            unclear = [touching for touching in unclear if not is_visible(touching)]
            if not unclear:
                return
            if self._clock() > deadline:
                raise _is_written(self._table)
            self._execute("ROLLBACK")
            time.sleep(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311 - not to meet a writer's rhythm

    def pages(self, table: TableSchema, page_rows: int) -> Iterator[Page]:
        """All rows of the table under the snapshot; at least one page.

        Args:
            table: the table's columns as they are now.
            page_rows: most rows of a page.
        """
        columns = ", ".join(identifier(c.name) for c in table.columns)
        statement = f"SELECT {columns} FROM {table_name(table.id)}"
        has_page = False
        with Selection(self._connection, statement, table, batch_rows=page_rows) as selection:
            for rows in selection:
                has_page = True
                yield Page(rows, None, None)
        if not has_page:
            yield Page(pa.array([], table.arrow), None, None)

    def close(self) -> None:
        """Drop the snapshot."""
        if self._connection.is_open:
            self._connection.close()

    def _visible(self, *, by_gtid: bool) -> Callable[[_Touching], bool]:
        """Whether a transaction is visible to snapshots from now on, as far as that is known."""
        if by_gtid:
            executed = GtidSet.parse(str(self._value(server_facts(self._connection).executed_gtids_sql)))
            return lambda t: t[0] is not None and executed.contains(t[0], t[1])
        found = log_status(self._connection)
        if found is None:
            raise SourceError(
                f"table `{self._table}` cannot be read exactly: it has no key",
                "gtid_mode is not ON, and the user may not read performance_schema.log_status: nothing tells "
                "which part of the log a read shows",
                _REMEDY.format(table_name(self._table)),
                code="TR-5001",
            )
        at = (MySqlPosition(found[0], found[1]).file_number, found[1])
        return lambda t: t[2] <= at

    def _mariadb_snapshot(self) -> tuple[str, int]:
        self._execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
                found = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
        except (pymysql.err.MySQLError, OSError) as error:
            raise translate(error, "asking which position of the log a snapshot shows") from error
        return log_name(found["binlog_snapshot_file"]), int(found["binlog_snapshot_position"])

    def _advance_to(self, file: str, pos: int, *, is_certain: bool) -> list[_Touching]:
        """Move the position; return the transactions up to it that touch the table.

        Args:
            file: the log file.
            pos: the offset.
            is_certain: whether only the position tells what is visible, and no GTID.
        """
        end = replace(self.position, file=file, pos=pos, prepared=())
        index = TransactionIndex(lambda table: table == self._table, past=True, folds=self._folds)
        found: list[_Touching] = []
        if end.order <= self.position.order:
            return found
        for block in read_log(self._options, self.position, end):
            done = index.feed(block)
            ended = self._open.move(done.file, done.xa)
            if ended and is_certain:
                raise SourceError(
                    f"table `{self._table}` cannot be read exactly: it has no key",
                    "an XA transaction ended meanwhile, and nothing but GTIDs tells whether it is visible",
                    _REMEDY.format(table_name(self._table)),
                    code="TR-5001",
                )
            rows = done.rows
            touching = (rows[:, FLAGS] & _TOUCHES != 0) & (rows[:, FLAGS] & NO_TRANSACTION == 0)
            number = MySqlPosition(done.file, 4).file_number
            for source, gno, at in rows[np.flatnonzero(touching)][:, [SOURCE, GNO, END]].tolist():
                found.append((index.sources[source] if source >= 0 else None, gno, (number, at)))
        self.position = end
        return found

    def _value(self, statement: str) -> object:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
                return one(cursor)[0]
        except (pymysql.err.MySQLError, OSError) as error:
            raise translate(error, "asking for executed GTIDs") from error

    def _execute(self, statement: str) -> None:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
        except (pymysql.err.MySQLError, OSError) as error:
            raise translate(error, f"beginning to read {self._table}") from error


_REMEDY = (
    "ALTER TABLE {} ADD COLUMN id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY; or leave its rows out "
    "by snapshot.include.collection.list"
)


def _is_written(table: TableId) -> SourceError:
    return SourceError(
        f"table `{table}` cannot be read exactly: it has no key",
        f"for {TRIES_S:.0f} s it was written to whenever a snapshot was taken, so that nothing tells which "
        "changes a read shows",
        _REMEDY.format(table_name(table)) + "; or let the stream start while there is less to write",
        code="TR-5001",
    )

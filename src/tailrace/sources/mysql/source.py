"""MySQL and MariaDB as a source: the driver's side, put together from the modules beside it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tailrace.config.options import SourceOptions
from tailrace.model.split import Key, LogSplit, SnapshotSplit
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.base import LogRange
from tailrace.sources.mysql import catalog
from tailrace.sources.mysql.binlog.failover import Places
from tailrace.sources.mysql.binlog.follower import BinlogFollower
from tailrace.sources.mysql.binlog.held import pack_blocks
from tailrace.sources.mysql.binlog.starting import log_end_position, starting_position
from tailrace.sources.mysql.checks import preflight
from tailrace.sources.mysql.connection import MARIADB, ReconnectingConnection
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.protocol.driver import BoundedConnection
from tailrace.sources.mysql.snapshot import keys
from tailrace.sources.mysql.wire.transactions import DdlStatement
from tailrace.sources.mysql.wire.xa import XaMark
from tailrace.sources.mysql.xa.xa_visibility import EndingTransactions

T = TypeVar("T")

#: A range of at most this many bytes travels to its task inside the split.
INLINE_BYTES = 8 << 20
#: Snapshot chunks are planned while the log's end is at most this far ahead.
CAUGHT_UP_BYTES = 64 << 20


class MySqlSource:
    """See `tailrace.sources.base.Source`. May be used from several threads: one at a time is served."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planning = ReconnectingConnection(options, "planning")
        self._lock = threading.Lock()
        self._places = Places(options)
        self._ending = EndingTransactions(options)
        self._follower: BinlogFollower | None = None

    def require(self) -> None:
        """Check every precondition."""
        preflight.require(self._options)

    def position(self, value: Mapping[str, Any]) -> MySqlPosition:
        """The position that `to_json` wrote, on the server that answers now."""
        return self._places.locate(MySqlPosition.from_json(value))

    def server_changed(self) -> None:
        """Another server answers: what was found out about the old one is forgotten."""
        with self._lock:
            self._places.forget()
            self._ending.forget()
            self._follower = None
            self._planning.close()

    def starting_position(self) -> MySqlPosition:
        """Where a new stream starts."""
        return starting_position(self._options)

    def log_end(self) -> MySqlPosition:
        """The log's end now."""
        return log_end_position(self._options)

    def tables(self) -> list[catalog.CatalogTable]:
        """The captured tables that exist now."""
        return self._run(
            lambda c: catalog.tables(c, self._options.captures, self._options.zero_dates.of),
            "reading the catalog",
        )

    def publish(self, tables: Sequence[TableSchema]) -> Sequence[TableId]:  # noqa: ARG002
        """The log carries every table."""
        return ()

    def shows(self, position: MySqlPosition) -> bool:  # noqa: ARG002
        """Rows are put back to any position by the log."""
        return True

    def as_of(self, position: MySqlPosition) -> Mapping[str, Any]:
        """The position is all a split needs.

        Tasks wait for what must be visible, but for XA transactions that no GTID tells of: they are waited
        for here.
        """
        if position.server.startswith(MARIADB) or not position.gtids:
            with self._lock:
                self._ending.wait(position, self._xa_between)
        return position.to_json()

    def _xa_between(self, start: MySqlPosition, end: MySqlPosition) -> list[XaMark] | None:
        return None if self._follower is None else self._follower.xa_between(start, end)

    def confirm(self, position: MySqlPosition) -> None:
        """A binary log keeps itself."""

    def keep_log(self) -> None:
        """A binary log keeps itself."""

    def divided(self, split: SnapshotSplit, tasks: int) -> list[SnapshotSplit]:  # noqa: ARG002
        """`split` itself: InnoDB tells rows apart by their keys only."""
        return [split]

    def boundary(self, table: TableSchema, after: Key | None, rows: int) -> Key | None:
        """The key `rows` rows after `after`."""
        return self._run(lambda c: keys.boundary(c, table, after, rows), f"planning chunks of {table.id}")

    def follow(self, start: MySqlPosition, knows: Callable[[TableId], bool]) -> MySqlLog:
        """Follow the log from `start` on."""
        self._follower = BinlogFollower(self._options, start, knows)
        return MySqlLog(self._follower)

    def close(self) -> None:
        """Drop the connection."""
        with self._lock:
            self._follower = None
            self._planning.close()
            self._ending.close()

    def _run(self, operation: Callable[[BoundedConnection], T], doing: str) -> T:
        with self._lock:
            return self._planning.run(operation, doing)


class MySqlLog:
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
    ) -> LogRange | None:
        """The next batch's share of the log after `start`; with `upto`, None only when that is reached."""
        found = self._follower.end_after(start, max_bytes=max_bytes, max_rows=max_rows, upto=upto)
        while found is None and upto is not None and self.head().order < upto.order:
            self._follower.wait(1.0)
            found = self._follower.end_after(start, max_bytes=max_bytes, max_rows=max_rows, upto=upto)
        if found is None:
            return None
        return LogRange(
            found.end,
            has_changes=found.wanted_bytes > 0 or bool(found.ddl),
            ddl_ahead=bool(found.ddl_ahead),
            created=tuple(t for change in (*found.ddl, *found.ddl_ahead) for t in created_by(change)),
            is_far=found.is_cut,
        )

    def head(self) -> MySqlPosition:
        """The last position known to be in the log."""
        return self._follower.head()

    def is_caught_up(self, position: MySqlPosition) -> bool:
        """Whether the log's end is at most CAUGHT_UP_BYTES ahead of `position`."""
        return self._follower.lag_bytes(position) <= CAUGHT_UP_BYTES

    def splits(self, split: LogSplit, slices: int) -> list[LogSplit]:
        """`split` with its events in it if they are held and small, else cut into slices."""
        start, end = MySqlPosition.from_json(split.start), MySqlPosition.from_json(split.end)
        blocks = self._follower.blocks(start, end)
        if blocks is not None and sum(len(b.data) for b in blocks) <= INLINE_BYTES:
            return [replace(split, events=pack_blocks(blocks))]
        ends = self._follower.boundaries(start, end, slices)
        starts = [start, *ends[:-1]]
        return [replace(split, start=s.to_json(), end=e.to_json()) for s, e in zip(starts, ends, strict=True)]

    def close(self) -> None:
        """Stop following."""
        self._follower.close()


def created_by(change: DdlStatement) -> tuple[TableId, ...]:
    """The captured tables that a statement creates; a hint: what it misses is found in the catalog."""
    creates = re.match(r"\s*(/\*.*?\*/\s*)*CREATE\s+(TEMPORARY\s+)?TABLE\b", change.text, re.I | re.S)
    return change.tables if creates and not creates[2] else ()


source = MySqlSource

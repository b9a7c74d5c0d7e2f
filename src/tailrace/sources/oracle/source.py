"""Oracle as a source: the driver's side, assembled from the other modules of this package."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, PositionLostError, TailraceError
from tailrace.model.split import Key
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.base import Activity, FrozenTables, LogClock, LogRetention, Page, Source
from tailrace.sources.oracle import catalog, clock
from tailrace.sources.oracle.catalog import CatalogTable
from tailrace.sources.oracle.checks import preflight
from tailrace.sources.oracle.connection import (
    Connection,
    ReconnectingConnection,
    ora_number,
)
from tailrace.sources.oracle.logminer import files
from tailrace.sources.oracle.logminer.follower import OracleLog, another_database
from tailrace.sources.oracle.position import OraclePosition

T = TypeVar("T")

_ACTIVE = """\
SELECT COUNT(*) FROM V$SESSION WHERE STATUS = 'ACTIVE' AND TYPE = 'USER'
AND SID <> SYS_CONTEXT('USERENV', 'SID')"""


class OracleSource(Source):
    """See `tailrace.sources.base.Source`. Safe to use from several threads; serves one at a time."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._planning = ReconnectingConnection(options, "planning")
        self._database: str | None = None
        self._found: dict[TableId, CatalogTable] = {}
        #: The tables that cannot be captured, and the versions of all when that was found out.
        self._refused: Mapping[str, TailraceError] = {}
        self._checked: dict[TableId, str] = {}

    def require(self) -> Mapping[str, TailraceError]:
        """Check every precondition."""
        return preflight.require(self._options)

    def position(self, value: Mapping[str, Any]) -> OraclePosition:
        """The position that `to_json` wrote.

        Raises:
            PositionLostError: the database is another one.
        """
        position = OraclePosition.from_json(value)
        if self._database is None:
            self._database = self._run(catalog.database, "asking for the database").identity
        if position.database != self._database:
            raise another_database(position.database, self._database)
        return position

    def server_changed(self) -> None:
        """Forget what was found out about the server."""
        self._database = None
        with self._lock:
            self._planning.close()

    def starting_position(self) -> OraclePosition:
        """Where a new stream starts: now."""
        return self.log_end()

    def ending_position(self, text: str, position: OraclePosition) -> OraclePosition:  # noqa: ARG002
        """The log's end, which is the only one besides times.

        Raises:
            ConfigError: another one is asked for.
        """
        if text != "latest":
            raise ConfigError(
                "`endingPosition` is wrong",
                "Oracle has `latest` and `timestamp:...`",
                code="TR-1010",
            )
        return self.log_end()

    def log_end(self) -> OraclePosition:
        """The log's end now."""
        return self._run(clock.present, "asking for the log's end")

    def log_clock(self, position: OraclePosition) -> LogClock | None:
        """The server's clock, then its SCN."""

        def ask(connection: Connection) -> LogClock | None:
            now = clock.now_us(connection)
            found = catalog.database(connection)
            if found.identity != position.database:
                return None
            return LogClock(now, replace(position, scn=max(found.scn, position.scn)))

        return self._run(ask, "asking for the time")

    def log_retention(self, position: OraclePosition) -> LogRetention | None:  # noqa: ARG002
        """Not known: archived logs are removed by jobs of the administrator."""
        return None

    def activity(self) -> Activity:
        """How busy the server is."""
        ((sessions,),) = self._run(lambda c: c.rows(_ACTIVE), "asking how busy the server is")
        return Activity(int(sessions))

    def row_bytes(self, table: TableId) -> int | None:
        """The mean size of a row, by the table's statistics."""
        found = self._found.get(table)
        return None if found is None else found.row_bytes

    def heartbeat(self, statement: str) -> None:
        """Run a statement that writes something to the log."""

        def run(connection: Connection) -> None:
            connection.run(statement)
            connection.commit()

        self._run(run, "running heartbeat.action.query")

    def rejoin(self, lost: Mapping[str, Any]) -> OraclePosition:
        """The log's present end.

        Raises:
            PositionLostError: it need not sort behind `lost`: the database is another one.
        """
        self.position(lost)
        return self.log_end()

    def has_log(self, position: OraclePosition) -> bool:
        """Whether the log that the stream needs from there on is still there."""
        resetlogs = position.database.partition("/")[2]
        try:
            self._run(lambda c: files.read(c, position.since, resetlogs), "looking for redo logs")
        except PositionLostError:
            return False
        return True

    def tables(self) -> list[CatalogTable]:
        """The captured tables that exist now."""
        found = self._run(lambda c: catalog.captured(c, self._options), "reading the catalog")
        self._found = {t.schema.id: t for t in found}
        return found

    def refusals(self) -> Mapping[str, TailraceError]:
        """The tables that cannot be captured as they are now."""
        found = {id_: t.version for id_, t in self._found.items()}
        if found != self._checked:
            self._refused = self._run(
                lambda c: preflight.refusals(self._options, c), "checking the captured tables"
            )
            self._checked = found
        return self._refused

    def publish(self, tables: Sequence[TableSchema]) -> Sequence[TableId]:
        """Nothing to do: the log has all tables.

        Raises:
            PreflightError: one of them cannot be captured: it is new, or was altered.
        """
        refused = self.refusals()
        for table in tables:
            if str(table.id) in refused:
                raise refused[str(table.id)]
        return ()

    def altered(self, tables: Collection[str]) -> bool:
        """Whether one of these tables was altered since the catalog was read."""
        known = {id_: t.version for id_, t in self._found.items() if str(id_) in tables}
        now = self._run(lambda c: catalog.captured(c, self._options), "reading the catalog")
        return known != {t.schema.id: t.version for t in now if str(t.schema.id) in tables}

    def boundary(self, table: TableSchema, after: Key | None, rows: int) -> Key | None:
        """The key `rows` rows after `after`."""
        from tailrace.sources.oracle.snapshot import select  # noqa: PLC0415 - decodes rows

        return self._run(
            lambda c: select.boundary(c, table, after, rows), f"looking for a chunk of {table.id}"
        )

    def condition_problem(self, table: TableSchema, condition: str) -> str | None:
        """Why the server refuses a condition."""
        from tailrace.sources.oracle.snapshot import select  # noqa: PLC0415

        sql = f"SELECT 1 FROM {select.table_name(table)} WHERE ({condition}) AND 1 = 0"
        try:
            self._run(lambda c: c.rows(sql), "checking a condition")
        except TailraceError as error:
            if error.retryable:
                raise
            return f"the server refuses it: ORA-{ora_number(error):05d}"
        return None

    def follow(self, start: OraclePosition, knows: Callable[[TableId], bool]) -> OracleLog:
        """Follow the log from `start` on."""
        return OracleLog(self._options, start, knows)

    def read_table(self, table: TableSchema, page_rows: int) -> Iterator[Page]:
        """All rows of a table as they are now."""
        frozen = self.frozen(1)
        try:
            yield from frozen.read_range(table, None, None, page_rows)
        finally:
            frozen.close()

    def frozen(self, connections: int) -> FrozenTables:
        """All tables as they are at the present SCN."""
        from tailrace.sources.oracle.snapshot.frozen import OracleFrozenTables  # noqa: PLC0415

        return OracleFrozenTables(self._options, connections)

    def close(self) -> None:
        """Drop the connections."""
        with self._lock:
            self._planning.close()

    def _run(self, operation: Callable[[Connection], T], doing: str) -> T:
        with self._lock:
            return self._planning.run(operation, doing)


source = OracleSource

"""The captured tables as the catalog has them, and those that match `tables` and cannot be captured."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from tailrace.config.options import SourceOptions
from tailrace.enumerator.gaps import Gaps
from tailrace.enumerator.horizon import Horizon
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.parked import may_park
from tailrace.enumerator.stream_keys import schema_in
from tailrace.errors import ConfigError, PreflightError, TailraceError
from tailrace.model.messages import MESSAGES
from tailrace.model.table import TableId, TableSchema
from tailrace.sources.base import CapturedTable, Position, Source

#: Interval at which the catalog is searched for new tables, seconds; immediately after a schema change.
CATALOG_REFRESH_S = 30.0


class CapturedTables:
    """The catalog of one stream.

    Args:
        options: the stream's options.
        source: the database.
        gaps: looked for at each reading, before tables join the log.
        horizon: extended to where gaps are found.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        options: SourceOptions,
        source: Source,
        gaps: Gaps,
        horizon: Horizon,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._source = source
        self.gaps = gaps
        self._horizon = horizon
        self._clock = clock
        #: The tables that are captured, and their schemas.
        self.tables: dict[str, CapturedTable] = {}
        self.schemas: dict[str, TableSchema] = {}
        #: Tables that match `tables` and cannot be captured, with the reason: they are parked.
        self.refused: dict[str, TailraceError] = {}
        self._read_at: float | None = None
        #: The log's end after the catalog was read, once it is known.
        self._end: Position | None = None
        #: The tables for which the server's checks have been made.
        self._checked_tables: set[str] = set()
        self._checked = False

    def require_checked(self) -> None:
        """Check the server, the first time.

        Raises:
            PreflightError: it cannot be captured.
        """
        if not self._checked:
            self._note_refused()

    def check_again(self) -> None:
        """Make the checks of the start once more, for tables: what is wrong with the server is said there."""
        with suppress(PreflightError):
            self._note_refused()

    def _note_refused(self) -> None:
        self.refused.update(self._source.require())
        self._checked = True

    @property
    def are_outdated(self) -> bool:
        """Whether it is time to look for new tables."""
        return self._read_at is None or self._clock() - self._read_at >= CATALOG_REFRESH_S

    def may_be(self, table: TableId) -> bool:
        """Whether a table of the log may be captured, and is no namesake of one that is."""
        captured = self.tables.get(str(table))
        return captured is None or not table.is_namesake(captured.schema.id)

    def schemas_in(self, offset: StreamOffset) -> dict[str, TableSchema]:
        """The captured tables' schemas, with the keys under which a stream at `offset` reads them."""
        self.require_read(offset)
        if not (offset.tables or offset.again or offset.keys):
            return self.schemas
        return {name: schema_in(offset, table) for name, table in self.tables.items()}

    def whole(self) -> dict[str, TableSchema]:
        """The captured tables' schemas, with the columns that the stream's column filter leaves out."""
        return {name: self.tables[name].whole for name in self.schemas}

    def require_read(self, offset: StreamOffset) -> None:
        """Read the catalog, the first time. Raises as `read`."""
        if self._read_at is None:
            self.read(offset)

    def refresh(self, tables: Collection[str], offset: StreamOffset) -> None:
        """Read the catalog again if it is outdated for one of `tables`. Raises as `read`."""
        if self._read_at is None or self._source.altered(tables):
            self.read(offset)

    def has_news(self, offset: StreamOffset) -> bool:
        """Whether the catalog, read again, shows why a table did not have the schema that it should have."""
        before = {name: (table.schema, table.keys) for name, table in self.tables.items()}
        self.read(offset)
        return before != {name: (table.schema, table.keys) for name, table in self.tables.items()}

    def read(self, offset: StreamOffset) -> None:
        """Read the catalog; tables that are new to the log join it.

        Raises:
            ConfigError: no table is captured, or two by one name.
            TableGapError: see `Gaps.note`.
            TailraceError: an error of the source.
        """
        found = self._source.tables()
        if not found and self._read_at is None:
            raise ConfigError(
                "no table is captured",
                f"no table matches {self._options.choice}",
                "each pattern must match a whole `database.table`; a dot matches any character",
                code="TR-1401",
            )
        require_apart(t.schema.id for t in found)
        if self._options.has_messages and any(t.schema.id == MESSAGES.id for t in found):
            raise ConfigError(
                f"table {MESSAGES.id.quoted} has the name of the stream of logical messages",
                "the stream captures both",
                "leave the table out of `tables`, or the messages out (`message.prefix.include.list`)",
                code="TR-1402",
            )
        self.tables = {str(t.schema.id): t for t in found}
        self.schemas = {str(t.schema.id): t.schema for t in found}
        if self._options.max_parked:
            self._leave_out_refused(offset)
        self._read_at = self._clock()
        self._end = None
        self.gaps.note(offset)
        self._publish(offset)
        if offset.shapes:
            self.gaps.note(offset)  # the source may have read the catalog once more
        if self.gaps.wait:
            self.find_end()

    def find_end(self) -> Position:
        """The log's end after the catalog was read; what gaps have found begins there."""
        if self._end is None:
            self._end = self._source.log_end()
            self._horizon.extend(self._end)
        self.gaps.found_before(self._end)
        return self._end

    def read_before(self, position: Position) -> None:
        """Note that the catalog was read before the log ended at `position`."""
        self._end = position

    def _publish(self, offset: StreamOffset) -> None:
        unpublished = set(map(str, self._source.publish(list(self.schemas.values()))))
        self.gaps.unpublished = unpublished
        for name in unpublished:
            if not offset.knows(name):
                del self.schemas[name]  # new once it is in the log
                del self.tables[name]

    def _leave_out_refused(self, offset: StreamOffset) -> None:
        """Find out which captured tables cannot be captured, and go on without them."""
        new = self.tables.keys() - self._checked_tables
        if new and self._checked_tables:
            self.check_again()
        refusals = self._source.refusals()
        self._checked_tables |= new
        found = self.tables.keys() | refusals.keys()
        self.refused = {name: error for name, error in self.refused.items() if name in found}
        self.refused.update(refusals)
        if may_park(offset, self.refused, self.tables, self._options.max_parked):
            for name in self.refused.keys() & self.tables.keys():
                del self.schemas[name]
                del self.tables[name]


def require_apart(tables: Iterable[TableId]) -> None:
    """Refuse tables whose names are one text: offsets, targets and routes know tables by it.

    Raises:
        ConfigError: two tables have one name.
    """
    by_text: dict[str, TableId] = {}
    for table in tables:
        other = by_text.setdefault(str(table), table)
        if other != table:
            raise ConfigError(
                f"tables {other.quoted} and {table.quoted} cannot be captured by one pipeline",
                f"the names of both are `{table}`, by which offsets, routes and targets know them",
                "rename one of them, or capture only one of the databases (schemas) that hold them",
                code="TR-1403",
            )

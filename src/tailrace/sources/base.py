"""What a database must provide: three small roles. No other part of Tailrace knows which database it is.

    Source     driver   what there is, where a stream starts, where chunks end
    Log        driver   follows the log's headers: how far a batch goes, what its bytes are
    Session    task     rows of a key range, changes of a log range, comparisons of keys

Positions are the database's own values: they are ordered, and travel as JSON in Spark's offsets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.model.change import ChangeBatch
from tailrace.model.declaration import TableTexts
from tailrace.model.schema_change import SchemaEvent, TableTruncated
from tailrace.model.source_type import SourceType
from tailrace.model.split import Key, LogSplit, SnapshotSplit
from tailrace.model.table import TableId, TableSchema
from tailrace.model.types import ColumnType

S = TypeVar("S", SnapshotSplit, LogSplit)

#: What knows a table's key: the log itself, the stream's offset, or only the catalog as it is now.
KeyPlace = Literal["log", "offset", "catalog"]
#: The identity of a table that was not there: whatever has its name later is another one, or has a gap.
GONE = "gone"
#: The identity of a table that has been truncated and is to be read again.
TRUNCATED = "truncated"


@dataclass(frozen=True)
class Lag:
    """How far a position of the log lies ahead of another one.

    Args:
        files: log files between them; 0 where the log is one file.
        size: bytes between them, negative where it lies behind; None across log files.
    """

    files: int
    size: int | None


class Position(ABC):
    """A point between two transactions of the source's log.

    Attributes:
        ts_ms: commit time of the last transaction up to here, milliseconds since 1970 UTC; 0: unknown.
    """

    ts_ms: int

    @property
    @abstractmethod
    def order(self) -> tuple[int, ...]:
        """Sorts positions of one stream in log order."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """JSON values in a fixed key order: Spark compares offsets as text."""

    @classmethod
    @abstractmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The position that `to_json` wrote."""

    @abstractmethod
    def lag_to(self, head: Self) -> Lag:
        """How far `head` lies ahead."""


@dataclass(frozen=True)
class LogClock:
    """The server's clock, and where its log ended just after.

    Args:
        ts_us: microseconds since 1970 UTC.
        end: what was committed by then lies below this position.
    """

    ts_us: int
    end: Any


@dataclass(frozen=True)
class LogRetention:
    """How long the server keeps the log from a stream's position on, as things are now.

    Args:
        held_bytes: log from the position to its end.
        left_bytes: log that may be written before the server removes the log at the position; None: no limit
            of this kind.
        left_s: seconds until the server may remove it because of its age; None: no limit of this kind, or
            not known.
        written: a number that grows by each byte of log.
        limits: the server's settings that limit it, with their values.
    """

    held_bytes: int
    left_bytes: int | None
    left_s: float | None
    written: int
    limits: Mapping[str, str]

    def seconds(self, rate: float | None) -> float | None:
        """Seconds until the log at the position may be gone; None: never, or not known.

        Args:
            rate: bytes of log per second, None if it is not known.
        """
        by_size = None
        if self.left_bytes is not None and (rate or self.left_bytes <= 0):
            by_size = max(self.left_bytes, 0) / rate if rate else 0.0
        return min((s for s in (self.left_s, by_size) if s is not None), default=None)


@dataclass(frozen=True)
class Activity:
    """How busy the server is.

    Args:
        sessions: those that run a statement now.
        replica_lag_s: how far replication is behind, seconds; None: there is none, or it was not asked for.
    """

    sessions: int
    replica_lag_s: float | None = None


class LoadWatch(Protocol):
    """Looks at what others do on a server; used by one thread."""

    def others(self) -> float | None:
        """The sessions of others that run a statement now, or did on average since the last call.

        Those of Tailrace and of replication are left out, and those that only wait for locks or sleep.

        Returns:
            None: it is not known yet, or the user may not see it.

        Raises:
            TailraceError: the server does not answer, or refuses.
        """

    def close(self) -> None:
        """Drop the connection."""


class CapturedTable(Protocol):
    """A table found in the catalog."""

    @property
    def schema(self) -> TableSchema:
        """Its schema; the key orders its snapshot."""

    @property
    def estimated_rows(self) -> int:
        """The catalog's estimate, for progress only."""

    @property
    def keys(self) -> Collection[tuple[str, ...]]:
        """Every key by which its rows can be read; the schema's is one of them."""

    @property
    def whole(self) -> TableSchema:
        """The schema with the columns that the stream's column filter leaves out."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Columns that are not in the schema: of the column filter, or not in all row images of the log."""

    @property
    def texts(self) -> TableTexts:
        """What the catalog says of its columns and the log does not."""

    @property
    def key_in(self) -> KeyPlace:
        """What knows its key, while the stream reads a part of the log that may be older than the catalog."""


@dataclass(frozen=True)
class LogRange:
    """How far a batch may go in the log.

    Args:
        end: its end, a transaction boundary.
        has_changes: whether a captured table changed within it.
        ddl_ahead: whether a schema change is known within it or right behind it, so that tables may not
            have the schema that they had at `end`.
        created: tables that a schema change within it or right behind it creates.
        rewritten: tables whose rows a schema change within it changes, or may change, without logging them:
            their present rows must be read again.
        dropped_databases: databases that are dropped within it, with all their tables.
        is_far: whether it is so long that the stream should advance even without changes: the log behind
            the stream's position can be released.
        left: names of tables that were something else for a time within it (`Source.identities`), so that
            it may lack changes of them.
        truncated: tables that are truncated somewhere within it, so that a reading of them that is to find
            out which rows are gone begins behind it.
        may_have_signals: whether the table of signals may have changed within it.
    """

    end: Any
    has_changes: bool
    ddl_ahead: bool = False
    created: tuple[TableId, ...] = ()
    rewritten: tuple[TableId, ...] = ()
    dropped_databases: tuple[str, ...] = ()
    is_far: bool = False
    left: tuple[str, ...] = ()
    truncated: tuple[TableId, ...] = ()
    may_have_signals: bool = False

    @property
    def alters_tables(self) -> bool:
        """Whether the catalog must be read again because of it."""
        return self.ddl_ahead or bool(self.created) or self.has_rewrites

    @property
    def has_rewrites(self) -> bool:
        """Whether tables must be read again because of it."""
        return bool(self.rewritten or self.dropped_databases or self.truncated)


@dataclass(frozen=True)
class Reshaped:
    """What became of a table's columns at the begin of a range of the log.

    Args:
        event: the event; None if it is not known.
        shape: the table's shape then.
        why: why only reading the table again tells its rows; "" if the event does.
    """

    event: SchemaEvent | None = None
    shape: Any = None
    why: str = ""


class Log(ABC):
    """Follows the log on the driver; looks at headers only."""

    @abstractmethod
    def range_after(
        self,
        start: Any,
        *,
        upto: Any | None,
        max_bytes: int | None,
        max_rows: int | None,
        for_rows: bool = False,
        before_us: int | None = None,
    ) -> LogRange | None:
        """The next batch's share of the log after `start`, or None when there is nothing new.

        With `before_us` it ends before the first transaction that was committed later, in microseconds since
        1970 UTC.

        With `for_rows` the batch is to read rows as of its end. Where such a position must be prepared, the
        range ends at the prepared one (`Source.shows`), as soon as there is one.
        """

    @abstractmethod
    def head(self) -> Any:
        """The last position known to be in the log."""

    @abstractmethod
    def wait(self, timeout_s: float) -> None:
        """Wait until there is more of the log than `range_after` knew of when it was called last.

        What does not concern the stream need not end the wait.
        """

    @abstractmethod
    def read_upto(self) -> Any:
        """The position up to which the log has been read: `range_after` knows of all changes below it."""

    @abstractmethod
    def is_caught_up(self, position: Any) -> bool:
        """Whether the log's end is near enough to `position` for rewinding to be cheap."""

    @abstractmethod
    def splits(self, split: LogSplit, slices: int) -> list[LogSplit]:
        """`split` with its events in it if they are still held and small, else cut into slices.

        Args:
            split: a range of the log.
            slices: most slices; AUTO: as many as can be read side by side at no cost to the server.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop following."""


@dataclass(frozen=True)
class Page:
    """Some rows of a key range: all the rows in `(after, upto]`, each as some SELECT saw it."""

    rows: pa.StructArray
    after: Key | None
    upto: Key | None


class Source(ABC):
    """A database as the driver sees it.

    The methods with a default body fit a database whose log carries every table and outlives its readers, and
    whose rows the log can rewind to any position.

    Attributes:
        holds_snapshots: whether rows without a stream can be read as of a position only while this object is
            open: it holds a snapshot, and no log is kept to rewind by.
        logs_statements: whether the log has the statements of schema changes.
    """

    holds_snapshots: ClassVar[bool] = False
    logs_statements: ClassVar[bool] = False

    @abstractmethod
    def require(self) -> Mapping[str, TailraceError]:
        """Check every precondition.

        Returns:
            The tables that cannot be captured, with the reasons, as long as they may be parked (the option
            `maxParked`).

        Raises:
            PreflightError: some preconditions do not hold; it names them all.
        """

    @abstractmethod
    def position(self, value: Mapping[str, Any]) -> Any:
        """The position that `to_json` wrote, on the server that answers now."""

    @abstractmethod
    def server_changed(self) -> None:
        """Forget what was found out about the server: another one answers."""

    @abstractmethod
    def starting_position(self) -> Any:
        """Where a new stream starts, by the option `startingPosition`."""

    @abstractmethod
    def ending_position(self, text: str, position: Any) -> Any:
        """The position that the option `endingPosition` names, or the transaction boundary before it.

        Args:
            text: the option; not a time.
            position: the stream's.

        Raises:
            ConfigError: the log has no such position, or not yet.
            TransientSourceError: the server cannot be reached.
        """

    @abstractmethod
    def log_end(self) -> Any:
        """The log's end now."""

    @abstractmethod
    def log_clock(self, position: Any) -> LogClock | None:
        """The server's clock, then its log's end, as a position of the stream that is at `position`.

        None where another server answers. On a standby or replica they are its own.

        Raises:
            TransientSourceError: the server cannot be reached.
        """

    @abstractmethod
    def log_retention(self, position: Any) -> LogRetention | None:
        """How long the server keeps the log from `position` on; None: nothing is known of it.

        Raises:
            TransientSourceError: the server cannot be reached.
        """

    @abstractmethod
    def activity(self) -> Activity:
        """How busy the server is; its replication lag, if the option `snapshotMaxReplicaLag` is set.

        Raises:
            SourceError: the user may not see it.
            TransientSourceError: the server cannot be reached.
        """

    def load_watch(self) -> LoadWatch | None:
        """What looks at the load of the server that rows are read from, by a connection of its own.

        None: nothing can be known of it.
        """
        return None

    def rows_held(self) -> str:
        """Why no rows can be read now from the server of `snapshotUrl`; "": they can be, or there is none."""
        return ""

    @abstractmethod
    def row_bytes(self, table: TableId) -> int | None:
        """The mean size of a row, by the catalog; None if it is unknown.

        Raises:
            TransientSourceError: the server cannot be reached.
        """

    @abstractmethod
    def heartbeat(self, statement: str) -> None:
        """Run a statement that writes something to the log (option `heartbeat.action.query`).

        Raises:
            SourceError: the server refuses it.
            TransientSourceError: the server cannot be reached.
        """

    @abstractmethod
    def rejoin(self, lost: Mapping[str, Any]) -> Any:
        """The log's present end, from which a stream continues that has lost its position.

        It sorts behind `lost`, the stream's position as JSON, and so do all positions after it.

        Raises:
            TailraceError: the log cannot be followed from its end either.
        """

    def has_log(self, position: Any) -> bool:  # noqa: ARG002
        """Whether the log behind `position` is still there.

        Asked for a batch that an earlier process has planned. True where its splits raise PositionLostError
        on the driver.
        """
        return True

    def position_problem(self, position: Any) -> str | None:
        """Why no stream can go on from `position`, None if nothing is known against it."""
        end = self.log_end()
        if position.order > end.order:
            return f"the log ends at {end}"
        return None if self.has_log(position) else "the log behind it is gone"

    @abstractmethod
    def tables(self) -> Sequence[CapturedTable]:
        """The captured tables that exist now."""

    def refusals(self) -> Mapping[str, TailraceError]:
        """Those of the tables that `tables` found that cannot be added to the log, with the reasons."""
        return {}

    def identities(self) -> Mapping[str, str]:
        """What tells the tables that `tables` found from others of their names; "": what concerns all.

        Empty where the log says when a table is no longer the same. A stream stores them in its offset, and
        `GONE` for a table that it follows and that is not there.
        """
        return {}

    def gaps(self, ids: Mapping[str, str], reading: Collection[str]) -> Mapping[str, str]:  # noqa: ARG002
        """The tables whose changes the log lacks since they had these identities, with the reason.

        To be asked before `publish`, so that a gap is found again by the next start.

        Args:
            ids: of all tables that the stream follows, "" where it is not known.
            reading: those of them whose snapshot has begun and is not finished.
        """
        return {}

    def rewrites(
        self,
        ids: Mapping[str, str],  # noqa: ARG002
        shapes: Mapping[str, Any],  # noqa: ARG002
        reading: Collection[str],  # noqa: ARG002
    ) -> Mapping[str, str]:
        """The tables of which rows changed unlogged since they had these identities, with the reason.

        Empty where the log has all schema changes.

        Args:
            ids: as stored.
            shapes: their shapes then, as far as they are stored. Events tell what became of their columns.
            reading: tables of which rows are being read, or were until the last batch.
        """
        return {}

    def shapes(self) -> Mapping[str, Any]:
        """The columns of the tables that `tables` found, as JSON values; a stream stores them in its offset.

        Empty where the log has all schema changes.
        """
        return {}

    def reshaped(
        self,
        found: LogRange,  # noqa: ARG002
        shapes: Mapping[str, Any],  # noqa: ARG002
    ) -> Collection[str]:
        """The tables that have other columns within a range of the log than in `shapes`."""
        return ()

    def placed(
        self,
        found: LogRange,  # noqa: ARG002
        shapes: Mapping[str, Any],  # noqa: ARG002
        reading: Collection[str],  # noqa: ARG002
    ) -> Mapping[str, Reshaped]:
        """What the log shows of tables that have other columns within a range of it than in `shapes`.

        Args:
            found: the range; the catalog was read after it.
            shapes: the columns that the tables have, or had, where the range begins.
            reading: see `rewrites`.
        """
        return {}

    def reshaping(self, name: str, before: Any, position: Any, why: str) -> SchemaEvent | None:  # noqa: ARG002
        """The event of a table whose columns have changed since it had the shape `before`.

        Args:
            name: the table.
            before: the shape.
            position: where in the log it has the catalog's columns, and all changes have.
            why: why rows may have changed with it; "" if none have.
        """
        return None

    def schema_events(
        self,
        found: LogRange,
        before: Mapping[str, TableSchema],  # noqa: ARG002
        after: Mapping[str, TableSchema],  # noqa: ARG002
    ) -> Sequence[SchemaEvent]:
        """The schema changes of a range of the log, in log order.

        Args:
            found: the range.
            before: the captured tables before it, by name, as far as they are known.
            after: the captured tables that exist now.
        """
        return [SchemaEvent(str(table), (TableTruncated(),)) for table in found.truncated]

    def altered(self, tables: Collection[str]) -> bool:  # noqa: ARG002
        """Whether one of these tables was altered since the last call of `tables`."""
        return False

    def locked(self, tables: Collection[str]) -> Mapping[str, str]:  # noqa: ARG002
        """Those of `tables` that cannot be read now, because others hold locks on them, with who they are."""
        return {}

    def publish(self, tables: Sequence[TableSchema]) -> Sequence[TableId]:  # noqa: ARG002
        """Make the log carry the changes of `tables` from now on.

        Returns:
            The tables for which that has to wait: others hold locks on them. The next call tries again.
        """
        return ()

    def shows(self, position: Any) -> bool:  # noqa: ARG002
        """Whether rows can be read as of `position` now."""
        return True

    def as_of(self, position: Any) -> Mapping[str, Any]:
        """What a split needs to read rows as of `position`: its JSON, and what else the database needs."""
        value: Mapping[str, Any] = position.to_json()
        return value

    def confirm(self, position: Any) -> None:  # noqa: B027
        """Release the log up to `position`: the sink has all changes before it permanently."""

    def keep_log(self) -> None:  # noqa: B027
        """Keep the log from the last committed batch on, for readers next to the stream, until `close`."""

    @abstractmethod
    def boundary(self, table: TableSchema, after: Key | None, rows: int) -> Key | None:
        """The key `rows` rows after `after`, None when fewer remain."""

    def source_type(self, type_: ColumnType, declared: str | None) -> SourceType:
        """See `Session.source_type`."""
        raise NotImplementedError

    @abstractmethod
    def condition_problem(self, table: TableSchema, condition: str) -> str | None:
        """Why the server refuses a condition of a table's rows; None: nothing is known against it.

        Args:
            table: the table.
            condition: what `model.condition` permits.
        """

    def divided(self, split: SnapshotSplit, tasks: int) -> list[SnapshotSplit]:  # noqa: ARG002
        """`split` as up to `tasks` splits, where rows can be divided by more than their keys."""
        return [split]

    @abstractmethod
    def follow(self, start: Any, knows: Callable[[TableId], bool]) -> Log:
        """Follow the log from `start` on."""

    @abstractmethod
    def read_table(self, table: TableSchema, page_rows: int) -> Iterator[Page]:
        """All rows of a table as they are now, page by page, without a position in the log.

        Args:
            table: the table; it may lack columns that are not needed.
            page_rows: most rows of a page.
        """

    @abstractmethod
    def frozen(self, connections: int) -> FrozenTables:
        """All tables as they are now, whatever is written from now on.

        Each connection has a moment of its own: what is written while they are opened, some may have.

        Args:
            connections: how many ranges can be read at the same time.

        Raises:
            TransientSourceError: the server cannot be reached.
            SourceError: it refuses.
        """

    @abstractmethod
    def close(self) -> None:
        """Drop the connections; they are opened again when they are needed."""


class FrozenTables(Protocol):
    """Tables as they were at one moment, by transactions: schema changes of those that were read wait."""

    def read_range(
        self, table: TableSchema, after: Key | None, upto: Key | None, page_rows: int
    ) -> Iterator[Page]:
        """The rows of a key range, page by page; threads share the connections, and wait for a free one.

        Args:
            table: the table; it may lack columns that are not needed.
            after: keys above this one, None: from the first.
            upto: keys at or below this one, None: to the last.
            page_rows: most rows of a page.

        Raises:
            TransientSourceError: the connection is lost, and with it the moment.
            SourceError: the server refuses, or the table was altered since.
        """

    def close(self) -> None:
        """End the transactions."""


class Session(ABC):
    """A task's connections to the database; opened lazily, used by one task.

    Attributes:
        keys_only: whether the log may hold just the key of a row before its change: such rows cannot be
            reconstructed.
    """

    keys_only = False

    def located(self, split: S) -> S:
        """`split` with its positions on the server that answers; the session then reads no other.

        Raises:
            ServerChangedError: it is another one than planned with, and the batch must be planned anew.
        """
        return split

    def wait_visible(self, position: Mapping[str, Any]) -> None:  # noqa: B027
        """Return once every transaction up to `position` is visible to this session's SELECTs."""

    @abstractmethod
    def pages(self, split: SnapshotSplit) -> Iterator[Page]:
        """The rows of the split's range as they are now, page by page.

        A page is one SELECT, or several of parts of its range. All of them begin after the page before was
        used, and end before the page is returned: so what they saw lies between the split's position and the
        log's end after that, and the log in between has every row that differs or that they saw twice.

        Rows of a table that was altered since it was planned may have another schema.
        """

    def rewritten_since(self, split: SnapshotSplit, *, keys: bool) -> bool:  # noqa: ARG002
        """Whether the log, behind the split's position, has a schema change that rewrites its table.

        The stream then reads the table again once it comes there (`LogRange.rewritten`).

        Args:
            split: the split.
            keys: whether a change of the table's keys counts, too: the stream notices it by the catalog.
        """
        return False

    def altered_behind(self, split: SnapshotSplit) -> bool:  # noqa: ARG002
        """Whether the split's table was altered, or dropped, behind the stream's end (`SnapshotSplit.until`).

        Asked after its rows were read. The stream does not come to what the log has of it.
        """
        return False

    def is_behind_end(self, split: SnapshotSplit, changes: ChangeBatch) -> pa.BooleanArray:
        """For each change whether it lies behind the stream's end. Only where `keys_only`."""
        raise NotImplementedError

    def source_type(self, type_: ColumnType, declared: str | None) -> SourceType:
        """A column's type in Debezium's words. Only where options can ask for it.

        Args:
            type_: the type that the log has.
            declared: what the catalog had (`CapturedTable.texts`); None: nothing else.
        """
        raise NotImplementedError

    @abstractmethod
    def log_end(self, after: Mapping[str, Any]) -> Any:
        """The log's end now, as a position of the same stream as `after`; it covers all that a SELECT saw."""

    @abstractmethod
    def changes(self, split: LogSplit) -> Iterator[ChangeBatch]:
        """The changes in `split`'s range of the log of the tables it concerns, in log order."""

    def at_or_below(self, table: TableSchema, keys: pa.StructArray, cursor: Key) -> pa.BooleanArray:
        """For each key whether it is at or below `cursor` in the table's key order."""
        return self.within(table, keys, None, cursor)

    @abstractmethod
    def within(
        self, table: TableSchema, keys: pa.StructArray, after: Key | None, upto: Key | None
    ) -> pa.BooleanArray:
        """For each key whether it lies in `(after, upto]` in the table's key order."""

    @abstractmethod
    def read_origin(self, position: Mapping[str, Any], rows: int) -> pa.RecordBatch:
        """The origin (model.change.ORIGIN) of `rows` snapshot rows as of `position`."""

    @abstractmethod
    def close(self) -> None:
        """Drop the connections."""

"""What a database must provide: three small roles, and nothing else in Tailrace knows which one it is.

    Source     driver   what is there, where a stream starts, where chunks end
    Log        driver   follows the log's headers: how far a batch goes, what its bytes are
    Session    task     rows of a key range, changes of a log range, comparisons of keys

Positions are the source's own values: they are ordered, and travel as JSON in Spark's offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from tailrace.model.change import ChangeBatch
from tailrace.model.split import Key, LogSplit, SnapshotSplit
from tailrace.model.table import TableId, TableSchema

S = TypeVar("S", SnapshotSplit, LogSplit)


class Position(Protocol):
    """A point between two transactions of the source's log."""

    @property
    def order(self) -> tuple[int, ...]:
        """Sorts positions of one stream in log order."""

    def to_json(self) -> dict[str, Any]:
        """JSON values in a fixed key order."""


class CapturedTable(Protocol):
    """A table found in the catalog."""

    @property
    def schema(self) -> TableSchema:
        """Its shape; the key orders its snapshot."""

    @property
    def estimated_rows(self) -> int:
        """The catalog's estimate, for progress only."""


@dataclass(frozen=True)
class LogRange:
    """How far a batch may go in the log.

    Args:
        end: where it ends: a transaction boundary.
        has_changes: whether a captured table changed within it.
        ddl_ahead: whether a schema change is known to wait right behind or within it, so that tables
            may not look as they did at `end`.
        created: tables that a schema change within it or right behind it creates.
        is_far: whether the log moved so far in it that the stream should follow, changes or none: what is
            behind its position can be let go of.
    """

    end: Any
    has_changes: bool
    ddl_ahead: bool = False
    created: tuple[TableId, ...] = ()
    is_far: bool = False


class Log(Protocol):
    """Follows the log on the driver; looks at headers only."""

    def range_after(
        self,
        start: Any,
        *,
        upto: Any | None,
        max_bytes: int | None,
        max_rows: int | None,
        for_rows: bool = False,
    ) -> LogRange | None:
        """The next batch's share of the log after `start`, or None when there is nothing new.

        With `for_rows` the batch is to read rows as of its end: where that has to be prepared, the range ends
        where it is (`Source.shows`), as soon as it is.
        """

    def head(self) -> Any:
        """The last position known to be in the log."""

    def is_caught_up(self, position: Any) -> bool:
        """Whether the log's end is near enough to `position` for rewinding to be cheap."""

    def splits(self, split: LogSplit, slices: int) -> list[LogSplit]:
        """`split` with its events in it if they are still held and small, else cut into slices."""

    def close(self) -> None:
        """Stop following."""


class Source(Protocol):
    """A database as the driver sees it."""

    def require(self) -> None:
        """Check every precondition. Raises PreflightError naming all that fail."""

    def position(self, value: Mapping[str, Any]) -> Any:
        """The position that `to_json` wrote, on the server that answers now."""

    def server_changed(self) -> None:
        """Another server answers: what was found out about the old one is to be forgotten."""

    def starting_position(self) -> Any:
        """Where a new stream starts, by the option `startingPosition`."""

    def log_end(self) -> Any:
        """The log's end now."""

    def tables(self) -> list[CapturedTable]:
        """The captured tables that exist now."""

    def publish(self, tables: Sequence[TableSchema]) -> Sequence[TableId]:
        """Let the log carry the changes of `tables` from now on; those that it did not carry before."""

    def shows(self, position: Any) -> bool:
        """Whether rows can be read as of `position` now."""

    def as_of(self, position: Any) -> Mapping[str, Any]:
        """What a split needs to read rows as of `position`: its JSON, and more where that takes more."""

    def confirm(self, position: Any) -> None:
        """All up to `position` is in the sink for good: the log need not be kept for this stream."""

    def keep_log(self) -> None:
        """Keep the log from a batch on that is in the sink, for readers beside the stream, until `close`."""

    def boundary(self, table: TableSchema, after: Key | None, rows: int) -> Key | None:
        """The key `rows` rows after `after`, None when fewer remain."""

    def divided(self, split: SnapshotSplit, tasks: int) -> list[SnapshotSplit]:
        """`split` as up to `tasks` splits, where its rows can be told apart by more than their keys."""

    def follow(self, start: Any, knows: Callable[[TableId], bool]) -> Log:
        """Follow the log from `start` on."""

    def close(self) -> None:
        """Drop the connections; they are made anew when they are needed again."""


@dataclass(frozen=True)
class Page:
    """Some rows of a key range, with the range `(after, upto]` they are all the rows of."""

    rows: pa.StructArray
    after: Key | None
    upto: Key | None


class Session(Protocol):
    """A task's connections to the database; made lazily, used by one task."""

    @property
    def keys_only(self) -> bool:
        """Whether the log may hold just the key of a row before its change: such rows cannot be put back."""

    def located(self, split: S) -> S:
        """`split` with its positions on the server that answers; the session then reads no other.

        Raises:
            ServerChangedError: it is another one than planned with, and the batch must be planned anew.
        """

    def wait_visible(self, position: Mapping[str, Any]) -> None:
        """Return once every transaction up to `position` is visible to this session's SELECTs."""

    def pages(self, split: SnapshotSplit) -> Iterator[Page]:
        """The rows of the split's range as they are now, page by page, each one consistent SELECT.

        Rows of a table that was altered since it was planned may have another shape.
        """

    def log_end(self, after: Mapping[str, Any]) -> Any:
        """The log's end now, as a position of the stream that `after` is of; covers all a SELECT saw."""

    def changes(self, split: LogSplit) -> Iterator[ChangeBatch]:
        """The changes in `split`'s range of the log of the tables it concerns, in log order."""

    def at_or_below(self, table: TableSchema, keys: pa.StructArray, cursor: Key) -> pa.BooleanArray:
        """For each key whether it is at or below `cursor` in the table's key order."""

    def within(
        self, table: TableSchema, keys: pa.StructArray, after: Key | None, upto: Key | None
    ) -> pa.BooleanArray:
        """For each key whether it lies in `(after, upto]` in the table's key order."""

    def read_origin(self, position: Mapping[str, Any], rows: int) -> pa.RecordBatch:
        """The origin (model.change.ORIGIN) of `rows` snapshot rows as of `position`."""

    def close(self) -> None:
        """Drop the connections."""

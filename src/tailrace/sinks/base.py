"""The contract between a stream and its sink.

A stream delivers batches of *cells* (rows of `model.cell.CELL_SCHEMA`; `decode_cell` opens one). The stream
promises the sink:

* **Replay.** Batch n may come again, after a crash in the middle of it or after the sink had made it durable.
  It then holds exactly the same changes. Batch n + 1 comes only after `write` of batch n returned.
* **Order.** Within a table `seq` orders changes, across cells and batches. Spark's rows come in any order.
* **Snapshot rows apart.** In one batch the keys of a table's snapshot cells and of its log cells are
  disjoint, and over the stream's life a first snapshot brings each key once. So they can be appended.
* **Tables read again.** A table may be read once more (cells of kind REREAD): after a schema change that
  rewrote its rows, or on request. The target may have these keys. Their `seq` is above that of all log cells
  of the batch. `CellBatch.rereads` names the tables; `model.reread` says which rows to delete at the end.
* **Parked tables** are left out, with their rereadings and schema changes. A batch that comes again may lack
  tables that it had before, from then on for good. So a sink divides a batch by tables and keys only, never
  by how many rows come before others (docs/design/0008-parking.md).
* **Key updates are split** into a delete of the old key and a create of the new one.
* **Schemas.** A batch may hold two schemas of a table. A schema never returns once a later one was seen.

The sink promises the stream:

* **Durability.** `write` returns once the whole batch is durable. If it raises, the batch comes again.
* **Duplicates.** If the sink's `capabilities` say exactly-once, a batch that comes again changes nothing that
  it has changed already; otherwise its changes are written once more.
* **Order.** Readers of the target see the changes of a key in `seq` order, by the means that
  `capabilities.order` names.
* **Tables read again.** A target that holds rows equals its table once a reading has ended. A target that
  holds changes has the rows as changes with operation `r`: only those that differ, and `d` for rows that are
  gone, where the sink can read what the target has (`sinks.tables.corrections`); else all of them.
* **Targets that are gone.** Before a sink creates a target it calls `CellBatch.creates`: the tables whose
  rows came in earlier batches are read again.
* **Schema changes.** The target follows its source (`sinks.tables.columns`) or the sink raises SinkError. No
  value is dropped or altered.
* **Errors.** It raises SinkError for definite errors, TransientSinkError for transient ones, and StateError
  when the target belongs to another stream. A slow target only makes `write` slow: the stream plans no batch
  meanwhile.
* **Leases.** It writes `StreamId.lease` into each commit, and refuses a lease older than one that the target
  has: LeaseLostError, in the same transaction (`sinks.lease`). A target without an account of batches cannot.
* **Isolation.** It touches nothing outside its target and nothing in it that belongs to another stream,
  whatever names contain. Two tables share a target only where routes say so (`sinks.claims`).

The differences between sinks are data: `Capabilities`. tests/contract/test_sinks.py checks every sink. A new
sink takes one file here, two cases in `sinks.registry`, its settings in `config.sinks` and one row in that
suite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from tailrace.model.change import SNAPSHOT
from tailrace.model.reread import Reread, rereads
from tailrace.model.schema_change import (
    ColumnDropped,
    ColumnRenamed,
    SchemaChange,
    SchemaEvent,
    schema_events,
)
from tailrace.model.schema_policy import FOLLOWING, Action, Following, SchemaPolicy
from tailrace.model.soft_delete import SoftDelete
from tailrace.model.table import TableId
from tailrace.sinks.timings import READ, Timings
from tailrace.sinks.written_tables import WrittenTables
from tailrace.spark.cells import TableBatch, table_batches
from tailrace.spark.unread import columns_of, read

#: The starting positions of streams whose targets hold whole tables.
WHOLE = frozenset({"initial", "snapshot"})


def holds_whole_tables(end: Mapping[str, Any]) -> bool:
    """Whether targets hold each table as a whole, at the end of a batch; so any of them can be read again."""
    return end.get("mode") in WHOLE and not end.get("partial")


class Delivery(StrEnum):
    """How often a change is written when its batch comes again."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Order(StrEnum):
    """In which order readers of a target see changes."""

    #: The target holds rows, or has a column `_seq` to sort by.
    BY_SEQ = "by-seq"
    #: The changes of a key are in order.
    PER_KEY = "per-key"


class Unit(StrEnum):
    """The unit that becomes visible to readers at once."""

    BATCH = "batch"
    TARGET = "target"
    TASK = "task"
    ROW = "row"


@dataclass(frozen=True)
class Capabilities:
    """What a sink guarantees with its present settings.

    Args:
        delivery: what happens when a batch comes again.
        order: in which order readers see changes.
        unit: what becomes visible at once.
        holds_rows: the target holds the table's rows (upsert) rather than its changes.
        follows_schema: the sink adds new columns to the target and widens columns.
    """

    delivery: Delivery
    order: Order
    unit: Unit
    holds_rows: bool
    follows_schema: bool


@dataclass(frozen=True)
class StreamId:
    """A stream's identity.

    Args:
        pipeline: the pipeline's name.
        query: Spark's id of the checkpoint; it lives as long as the checkpoint.
        lease: the number of the lease under which it is written (`sinks.lease`); 0: no server runs it.
    """

    pipeline: str
    query: str
    lease: int = field(default=0, compare=False)


@dataclass(frozen=True)
class CellBatch:
    """One micro-batch of cells.

    Args:
        stream: the stream.
        id: Spark's number of the batch.
        once: the cells, for a single action: unless they are cached, each action reads the source again. Or
            splits in their place, which the action's tasks read: see `columns_once`.
        end: the stream offset at the batch's end, None if it is unknown; without the tables left out.
        left_out: the parked tables (`database.table`): nothing is to be done with their targets.
        written_tables: the tables that the stream has written; None: unknown.
        policy: what targets do about schema changes; None: their columns are not the source's.
        following: how targets follow the columns of rows, whether they are the source's or not.
        soft_deletes: how rows are marked that a table no longer has, by table, where targets keep them.
        sink: the name of the sink that writes it.
        timings: notes when steps of writing it begin and end.
        quarantined: number of changes that sinks have put into quarantine, by sink and table.
    """

    stream: StreamId
    id: int
    once: DataFrame
    end: Mapping[str, Any] | None
    left_out: frozenset[str] = frozenset()
    written_tables: WrittenTables | None = None
    policy: SchemaPolicy | None = None
    following: Following = FOLLOWING
    soft_deletes: Mapping[str, SoftDelete] = field(default_factory=dict)
    sink: str = ""
    timings: Timings = field(default_factory=Timings, compare=False)
    quarantined: Counter[tuple[str, str]] = field(default_factory=Counter, compare=False)

    @cached_property
    def rereads(self) -> Mapping[str, Reread]:
        """The tables that are read again."""
        return rereads(self.end)

    @cached_property
    def schema_events(self) -> list[SchemaEvent]:
        """The schema changes that come before everything else in the batch, in log order."""
        return schema_events(self.end)

    @cached_property
    def column_events(self) -> list[SchemaEvent]:
        """The schema changes that rename or drop columns, as far as targets follow them."""
        if self.policy is None:
            return []
        action = self.policy.action

        def is_followed(change: SchemaChange) -> bool:
            return isinstance(change, ColumnDropped | ColumnRenamed) and action(change) is Action.APPLY

        events = [replace(e, changes=tuple(filter(is_followed, e.changes))) for e in self.schema_events]
        # one without changes tells what columns the table has in the end
        return events if any(event.changes for event in events) else []

    @cached_property
    def drops_columns(self) -> bool:
        """Whether targets drop all columns that their source no longer has."""
        made = (ColumnDropped(""), ColumnRenamed("", ""))
        return self.policy is not None and all(self.policy.action(c) is Action.APPLY for c in made)

    def creates(self, target: str, tables: Iterable[TableId]) -> bool:
        """Say that a target is about to be created, and have its tables read again where it lacks rows.

        Args:
            target: its name.
            tables: all tables that it holds.

        Returns:
            Whether earlier batches have brought rows of these tables.
        """
        # a stream that began with the log, without a snapshot, has promised no table as a whole
        if self.written_tables is None or self.end is None or self.end.get("mode") not in WHOLE:
            return False
        partial = frozenset(self.end.get("partial", ()))
        whole = [table for table in tables if str(table) not in partial]
        return self.written_tables.read_again(self.id, target, whole)

    def lacks_columns(self, target: str, tables: Iterable[TableId]) -> None:
        """Say that a target has not renamed or dropped the columns of its tables: they are read again.

        Args:
            target: its name.
            tables: its tables whose columns were renamed or dropped in the batch.
        """
        unread = [table for table in tables if str(table) not in self.rereads]
        if unread and self.written_tables is not None:
            self.written_tables.read_again(
                self.id, target, unread, "keeps columns that were renamed or dropped"
            )

    def keeps_columns(self, target: str, tables: Iterable[TableId]) -> None:
        """Say that a target of several tables keeps all columns: those of `lacks_columns` are read again.

        Args:
            target: its name.
            tables: all its tables.
        """
        changed = {event.table for event in self.column_events if event.changes}
        self.lacks_columns(target, [table for table in tables if str(table) in changed])

    @property
    def spark(self) -> SparkSession:
        """The stream's own session."""
        return self.once.sparkSession

    @cached_property
    def frame(self) -> DataFrame:
        """The cells, cached until `close`."""
        return self.once if self.once.is_cached else read(self.once).persist()

    def columns_once(self, *names: str) -> DataFrame:
        """Columns of the cells, for a single action, whose tasks call `cells_in` (or `changes_of`)."""
        return columns_of(self.once, *names)

    @cached_property
    def table_batches(self) -> list[TableBatch]:
        """The contents of the batch, table by table."""
        with self.timings.step(self.sink, READ):
            return table_batches(self.frame)

    def close(self) -> None:
        """Release the cached cells, when the batch is written or has failed."""
        cells = self.__dict__.get("frame", self.once)
        if cells.is_cached:
            cells.unpersist()


@dataclass(frozen=True)
class Written:
    """What a sink has written of one table.

    Args:
        table: the source table.
        target: the sink's name of its target.
        snapshot_rows: number of snapshot rows.
        changes: number of changes from the log.
    """

    table: TableId
    target: str
    snapshot_rows: int
    changes: int

    @classmethod
    def of(cls, part: TableBatch, target: str) -> Written:
        """All of `part` written to `target`."""
        return cls.counted(part.table, part.kind, part.changes, target)

    @classmethod
    def counted(cls, table: TableId, kind: str, changes: int, target: str) -> Written:
        """`changes` changes of a kind written to `target`."""
        snapshot = kind == SNAPSHOT
        return cls(table, target, changes if snapshot else 0, 0 if snapshot else changes)


class Sink(Protocol):
    """Writes batches, one after the other, on one thread."""

    @property
    def capabilities(self) -> Capabilities:
        """What the sink guarantees."""

    @property
    def pending_rows(self) -> int:
        """Number of changes that are durable and that readers of the targets do not see yet."""

    def claim(self, tables: Iterable[TableId]) -> None:
        """Check that each table can have its target, shared with others only where routes say so.

        Raises:
            ConfigError: a table cannot have its target.
        """

    def write(self, batch: CellBatch) -> list[Written]:
        """Make `batch` durable.

        Raises:
            ConfigError: as `claim`, for tables that were not claimed.
            SinkError: the batch cannot be written.
            StateError: the target belongs to another stream.
        """

    def close(self) -> None:
        """Release threads and sessions; no more batches come."""

"""What a sink is.

A stream comes as batches of *cells* (rows of `model.cell.CELL_SCHEMA`; `decode_cell` opens one). The stream
promises the sink:

* **Replay.** Batch n may come again, after a crash in the middle of it or after the sink had made it durable,
  and then holds exactly the same changes. Batch n + 1 comes only after `write` of batch n returned.
* **Order.** Within a table `seq` orders changes, across cells and batches. Rows of Spark come in any order.
* **Snapshot rows apart.** In one batch the keys of a table's snapshot cells and of its log cells are
  disjoint, and over the stream's life a first snapshot brings each key once. So they can be appended.
* **Key updates are split** into a delete of the old key and a create of the new one.
* **Shapes.** A batch may hold two shapes of a table. A shape never comes back once a later one was seen.

The sink promises the stream:

* **Durability.** `write` returns once the batch is durable, wholly. If it raises, the batch comes again.
* **Duplicates.** A batch that comes again changes nothing that it had changed already, if the sink's
  `capabilities` say exactly-once; else its changes are there once more.
* **Order.** Who reads the target sees the changes of a key in `seq` order, by the means that
  `capabilities.order` names.
* **Schema changes.** The target follows its source (`sinks.tables.columns`) or the sink raises SinkError; no
  value is dropped or made another one.
* **Refusals.** It raises SinkError for what will fail again, TransientSinkError for what may pass, StateError
  when the target holds what is not this stream's. A slow target makes `write` slow and nothing else: the
  stream plans no batch meanwhile.
* It touches nothing outside its target and nothing in there that belongs to another stream, whatever is in
  names. Two tables have one target only where the routes bring them together (`sinks.claims`).

What differs between sinks is data: `Capabilities`. tests/contract/test_sinks.py holds every sink to both.
A new sink is one file here, one line in `sinks.registry`, its settings in `config.sinks`, one row in that
suite.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from tailrace.model.cell import SNAPSHOT
from tailrace.model.table import TableId
from tailrace.spark.cells import TableBatch, table_batches


class Delivery(StrEnum):
    """What a batch that comes again does to a target."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Order(StrEnum):
    """In which order readers of a target meet changes."""

    #: A target holds rows, or carries `_seq` to sort by.
    BY_SEQ = "by-seq"
    #: The changes of a key come in order.
    PER_KEY = "per-key"


class Unit(StrEnum):
    """What becomes visible to readers all at once."""

    BATCH = "batch"
    TARGET = "target"
    TASK = "task"
    ROW = "row"


@dataclass(frozen=True)
class Capabilities:
    """What a sink does, as it is set.

    Args:
        delivery: whether a batch that comes again leaves a mark.
        order: in which order changes are met.
        unit: what becomes visible at once.
        holds_rows: the target holds the table as it is (upsert), else its changes.
        follows_schema: new and wider columns reach the target by themselves.
    """

    delivery: Delivery
    order: Order
    unit: Unit
    holds_rows: bool
    follows_schema: bool


@dataclass(frozen=True)
class StreamId:
    """Which stream a batch is of.

    Args:
        pipeline: the pipeline's name.
        query: Spark's id of the checkpoint: the same for as long as the checkpoint lives.
    """

    pipeline: str
    query: str


@dataclass(frozen=True)
class CellBatch:
    """One micro-batch of cells.

    Args:
        stream: the stream.
        id: Spark's number of the batch.
        once: the cells, for one action and no more: each reads the source again, unless they are cached.
        end: the stream offset at the batch's end, None where there is none to be had.
    """

    stream: StreamId
    id: int
    once: DataFrame
    end: Mapping[str, Any] | None

    @property
    def spark(self) -> SparkSession:
        """The stream's own session."""
        return self.once.sparkSession

    @cached_property
    def frame(self) -> DataFrame:
        """The cells, cached until `close`."""
        return self.once if self.once.is_cached else self.once.persist()

    @cached_property
    def parts(self) -> list[TableBatch]:
        """What the batch holds, table by table."""
        return table_batches(self.frame)

    def close(self) -> None:
        """Let go of the cached cells, when the batch is written or has failed."""
        if self.once.is_cached:
            self.once.unpersist()


@dataclass(frozen=True)
class Written:
    """What a sink did with one table's part of a batch.

    Args:
        table: the source's table.
        target: what the sink calls its target.
        snapshot_rows: rows of the snapshot.
        changes: changes of the log, as they came.
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
        """So many changes of a kind written to `target`."""
        snapshot = kind == SNAPSHOT
        return cls(table, target, changes if snapshot else 0, 0 if snapshot else changes)


class Sink(Protocol):
    """Takes batches, one after the other, from one thread."""

    @property
    def capabilities(self) -> Capabilities:
        """What it does."""

    def claim(self, tables: Iterable[TableId]) -> None:
        """Make sure that tables of the stream have targets, each its own but where the routes say otherwise.

        Raises:
            ConfigError: one of them cannot have its target.
        """

    def write(self, batch: CellBatch) -> list[Written]:
        """Make `batch` durable.

        Raises:
            ConfigError: as `claim`, of tables that were not claimed.
            SinkError: it cannot be written.
            StateError: the target is not this stream's.
        """

    def close(self) -> None:
        """Let go of threads and sessions; no batch comes any more."""

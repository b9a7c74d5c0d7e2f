"""A sink whose rows have versions: the steps of a batch, the same for each system.

    driver   create or alter targets (`_prepare`); note that the batch begins (`_note`)
    tasks      rows, each with the version of the batch (`_write_rows`)
    driver   remove what tables that were read again no longer have (`_remove`); note that the batch is done

What an attempt has written, the next one writes to no effect (`sinks.versions`).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import ClassVar, Generic, TypeVar

from tailrace.errors import SinkError
from tailrace.failpoints import failpoint
from tailrace.model.table import TableId
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, Unit, Written
from tailrace.sinks.claims import Claims
from tailrace.sinks.replica.plan import Work
from tailrace.sinks.replica.row_tasks import Outcome
from tailrace.sinks.tables.rereads import Refresh, refreshes_by_target
from tailrace.sinks.tables.targets import add_targets_without_rows, by_target, of_one_table, written
from tailrace.sinks.timings import COMMIT
from tailrace.sinks.versions import NEVER
from tailrace.spark.cells import TableBatch

_log = logging.getLogger(__name__)

#: An attempt to write a batch, as a system's tasks know it.
A = TypeVar("A")


class VersionedSink(ABC, Generic[A]):
    """Keeps targets equal to the rows of tables, by versions.

    Args:
        claims: names the targets.
        parallelism: tasks that write changes at the same time.
    """

    #: The code of the error for a target that was dropped while it was written: it is created anew.
    gone: ClassVar[str]

    def __init__(self, claims: Claims, parallelism: int) -> None:
        self._claims = claims
        self._parallelism = parallelism

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`."""
        return Capabilities(
            Delivery.EXACTLY_ONCE, Order.BY_SEQ, Unit.ROW, holds_rows=True, follows_schema=True
        )

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        self._claims.add(tables)

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        work = by_target(batch.table_batches, self._claims)
        readings = refreshes_by_target(batch, self._claims)
        read = [name for name, of_target in readings.items() if any(r.reread.done for r in of_target)]
        add_targets_without_rows(work, batch, self._claims, read)
        self._add_dependent(work, batch)
        if work:
            with batch.timings.step(batch.sink, COMMIT):
                try:
                    self._write(batch, work, readings)
                except SinkError as error:
                    self._forget()
                    if error.code != self.gone:
                        raise
                    self._write(batch, work, readings)
        return written(work)

    def _write(self, batch: CellBatch, work: Work, readings: Mapping[str, Sequence[Refresh]]) -> None:
        done = self._done(batch, work)
        todo = {}
        stages = self._stages(work)
        for name in chain.from_iterable(stages):
            parts = work[name]
            with of_one_table({part.table for part in parts} or self._claims.of(name)):
                exists = self._prepare(batch, name, parts, readings.get(name, ()))
            if exists and done.get(name, NEVER) < batch.id:
                todo[name] = parts
        attempt = self._attempt(batch, todo)
        self._note(batch, attempt, {name: done.get(name, NEVER) for name in todo})
        for names in stages:
            stage = {name: todo[name] for name in names if name in todo}
            self._begin(attempt, stage)
            self._write_stage(batch, attempt, stage, work, readings)

    def _write_stage(
        self,
        batch: CellBatch,
        attempt: A,
        todo: Work,
        work: Work,
        readings: Mapping[str, Sequence[Refresh]],
    ) -> None:
        filled = {name: parts for name, parts in todo.items() if parts}
        outcome = self._write_rows(batch, filled, attempt) if filled else Outcome()
        for name, error in outcome.errors.items():
            with of_one_table(part.table for part in filled[name]):
                raise error
        for table, count in outcome.quarantined.items():
            batch.quarantined[batch.sink, table] += count
            _log.warning("batch %d: %d rows of table %s refused, now in quarantine", batch.id, count, table)
        for name in todo:
            ended = [refresh for refresh in readings.get(name, ()) if refresh.reread.done]
            if ended:
                failpoint("sink.seen")
            for refresh in ended:
                with of_one_table([refresh.table]):
                    self._remove(attempt, name, refresh)
            with of_one_table(self._claims.of(name)):
                self._complete(batch, attempt, name, work, readings)
            self._note_done(batch, attempt, name)
            if ended:
                failpoint("sink.reread")
            failpoint("sink.table")

    def _add_dependent(self, work: dict[str, list[TableBatch]], batch: CellBatch) -> None:
        """Add targets that depend on those of a batch, and have no rows in it."""

    def _stages(self, work: Work) -> Sequence[Sequence[str]]:
        """The targets in groups: one is complete before the next one begins."""
        return [list(work)]

    def _begin(self, attempt: A, todo: Collection[str]) -> None:
        """Prepare for the writing of a group of targets."""

    def _complete(
        self,
        batch: CellBatch,
        attempt: A,
        name: str,
        work: Work,
        readings: Mapping[str, Sequence[Refresh]],
    ) -> None:
        """Write what follows from the rows of other targets, once those of a target itself are written."""

    def _note_done(self, batch: CellBatch, attempt: A, name: str) -> None:
        """Note that a target has the batch as a whole."""
        self._note(batch, attempt, {name: batch.id})

    @abstractmethod
    def _forget(self) -> None:
        """Forget what is known of targets: it may have changed."""

    @abstractmethod
    def _done(self, batch: CellBatch, targets: Collection[str]) -> Mapping[str, int]:
        """The last batch that each target has as a whole, by name, of those that have begun."""

    @abstractmethod
    def _prepare(
        self, batch: CellBatch, name: str, parts: Sequence[TableBatch], readings: Sequence[Refresh]
    ) -> bool:
        """Create a target, or give it the batch's columns; False: there is none, and none is needed."""

    @abstractmethod
    def _attempt(self, batch: CellBatch, targets: Collection[str]) -> A:
        """A new attempt to write targets, which exist."""

    @abstractmethod
    def _note(self, batch: CellBatch, attempt: A, done: Mapping[str, int]) -> None:
        """Note that targets have something of the batch, and which is the last that they have as a whole."""

    @abstractmethod
    def _write_rows(self, batch: CellBatch, work: Work, attempt: A) -> Outcome:
        """Write the rows of targets."""

    @abstractmethod
    def _remove(self, attempt: A, name: str, refresh: Refresh) -> None:
        """Remove the rows of a target that its table, which was read again, no longer has."""

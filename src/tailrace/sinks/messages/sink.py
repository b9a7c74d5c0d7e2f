"""The driver's part of sinks that write messages to systems other than Kafka.

A batch is divided by key among a number of writers (`writer`), in one pass over its cells where it holds what
is expected, as in the Kafka sink. What differs from system to system is a `System`: the targets' names,
whether they exist, and how tasks reach them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from tailrace.config.sink_settings import JsonMessageSettings
from tailrace.errors import concerning
from tailrace.failpoints import failpoint
from tailrace.formats.base import MessageFormat
from tailrace.model.table import TableId, TableSchema
from tailrace.sinks.base import Capabilities, CellBatch, Delivery, Order, Unit, Written
from tailrace.sinks.claims import Claims
from tailrace.sinks.messages import job
from tailrace.sinks.messages.formats import json_format
from tailrace.sinks.messages.job import Reports, WrittenPass
from tailrace.sinks.messages.writer import Channels, MessageShare, cut_share, write_share
from tailrace.sinks.route import Router
from tailrace.sinks.single_pass import Schemas, SinglePass


class System(Protocol):
    """A message system, as the driver knows it."""

    @property
    def delivery(self) -> Delivery:
        """What happens when a batch comes again."""

    def target(self, table: TableId) -> str:
        """The name of the target of a table's messages in the system."""

    def existing(self, targets: Collection[str]) -> Collection[str]:
        """Those of the targets that exist; all of them, where targets are not created.

        Raises:
            TransientSinkError: the system does not answer.
            SinkError: it refuses.
        """

    def begin(self, batch: CellBatch, writers: int, *, is_first: bool) -> int:
        """Prepare to write a batch.

        Args:
            batch: the batch.
            writers: the number of writers of a batch that is new.
            is_first: whether the batch is the first of a run, comes again, or follows one that has failed.

        Returns:
            The number of its writers.

        Raises:
            StateError: the targets belong to another stream.
        """

    def channels(self, targets: Collection[str], missing: Collection[str]) -> Channels:
        """The way to targets; see `existing`.

        Args:
            targets: the targets.
            missing: those of them that are to be created.

        Raises:
            TransientSinkError: another one is missing: somebody has just deleted it.
            StateError: one belongs to another stream.
        """

    def close(self) -> None:
        """Release connections."""


class MessageSink:
    """Writes each table's changes as messages.

    Args:
        settings: the sink's.
        router: names the targets.
        system: where to.
        format: makes messages.
    """

    def __init__(
        self,
        settings: JsonMessageSettings,
        router: Router,
        system: System,
        format: MessageFormat,  # noqa: A002 - the format
    ) -> None:
        self._settings = settings
        self._system = system
        self._format = format
        self._claims = Claims(router, lambda table: [system.target(table)])
        self._single_pass = SinglePass()
        #: The last batch that this sink has written; None: the next one may have been sent in part.
        self._written: int | None = None

    @property
    def capabilities(self) -> Capabilities:
        """See `Sink.capabilities`: each message is complete, so targets need not follow a schema."""
        return Capabilities(
            self._system.delivery, Order.PER_KEY, Unit.ROW, holds_rows=False, follows_schema=False
        )

    @property
    def pending_rows(self) -> int:
        """See `Sink.pending_rows`: readers see what is durable."""
        return 0

    def claim(self, tables: Iterable[TableId]) -> None:
        """See `Sink.claim`."""
        self._claims.add(tables)

    def write(self, batch: CellBatch) -> list[Written]:
        """See `Sink.write`."""
        is_first = self._written is None or batch.id <= self._written
        self._written = None
        default = self._settings.parallelism or batch.spark.sparkContext.defaultParallelism
        writers = self._system.begin(batch, default, is_first=is_first)
        written = _Batch(
            batch, self._system, self._format, self._claims, self._single_pass, writers, may_repeat=is_first
        ).write()
        self._written = batch.id
        return written

    def close(self) -> None:
        """See `Sink.close`."""
        self._system.close()


def message_sink(
    settings: JsonMessageSettings, router: Router, system: System, connector: str, database: str = ""
) -> MessageSink:
    """The sink of a system whose messages are JSON.

    Args:
        settings: the sink's.
        router: names the targets.
        system: where to.
        connector: Debezium's name of the source's kind.
        database: the source's database, where tables are in one (PostgreSQL).

    Raises:
        ConfigError: a setting is not allowed.
    """
    return MessageSink(settings, router, system, json_format(settings, router, connector, database))


@dataclass(frozen=True)
class _Batch:
    """A batch and what it is written with.

    Args:
        batch: the batch.
        system: where to.
        format: makes messages.
        claims: names the targets.
        single_pass: what the sink expects of the batch.
        writers: the number of writers.
        may_repeat: whether messages of the batch may have been sent before.
    """

    batch: CellBatch
    system: System
    format: MessageFormat
    claims: Claims
    single_pass: SinglePass
    writers: int
    may_repeat: bool

    def write(self) -> list[Written]:
        """Write it."""
        return self.single_pass.write(self.batch, self._one_pass, self._commit, self._write_found)

    @contextmanager
    def _one_pass(self, schemas: Schemas) -> Iterator[WrittenPass | None]:
        """Write the batch if it holds nothing but `schemas` with targets; None where one pass cannot."""
        names = {schema.id: self.system.target(schema.id) for schema in schemas.values()}
        existing = self.system.existing(set(names.values()))
        gone = {table for table, name in names.items() if name not in existing}
        self.single_pass.forget(gone)
        expected = [schema for schema in schemas.values() if schema.id not in gone]
        share = self._share(expected, missing=()) if expected else None
        if share is None or share.undivided:
            yield None
            return
        share = replace(share, schemas=frozenset(schema.text for schema in expected))
        yield WrittenPass({str(s.id): s.id for s in expected}, self._run(share, is_whole=True))

    def _commit(self, done: WrittenPass) -> list[Written]:
        failpoint("sink.table")
        return [
            Written.counted(done.tables[name], kind, changes, self.claims.router.target(done.tables[name]))
            for (name, kind), changes in sorted((done.reports.changes or {}).items())
        ]

    def _write_found(self) -> list[Written]:
        """Write the batch by what it holds."""
        found = self.batch.table_batches
        self.claims.add(part.table for part in found)
        router = self.claims.router
        names = {part.table: self.system.target(part.table) for part in found}
        existing = self.system.existing(set(names.values()))
        for target in sorted({router.target(t) for t, name in names.items() if name not in existing}):
            self.batch.creates(target, self.claims.of(target))
        if found:
            schemas = [schema for part in found for schema in part.schemas]
            share = self._share(schemas, missing=set(names.values()) - set(existing))
            self._run(share, is_whole=False)
            failpoint("sink.table")
        return [Written.of(part, router.target(part.table)) for part in found]

    def _share(self, schemas: Sequence[TableSchema], missing: Collection[str]) -> MessageShare:
        keys: dict[str, set[str]] = {}
        for schema in schemas:
            with concerning(schema.id, sink=True):
                self.format.schemas(schema)  # refuses tables that it has no form for
            key = [(name, str(schema.column(name).type.arrow)) for name in schema.key]
            keys.setdefault(str(schema.id), set()).add(str(key))
        targets = {str(schema.id): self.system.target(schema.id) for schema in schemas}
        batch = self.batch
        return MessageShare(
            channels=self.system.channels(set(targets.values()), missing),
            targets=targets,
            format=self.format,
            writers=self.writers,
            undivided=frozenset(table for table, found in keys.items() if len(found) > 1),
            now_ms=time.time_ns() // 1_000_000,
            stream=f"{batch.stream.query}/{batch.sink}",
            batch=batch.id,
            may_repeat=self.may_repeat,
        )

    def _run(self, share: MessageShare, *, is_whole: bool) -> Reports:
        def cut(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return cut_share(share, rows)

        def write(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return write_share(share, rows)

        columns = "min_seq", "cell"
        cells = self.batch.columns_once(*columns) if is_whole else self.batch.frame.select(*columns)
        missing = range(share.writers)
        is_cut = share.writers > 1 or share.schemas is not None
        return job.run_writers(cells, cut if is_cut else None, write, share.writers, missing)

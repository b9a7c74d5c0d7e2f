"""One batch on its way to Kafka: in one pass over its cells where it can, else by what it holds."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import DataFrame

from tailrace.config.outbox import InvalidOperation
from tailrace.errors import SinkError
from tailrace.failpoints import failpoint
from tailrace.formats.connect.topics import collision
from tailrace.model.change import ChangeBatch
from tailrace.model.table import TableId
from tailrace.sinks.base import CellBatch, Written
from tailrace.sinks.claims import Claims
from tailrace.sinks.kafka.job import ShareFactory, content_topics, keyed_cells, run_writers
from tailrace.sinks.kafka.side_topics import SideTopics
from tailrace.sinks.kafka.stream import KafkaStream
from tailrace.sinks.kafka.transaction_order import with_order
from tailrace.sinks.kafka.truncations import is_told, truncation_cells, truncations
from tailrace.sinks.messages.job import Reports, WrittenPass
from tailrace.sinks.single_pass import Schemas, SinglePass
from tailrace.spark.cells import table_batches

_log = logging.getLogger(__name__)


@dataclass
class KafkaBatch:
    """A batch and what it is written with.

    Args:
        batch: the batch.
        stream: which writers have written which batch.
        shares: makes what tasks need.
        side_topics: writes the side topics.
        claims: names the targets.
        single_pass: what the sink expects of the batch.
        has_order: whether messages have the order of changes within their transactions.
        needs_columns: whether messages carry the columns of their tables, as a schema.
        may_be_whole: whether one writer writes a batch that one task reads.
    """

    batch: CellBatch
    stream: KafkaStream
    shares: ShareFactory
    side_topics: SideTopics
    claims: Claims
    single_pass: SinglePass
    has_order: bool
    needs_columns: bool = False
    may_be_whole: bool = True
    #: How many writers the batch has, and those that have not written it yet.
    writers: int = field(init=False)
    missing: list[int] = field(init=False)

    def __post_init__(self) -> None:
        most = 1 if self.may_be_whole and self._in_one_task else sys.maxsize
        self.writers, self.missing = self.stream.missing(self.batch.id, most)

    @cached_property
    def _in_one_task(self) -> bool:
        """Whether one task reads the batch."""
        return self.batch.once.rdd.getNumPartitions() == 1

    @cached_property
    def truncated(self) -> frozenset[str]:
        """The tables with a TRUNCATE in the batch: each has one writer, whether that is written or not.

        So the same writer has the same changes if the batch comes again with other settings.
        """
        return frozenset(e.table for e in self.batch.schema_events if is_told(e))

    @cached_property
    def truncations(self) -> list[ChangeBatch]:
        """The TRUNCATEs to be written."""
        if not self.shares.skipped.has_truncates:
            return []
        batch = self.batch
        return truncations(batch.schema_events, batch.left_out, needs_columns=self.needs_columns)

    def write(self) -> list[Written]:
        """Write what is not written yet."""
        self._creates(self.shares.gone(self.claims.tables))
        return self.single_pass.write(self.batch, self._one_pass, self._commit, self._write_found)

    @contextmanager
    def _one_pass(self, schemas: Schemas) -> Iterator[WrittenPass | None]:
        """Write the batch if it holds nothing but `schemas`; None where one pass cannot."""
        is_more = self.has_order or self.truncated or self.side_topics.tells_of(self.batch)
        if len(self.missing) < self.writers or is_more:
            yield None
            return
        existing = self.shares.with_topic(schemas)
        self.single_pass.forget(schema.id for key, schema in schemas.items() if key not in existing)
        expected = list(existing.values())
        share = self.shares.share(self.batch.id, self.stream, self.writers, expected) if expected else None
        if share is None or share.undivided:
            yield None
            return
        texts = frozenset(self.shares.keyed(schema).text for schema in expected)
        share = replace(share, schemas=texts)
        cells = self.batch.columns_once("min_seq", "cell")
        in_one_task = self.writers == 1 and self._in_one_task
        reports = run_writers(cells, share, self.missing, in_one_task=in_one_task)
        if in_one_task and not reports.is_complete:
            self.stream.tokens.clear()  # the writer that gave up has fenced its predecessor
        yield WrittenPass({str(s.id): s.id for s in expected}, reports)

    def _commit(self, done: WrittenPass) -> list[Written]:
        """Note what one pass has written."""
        self._note(done.reports)
        return [
            Written.counted(done.tables[name], kind, changes, self.claims.router.target(done.tables[name]))
            for (name, kind), changes in sorted((done.reports.changes or {}).items())
        ]

    def _write_found(self) -> list[Written]:
        """Write the batch by what it holds."""
        cells, found = self.batch.frame, self.batch.table_batches
        if self.truncations:
            cells = cells.unionByName(self.batch.spark.createDataFrame(*truncation_cells(self.truncations)))
            found = table_batches(cells)
        if self.has_order and self.shares.division.message_keys is not None:
            cells = keyed_cells(cells, self.shares.division)  # before its changes are counted
        self.claims.add(part.table for part in found)
        self._find_content_topics(cells, {part.table for part in found})
        self._creates(self.shares.without_topic(part.table for part in found))
        if found or self.side_topics.tells_of(self.batch):
            self.side_topics.write(self.batch, self.stream, cells)
        if found and self.missing:
            schemas = [schema for part in found for schema in part.cell_schemas]
            share = self.shares.share(
                self.batch.id,
                self.stream,
                self.writers,
                schemas,
                truncated=self.truncated,
                truncations=self.truncations,
            )
            self._note(run_writers(self._to_write(cells), share, self.missing))
        return [Written.of(part, self.claims.router.target(part.table)) for part in found]

    def _find_content_topics(self, cells: DataFrame, tables: Iterable[TableId]) -> None:
        """Find the topics that the batch's rows name.

        Raises:
            SinkError: one of them has another purpose.
        """
        division = self.shares.division
        naming = [table for table in tables if division.names_topics(table)]
        if not naming:
            return
        topics = content_topics(cells, division, naming)
        if taken := [topic for topic in sorted(topics) if self.claims.is_taken(collision(topic))]:
            raise SinkError(
                f"rows name topic `{taken[0]}`, which has another purpose",
                "it is that of a table, or the sink needs it for itself",
                "set `route-topic-replacement` in the section `outbox`; with `topic-by`, route the table to "
                "another target",
                code="TR-7609",
            )
        self.shares.note_content_topics(topics)

    def _creates(self, tables: Iterable[TableId]) -> None:
        """Say that the topics of tables are about to be created."""
        for target in sorted({self.claims.router.target(table) for table in tables}):
            self.batch.creates(target, self.claims.of(target))

    def _to_write(self, cells: DataFrame) -> DataFrame:
        """The cells to be written: columns `min_seq` and `cell`."""
        if self.has_order:
            return with_order(cells, self.shares.skipped)
        return cells.select("min_seq", "cell")

    def _note(self, reports: Reports) -> None:
        """Note that all writers have written the batch."""
        self.stream.tokens |= reports.tokens
        self.shares.note_quarantined(reports.refused)
        for table, count in reports.refused.items():
            self.batch.quarantined[self.batch.sink, table] += count
            _log.warning(
                "batch %d: %d changes of table %s refused, now in `%s`",
                self.batch.id,
                count,
                table,
                self.shares.quarantine,
            )
        for table, count in reports.ignored.items():
            is_error = self.shares.outbox_behavior is InvalidOperation.ERROR
            _log.log(
                logging.ERROR if is_error else logging.WARNING,
                "batch %d: %d updates of outbox %s ignored",
                self.batch.id,
                count,
                table,
            )
        failpoint("sink.table")
        self.stream.done(self.batch.id, reports.writers)

"""Verification: the source's rows as of P(n) compared with the target after batch n, under load.

    last committed batch n ─▶ its end offset: P(n), cursors
          ├─▶ source: every row as of P(n), below the cursors ─▶ checksums of buckets ┐
          └─▶ target: as batch n left it (`targets`)          ─▶ checksums of buckets ┴▶ differing buckets
                                          rows of these buckets, from both sides ─▶ compared by key

Where there is a Spark, its tasks read and hash the source, and targets that are files.
Both sides are compared at the same position, so a row that is changed during the verification is not
reported. The target after batch n is defined by docs/design/0001-as-of-snapshots.md, and a rewind returns the
source's rows at that position, whenever they are read. The source is read a second time only where something
differs.

The batch and its offset come from Spark's checkpoint, not from the targets' commits, which record them, too:
a table that a batch did not touch could not show that its changes were lost, while the checkpoint tells the
position that *every* table must have reached.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.config.model import Pipeline
from tailrace.config.options import SourceOptions
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.snapshot import KeyRange
from tailrace.errors import ConfigError, StateError
from tailrace.machine import cores
from tailrace.model.table import TableId
from tailrace.pipeline.rules import Transforms
from tailrace.pipeline.tables_in_force import with_tables_in_force
from tailrace.sinks.route import Router
from tailrace.sources import registry
from tailrace.sources.base import Source
from tailrace.spark.checkpoint import Checkpoint, PlannedBatch
from tailrace.spark.sql import own_session
from tailrace.verify.checksum import Checksums, Shards
from tailrace.verify.compare import Differences, compare
from tailrace.verify.kept import KeptComparison, RangeRead
from tailrace.verify.portion import ComparedPart, KeyRanges, holds_numbers, key_ranges
from tailrace.verify.progress import NO_PROGRESS, ReadProgress
from tailrace.verify.range_reader import PAGE_ROWS, RangeReader, SourceTable
from tailrace.verify.replica import ReplicaTargets
from tailrace.verify.report import PRINTED_ROWS, Report, TargetReport
from tailrace.verify.source import Reader, Stopping, by_table, ranges
from tailrace.verify.source_tasks import SourceTasks
from tailrace.verify.tables import Routing, tables_by_target
from tailrace.verify.targets import ComparedTarget, ComparedTargets, targets_of

#: Most rows of both sides that are compared row by row, per target.
EXAMINED_ROWS = 250_000
#: Rows that Spark passes to a task's Python worker at a time.
ROWS_PER_BATCH = 16_384


def verify(
    pipeline: Pipeline,
    spark: SparkSession | None,
    *,
    pattern: str | None = None,
    limit: int = PRINTED_ROWS,
    parallelism: int = 4,
    limits: SourceOptions | None = None,
    settled: bool = False,
    patience_s: float = 5.0,
    progress: ReadProgress = NO_PROGRESS,
    portion: ComparedPart | None = None,
    resume: bool | None = None,
) -> Report:
    """Compare every target of `pipeline` with its source.

    Args:
        pipeline: a pipeline with a sink that can be verified, running or stopped.
        spark: a session, with Delta for its tables; its tasks read the source. None: this process reads it,
            and the sink is no table of Delta or Iceberg.
        pattern: regular expression over whole `database.table` names: only these tables.
        limit: most differing rows to report of each kind and target.
        parallelism: connections that read the source, and as many that read a target which is a database.
        limits: options with the limits of reading, as of snapshots; None: there are none.
        settled: see `tables_by_target`.
        patience_s: how long to wait for the end of a batch that is being written, for a replica.
        progress: hears of the source's rows that are read.
        portion: the part of the rows to compare; None: all of them.
        resume: of targets that show earlier states: go on with a comparison that was interrupted; False:
            forget it, and keep how far this one comes; None: keep nothing.

    Returns:
        The result.

    Raises:
        ConfigError: the sink cannot be verified, or not later on, or no table matches.
        StateError: the pipeline has not committed a batch yet, or none that can be compared, or was writing
            a replica all the time; or there is nothing to go on with, or the log is gone.
        TailraceError: an error of the source.
    """
    started = time.monotonic()
    pipeline = with_tables_in_force(pipeline)
    if spark is not None:
        spark = own_session(spark)
        # more than in a pipeline's session: keys and hashes are small
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS_PER_BATCH)
    checkpoint = Checkpoint(pipeline.checkpoint)
    routing = routing_of(pipeline)
    stopping = Stopping()
    tasks = None if spark is None else SourceTasks(spark)
    interrupted = KeptComparison.batch(pipeline.checkpoint) if resume else None

    def opened() -> tuple[ComparedTargets, PlannedBatch]:
        def last() -> PlannedBatch:
            return interrupted or last_batch(checkpoint)

        return targets_of(
            pipeline.sinks,
            pipeline.source,
            routing.router,
            spark,
            last,
            pattern=pattern,
            patience_s=patience_s,
            connections=min(parallelism, cores()),
        )

    with ExitStack() as stack:
        source = stack.enter_context(closing(registry.source(pipeline.source)))
        source.keep_log()  # first: the log after the batch must be kept until the comparison ends

        def reader_of(end: StreamOffset) -> Reader:
            assert end.log is not None
            as_of = source.as_of(source.position(end.log))
            keeps_times = isinstance(targets, ReplicaTargets)
            ranges_ = RangeReader(pipeline.source, as_of, PAGE_ROWS, keeps_times)
            if limits is not None:
                ranges_ = ranges_.within(limits, parallelism)
            return Reader(ranges_, stopping, progress, tasks, kept)

        def again() -> _State:
            """Targets and source as of one batch, for rows: targets may be those of the checksums."""
            if not isinstance(targets, ReplicaTargets):
                return _State(targets, reader, end, end, routing)
            newer, batch = opened()
            stack.callback(newer.close)
            at = StreamOffset.from_json(batch.end)
            return _State(newer, reader_of(at), at, end, routing)

        targets, last = opened()
        stack.callback(targets.close)
        end = StreamOffset.from_json(last.end)
        kept: KeptComparison | None = None
        if resume is not None:
            with suppress(OSError):  # who may not write there compares all the same, and does not go on
                kept = KeptComparison(pipeline.checkpoint, last, is_new=not resume)
        if interrupted is not None:
            _require_log(source, end, last)
        by_target, skipped = tables_by_target(
            routing, source, end, pattern, settled=settled, in_part=portion is not None
        )
        if not by_target:
            raise StateError(
                "there is nothing to compare",
                "; ".join(f"`{n}`: {why}" for n, why in skipped),
                code="TR-8101",
            )
        reader = reader_of(end)
        with ThreadPoolExecutor(parallelism, "verify") as pool:
            try:
                comparisons = []
                for name in sorted(by_target):  # the source is read while the next target is opened
                    comparison = _Comparison.of(targets, name, by_target[name])
                    comparisons.append(comparison if portion is None else comparison.of_part(portion, source))
                    comparisons[-1].begin(pool, source, reader, parallelism)
                for comparison in comparisons:
                    if stopping.is_set():
                        raise CancelledError
                    comparison.sum_up()
                targets.release()
                reports = tuple(comparison.finish(pool, again, limit) for comparison in comparisons)
                before = sum(comparison.read_before for comparison in comparisons)
            except BaseException as error:
                reader.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                if isinstance(error, CancelledError) and stopping.error is not None:
                    raise stopping.error from None
                raise
        assert end.log is not None
        position = source.position(end.log)
    if kept is not None:
        kept.forget()
    seconds, part = time.monotonic() - started, str(portion or "")
    return Report(last.id, str(position), reports, tuple(skipped), seconds, part, before)


def names_in(tables: Sequence[str]) -> str:
    """The pattern of these tables."""
    return "|".join(map(re.escape, tables))


def routing_of(pipeline: Pipeline) -> Routing:
    """The way of the rows of a pipeline's tables."""
    return Routing(
        Router(pipeline.routes, pipeline.source_name),
        Transforms(pipeline.transforms),
        pipeline.source.column_masks,
    )


def last_batch(checkpoint: Checkpoint) -> PlannedBatch:
    """The last batch that is committed.

    Raises:
        StateError: there is none.
    """
    last = checkpoint.last_committed()
    if last is None:
        raise StateError(
            "no batch is committed yet, so there is nothing to compare",
            f"found no commit in the checkpoint {checkpoint.path}",
            "run the pipeline until its first batch is committed: tailrace run PIPELINE.YAML",
            code="TR-8101",
        )
    return last


def _require_log(source: Source, end: StreamOffset, batch: PlannedBatch) -> None:
    """Refuse to go on with a batch as of which rows can no longer be read.

    Raises:
        StateError: the log behind it is gone.
    """
    assert end.log is not None
    why = source.position_problem(source.position(end.log))
    if why is not None:
        raise StateError(
            "the comparison that was interrupted cannot go on",
            f"it is as of batch {batch.id}, and the server no longer has the log from there on: {why}",
            "compare anew, without --resume",
            code="TR-8113",
        )


@dataclass(frozen=True)
class _State:
    """Both sides as of the end of one batch.

    Args:
        targets: the targets.
        reader: reads the source.
        end: the batch's end.
        former: the end of the batch of the checksums.
        routing: the way of the tables' rows.
    """

    targets: ComparedTargets
    reader: Reader
    end: StreamOffset
    former: StreamOffset
    routing: Routing

    def parts(
        self, name: str, tables: Sequence[SourceTable], parts: Sequence[tuple[SourceTable, KeyRange]]
    ) -> list[tuple[SourceTable, KeyRange]]:
        """The key ranges of `tables` whose rows must be in target `name`; of finished ones, `parts`.

        Raises:
            StateError: the target's rows are no longer those of `tables`, or one is parked.
        """
        names = {str(table.schema.id) for table in tables}
        if self._tables(self.former, name) != self._tables(self.end, name) or names & self.end.parked.keys():
            raise StateError(
                f"target `{name}` cannot be compared",
                "its tables have changed, or one was parked, while it was read",
                "verify again",
                code="TR-8104",
            )
        found = [(table, part) for table, part in parts if not table.unfinished]
        for table in tables:
            progress = self.end.tables.get(str(table.schema.id))
            if table.unfinished and progress is None:
                found.append((table, KeyRange(None, None)))
            elif table.unfinished and progress is not None and progress.cursor is not None:
                found.append((table, KeyRange(None, progress.cursor)))
        return found

    def _tables(self, end: StreamOffset, target: str) -> set[str]:
        """The names of the tables of a target."""
        known = (*end.names(), *end.parked)
        return {name for name in known if self.routing.target(TableId.parse(name)) == target}


@dataclass
class _Comparison:
    """The comparison of one target with the tables routed to it, over the columns that both sides have.

    Args:
        name: the target's name.
        tables: the tables.
        target: the target; None if it does not exist.
        columns: the columns to compare, with the target's types.
        key: names of the key columns.
        left_out: columns that exist on one side only.
        only: the keys that are compared; None: all.
        of_rows: about how many rows the tables have, with others than these; None: there are none.
        parts: key ranges that the source is read in.
        read_before: rows of them that were read before an interruption.
        sums: their checksums, one for each of `parts`, once these are planned.
        target_sums: the target's.
    """

    name: str
    tables: list[SourceTable]
    target: ComparedTarget | None
    columns: pa.Schema
    key: tuple[str, ...]
    left_out: tuple[str, ...]
    only: KeyRanges | None = None
    of_rows: int | None = None
    parts: list[tuple[SourceTable, KeyRange]] = field(default_factory=list)
    read_before: int = 0
    sums: Future[list[Future[Checksums]]] = field(default_factory=Future)
    target_sums: Checksums = field(default_factory=Checksums.empty)

    @classmethod
    def of(cls, targets: ComparedTargets, name: str, tables: list[SourceTable]) -> _Comparison:
        """Open target `name` and choose the columns to compare."""
        target = targets.target(name, tables[0].schema, _shards(tables))
        found = _columns_of(tables)
        held = found if target is None else target.columns
        names = {field.name.lower() for field in found}
        columns = pa.schema([field for field in held if field.name.lower() in names])
        by_name = {field.name.lower(): field.name for field in columns}
        absent = [field.name for field in held if field.name.lower() not in names]
        absent += [field.name for field in found if field.name.lower() not in by_name]
        key = tuple(by_name[k.lower()] for k in tables[0].key)
        return cls(name, tables, target, columns, key, tuple(absent))

    def of_part(self, portion: ComparedPart, source: Source) -> _Comparison:
        """The same of a part of the rows.

        Raises:
            ConfigError: the target has no numbers by which the part could be told.
        """
        type_ = self.columns.field(self.key[0]).type
        if not holds_numbers(type_):
            raise ConfigError(
                f"target `{self.name}` cannot be compared in part",
                f"its column `{self.key[0]}` is of type {type_}; ranges of keys need whole numbers",
                "compare it as a whole, without --sample and --key-range, or leave it out: --table PATTERN",
                code="TR-8108",
            )
        largest = max(self.tables, key=lambda table: table.estimated_rows)
        found = portion.ranges(source, largest.schema, largest.estimated_rows)
        return replace(
            self,
            tables=[replace(t, estimated_rows=portion.rows(t.estimated_rows)) for t in self.tables],
            only=KeyRanges(self.key[0], found),
            of_rows=sum(table.estimated_rows for table in self.tables),
        )

    def begin(self, pool: ThreadPoolExecutor, source: Source, reader: Reader, parallelism: int) -> None:
        """Start computing the source's checksums."""

        def plan() -> list[Future[Checksums]]:
            with reader.ending_all():
                return self._begin(pool, source, reader, parallelism)

        # the server looks at a whole index for it: meanwhile the target is read
        self.sums = pool.submit(plan)

    def _begin(
        self, pool: ThreadPoolExecutor, source: Source, reader: Reader, parallelism: int
    ) -> list[Future[Checksums]]:
        """Plan the ranges and have them read."""
        found = [(t, part) for t in self.tables for part in self._ranges(t, source, reader, parallelism)]
        self.parts = [(table, part.whole) for table, part in found]
        reader.progress.begin(by_table(self.parts))
        for table, part in found:
            if part.sums.rows:
                reader.progress.read(str(table.schema.id), part.sums.rows)
        self.read_before = sum(part.sums.rows for _, part in found)
        return [pool.submit(reader.checksums, table, part, self.columns, self.key) for table, part in found]

    def _ranges(
        self, table: SourceTable, source: Source, reader: Reader, parallelism: int
    ) -> Sequence[RangeRead]:
        """The key ranges that a table is read in."""

        def plan() -> Sequence[KeyRange]:
            if self.only is not None:
                return key_ranges(table.schema, self.only.ranges)
            planned = ranges(source, table, parallelism, reader.ranges_per_reader)
            return list(reader.until_stopped(planned))

        if reader.kept is None:
            return list(map(RangeRead, plan()))
        return reader.kept.ranges(str(table.schema.id), self.columns, self.key, plan)

    def sum_up(self) -> None:
        """Compute the target's checksums."""
        if self.target is not None:
            self.target_sums = self.target.checksums(self.columns.names, self.key, self.only)

    def finish(self, pool: ThreadPoolExecutor, again: Callable[[], _State], limit: int) -> TargetReport:
        """Wait for the source's checksums, and compare the rows that differ."""
        target, source = self.target_sums, Checksums.empty()
        for future in self.sums.result():
            source.merge(future.result())
        differing = source.differing(target)
        examined = differing[: _buckets_to_examine((source.counts + target.counts)[differing])]
        return TargetReport(
            self.name,
            tuple(str(t.schema.id) for t in self.tables),
            None if self.target is None else self.target.version,
            source.rows,
            target.rows,
            any(t.unfinished for t in self.tables),
            len(differing),
            len(examined),
            self._examine(pool, again, examined, limit) if len(differing) else None,
            self.left_out,
            # rows are read again by the source's columns alone
            self.tables[0].schema.key if self.tables[0].shard is None else (),
            self.of_rows,
        )

    def _examine(
        self,
        pool: ThreadPoolExecutor,
        again: Callable[[], _State],
        buckets: np.ndarray,
        limit: int,
    ) -> Differences:
        state = again()
        parts = state.parts(self.name, self.tables, self.parts)
        target = self.columns.empty_table()
        if (
            found := state.targets.target(self.name, self.tables[0].schema, _shards(self.tables))
        ) is not None:
            target = found.rows(self.columns.names, self.key, buckets, self.only)
        state.targets.release()
        read = state.reader.rows
        state.reader.progress.begin(by_table(parts))
        jobs = [pool.submit(read, table, part, self.columns, self.key, buckets) for table, part in parts]
        source = pa.concat_tables([self.columns.empty_table(), *(job.result() for job in jobs)])
        return compare(source, target, self.key, limit)


def _columns_of(tables: Sequence[SourceTable]) -> pa.Schema:
    """The columns of all tables that share a target; text where their types have none in common."""
    schemas = [table.columns for table in tables]
    names = {name.lower(): name for schema in reversed(schemas) for name in schema.names}
    columns = []
    for name in dict.fromkeys(name for schema in schemas for name in map(str.lower, schema.names)):
        types = {field.type for schema in schemas for field in schema if field.name.lower() == name}
        single = [pa.schema([(names[name], type_)]) for type_ in types]
        try:
            columns += pa.unify_schemas(single, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            columns.append(pa.field(names[name], pa.string()))
    return pa.schema(columns)


def _shards(tables: Sequence[SourceTable]) -> Shards | None:
    """The rows of a target that are those of `tables`; None: all of them."""
    columns = {table.shard[0] for table in tables if table.shard is not None}
    if not columns:
        return None
    return Shards(columns.pop(), tuple(table.shard[1] for table in tables if table.shard is not None))


def _buckets_to_examine(rows: np.ndarray) -> int:
    """How many buckets to compare row by row: EXAMINED_ROWS rows in total, but at least one bucket.

    Args:
        rows: number of rows in each differing bucket.
    """
    return max(1, int(np.searchsorted(np.cumsum(rows), EXAMINED_ROWS, side="right")))

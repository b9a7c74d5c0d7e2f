"""Verification: the source's rows as of P(n) against the target after batch n, exact while both move on.

    last committed batch n ─▶ its end offset: P(n), cursors
          ├─▶ source: every row as of P(n), below the cursors ─▶ checksums of buckets ┐
          └─▶ target: as batch n left it (`targets`)          ─▶ checksums of buckets ┴▶ differing buckets
                                                     rows of those, from both sides ─▶ compared by key

A difference is a difference at one and the same position, never a row that was changed meanwhile: design §1
says what the target holds after batch n, and rewind gives the source's rows at that very position, whenever
they are asked for. Two passes over the source are made only where something differs.

The batch and its offset are taken from Spark's checkpoint, not from the targets' own commits, which name
them too: a table that a batch did not touch would not tell that its changes had been lost, while the
checkpoint says how far *every* table must be.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.config.model import Pipeline
from tailrace.enumerator.offset import StreamOffset
from tailrace.enumerator.snapshot import KeyRange
from tailrace.errors import ConfigError, StateError
from tailrace.model.table import TableId
from tailrace.pipeline.rules import Transforms
from tailrace.sinks.route import Router
from tailrace.sinks.tables.columns import stored_schema
from tailrace.sources import registry
from tailrace.sources.base import Source
from tailrace.spark.checkpoint import Checkpoint
from tailrace.spark.sql import own_session
from tailrace.verify.checksum import Checksums
from tailrace.verify.compare import Differences, compare
from tailrace.verify.report import Report, TargetReport
from tailrace.verify.source import Reader, SourceTable, ranges
from tailrace.verify.targets import ComparedTarget, ComparedTargets, targets_of

#: Most rows of both sides that are compared one by one, per target.
EXAMINED_ROWS = 250_000
#: Rows that Spark hands to a task's Python worker at a time.
ROWS_PER_BATCH = 16_384


def verify(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    pattern: str | None = None,
    limit: int = 20,
    parallelism: int = 4,
    on_rows: Callable[[int], None] = lambda _: None,
) -> Report:
    """Compare every target of `pipeline` with its source.

    Args:
        pipeline: a pipeline with a Delta sink that has run or is running, or with a replica that rests.
        spark: a session with Delta.
        pattern: regular expression over whole `database.table` names: only these tables.
        limit: most differing rows to report of each kind and target.
        parallelism: connections that read the source.
        on_rows: told how many source rows were read, from any thread.

    Raises:
        ConfigError: the sink cannot be looked at, or no table matches.
        StateError: the pipeline has not committed a batch yet, or none that can be compared, or is writing
            a replica.
        TailraceError: what the source raises.
    """
    started = time.monotonic()
    spark = own_session(spark)
    # A pipeline's session hands over few rows at a time, as they are cells there.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS_PER_BATCH)
    with closing(registry.source(pipeline.source)) as source:
        source.keep_log()  # first: the log behind the batch must still be there however long it takes
        batch, end = _last_committed(pipeline.checkpoint)
        targets = targets_of(pipeline, spark, batch)
        by_target, skipped = _tables(pipeline, source, end, pattern)
        if not by_target:
            raise StateError("there is nothing to compare", "; ".join(f"`{n}`: {why}" for n, why in skipped))
        stopping = threading.Event()
        assert end.log is not None
        position = source.position(end.log)
        reader = Reader(pipeline.source, source.as_of(position), stopping, on_rows)
        with ThreadPoolExecutor(parallelism, "verify") as pool:
            try:
                work = [_Comparison.of(targets, name, listed) for name, listed in sorted(by_target.items())]
                for one in work:
                    one.begin(pool, source, reader, parallelism)
                reports = tuple(one.finish(pool, reader, limit) for one in work)
                targets.confirm()
            except BaseException:
                stopping.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return Report(batch, str(position), reports, tuple(skipped), time.monotonic() - started)


@dataclass
class _Comparison:
    """One target and the tables that go to it."""

    name: str
    tables: list[SourceTable]
    target: ComparedTarget | None
    columns: pa.Schema
    key: tuple[str, ...]
    left_out: tuple[str, ...]
    parts: list[tuple[SourceTable, KeyRange]] = field(default_factory=list)
    sums: list[Future[Checksums]] = field(default_factory=list)

    @classmethod
    def of(cls, targets: ComparedTargets, name: str, tables: list[SourceTable]) -> _Comparison:
        """What is compared of target `name`: the columns that both sides have."""
        target = targets.target(name, tables[0].schema)
        found = pa.unify_schemas([stored_schema(t.schema) for t in tables], promote_options="permissive")
        held = found if target is None else target.columns
        names = {field.name.lower() for field in found}
        columns = pa.schema([field for field in held if field.name.lower() in names])
        by_name = {field.name.lower(): field.name for field in columns}
        absent = [field.name for field in held if field.name.lower() not in names]
        absent += [field.name for field in found if field.name.lower() not in by_name]
        key = tuple(by_name[k.lower()] for k in tables[0].schema.key)
        return cls(name, tables, target, columns, key, tuple(absent))

    def begin(self, pool: ThreadPoolExecutor, source: Source, reader: Reader, parallelism: int) -> None:
        """Have the source's checksums made."""
        self.parts = [(t, part) for t in self.tables for part in ranges(source, t, parallelism)]
        self.sums = [
            pool.submit(reader.checksums, table, part, self.columns, self.key) for table, part in self.parts
        ]

    def finish(self, pool: ThreadPoolExecutor, reader: Reader, limit: int) -> TargetReport:
        """Make the target's checksums, wait for the source's, look at the rows that differ."""
        there = Checksums.empty()
        if self.target is not None:
            there = self.target.checksums(self.columns.names, self.key)
        here = Checksums.empty()
        for future in self.sums:
            here.merge(future.result())
        differing = here.differing(there)
        examined = differing[: _affordable((here.counts + there.counts)[differing])]
        return TargetReport(
            self.name,
            tuple(str(t.schema.id) for t in self.tables),
            None if self.target is None else self.target.version,
            here.rows,
            there.rows,
            any(t.unfinished for t in self.tables),
            len(differing),
            len(examined),
            self._examine(pool, reader, examined, limit) if len(differing) else None,
            self.left_out,
        )

    def _examine(
        self, pool: ThreadPoolExecutor, reader: Reader, buckets: np.ndarray, limit: int
    ) -> Differences:
        jobs = [
            pool.submit(reader.rows, table, part, self.columns, self.key, buckets)
            for table, part in self.parts
        ]
        there = self.columns.empty_table()
        if self.target is not None:
            there = self.target.rows(self.columns.names, self.key, buckets)
        here = pa.concat_tables([self.columns.empty_table(), *(job.result() for job in jobs)])
        return compare(here, there, self.key, limit)


def _last_committed(path: str) -> tuple[int, StreamOffset]:
    """The newest batch that is wholly in the sink, and where it ended."""
    checkpoint = Checkpoint(path)
    last = checkpoint.last()
    number = -1 if last is None else last.id if last.committed else last.id - 1
    end = checkpoint.end_of(number) if number >= 0 else None
    if end is None:
        raise StateError(
            "no batch is committed yet, so there is nothing to compare",
            f"found no commit in the checkpoint {path}",
            "run the pipeline until its first batch is done: tailrace run PIPELINE.YAML",
        )
    return number, StreamOffset.from_json(end)


def _tables(
    pipeline: Pipeline, source: Source, end: StreamOffset, pattern: str | None
) -> tuple[dict[str, list[SourceTable]], list[tuple[str, str]]]:
    """The tables to compare by target, and those that cannot be compared, with the reason.

    A target that several tables go to is compared with all of them as soon as one matches.
    """
    router, transforms = Router(pipeline.routes), Transforms(pipeline.transforms)
    known = sorted({*end.tables, *end.done})
    found = {str(t.schema.id): t for t in source.tables()}
    ids = {name: found[name].schema.id if name in found else TableId.parse(name) for name in known}
    targets = {name: router.target(id_) for name, id_ in ids.items()}
    chosen = {targets[name] for name in known if pattern is None or re.fullmatch(pattern, name, re.DOTALL)}
    if not chosen:
        raise ConfigError(
            "no table of the pipeline matches", f"it has: {', '.join(f'`{n}`' for n in known) or 'none'}"
        )
    by_target: dict[str, list[SourceTable]] = {}
    skipped: list[tuple[str, str]] = []
    for name in known:
        if targets[name] not in chosen:
            continue
        if name not in found:
            skipped.append((name, "the source has no such table any more"))
        elif end.mode not in ("initial", "snapshot"):
            skipped.append((name, f"the stream began at `{end.mode}`, without the rows before that"))
        elif transforms.rule(found[name].schema.id) or router.shard_column(found[name].schema.id):
            skipped.append((name, "its rows are transformed on their way"))
        elif not found[name].schema.key:
            skipped.append((name, "it has no key"))
        else:
            table, progress = found[name], end.tables.get(name)
            cursor = None if progress is None else progress.cursor
            by_target.setdefault(targets[name], []).append(
                SourceTable(table.schema, table.estimated_rows, progress is not None, cursor)
            )
    return by_target, skipped


def _affordable(rows: Sequence[int] | np.ndarray) -> int:
    """How many of the buckets with so many rows are examined: EXAMINED_ROWS in all, at least one."""
    return max(1, int(np.searchsorted(np.cumsum(rows), EXAMINED_ROWS, side="right")))

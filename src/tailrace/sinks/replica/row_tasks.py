"""The Spark tasks of sinks whose rows have versions: read cells, write rows, report errors.

A batch is written task by task, without transactions: a row that comes again does no harm (`sinks.versions`).

    snapshot   a task writes the rows of its cells
    log        `bucket_log`: cells to (target, bucket, changes); Spark shuffles them by bucket;
               `write_log`: the last change of each key of a bucket

A definite error is a result and not an exception: Spark would retry the task, and fail the tasks of the
other targets. A transient error is raised, and Spark retries the task.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tailrace.errors import TailraceError, concerning, from_json
from tailrace.model.cell import decode_cell, to_stream
from tailrace.model.change import LOG, REREAD, SNAPSHOT, ChangeBatch
from tailrace.sinks.base import CellBatch
from tailrace.sinks.replica.changes import split_by_bucket
from tailrace.sinks.replica.plan import Work, bucket_count
from tailrace.sinks.replica.target_schema import TargetSchema
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.task_errors import parse_error

Batches = Iterator[pa.RecordBatch]
#: Snapshot rows written together, in bytes of Arrow.
_BYTES = 8 << 20
RESULT_COLUMNS = "target string, error string, quarantined string"
RESULT = pa.schema([pa.field(name, pa.string()) for name in ("target", "error", "quarantined")])
_BUCKET_COLUMNS = "partition int, target string, changes binary"
_BUCKET = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("target", pa.string()),
        pa.field("changes", pa.binary()),
    ]
)


class RowWriter(Protocol):
    """Writes the rows of a target in a task."""

    #: How many rows were put into quarantine, by source table.
    put_aside: Counter[str]

    @property
    def target(self) -> str:
        """The target's name."""

    def write_snapshot(self, batches: Sequence[ChangeBatch]) -> None:
        """Write snapshot rows.

        Raises:
            SinkError: a row is refused.
            TransientSinkError: the target's system does not answer.
        """

    def write_changes(self, bucket: Sequence[pa.RecordBatch]) -> None:
        """Write all changes of some keys; see `write_snapshot`."""


class WritingAttempt(Protocol):
    """An attempt to write a batch, as tasks know it."""

    def schema(self, target: str) -> TargetSchema:
        """The schema of a target."""

    def writer(self, target: str) -> RowWriter:
        """A new writer for a target."""


@dataclass(frozen=True)
class _TaskInput:
    """The input of the tasks.

    Args:
        attempt: the attempt at the batch.
        routes: each source table's target.
        buckets: by target: the number of buckets, and the Spark partition of the first.
    """

    attempt: WritingAttempt
    routes: Mapping[str, str]
    buckets: Mapping[str, tuple[int, int]]


@dataclass
class Outcome:
    """What tasks report.

    Args:
        errors: the errors of the targets that could not be written.
        quarantined: number of rows put into quarantine, by source table.
    """

    errors: dict[str, TailraceError] = field(default_factory=dict)
    quarantined: Counter[str] = field(default_factory=Counter)

    def add(self, frame: DataFrame) -> None:
        """Run tasks with rows of RESULT, and add what they report."""
        for row in frame.collect():
            if row["error"] is not None:
                self.errors[row["target"]] = from_json(row["error"])
            self.quarantined.update(json.loads(row["quarantined"]))


def write_batch(batch: CellBatch, work: Work, attempt: WritingAttempt, parallelism: int) -> Outcome:
    """Write the rows of targets.

    Args:
        batch: the batch.
        work: targets to write, with their parts.
        attempt: the attempt at the batch.
        parallelism: tasks that write changes at the same time.

    Raises:
        TailraceError: a task failed.
    """
    routes = {str(part.table): name for name, parts in work.items() for part in parts}
    merged = {name: sum(p.changes for p in parts if p.kind != SNAPSHOT) for name, parts in work.items()}
    counts = {name: bucket_count(changes, parallelism) for name, changes in merged.items() if changes}
    partitions = max([min(parallelism, len(counts)), *counts.values()]) if counts else 0
    buckets = {
        name: (count, 0 if count > 1 else zlib.crc32(name.encode()) % partitions)
        for name, count in counts.items()
    }
    task_input = _TaskInput(attempt, routes, buckets)
    listed = f.col("table").isin(sorted(routes))

    def cells(*kinds: str) -> DataFrame:
        return batch.frame.where(f.col("kind").isin(*kinds) & listed).select("table", "cell")

    outcome = Outcome()
    try:
        if any(part.kind == SNAPSHOT for parts in work.values() for part in parts):
            outcome.add(map_in_arrow(cells(SNAPSHOT), write_snapshot(task_input), RESULT_COLUMNS))
        if partitions == 1:
            split, write = bucket_log(task_input), write_log(task_input)
            one = cells(LOG, REREAD).coalesce(1)
            outcome.add(map_in_arrow(one, lambda batches: write(split(batches)), RESULT_COLUMNS))
        elif partitions:
            changes = map_in_arrow(cells(LOG, REREAD), bucket_log(task_input), _BUCKET_COLUMNS)
            shuffled = changes.repartitionById(partitions, f.col("partition"))
            outcome.add(map_in_arrow(shuffled, write_log(task_input), RESULT_COLUMNS))
    except PySparkException as error:
        raise parse_error(str(error)) or error from error
    return outcome


def write_snapshot(task_input: _TaskInput) -> Callable[[Batches], Batches]:
    """A task: rows (table, cell) to rows of RESULT."""

    def task(batches: Batches) -> Batches:
        results = _Results()
        buffered: dict[str, list[ChangeBatch]] = {}
        writers: dict[str, RowWriter] = {}

        def flush(target: str) -> None:
            if target not in writers:
                writers[target] = task_input.attempt.writer(target)
            writer = writers[target]
            rows = buffered.pop(target)
            results.run(writer, partial(writer.write_snapshot, rows))

        for batch in batches:
            for name, cell in zip(batch.column(0), batch.column(1), strict=True):
                target = task_input.routes[name.as_py()]
                rows = buffered.setdefault(target, [])
                rows.append(decode_cell(cell.as_buffer()))
                if sum(part.image("after").nbytes for part in rows) > _BYTES:
                    flush(target)
        for target in list(buffered):
            flush(target)
        yield results.rows()

    return task


def bucket_log(task_input: _TaskInput) -> Callable[[Batches], Batches]:
    """A task: rows (table, cell) to rows of _BUCKET."""

    def task(batches: Batches) -> Batches:
        for batch in batches:
            for name, cell in zip(batch.column(0), batch.column(1), strict=True):
                target = task_input.routes[name.as_py()]
                count, first = task_input.buckets[target]
                changes = decode_cell(cell.as_buffer())
                with concerning(changes.table.id, sink=True):
                    schema = task_input.attempt.schema(target)
                    for bucket, rows in split_by_bucket(changes, schema, count):
                        data = to_stream(rows).to_pybytes()
                        row = {"partition": first + bucket, "target": target, "changes": data}
                        yield pa.RecordBatch.from_pylist([row], schema=_BUCKET)

    return task


def write_log(task_input: _TaskInput) -> Callable[[Batches], Batches]:
    """A task: rows of _BUCKET, all of whose keys come to one task, to rows of RESULT."""

    def task(batches: Batches) -> Batches:
        results = _Results()
        buckets: dict[str, list[pa.RecordBatch]] = {}
        for batch in batches:
            for target, changes in zip(*batch.columns[1:], strict=True):
                rows = pa.ipc.open_stream(changes.as_buffer()).read_next_batch()
                buckets.setdefault(target.as_py(), []).append(rows)
        for name, bucket in buckets.items():
            writer = task_input.attempt.writer(name)
            results.run(writer, partial(writer.write_changes, bucket))
        yield results.rows()

    return task


class _Results:
    """What became of a task's targets."""

    def __init__(self) -> None:
        self._errors: dict[str, TailraceError] = {}
        self._writers: dict[str, RowWriter] = {}

    def run(self, writer: RowWriter, write: Callable[[], None]) -> None:
        """Write to a target, unless it has failed; a definite error is noted."""
        target = writer.target
        self._writers[target] = writer
        if target in self._errors:
            return
        try:
            write()
        except TailraceError as error:
            if error.retryable:
                raise
            self._errors[target] = error

    def rows(self) -> pa.RecordBatch:
        """The errors and the numbers of rows put aside, as rows of RESULT."""
        rows = []
        for name, writer in self._writers.items():
            error = self._errors.get(name)
            text = None if error is None else error.to_json()
            if text is not None or writer.put_aside:
                rows.append({"target": name, "error": text, "quarantined": json.dumps(writer.put_aside)})
        return pa.RecordBatch.from_pylist(rows, schema=RESULT)

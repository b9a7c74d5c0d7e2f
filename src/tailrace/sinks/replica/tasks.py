"""The Spark tasks of a replica: read cells, write units, report the results.

    snapshot   a task reads a split's cells; the split is the unit, and its transaction lasts as long as the
               task
    log        `bucket_log`: cells to (target, bucket, changes); Spark shuffles them by bucket;
               `write_log`: one transaction per bucket. No shuffle if no target has more than one bucket.

A definite error is a result and not an exception: Spark would retry the task, and fail the tasks of the
other targets. A transient error is raised, and Spark retries the task: its committed units are marked.

With whole-batch transactions, the rows of a unit go into staging tables; the driver merges them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

import pyarrow as pa
from pyspark import TaskContext

from tailrace.errors import SinkError, TailraceError, TransientSinkError, concerning, from_json
from tailrace.model.cell import decode_cell, to_stream
from tailrace.model.change import ChangeBatch
from tailrace.sinks.quarantine import QuarantinedRow
from tailrace.sinks.replica.changes import last_changes, snapshot_inserts, split_by_bucket
from tailrace.sinks.replica.dialect import RowOperation, WriteSession
from tailrace.sinks.replica.unit_writer import BatchAttempt, RowChanges, UnitWriter, staging_name

Batches = Iterator[pa.RecordBatch]
#: Snapshot rows written by one statement, in bytes of Arrow.
_STATEMENT_BYTES = 16 << 20
#: Attempts at a bucket's transaction: servers abort one as the victim of a deadlock.
_ATTEMPTS = 3

RESULT = pa.schema(
    [pa.field("target", pa.string()), pa.field("error", pa.string()), pa.field("details", pa.string())]
)
BUCKET_CHANGES = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("target", pa.string()),
        pa.field("unit", pa.string()),
        pa.field("changes", pa.binary()),
    ]
)


@dataclass(frozen=True)
class TableStaging:
    """Stage rows in tables of their own, for the driver to merge.

    Args:
        stream: the stream's id.
        dry_run: whether to find the rows that the targets reject, by a dry run, before staging.
    """

    stream: str
    dry_run: bool


@dataclass(frozen=True)
class TaskInput:
    """The input of the tasks.

    Args:
        attempt: the attempt at the batch.
        routes: each source table's target.
        buckets: by target: the number of buckets, and the Spark partition of the first.
        staging: how to stage rows; None: write them to their targets.
    """

    attempt: BatchAttempt
    routes: dict[str, str]
    buckets: dict[str, tuple[int, int]]
    staging: TableStaging | None


@dataclass(frozen=True)
class StagingTable:
    """A staging table with rows.

    Args:
        operation: the operation to merge them by.
        name: the table's name.
        absent: columns that the rows lack.
    """

    operation: RowOperation
    name: str
    absent: Sequence[str]


@dataclass
class UnitResult:
    """The result of writing a unit.

    Args:
        target: the target's name.
        error: why the unit was not written; None if it was.
        staged: its staging tables.
        refused: rejected rows for the driver to quarantine.
        quarantined: number of rows put into quarantine, by source table.
    """

    target: str
    error: TailraceError | None = None
    staged: list[StagingTable] = field(default_factory=list)
    refused: list[QuarantinedRow] = field(default_factory=list)
    quarantined: Counter[str] = field(default_factory=Counter)

    def to_row(self) -> pa.RecordBatch:
        """This result as a row of RESULT."""
        error = None if self.error is None else self.error.to_json()
        details = json.dumps(
            {
                "staged": [asdict(s) for s in self.staged],
                "refused": [r.to_json() for r in self.refused],
                "quarantined": self.quarantined,
            }
        )
        return pa.RecordBatch.from_pylist(
            [{"target": self.target, "error": error, "details": details}], schema=RESULT
        )

    @classmethod
    def from_row(cls, target: str, error: str | None, details: str) -> UnitResult:
        """The inverse of `to_row`."""
        parsed = json.loads(details)
        failure = None if error is None else from_json(error)
        return cls(
            target,
            failure,
            [StagingTable(RowOperation(s["operation"]), s["name"], s["absent"]) for s in parsed["staged"]],
            [QuarantinedRow.from_json(r) for r in parsed["refused"]],
            Counter(parsed["quarantined"]),
        )


# ---- snapshot ------------------------------------------------------------------------------------------


def write_snapshot(task_input: TaskInput) -> Callable[[Batches], Batches]:
    """A task: rows (table, cell) of a partition of the batch's frame to rows of RESULT."""

    def task(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        unit = f"s{context.partitionId()}"
        units: dict[str, _SnapshotUnit] = {}
        try:
            for batch in batches:
                for name, cell in zip(batch.column(0), batch.column(1), strict=True):
                    target = task_input.routes[name.as_py()]
                    if target not in units:
                        units[target] = _SnapshotUnit(task_input, target, unit)
                        units[target].begin()
                    units[target].add(decode_cell(cell.as_buffer()))
            for snapshot_unit in units.values():
                yield snapshot_unit.end().to_row()
        finally:
            for snapshot_unit in units.values():
                snapshot_unit.session.close()

    return task


class _SnapshotUnit:
    """Writes the rows of a split for one target."""

    def __init__(self, task_input: TaskInput, target: str, unit: str) -> None:
        self.session = task_input.attempt.dialect.connect()
        self._unit = unit
        self._writer = UnitWriter(task_input.attempt, target, self.session)
        self._staging = task_input.staging
        self._result = UnitResult(target)
        self._buffered: list[ChangeBatch] = []
        self._bytes = 0
        self._is_open = True

    def begin(self) -> None:
        """Begin the transaction, unless the unit is written already."""
        self._is_open = self._staging is not None or self._writer.begin(self._unit)

    def add(self, batch: ChangeBatch) -> None:
        """Add rows."""
        if not self._is_open:
            return
        self._buffered.append(batch)
        self._bytes += batch.image("after").nbytes
        if self._bytes > _STATEMENT_BYTES:
            self._flush()

    def end(self) -> UnitResult:
        """Write the remaining rows and commit."""
        if self._is_open:
            self._flush()
        if self._is_open and self._staging is None:
            self._writer.commit(self._unit)
        self._result.quarantined = self._writer.put_aside
        return self._result

    def _flush(self) -> None:
        rows, self._buffered, self._bytes = self._buffered, [], 0
        if not rows:
            return
        try:
            changes = snapshot_inserts(rows, self._writer.table.schema)
            _write_changes(self._writer, changes, self._staging, self._result)
        except TailraceError as error:
            if error.retryable:
                raise
            self._result.error = error
            self._is_open = False
            self.session.run("ROLLBACK")


def _write_changes(
    writer: UnitWriter, changes: RowChanges, staging: TableStaging | None, result: UnitResult
) -> None:
    """Write changes to the target or to a staging table."""
    if staging is None:
        writer.write(changes)
        return
    if staging.dry_run:
        changes = writer.without_refused(changes)
    name = staging_name(staging.stream)
    writer.stage(writer.attempt.ledger.own_table(name), changes)
    result.staged.append(StagingTable(changes.operation, name, changes.absent))
    result.refused, writer.refused = result.refused + writer.refused, []


# ---- log -----------------------------------------------------------------------------------------------


def bucket_log(task_input: TaskInput) -> Callable[[Batches], Batches]:
    """A task: rows (table, cell) to rows of BUCKET_CHANGES."""

    def task(batches: Batches) -> Batches:
        for batch in batches:
            for name, cell in zip(batch.column(0), batch.column(1), strict=True):
                target = task_input.routes[name.as_py()]
                count, first = task_input.buckets[target]
                changes = decode_cell(cell.as_buffer())
                with concerning(changes.table.id, sink=True):
                    buckets = list(split_by_bucket(changes, task_input.attempt.tables[target].schema, count))
                for bucket, rows in buckets:
                    yield _bucket_row(first + bucket, target, f"b{bucket}", rows)

    return task


def write_log(task_input: TaskInput) -> Callable[[Batches], Batches]:
    """A task: rows of BUCKET_CHANGES to rows of RESULT."""

    def task(batches: Batches) -> Batches:
        units: dict[tuple[str, str], list[pa.RecordBatch]] = {}
        for batch in batches:
            for target, unit, changes in zip(*batch.columns[1:], strict=True):
                rows = pa.ipc.open_stream(changes.as_buffer()).read_next_batch()
                units.setdefault((target.as_py(), unit.as_py()), []).append(rows)
        if not units:
            return
        session = task_input.attempt.dialect.connect()
        try:
            for (target, unit), bucket in units.items():
                yield write_unit(task_input, session, target, unit, bucket).to_row()
        finally:
            session.close()

    return task


def write_small_log(task_input: TaskInput) -> Callable[[Batches], Batches]:
    """A task: rows (table, cell) to rows of RESULT, if no target has more than one bucket."""
    split, write = bucket_log(task_input), write_log(task_input)
    return lambda batches: write(split(batches))


def write_unit(
    task_input: TaskInput, session: WriteSession, target: str, unit: str, bucket: list[pa.RecordBatch]
) -> UnitResult:
    """Write a unit's changes in one transaction; the result."""
    to_write = last_changes(bucket, task_input.attempt.tables[target].schema)
    for number in range(_ATTEMPTS):
        result = UnitResult(target)
        writer = UnitWriter(task_input.attempt, target, session)
        try:
            if task_input.staging is not None or writer.begin(unit):
                for changes in to_write:
                    _write_changes(writer, changes, task_input.staging, result)
                if task_input.staging is None:
                    writer.commit(unit)
            result.quarantined = writer.put_aside
            return result
        except TransientSinkError:
            if number + 1 == _ATTEMPTS:
                raise
            session.run("ROLLBACK")
        except SinkError as error:
            session.run("ROLLBACK")
            result.error = error
            return result
    raise AssertionError


def _bucket_row(partition: int, target: str, unit: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [pa.array([partition], pa.int32()), pa.array([target]), pa.array([unit])]
    return pa.RecordBatch.from_arrays(
        [*arrays, pa.array([to_stream(rows).to_pybytes()])], schema=BUCKET_CHANGES
    )

"""What Spark's tasks do for a replica: take cells, write units, say what came of it.

    snapshot   a task has a split's cells; the target's unit is the split, its transaction as long as the task
    log        `spread_log`: cells to (target, bucket, changes); Spark brings a bucket's together;
               `write_log`: a transaction for each bucket. Without a shuffle where each target has one bucket.

What will fail again is a result and not an exception: Spark would try the task again, and take the other
targets' tasks down. What may pass is raised, and Spark tries the task again: what it has committed is marked.

With whole-batch transactions a unit's rows go into tables of their own; the driver brings them in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

import pyarrow as pa
from pyspark import TaskContext

from tailrace import errors
from tailrace.errors import SinkError, TailraceError, TransientSinkError
from tailrace.model.cell import decode_cell, to_stream
from tailrace.model.change import ChangeBatch
from tailrace.sinks.replica.changes import last_changes, snapshot_portion, spread
from tailrace.sinks.replica.dialect import RowOperation, WriteSession
from tailrace.sinks.replica.ledger import Refused
from tailrace.sinks.replica.unit import Portion, Run, UnitWriter, staged_name

Batches = Iterator[pa.RecordBatch]
#: Rows of a snapshot that go in by one statement, in bytes of Arrow.
_PORTION_BYTES = 16 << 20
#: How often a bucket's transaction is tried, where servers say that they gave way to another one.
_TRIES = 3

RESULT = pa.schema(
    [pa.field("target", pa.string()), pa.field("error", pa.string()), pa.field("found", pa.string())]
)
PIECES = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("target", pa.string()),
        pa.field("unit", pa.string()),
        pa.field("changes", pa.binary()),
    ]
)


@dataclass(frozen=True)
class TableStaging:
    """Rows wait in tables of their own until the driver brings them in.

    Args:
        stream: the stream's id.
        rehearse: whether it is tried first which rows the targets refuse.
    """

    stream: str
    rehearse: bool


@dataclass(frozen=True)
class Job:
    """What tasks are told.

    Args:
        run: the run of the batch.
        routes: each source table's target.
        buckets: buckets of each target's changes, and the Spark partition of the first.
        staging: how rows wait; None: they are brought in at once.
    """

    run: Run
    routes: dict[str, str]
    buckets: dict[str, tuple[int, int]]
    staging: TableStaging | None


@dataclass(frozen=True)
class StagingTable:
    """Rows that wait in a table of their own.

    Args:
        verb: what they are for.
        name: the table's.
        lacking: columns that they lack.
    """

    verb: RowOperation
    name: str
    lacking: Sequence[str]


@dataclass
class Outcome:
    """What came of a unit.

    Args:
        target: whose unit.
        error: why it was not written.
        staged: the rows of it that wait.
        refused: rows that were refused, where the driver is to note them.
    """

    target: str
    error: TailraceError | None = None
    staged: list[StagingTable] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)

    def to_row(self) -> pa.RecordBatch:
        """As a row of RESULT."""
        error = None if self.error is None else json.dumps([type(self.error).__name__, *self.error.args])
        found = json.dumps(
            {"staged": [asdict(s) for s in self.staged], "refused": [asdict(r) for r in self.refused]}
        )
        return pa.RecordBatch.from_pylist(
            [{"target": self.target, "error": error, "found": found}], schema=RESULT
        )

    @classmethod
    def from_row(cls, target: str, error: str | None, found: str) -> Outcome:
        """What `to_row` made."""
        said = json.loads(found)
        failure = None
        if error is not None:
            name, *args = json.loads(error)
            failure = getattr(errors, name)(*args)
        return cls(
            target,
            failure,
            [StagingTable(RowOperation(s["verb"]), s["name"], s["lacking"]) for s in said["staged"]],
            [Refused(**r) for r in said["refused"]],
        )


# ---- snapshot ------------------------------------------------------------------------------------------


def write_snapshot(job: Job) -> Callable[[Batches], Batches]:
    """Writes rows `table`, `cell` of a partition of the batch's frame; yields RESULT."""

    def task(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        unit = f"s{context.partitionId()}"
        open_: dict[str, _SnapshotUnit] = {}
        try:
            for batch in batches:
                for name, cell in zip(batch.column(0), batch.column(1), strict=True):
                    target = job.routes[name.as_py()]
                    if target not in open_:
                        open_[target] = _SnapshotUnit(job, target, unit)
                        open_[target].begin()
                    open_[target].add(decode_cell(cell.as_buffer()))
            for written in open_.values():
                yield written.end().to_row()
        finally:
            for written in open_.values():
                written.session.close()

    return task


class _SnapshotUnit:
    """A target's rows of a split, on their way."""

    def __init__(self, job: Job, target: str, unit: str) -> None:
        self.session = job.run.dialect.connect()
        self._unit = unit
        self._writer = UnitWriter(job.run, target, self.session)
        self._staging = job.staging
        self._outcome = Outcome(target)
        self._held: list[ChangeBatch] = []
        self._bytes = 0
        self._wanted = True

    def begin(self) -> None:
        """Begin the transaction, if the rows are not there."""
        self._wanted = self._staging is not None or self._writer.begin(self._unit)

    def add(self, batch: ChangeBatch) -> None:
        """Take rows."""
        if not self._wanted:
            return
        self._held.append(batch)
        self._bytes += batch.image("after").nbytes
        if self._bytes > _PORTION_BYTES:
            self._flush()

    def end(self) -> Outcome:
        """Write what is left, and commit."""
        if self._wanted:
            self._flush()
        if self._wanted and self._staging is None:
            self._writer.commit(self._unit)
        return self._outcome

    def _flush(self) -> None:
        held, self._held, self._bytes = self._held, [], 0
        if not held:
            return
        try:
            portion = snapshot_portion(held, self._writer.table.shape)
            _bring(self._writer, portion, self._staging, self._outcome)
        except TailraceError as error:
            if error.retryable:
                raise
            self._outcome.error = error
            self._wanted = False
            self.session.run("ROLLBACK")


def _bring(writer: UnitWriter, portion: Portion, staging: TableStaging | None, outcome: Outcome) -> None:
    """Bring rows to where they go."""
    if staging is None:
        writer.write(portion)
        return
    if staging.rehearse:
        portion = writer.rehearse(portion)
    name = staged_name(staging.stream)
    writer.stage(writer.run.ledger.staged(name), portion)
    outcome.staged.append(StagingTable(portion.verb, name, portion.lacking))
    outcome.refused, writer.refused = outcome.refused + writer.refused, []


# ---- log -----------------------------------------------------------------------------------------------


def spread_log(job: Job) -> Callable[[Batches], Batches]:
    """Takes rows `table`, `cell`; yields PIECES."""

    def task(batches: Batches) -> Batches:
        for batch in batches:
            for name, cell in zip(batch.column(0), batch.column(1), strict=True):
                target = job.routes[name.as_py()]
                count, first = job.buckets[target]
                changes = decode_cell(cell.as_buffer())
                for bucket, rows in spread(changes, job.run.tables[target].shape, count):
                    yield _piece(first + bucket, target, f"b{bucket}", rows)

    return task


def write_log(job: Job) -> Callable[[Batches], Batches]:
    """Writes a partition of PIECES; yields RESULT."""

    def task(batches: Batches) -> Batches:
        units: dict[tuple[str, str], list[pa.RecordBatch]] = {}
        for batch in batches:
            for target, unit, changes in zip(*batch.columns[1:], strict=True):
                rows = pa.ipc.open_stream(changes.as_buffer()).read_next_batch()
                units.setdefault((target.as_py(), unit.as_py()), []).append(rows)
        if not units:
            return
        session = job.run.dialect.connect()
        try:
            for (target, unit), pieces in units.items():
                yield _write_unit(job, session, target, unit, pieces).to_row()
        finally:
            session.close()

    return task


def write_small_log(job: Job) -> Callable[[Batches], Batches]:
    """Both in one task, where no target has more than one bucket; takes rows `table`, `cell`."""
    take, write = spread_log(job), write_log(job)
    return lambda batches: write(take(batches))


def _write_unit(
    job: Job, session: WriteSession, target: str, unit: str, pieces: list[pa.RecordBatch]
) -> Outcome:
    portions = last_changes(pieces, job.run.tables[target].shape)
    for attempt in range(_TRIES):
        outcome = Outcome(target)
        writer = UnitWriter(job.run, target, session)
        try:
            if job.staging is not None or writer.begin(unit):
                for portion in portions:
                    _bring(writer, portion, job.staging, outcome)
                if job.staging is None:
                    writer.commit(unit)
            return outcome
        except TransientSinkError:
            if attempt + 1 == _TRIES:
                raise
            session.run("ROLLBACK")
        except SinkError as error:
            session.run("ROLLBACK")
            outcome.error = error
            return outcome
    raise AssertionError


def _piece(partition: int, target: str, unit: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [pa.array([partition], pa.int32()), pa.array([target]), pa.array([unit])]
    return pa.RecordBatch.from_arrays([*arrays, pa.array([to_stream(rows).to_pybytes()])], schema=PIECES)

"""A small batch, written by the task that reads it (`sinks.single_pass`).

A batch must be divided into the same units whenever it comes again (`ledger`), and the division depends on
how many changes it holds. So a batch is written in one pass only if its division is known beforehand: changes
from the log, for a few targets, of which none has enough for a second unit. A single task collects them all
and compares them with what was expected. Then it begins the batch and writes the units, as the driver and its
tasks do otherwise. If it finds anything else, it ends before it has written.

The driver stores the attempt's epoch first. So a task that a dead driver has left behind can begin no batch.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tailrace.errors import concerning
from tailrace.model.change import LOG
from tailrace.model.table import TableSchema
from tailrace.sinks.replica.changes import split_by_bucket
from tailrace.sinks.replica.plan import RESULT_COLUMNS, bucket_count, layout_of
from tailrace.sinks.replica.tasks import RESULT, Batches, TaskInput, UnitResult, write_unit
from tailrace.sinks.replica.unit_writer import BatchAttempt
from tailrace.spark.cells import TableBatch, changes_of
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.task_errors import parse_error

_UNIT = "b0"


@dataclass(frozen=True)
class ReplicaPass:
    """What one pass over a batch has written.

    Args:
        is_complete: whether the batch held expected changes only, and few of them; else nothing is written.
        attempt: the attempt that has written it, with the targets of the batch.
        table_batches: what the batch holds.
        results: the results of its units.
    """

    is_complete: bool
    attempt: BatchAttempt
    table_batches: list[TableBatch]
    results: list[UnitResult]


def run_pass(
    cells: DataFrame, task_input: TaskInput, schemas: Mapping[str, TableSchema], parallelism: int
) -> ReplicaPass:
    """Read a batch and write it if it is small and holds nothing but changes of `schemas`.

    Args:
        cells: one column, `cell`.
        task_input: the input of the task; the attempt's epoch is stored.
        schemas: the expected schemas, by table.
        parallelism: as for `BatchPlan`, and the most targets.

    Raises:
        TailraceError: the task failed.
    """
    task = _task(task_input, {table: schema.text for table, schema in schemas.items()}, parallelism)
    try:
        first, *rows = map_in_arrow(cells.coalesce(1), task, RESULT_COLUMNS).collect()
    except PySparkException as error:
        raise parse_error(str(error)) or error from error
    found = json.loads(first["details"])
    if found is None:
        return ReplicaPass(False, task_input.attempt, [], [])
    results = [UnitResult.from_row(row["target"], row["error"], row["details"]) for row in rows]
    held = [
        TableBatch(schemas[table].id, LOG, n, cells, (schemas[table],), (schemas[table],))
        for table, (n, cells) in sorted(found.items())
    ]
    tables = {result.target: task_input.attempt.tables[result.target] for result in results}
    return ReplicaPass(True, replace(task_input.attempt, tables=tables), held, results)


def _task(
    task_input: TaskInput, expected: Mapping[str, bytes], parallelism: int
) -> Callable[[Batches], Batches]:
    """A task: cells to a row of RESULT with the changes and cells of each table, then one for each unit."""

    def task(batches: Batches) -> Batches:
        found: dict[str, tuple[int, int]] = {}
        units: dict[str, list[pa.RecordBatch]] = {}
        changes: Counter[str] = Counter()
        for batch in changes_of(batches):
            table = str(batch.table.id)
            if batch.kind != LOG or expected.get(table) != batch.table.text:
                yield _found_row(None)
                return
            target = task_input.routes[table]
            changes[target] += len(batch)
            if bucket_count(changes[target], parallelism) > 1 or len(changes) > parallelism:
                yield _found_row(None)
                return
            n, cells = found.get(table, (0, 0))
            found[table] = n + len(batch), cells + 1
            schema = task_input.attempt.tables[target].schema
            with concerning(batch.table.id, sink=True):
                units.setdefault(target, []).extend(rows for _, rows in split_by_bucket(batch, schema, 1))
        yield _found_row(found)
        if not units:
            return
        attempt = task_input.attempt
        session = attempt.dialect.connect()
        try:
            layouts = dict.fromkeys(units, layout_of(1, []))
            names = {target: [_UNIT] for target in units}
            attempt.ledger.begin(
                session,
                attempt.batch,
                attempt.epoch,
                layouts,
                names,
                lease=attempt.lease,
                is_fenced=True,
            )
            for target, rows in units.items():
                yield write_unit(task_input, session, target, _UNIT, rows).to_row()
        finally:
            session.close()

    return task


def _found_row(found: Mapping[str, tuple[int, int]] | None) -> pa.RecordBatch:
    row = {"target": "", "error": None, "details": json.dumps(found)}
    return pa.RecordBatch.from_pylist([row], schema=RESULT)

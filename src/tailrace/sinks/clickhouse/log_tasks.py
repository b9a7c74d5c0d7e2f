"""The Spark tasks that write change logs: cells to buckets (`division`), buckets to parts, parts to a server.

`bucket_cells`   cells to (partition, target, group, changes); Spark shuffles them by partition
`insert_buckets` the changes of each bucket, sorted, to INSERTs; what they report
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from tailrace.config.sink_settings import MOST_QUARANTINED, RefusedRow
from tailrace.errors import TailraceError, concerning
from tailrace.failpoints import failpoint
from tailrace.formats.row import to_rows
from tailrace.model.cell import decode_cell, to_stream
from tailrace.model.change import ChangeBatch
from tailrace.model.moments import rows_to_python
from tailrace.model.table import TableId
from tailrace.sinks.base import CellBatch
from tailrace.sinks.clickhouse import quarantine
from tailrace.sinks.clickhouse.client import ClickHouseClient
from tailrace.sinks.clickhouse.columns import BATCH, BEFORE, PART, Years, fitted, unfit
from tailrace.sinks.clickhouse.division import (
    bucket_count,
    buckets_of,
    hashes_of,
    part_name,
    parts,
    sizes_of,
)
from tailrace.sinks.clickhouse.sql import Place
from tailrace.sinks.clickhouse.target import Target
from tailrace.sinks.quarantine import WIDEN, QuarantinedRow
from tailrace.sinks.replica.plan import Work
from tailrace.sinks.replica.row_tasks import RESULT, RESULT_COLUMNS, Outcome
from tailrace.sinks.tables.rows import log_rows
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.task_errors import parse_error

Batches = Iterator[pa.RecordBatch]
#: Columns that divide changes.
_HASH, _SIZE = "_tailrace_hash", "_tailrace_size"
_BUCKET_COLUMNS = "partition int, target string, source string, kind string, bucket int, changes binary"
_BUCKET = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("target", pa.string()),
        pa.field("source", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("bucket", pa.int32()),
        pa.field("changes", pa.binary()),
    ]
)


@dataclass(frozen=True)
class LogAttempt:
    """One attempt to write a batch, as tasks know it.

    Args:
        client: the server.
        place: where our own tables are.
        targets: the targets' tables.
        batch: the batch's number.
        years: what the server's dates hold.
        policy: what to do with refused rows.
        most_quarantined: how many rows of a source table may be in quarantine.
        present: by target: the parts of the batch that are there, with their numbers of rows.
        ts_ms: the time of the batch's end, milliseconds since 1970 UTC; 0: unknown.
    """

    client: ClickHouseClient
    place: Place
    targets: Mapping[str, Target]
    batch: int
    years: Years
    policy: RefusedRow = RefusedRow.FAIL
    most_quarantined: int = MOST_QUARANTINED
    present: Mapping[str, Mapping[str, int]] | None = None
    ts_ms: int = 0


@dataclass(frozen=True)
class _TaskInput:
    """The input of the tasks.

    Args:
        attempt: the attempt at the batch.
        routes: each source table's target.
        counts: the number of buckets, by source table and kind.
        partitions: number of Spark's partitions.
    """

    attempt: LogAttempt
    routes: Mapping[str, str]
    counts: Mapping[tuple[str, str], int]
    partitions: int


def write_log(batch: CellBatch, work: Work, attempt: LogAttempt, parallelism: int) -> Outcome:
    """Write the changes of a batch to change logs.

    Raises:
        TailraceError: a task failed.
    """
    routes = {str(part.table): name for name, held in work.items() for part in held}
    counts = {
        (str(part.table), part.kind): bucket_count(part.changes) for held in work.values() for part in held
    }
    partitions = min(parallelism, sum(counts.values()))
    task_input = _TaskInput(attempt, routes, counts, partitions)
    cells = batch.frame.where(f.col("table").isin(sorted(routes))).select("table", "kind", "cell")
    split, insert = bucket_cells(task_input), insert_buckets(task_input)
    outcome = Outcome()
    try:
        if partitions == 1:
            outcome.add(
                map_in_arrow(cells.coalesce(1), lambda batches: insert(split(batches)), RESULT_COLUMNS)
            )
        else:
            buckets = map_in_arrow(cells, split, _BUCKET_COLUMNS)
            shuffled = buckets.repartitionById(partitions, f.col("partition"))
            outcome.add(map_in_arrow(shuffled, insert, RESULT_COLUMNS))
    except PySparkException as error:
        raise parse_error(str(error)) or error from error
    return outcome


def bucket_cells(task_input: _TaskInput) -> Callable[[Batches], Batches]:
    """A task: rows (table, kind, cell) to rows of _BUCKET."""

    def task(batches: Batches) -> Batches:
        for batch in batches:
            for name, kind, cell in zip(*batch.columns, strict=True):
                source, group = name.as_py(), (name.as_py(), kind.as_py())
                target = task_input.attempt.targets[task_input.routes[source]]
                changes = decode_cell(cell.as_buffer())
                with concerning(changes.table.id, sink=True):
                    rows = _rows(changes, target)
                    numbers = buckets_of(rows.column(_HASH), task_input.counts[group])
                    for bucket in sorted(set(numbers.tolist())):
                        chosen = rows.filter(pa.array(numbers == bucket))
                        first = zlib.crc32(":".join(group).encode())
                        row = {
                            "partition": (first + bucket) % task_input.partitions,
                            "target": target.name,
                            "source": source,
                            "kind": group[1],
                            "bucket": bucket,
                            "changes": to_stream(chosen).to_pybytes(),
                        }
                        yield pa.RecordBatch.from_pylist([row], schema=_BUCKET)

    return task


def _rows(changes: ChangeBatch, target: Target) -> pa.RecordBatch:
    """Rows of a change log, as Arrow has them, each with what divides them."""
    images = [image for image in (changes.before, changes.after) if image is not None]
    shown = to_rows(changes).select(changes.table.arrow.names)
    hashes = hashes_of(changes.origin.column("seq"), shown)
    sizes = sizes_of(len(changes.table.columns), images, len(changes))
    rows = log_rows(target.schema.arrow)(changes)
    return rows.append_column(_HASH, hashes).append_column(_SIZE, sizes)


def insert_buckets(task_input: _TaskInput) -> Callable[[Batches], Batches]:
    """A task: rows of _BUCKET, of whole buckets, to rows of the result."""
    attempt = task_input.attempt

    def task(batches: Batches) -> Batches:
        buckets: dict[tuple[str, str, str, int], list[pa.RecordBatch]] = {}
        for batch in batches:
            for target, source, kind, bucket, changes in zip(*batch.columns[1:], strict=True):
                key = (target.as_py(), source.as_py(), kind.as_py(), bucket.as_py())
                rows = pa.ipc.open_stream(changes.as_buffer()).read_next_batch()
                buckets.setdefault(key, []).append(rows)
        errors: dict[str, TailraceError] = {}
        put_aside: dict[str, Counter[str]] = {}
        for target, source, kind, bucket in sorted(buckets):
            if target in errors:
                continue
            bucket_rows = buckets.pop((target, source, kind, bucket))
            try:
                with concerning(TableId.parse(source), sink=True):
                    count = _insert(attempt, attempt.targets[target], (source, kind, bucket), bucket_rows)
                put_aside.setdefault(target, Counter()).update({source: count} if count else {})
            except TailraceError as error:
                if error.retryable:
                    raise
                errors[target] = error
        results = [
            {
                "target": name,
                "error": errors[name].to_json() if name in errors else None,
                "quarantined": json.dumps(put_aside.get(name, {})),
            }
            for name in sorted({*errors, *(name for name, found in put_aside.items() if found)})
        ]
        yield pa.RecordBatch.from_pylist(results, schema=RESULT)

    return task


def _insert(
    attempt: LogAttempt, target: Target, of: tuple[str, str, int], batches: list[pa.RecordBatch]
) -> int:
    """Insert the changes of a bucket; returns how many were put into quarantine."""
    rows = pa.Table.from_batches(batches)
    rows = rows.sort_by([("_seq", "ascending"), (_HASH, "ascending")]).combine_chunks()
    there = (attempt.present or {}).get(target.name, {})
    quarantined = 0
    for number, (start, count) in enumerate(parts(rows.column(_SIZE).combine_chunks())):
        name = part_name(*of, number)
        part = rows.slice(start, count).drop_columns([_HASH, _SIZE])
        stored, refused = _stored(attempt, target, of[0], part)
        quarantined += refused
        n = stored.num_rows
        if n == 0 or there.get(name) == n:
            continue
        stored = stored.append_column(BATCH, pa.repeat(pa.scalar(attempt.batch, pa.uint64()), n))
        stored = stored.append_column(PART, pa.repeat(name, n))
        token = f"{target.stream.query}:{attempt.batch}:{name}"
        attempt.client.insert(target.path, stored, token=token)
        failpoint("sink.task")
    return quarantined


def _stored(attempt: LogAttempt, target: Target, source: str, rows: pa.Table) -> tuple[pa.Table, int]:
    """A part as it is inserted, without refused rows, and how many these are."""
    names = target.schema.arrow.names
    kept, refused = rows, 0
    if attempt.policy is RefusedRow.QUARANTINE:
        kept = _without_unfit(attempt, target, source, rows)
        refused = rows.num_rows - kept.num_rows

    def origin(row: int) -> tuple[str, str]:
        return source, kept.column("_position")[row].as_py() or ""

    now = fitted(kept.select(names), target.schema, attempt.years, origin)
    old = fitted(_before(kept, names), target.schema, attempt.years, origin)
    own = [name for name in kept.schema.names if name not in names and name != "_before"]
    columns = {name: now.column(name) for name in names}
    columns |= {f"{BEFORE}{name}": old.column(name) for name in names}
    columns |= {name: kept.column(name) for name in own}
    return pa.table(columns), refused


def _without_unfit(attempt: LogAttempt, target: Target, source: str, rows: pa.Table) -> pa.Table:
    """Rows without those that a column cannot hold, which are put aside."""
    names = target.schema.arrow.names
    found = [
        *unfit(rows.select(names), target.schema, attempt.years),
        *unfit(_before(rows, names), target.schema, attempt.years),
    ]
    refused = np.zeros(rows.num_rows, bool)
    entries = []
    for one in found:
        here = np.asarray(pc.fill_null(one.rows, fill_value=False)) & ~refused
        refused |= here
        for number in map(int, np.flatnonzero(here)):
            (values,) = rows_to_python(rows.slice(number, 1).select(names))
            op, position = (rows.column(name)[number].as_py() for name in ("_op", "_position"))
            entries.append(
                QuarantinedRow(
                    source,
                    target.name,
                    attempt.batch,
                    op,
                    position or "",
                    "TR-7006",
                    one.reason,
                    WIDEN,
                    None,
                    values,
                    one.column,
                )
            )
    if entries:
        quarantine.put(attempt.client, attempt.place, target.stream.query, entries, attempt.most_quarantined)
    return rows.filter(pa.array(~refused)).combine_chunks()


def _before(rows: pa.Table, names: list[str]) -> pa.Table:
    """The old rows of updates; columns of NULL for other changes."""
    column = rows.column("_before").combine_chunks()
    return pa.table(dict(zip(names, column.flatten(), strict=True)))

"""Divides a batch into units (`ledger`), and runs the Spark jobs that write them."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tailrace.model.change import LOG, REREAD, SNAPSHOT
from tailrace.sinks.base import CellBatch
from tailrace.sinks.replica.tasks import (
    Batches,
    TaskInput,
    UnitResult,
    bucket_log,
    write_log,
    write_small_log,
    write_snapshot,
)
from tailrace.spark.cells import TableBatch
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.task_errors import parse_error

#: Kinds of cells whose rows are merged by key; rows of a first snapshot are inserted.
_MERGED = (LOG, REREAD)
#: Least changes that justify another bucket, and most changes of one bucket.
_LEAST_BUCKET, _LARGEST_BUCKET = 5_000, 100_000
RESULT_COLUMNS = "target string, error string, details string"
_BUCKET_CHANGES = "partition int, target string, unit string, changes binary"

#: Targets to write, with their parts.
Work = Mapping[str, list[TableBatch]]


class BatchPlan:
    """The division of a batch into units.

    Args:
        batch: the batch.
        work: targets to write, with their parts.
        parallelism: number of units to write at the same time.
        is_undivided: whether a target has one unit of changes, however many: unique values may pass from one
            of its rows to another, and no row may keep one that another row has by now.
    """

    def __init__(
        self, batch: CellBatch, work: Work, parallelism: int, is_undivided: Callable[[str], bool]
    ) -> None:
        self.batch = batch
        #: Each source table's target.
        self.routes = {str(part.table): name for name, parts in work.items() for part in parts}
        changes = {name: sum(p.changes for p in parts if p.kind in _MERGED) for name, parts in work.items()}
        counts = {name: bucket_count(n, parallelism) for name, n in changes.items() if n}
        is_small = len(work) <= parallelism and all(n == 1 for n in counts.values())
        counts |= {name: 1 for name, n in counts.items() if n > 1 and is_undivided(name)}
        self._partitions = max([min(parallelism, len(counts)), *counts.values()]) if counts else 0
        #: By target: the number of buckets, and the Spark partition of the first.
        self.buckets = {
            name: (count, 0 if count > 1 else zlib.crc32(name.encode()) % self._partitions)
            for name, count in counts.items()
        }
        self._has_snapshot = any(p.kind == SNAPSHOT for parts in work.values() for p in parts)
        splits = self._splits()
        self.units: dict[str, list[str]] = {
            name: [f"b{i}" for i in range(counts.get(name, 0))] for name in work
        }
        for split, table, _ in splits:
            unit = f"s{split}"
            if unit not in self.units[self.routes[table]]:
                self.units[self.routes[table]].append(unit)
        #: Digest of each target's layout.
        self.layouts: dict[str, str] = {}
        for name in work:
            self.layouts[name] = layout_of(
                counts.get(name, 0), [split for split in splits if self.routes[split[1]] == name]
            )
        #: Whether its like can be written in one pass (`one_pass`).
        self.is_small = is_small and not self._has_snapshot

    def write(self, task_input: TaskInput) -> list[UnitResult]:
        """Write all units.

        Raises:
            TailraceError: a task failed.
        """
        results = []
        try:
            if self._has_snapshot:
                results += _collect(self._cells(SNAPSHOT), write_snapshot(task_input))
            if self.buckets:
                cells = self._cells(*_MERGED)
                if self._partitions == 1:
                    results += _collect(cells.coalesce(1), write_small_log(task_input))
                else:
                    changes = map_in_arrow(cells, bucket_log(task_input), _BUCKET_CHANGES)
                    buckets = changes.repartitionById(self._partitions, f.col("partition"))
                    results += _collect(buckets, write_log(task_input))
        except PySparkException as error:
            raise parse_error(str(error)) or error from error
        return results

    def _cells(self, *kinds: str) -> DataFrame:
        listed = f.col("table").isin(sorted(self.routes))
        return self.batch.frame.where(f.col("kind").isin(*kinds) & listed).select("table", "cell")

    def _splits(self) -> list[tuple[int, str, int]]:
        """The frame's partitions with snapshot rows: number, table, rows."""
        if not self._has_snapshot:
            return []
        cells = self.batch.frame.where(f.col("kind") == SNAPSHOT).where(
            f.col("table").isin(sorted(self.routes))
        )
        counted = cells.groupBy(f.spark_partition_id().alias("split"), "table").agg(f.sum("changes"))
        return sorted((int(r[0]), str(r[1]), int(r[2])) for r in counted.collect())


def layout_of(buckets: int, splits: Sequence[tuple[int, str, int]]) -> str:
    """The digest of a target's layout.

    Args:
        buckets: the number of its buckets.
        splits: its splits with snapshot rows: number, table, rows.
    """
    return hashlib.sha256(json.dumps([buckets, splits]).encode()).hexdigest()[:32]


def bucket_count(changes: int, parallelism: int) -> int:
    """Number of buckets for a target's changes."""
    return max(1, min(parallelism, changes // _LEAST_BUCKET), -(-changes // _LARGEST_BUCKET))


def _collect(frame: DataFrame, task: Callable[[Batches], Batches]) -> list[UnitResult]:
    rows = map_in_arrow(frame, task, RESULT_COLUMNS).collect()
    return [UnitResult.from_row(row["target"], row["error"], row["details"]) for row in rows]

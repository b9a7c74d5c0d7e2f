"""How a batch falls into units (`ledger`), and the Spark jobs that write them."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tailrace.model.cell import LOG, SNAPSHOT
from tailrace.sinks.base import CellBatch
from tailrace.sinks.replica.tasks import (
    Batches,
    Job,
    Outcome,
    spread_log,
    write_log,
    write_small_log,
    write_snapshot,
)
from tailrace.spark.cells import TableBatch
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.task_errors import parse_error

#: Changes of a target that are worth a bucket of their own, and the most that one should have.
_LEAST_BUCKET, _LARGEST_BUCKET = 5_000, 100_000
_RESULT = "target string, error string, found string"
_PIECES = "partition int, target string, unit string, changes binary"

#: Targets to write, with their parts.
Work = Mapping[str, list[TableBatch]]


class BatchPlan:
    """How a batch falls into units.

    Args:
        batch: the batch.
        work: targets to write, with their parts.
        parallelism: units written at the same time.
    """

    def __init__(self, batch: CellBatch, work: Work, parallelism: int) -> None:
        self.batch = batch
        #: Each source table's target.
        self.routes = {str(part.table): name for name, parts in work.items() for part in parts}
        changes = {name: sum(p.changes for p in parts if p.kind == LOG) for name, parts in work.items()}
        counts = {name: _buckets(n, parallelism) for name, n in changes.items() if n}
        self._partitions = max([min(parallelism, len(counts)), *counts.values()]) if counts else 0
        #: Each target's number of buckets, and the partition of the first.
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
        #: How each target's share falls into its units.
        self.layouts: dict[str, str] = {}
        for name in work:
            said = json.dumps([counts.get(name, 0), [s for s in splits if self.routes[s[1]] == name]])
            self.layouts[name] = hashlib.sha256(said.encode()).hexdigest()[:32]

    def write(self, job: Job) -> list[Outcome]:
        """Write everything; what came of it.

        Raises:
            TailraceError: a task failed.
        """
        outcomes = []
        try:
            if self._has_snapshot:
                outcomes += _collect(self._cells(SNAPSHOT), write_snapshot(job))
            if self.buckets:
                cells = self._cells(LOG)
                if self._partitions == 1:
                    outcomes += _collect(cells.coalesce(1), write_small_log(job))
                else:
                    pieces = map_in_arrow(cells, spread_log(job), _PIECES)
                    placed = pieces.repartitionById(self._partitions, f.col("partition"))
                    outcomes += _collect(placed, write_log(job))
        except PySparkException as error:
            ours = parse_error(str(error))
            if ours is None:
                raise
            raise ours from error
        return outcomes

    def _cells(self, kind: str) -> DataFrame:
        listed = f.col("table").isin(sorted(self.routes))
        return self.batch.frame.where((f.col("kind") == kind) & listed).select("table", "cell")

    def _splits(self) -> list[tuple[int, str, int]]:
        """Partitions of the frame that hold snapshot rows: number, table, rows."""
        if not self._has_snapshot:
            return []
        cells = self.batch.frame.where(f.col("kind") == SNAPSHOT).where(
            f.col("table").isin(sorted(self.routes))
        )
        counted = cells.groupBy(f.spark_partition_id().alias("split"), "table").agg(f.sum("changes"))
        return sorted((int(r[0]), str(r[1]), int(r[2])) for r in counted.collect())


def _buckets(changes: int, parallelism: int) -> int:
    """How many transactions a target's changes are worth."""
    return max(1, min(parallelism, changes // _LEAST_BUCKET), -(-changes // _LARGEST_BUCKET))


def _collect(frame: DataFrame, task: Callable[[Batches], Batches]) -> list[Outcome]:
    rows = map_in_arrow(frame, task, _RESULT).collect()
    return [Outcome.from_row(row["target"], row["error"], row["found"]) for row in rows]

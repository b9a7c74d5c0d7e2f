"""The Spark job that writes a batch: cells are cut into shares, sorted, and written; the writers' reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tailrace.model.table import TableId
from tailrace.sinks.messages.reports import REPORT, reported_error
from tailrace.sinks.messages.shares import SHARES
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.task_errors import parse_error

#: Converts the record batches of a task.
Conversion = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Reports:
    """What the writers of a batch have reported.

    Args:
        writers: how many writers the batch has.
        tokens: the producer of each writer that has written now.
        refused: changes that were put into quarantine, by table.
        ignored: updates of rows of outboxes, by table.
        changes: changes written, by table and kind of cell; None: the batch held another schema than
            was expected, and nothing is written.
    """

    writers: int
    tokens: Mapping[int, str]
    refused: Mapping[str, int]
    ignored: Mapping[str, int]
    changes: Mapping[tuple[str, str], int] | None

    @property
    def is_complete(self) -> bool:
        """Whether the changes are written."""
        return self.changes is not None


@dataclass(frozen=True)
class WrittenPass:
    """What one pass has written.

    Args:
        tables: the tables that it expected, by their names.
        reports: its writers'.
    """

    tables: Mapping[str, TableId]
    reports: Reports

    @property
    def is_complete(self) -> bool:
        """See `Pass`."""
        return self.reports.is_complete


def run_writers(
    cells: DataFrame, cut: Conversion | None, write: Conversion, writers: int, missing: Sequence[int]
) -> Reports:
    """Run a batch's writers.

    Args:
        cells: columns `min_seq` and `cell`.
        cut: converts these to rows of SHARES; None: there is one writer, which takes all cells as they are.
        write: converts the rows of some writers, each writer's in order, to rows of REPORT.
        writers: the number of writers.
        missing: the numbers of those that have not written the batch yet.

    Raises:
        SinkError: one of them failed.
    """
    if cut is None:
        shares = cells.select(f.lit(0).alias("writer"), f.col("min_seq").alias("seq"), "cell")
    else:
        shares = map_in_arrow(cells, cut, SHARES).where(f.col("writer").isin(list(missing)))
    shares = shares.repartitionById(writers, f.col("writer")).sortWithinPartitions("seq")
    return _reports(shares, write, writers)


def run_writer(cells: DataFrame, write: Conversion) -> Reports:
    """Run the one writer of a batch that one task reads.

    Args:
        cells: columns `min_seq` and `cell`.
        write: converts them to rows of REPORT.

    Raises:
        SinkError: it failed.
    """
    return _reports(cells, write, writers=1)


def _reports(rows: DataFrame, write: Conversion, writers: int) -> Reports:
    try:
        reports = map_in_arrow(rows, write, REPORT).collect()
    except PySparkException as error:
        raise parse_error(str(error)) or error from error
    return _summary(writers, reports)


def _summary(writers: int, reports: Sequence[Any]) -> Reports:
    changes: Counter[tuple[str, str]] = Counter()
    for report in reports:
        if (error := reported_error(report)) is not None:
            raise error
    if any(report["changes"] is None for report in reports):
        return Reports(writers, {}, {}, {}, None)
    for found in (found for report in reports for found in report["changes"]):
        changes[found["table"], found["kind"]] += found["changes"]
    tokens = {report["writer"]: report["token"] for report in reports}
    refused: Counter[str] = Counter()
    ignored: Counter[str] = Counter()
    for report in reports:
        refused.update(report["refused"])
        ignored.update(report["ignored"])
    return Reports(writers, tokens, refused, ignored, changes)

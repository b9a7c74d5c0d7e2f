"""Compacts small data files into large ones, in one commit that changes no row.

Files are chosen by the rules of Iceberg's `rewrite_data_files`: files below three quarters of the table's
target size are put into bins of up to that size, and bins of five or more files are compacted. Files with
delete files, which another engine wrote, stay as they are.

The commit's operation is `replace`, which streaming readers skip. The time of the last compaction is a table
property, so it outlasts the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, TableProperties
from pyspark.sql import SparkSession

from tailrace.errors import SinkError
from tailrace.sinks.iceberg.columns import held_columns
from tailrace.sinks.iceberg.files import FileTarget, described, fitted
from tailrace.sinks.iceberg.maintenance import is_due
from tailrace.sinks.iceberg.replace_files import replace_files
from tailrace.spark.jvm import map_in_arrow

_COMPACTED_AT = "tailrace.compacted-at"
#: Iceberg's `min-file-size-bytes`, as a share of the target size, and its `min-input-files`.
_SMALL, _LEAST_FILES = 0.75, 5


def compact(
    session: SparkSession, table: Table, interval_s: int, now: float, commits: AbstractContextManager[object]
) -> int:
    """Compact a table if it is due.

    Args:
        session: runs the tasks.
        table: the table.
        interval_s: the time between two compactions; before the first one it counts from the oldest snapshot.
        now: the time, seconds since 1970.
        commits: held during the commit.

    Returns:
        The number of compacted files.

    Raises:
        CommitFailedException: another writer has committed meanwhile.
        SinkError: the row counts of files differ from their manifests.
    """
    if not is_due(table, _COMPACTED_AT, interval_s, now):
        return 0
    bins = _bins(list(table.scan().plan_files()), _target_bytes(table))
    compacted = _compact(session, table, bins) if bins else []
    with commits, table.transaction() as transaction:
        transaction.set_properties({_COMPACTED_AT: str(int(now))})
        current = table.current_snapshot()
        if compacted and current is not None:
            # the new snapshot shows the same batch as the newest one
            held = current.summary.additional_properties if current.summary else {}
            ours = {name: value for name, value in held.items() if name.startswith("tailrace.")}
            with replace_files(table, transaction, ours) as snapshot:
                for file in compacted:
                    snapshot.append_data_file(file)
                for task in (task for tasks in bins for task in tasks):
                    snapshot.delete_data_file(task.file)
    return sum(map(len, bins))


def _target_bytes(table: Table) -> int:
    default = TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT
    return int(table.properties.get(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, default))


def _bins(tasks: Sequence[FileScanTask], target_bytes: int) -> list[list[FileScanTask]]:
    """The files to compact, in bins; each bin has files of one partition, in the table's order."""
    open_: dict[str, tuple[list[FileScanTask], int]] = {}
    bins = []
    for task in tasks:
        size = task.file.file_size_in_bytes
        if task.delete_files or size >= target_bytes * _SMALL:
            continue
        partition = f"{task.file.spec_id}:{task.file.partition}"
        held, held_bytes = open_.get(partition, ([], 0))
        if held and held_bytes + size > target_bytes:
            bins.append(held)
            held, held_bytes = [], 0
        open_[partition] = [*held, task], held_bytes + size
    bins += [held for held, _ in open_.values()]
    return [held for held in bins if len(held) >= _LEAST_FILES]


def _compact(session: SparkSession, table: Table, bins: Sequence[Sequence[FileScanTask]]) -> list[DataFile]:
    """Write the rows of each bin into a new file."""
    target = FileTarget(table.io, f"{table.location()}/data", held_columns(table.schema()))
    work = [(number, [task.file.file_path for task in tasks]) for number, tasks in enumerate(bins)]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number, paths in zip(*batch.to_pydict().values(), strict=True):
                (path,) = target.write(rows_of(target.io, paths, target.schema), file_bytes=None)
                yield pa.RecordBatch.from_pylist([{"bin": number, "path": path}])

    frame = session.createDataFrame(work, "bin int, paths array<string>").repartition(len(work))
    compacted = []
    for number, path in map_in_arrow(frame, run, "bin bigint, path string").collect():
        file = described(table.io, table.metadata, path)
        expected = sum(task.file.record_count for task in bins[number])
        if file.record_count != expected:
            raise SinkError(
                f"files of `{'.'.join(table.name())}` cannot be compacted",
                f"{len(bins[number])} files hold {file.record_count} rows, their manifests say {expected}",
                "the data files may have been overwritten; roll back to an older snapshot",
                code="TR-7205",
            )
        compacted.append(file)
    return compacted


def rows_of(io: FileIO, paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of files in batches, with the table's present columns."""
    for path in paths:
        with io.new_input(path).open() as stream:
            file: Any = pq.ParquetFile(stream)
            for batch in file.iter_batches():
                yield from fitted(pa.Table.from_batches([batch]), schema).to_batches()

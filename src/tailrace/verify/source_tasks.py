"""The source's key ranges in tasks of Spark: nothing but checksums, and rows that differ, passes the driver.

Each range is a job of one task. The task runs from the range and its reader alone, which it gets pickled with
its function, as the stream's tasks get theirs: no plan and no event log holds a secret.

A definite error comes back as the task's result, so that Spark does not read the range again to meet it once
more. After a transient one Spark does, as for a stream's splits.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.errors import TailraceError, from_json
from tailrace.spark.jvm import cancel_jobs, map_in_arrow
from tailrace.spark.task_errors import parse_error
from tailrace.verify.checksum import Checksums
from tailrace.verify.range_reader import RangeReader, SourceRange

_RESULT = pa.schema([("rows", pa.int64()), ("result", pa.binary()), ("error", pa.string())])
_RESULT_SQL = "rows bigint, result binary, error string"
#: Where Spark's scheduler is fair, source and targets share its cores.
_POOL = "source"


@dataclass(frozen=True)
class SourceTasks:
    """Has ranges read by tasks; used by several threads.

    Args:
        session: the session.
        group: of the jobs.
    """

    session: SparkSession
    group: str = field(default_factory=lambda: f"tailrace-verify-{uuid.uuid4().hex}")

    def checksums(self, reader: RangeReader, work: SourceRange) -> Checksums:
        """The checksums of the rows in a range.

        Raises:
            TailraceError: the task's.
        """

        def read() -> tuple[int, bytes]:
            sums = Checksums.empty()
            reader.add(work, sums)
            return sums.rows, sums.to_bytes()

        return Checksums.from_bytes(self._result(work, read)[1])

    def rows(self, reader: RangeReader, work: SourceRange, buckets: np.ndarray) -> tuple[int, pa.Table]:
        """The rows in a range that belong to some buckets, and how many were read.

        Raises:
            TailraceError: the task's.
        """

        def read() -> tuple[int, bytes]:
            counts: list[int] = []
            found = reader.rows(work, buckets, on_rows=counts.append)
            output = pa.BufferOutputStream()
            with pa.ipc.new_stream(output, found.schema) as stream:
                stream.write_table(found)
            return sum(counts), output.getvalue().to_pybytes()

        number, data = self._result(work, read)
        return number, pa.ipc.open_stream(data).read_all()

    def cancel(self) -> None:
        """End the jobs, and all that are to come."""
        with suppress(Py4JError, ConnectionError):  # Spark may have ended
            cancel_jobs(self.session, self.group)

    def _result(self, work: SourceRange, read: Callable[[], tuple[int, bytes]]) -> tuple[int, bytes]:
        """What a task returns that reads `work`."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:  # there is one
                yield _result_of(read)

        context = self.session.sparkContext
        context.setJobGroup(self.group, f"comparing {work.name}", interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", _POOL)
        frame = self.session.range(0, 1, 1, numPartitions=1)
        try:
            (found,) = map_in_arrow(frame, run, _RESULT_SQL).collect()
        except PySparkException as error:
            raise parse_error(str(error)) or error from error
        if found["error"] is not None:
            raise from_json(found["error"])
        return found["rows"], bytes(found["result"])


def _result_of(read: Callable[[], tuple[int, bytes]]) -> pa.RecordBatch:
    """What a task returns."""
    number, data, error = None, None, None
    try:
        number, data = read()
    except TailraceError as found:
        if found.retryable:
            raise
        error = found.to_json()
    return pa.RecordBatch.from_pylist([{"rows": number, "result": data, "error": error}], schema=_RESULT)

"""How a cluster shares a snapshot's work: `python -m bench.clusters [WORKERS...] [--rows N]`.

Spark's standalone cluster on this machine, of so many workers with one core each; the driver is a process of
its own. More workers than the machine has cores show only how work is shared.

    rows/s       of the stream, whose cells each task counts and drops
    least share  rows of the worker that had the fewest (of an equal share)
    driver       bytes that the driver's JVM reads and writes, files and sockets, for a row of the table
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench import data, spark_runs
from bench.report import Figure, show
from bench.servers import Server, running
from tailrace.spark.jvm import map_in_arrow
from tailrace.spark.session import spark_session
from tailrace.spark.unread import cells_in
from tests.support.spark_cluster import Cluster

#: Workers, one cluster each.
WORKERS = (1, 2, 4)


def measure_all(server: Server, scratch: Path, rows: int, sizes: Sequence[int] = WORKERS) -> Iterator[Figure]:
    """The figures of clusters of these sizes; `items` gets `rows` rows."""
    with closing(server.connect()) as connection:
        data.fill_items(connection, rows)
    for workers in sizes:
        place = Path(scratch, f"cluster-{workers}")
        place.mkdir()
        yield from measure(server, place, workers, rows)


def measure(server: Server, place: Path, workers: int, rows: int) -> Iterator[Figure]:
    """The figures of a cluster with so many workers; `items` has `rows` rows."""
    with Cluster(place, workers) as cluster:
        spark = spark_session(
            "tailrace-bench",
            master=cluster.master,
            log_file=place / "driver.log",
            extra_conf={"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"},
        )
        try:
            _snapshot(server, spark, place / "first", workers)  # starts the executors' processes
            before = _bytes(spark)
            run, shares = _snapshot(server, spark, place / "second", workers)
            passed = _bytes(spark) - before
        finally:
            spark.stop()
    assert sum(shares.values()) == rows, f"{sum(shares.values())} of {rows} rows came through"
    section, least = f"cluster, {workers} workers", min(shares.values()) if len(shares) == workers else 0
    yield Figure(section, "snapshot", rows / run.stream_s, "rows/s", notes={"batches": run.batches})
    yield Figure(section, "least share", least, "rows", ratio=least * workers / rows)
    yield Figure(section, "driver", passed / rows, "bytes/row")


def _snapshot(
    server: Server, spark: SparkSession, checkpoint: Path, workers: int
) -> tuple[spark_runs.Run, Counter[str]]:
    """A run, and how many rows each executor had."""
    shares: Counter[str] = Counter()

    def write(frame: DataFrame, _: int) -> None:
        counted = map_in_arrow(frame, _by_executor, "executor string, changes bigint")
        for row in counted.groupBy("executor").agg(f.sum("changes").alias("changes")).collect():
            shares[row["executor"]] += row["changes"]

    options = server.options("items", "cells", snapshotParallelism=str(workers))
    return spark_runs.into(spark, options, write, checkpoint), shares


def _by_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    executor = os.environ["SPARK_EXECUTOR_DIRS"]  # each has its own
    for batch in cells_in(batches, ["changes"]):
        yield pa.RecordBatch.from_pydict(
            {"executor": [executor], "changes": pa.array([pc.sum(batch.column(0)).as_py()], pa.int64())}
        )


def _bytes(spark: SparkSession) -> int:
    """What the driver's JVM has read and written so far, bytes."""
    lines = Path(f"/proc/{spark_runs.jvm(spark)}/io").read_text(encoding="ascii").splitlines()
    found = dict(line.split(": ") for line in lines)
    return int(found["rchar"]) + int(found["wchar"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.clusters", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("workers", type=int, nargs="*", default=WORKERS)
    parser.add_argument("--rows", type=int, default=5_000_000)
    given = parser.parse_args()
    with running(None) as server, tempfile.TemporaryDirectory() as scratch:
        with closing(server.connect()) as connection:
            data.prepare(connection)
        for figure in measure_all(server, Path(scratch), given.rows, given.workers):
            show(figure)


if __name__ == "__main__":
    main()

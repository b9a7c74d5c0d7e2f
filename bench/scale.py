"""What a row costs as its table grows: `python -m bench.scale [ROWS]`.

Snapshots into Delta (mode changelog) of tables of a hundredth and a tenth of the rows, and of all, in one
session; the JVM is warm. Cost is the CPU time of Spark's processes per row; memory is the sum of the largest
resident sets of their roles.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench import data, spark_runs
from bench.report import Figure, show
from bench.servers import Server
from bench.targets import judged
from tailrace.config.sinks import DeltaSettings, WriteMode
from tailrace.sinks.base import CellBatch, StreamId
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.route import Router

_PARTS = (100, 10, 1)


def measure(server: Server, spark: SparkSession, rows: int) -> Iterator[Figure]:
    """The figures; `items` has `rows` rows."""
    peaks = []
    for number, part in enumerate(_PARTS):
        table, count = f"scale_{number}", rows // part
        with closing(server.connect()) as connection:
            data.execute(
                connection,
                "SET SESSION sql_log_bin = 0",
                f"DROP TABLE IF EXISTS {table}",
                f"CREATE TABLE {table} LIKE items",
                f"INSERT INTO {table} SELECT * FROM items WHERE id <= {count}",
            )
        run = _copied(spark, server, table)
        peaks.append(sum(run.usage.peak_rss_mb.values()))
        yield Figure(
            "cost of a row",
            f"snapshot of {count:,} rows to Delta",
            1e6 * run.usage.total_cpu_s / count,
            "CPU µs",
            cpu_s=dict(run.usage.cpu_s),
            peak_rss_mb=dict(run.usage.peak_rss_mb),
            notes={"rows": count, "rows/s": count / run.stream_s},
        )
        with closing(server.connect()) as connection:
            data.execute(connection, f"DROP TABLE {table}")
    yield Figure(
        "cost of a row",
        "memory with all rows (of that with a tenth)",
        peaks[-1],
        "MB",
        ratio=peaks[-1] / peaks[-2],
    )


def _copied(spark: SparkSession, server: Server, table: str) -> spark_runs.Run:
    stream = StreamId("bench", uuid.uuid4().hex)
    with tempfile.TemporaryDirectory() as path:
        sink = DeltaSink(DeltaSettings(f"{path}/lake", WriteMode.CHANGELOG), Router([]))

        def write(frame: DataFrame, number: int) -> None:
            with closing(CellBatch(stream, number, frame, None)) as batch:
                sink.write(batch)

        with closing(sink):
            return spark_runs.into(spark, server.options(table, "cells"), write, Path(path, "checkpoint"))


def main() -> None:
    """Measure and print."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    with spark_runs.with_items(rows) as (server, spark):
        for figure in measure(server, spark, rows):
            show(judged(figure))


if __name__ == "__main__":
    main()

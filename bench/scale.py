"""What a row costs as its table grows: `python -m bench.scale [ROWS]`.

Snapshots into Delta (mode changelog) of tables of a hundredth and a tenth of the rows, and of all, in one
session; the JVM is warm. Cost is the CPU time of Spark's processes per row; memory is the sum of the largest
resident sets of their roles.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession

from bench import data, lakes, spark_runs
from bench.report import Figure
from bench.servers import Server
from bench.targets import show_judged

_PARTS = (100, 10, 1)


def measure(server: Server, spark: SparkSession, rows: int) -> Iterator[Figure]:
    """The figures; `items` has `rows` rows."""
    peaks = []
    for number, part in enumerate(_PARTS):
        table, count = "items" if part == 1 else f"scale_{number}", rows // part
        with closing(server.connect()) as connection:
            if part > 1:
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
        if part > 1:
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
    with tempfile.TemporaryDirectory() as path, closing(lakes.changelog("Delta", path)) as sink:
        options = server.options(table, "cells")
        return spark_runs.into_sink(spark, options, sink, Path(path, "checkpoint"))


def main() -> None:
    """Measure and print."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    with spark_runs.with_items(rows) as (server, spark):
        show_judged(measure(server, spark, rows))


if __name__ == "__main__":
    main()

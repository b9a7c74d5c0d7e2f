"""What a row costs as its table grows: `python -m bench.scale [ROWS] [--log EVENTS]`.

Snapshots into Delta (mode changelog) of tables of a hundredth and a tenth of the rows, and of all, in one
session; the JVM is warm. With `--log`, the same of a binary log of 1000-row transactions. Cost is the CPU
time of Spark's processes per row; memory is the sum of the largest resident sets of their roles.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path

from pyspark.sql import SparkSession

from bench import data, lakes, spark_runs
from bench.report import Figure
from bench.servers import Server
from bench.targets import show_judged

_PARTS = (100, 10, 1)


def measure(server: Server, spark: SparkSession, rows: int) -> Iterator[Figure]:
    """The figures of snapshots; `items` has `rows` rows."""
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
        run = _into_delta(spark, server.options(table, "cells", logParallelism="auto"))
        peaks.append(_memory(run))
        yield _cost(f"snapshot of {count:,} rows to Delta", run, count)
        if part > 1:
            with closing(server.connect()) as connection:
                data.execute(connection, f"DROP TABLE {table}")
    yield _growth("with all rows", peaks)


def measure_log(server: Server, spark: SparkSession, events: int) -> Iterator[Figure]:
    """The figures of a log."""
    peaks = []
    for part in _PARTS:
        with closing(server.connect()) as connection:
            start = data.new_file(connection)
            data.execute(connection, f"PURGE BINARY LOGS TO '{start.file}'")
            each, of_row = 1000, (data.ROW, data.UPDATE)
            count = each * data.change(
                connection, "events", *of_row, events=events // part, per_transaction=each
            )
        position = f"file:{start.file}:{start.offset}"
        run = _into_delta(
            spark, server.options("events", "cells", startingPosition=position, logParallelism="auto")
        )
        assert run.rows == count, f"{run.rows} of {count} events came through"
        peaks.append(_memory(run))
        yield _cost(f"log of {count:,} events to Delta", run, count)
    yield _growth("with the whole log", peaks)


def _into_delta(spark: SparkSession, options: Mapping[str, str]) -> spark_runs.Run:
    with tempfile.TemporaryDirectory() as path, closing(lakes.changelog("Delta", path)) as sink:
        return spark_runs.into_sink(spark, options, sink, Path(path, "checkpoint"))


def _memory(run: spark_runs.Run) -> float:
    return sum(run.usage.peak_rss_mb.values())


def _cost(name: str, run: spark_runs.Run, rows: int) -> Figure:
    return Figure(
        "cost of a row",
        name,
        1e6 * run.usage.total_cpu_s / rows,
        "CPU µs",
        cpu_s=dict(run.usage.cpu_s),
        peak_rss_mb=dict(run.usage.peak_rss_mb),
        notes={"rows": rows, "rows/s": rows / run.stream_s},
    )


def _growth(what: str, peaks: list[float]) -> Figure:
    name = f"memory {what} (of that with a tenth)"
    return Figure("cost of a row", name, peaks[-1], "MB", ratio=peaks[-1] / peaks[-2])


def main() -> int:
    """Measure and print; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("rows", type=int, nargs="?", default=10_000_000)
    parser.add_argument("--log", type=int, default=0, metavar="EVENTS")
    given = parser.parse_args()
    with spark_runs.with_items(given.rows) as (server, spark):
        of_log = measure_log(server, spark, given.log) if given.log else ()
        return show_judged(chain(measure(server, spark, given.rows), of_log))


if __name__ == "__main__":
    sys.exit(main())

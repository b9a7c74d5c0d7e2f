"""Memory stays flat: a large table and one huge transaction go through within fixed limits.

`python -m bench.memory` exits with 1 when the driver-side source process or a Python worker was larger.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from bench import data, spark_runs
from bench.report import Figure
from bench.servers import Server, running
from bench.targets import show_judged

#: Whose largest process counts.
ROLES = ("source process", "python worker")
SHAPES = ("cells", "row")


def measure(server: Server, spark: SparkSession, table_rows: int, transaction_bytes: int) -> Iterator[Figure]:
    """Peak memory of each role: `items`, which holds `table_rows` rows, and a huge transaction."""
    connection = server.connect()
    for shape in SHAPES:
        run = spark_runs.tailrace(spark, server.options("items", shape))
        assert run.rows == table_rows, f"{run.rows} of {table_rows} rows came through"
        yield from _figures(f"table of {table_rows:,} rows, {shape}", run)
    part = data.one_transaction(connection, transaction_bytes)
    for shape in SHAPES:
        start = f"file:{part.file}:{part.start}"
        run = spark_runs.tailrace(spark, server.options("huge", shape, startingPosition=start))
        assert run.rows == part.events, f"{run.rows} of {part.events} events came through"
        yield from _figures(f"transaction of {part.size / 1e6:.0f} MB, {shape}", run)
    data.execute(connection, "TRUNCATE TABLE huge")


def _figures(name: str, run: spark_runs.Run) -> Iterator[Figure]:
    for role in ROLES:
        yield Figure(
            "memory",
            f"{role}, {name}",
            run.usage.peak_rss_mb.get(role, 0.0),
            "MB",
            cpu_s=run.usage.cpu_s,
            peak_rss_mb=run.usage.peak_rss_mb,
            notes={"rows/s": run.rows / run.stream_s},
        )


def main() -> int:
    """Measure on a server of one's own."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the table")
    parser.add_argument("--megabytes", type=int, default=500, help="log bytes of the transaction")
    parser.add_argument(
        "--url", help="mysql://user:password@host:port of a server to use instead of a new one"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as scratch, running(given.url) as server:
        connection = server.connect()
        data.prepare(connection)
        data.fill_items(connection, given.rows)
        spark = spark_runs.session(Path(scratch))
        code = show_judged(measure(server, spark, given.rows, given.megabytes * 1_000_000))
        spark.stop()
    return code


if __name__ == "__main__":
    sys.exit(main())

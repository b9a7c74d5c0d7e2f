"""What a snapshot costs the other users of a server: `python -m bench.protection`.

Some connections update rows of one table by their key, at a steady rate, or without pauses (`--rate 0`: the
server is busy all the time, as with sysbench's OLTP load). Their latency is measured alone,
beside a snapshot of another table without limits, beside one with a single reader (`snapshotParallelism`),
and beside one with `snapshotMaxRowsPerSecond`; in turns, since other work on the machine changes it. Spark,
the readers and MySQL share the machine: what is measured is the loss of CPU, too, which a server of its own
would not have. With `--apart` the server and its users have one core, and the pipeline has the others: then
it is what the snapshot costs the server. Figures count only where the machine does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench import data, spark_runs
from bench.servers import Server, running

#: Rows of the table that the other users update.
_KEYS = 10_000


@dataclass(frozen=True)
class Figure:
    """Latency of updates beside one kind of snapshot.

    Args:
        p50_ms: median.
        p99_ms: 99th percentile.
        rows_per_s: rows that the snapshot read, 0 without one.
    """

    p50_ms: float
    p99_ms: float
    rows_per_s: float


class Users:
    """Connections that update rows together.

    Args:
        server: the server.
        rate: updates per second; 0: each connection goes on at once.
        count: connections.
        core: the core that they run on; None: any.
    """

    def __init__(self, server: Server, rate: int, count: int, core: int | None) -> None:
        self._server = server
        self._pause_s = count / rate if rate else 0.0
        self._count = count
        self._core = core
        self._stop = threading.Event()
        self.latencies: list[float] = []

    @contextmanager
    def working(self) -> Iterator[None]:
        """Update rows while the context lasts."""
        threads = [threading.Thread(target=self._work, args=(n,)) for n in range(self._count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _work(self, number: int) -> None:
        if self._core is not None:
            os.sched_setaffinity(0, {self._core})
        connection = self._server.connect()
        due, key = time.monotonic(), number
        with connection.cursor() as cursor:
            while not self._stop.is_set():
                due += self._pause_s
                key = (key * 7919 + 1) % _KEYS
                begin = time.perf_counter()
                cursor.execute(f"UPDATE users SET v = v + 1 WHERE id = {key}")
                self.latencies.append(time.perf_counter() - begin)
                time.sleep(max(0.0, due - time.monotonic()))
        connection.close()


def measure(
    spark: SparkSession, server: Server, given: argparse.Namespace, options: dict[str, str]
) -> Figure:
    """Latency beside a snapshot with `options`, until it ends or `given.seconds` have passed; {}: alone."""
    users = Users(server, given.rate, given.connections, 0 if given.apart else None)
    with ExitStack() as stack:
        query = None
        if options:
            checkpoint = stack.enter_context(tempfile.TemporaryDirectory())
            frame = spark.readStream.format("tailrace").options(**options).load()
            query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
            stack.callback(query.stop)
            while _rows(query) == 0:  # Python's workers start
                time.sleep(0.05)
        begin, before = time.monotonic(), _rows(query)
        with users.working():
            while time.monotonic() - begin < given.seconds and _rows(query) < given.rows:
                time.sleep(0.05)
        took, read = time.monotonic() - begin, _rows(query) - before
    ordered = sorted(users.latencies)
    return Figure(1000 * ordered[len(ordered) // 2], 1000 * ordered[len(ordered) * 99 // 100], read / took)


def _set_apart(server: Server) -> None:
    """Give the server the first core, and what this thread starts from now on the others."""
    cores = set(range(1, os.cpu_count() or 1))
    if server.pid is None or not cores:
        raise SystemExit("--apart needs a server of our own and two cores")
    for thread in Path(f"/proc/{server.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {0})
    os.sched_setaffinity(0, cores)


def _rows(query: StreamingQuery | None) -> int:
    """The rows of the table that the snapshot has read."""
    progress = None if query is None else query.lastProgress
    offset = {} if progress is None else json.loads(progress.sources[0].endOffset)
    name = f"{data.DATABASE}.items"
    left = offset.get("tables", {}).get(name, {}).get("n", 0)
    return int(offset.get("done", {}).get(name) or left)


def main() -> None:
    """Make the data, run the rounds, print the medians: of the ratios, too, each to its own round."""
    parser = argparse.ArgumentParser(prog="python -m bench.protection", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    sizes = (
        ("rows", 5_000_000, "of the table that is read"),
        ("rate", 500, "updates per second; 0: without pauses"),
        ("connections", 4, "that update rows"),
        ("limit", 50_000, "rows per second of the snapshot with a limit"),
        ("seconds", 15, "of each measurement, at most"),
        ("rounds", 5, ""),
    )
    for name, default, text in sizes:
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default})")
    parser.add_argument("--apart", action="store_true", help="server and pipeline on cores of their own")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, running(None, None) as server:
        connection = server.connect()
        data.prepare(connection)
        data.fill_items(connection, given.rows)
        keys = ", ".join(f"({key}, 0)" for key in range(_KEYS))
        data.execute(
            connection,
            "CREATE TABLE users (id INT PRIMARY KEY, v INT NOT NULL)",
            f"INSERT INTO users VALUES {keys}",
        )
        if given.apart:
            _set_apart(server)
        spark = spark_runs.session(Path(scratch))
        whole = server.options("items", "cells")
        turns = {
            "alone": {},
            "beside a snapshot": whole,
            "beside one reader": {**whole, "snapshotParallelism": "1"},
            f"beside {given.limit:,} rows/s": {**whole, "snapshotMaxRowsPerSecond": str(given.limit)},
        }
        found: dict[str, list[Figure]] = {name: [] for name in turns}
        for _ in range(given.rounds):
            for name, options in turns.items():
                found[name].append(measure(spark, server, given, options))
        spark.stop()
    alone = [figure.p99_ms for figure in found["alone"]]
    for name, figures in found.items():
        p50, p99, rows = (
            statistics.median(getattr(figure, field.name) for figure in figures) for field in fields(Figure)
        )
        ratio = statistics.median(figure.p99_ms / a for figure, a in zip(figures, alone, strict=True))
        sys.stdout.write(
            f"{name:24} p50 {p50:7.2f} ms  p99 {p99:7.2f} ms ({ratio:4.2f})  {rows:12,.0f} rows/s\n"
        )


if __name__ == "__main__":
    main()

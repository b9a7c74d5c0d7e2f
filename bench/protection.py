"""What a snapshot costs the other users of a server: `python -m bench.protection`.

Some connections update rows of one table by their key, at a steady rate, or without pauses (`--rate 0`: the
server is busy all the time, as with sysbench's OLTP load); each is a process. Their latency is measured
beside a stream that only follows the log, beside one that also reads another table, by default and without
`snapshotProtection`, with a single reader, and with `snapshotMaxRowsPerSecond`; in turns, since other work
on the machine changes it. Spark, the readers and MySQL share the machine: what is measured is the loss of
CPU, too, which a server of its own would not have. With `--apart` the server and its users have one core,
and the pipeline has the others: then it is what the snapshot costs the server. Figures count only where the
machine does nothing else.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, fields
from multiprocessing import Queue
from pathlib import Path
from typing import Any

import pymysql
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
    """Connections that update rows together, each of a process of its own.

    Args:
        server: the server.
        rate: updates per second; 0: each connection goes on at once.
        count: connections.
        core: the core that they run on; None: any.
    """

    def __init__(self, server: Server, rate: int, count: int, core: int | None) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the gateway to Spark
        self._begin, self._stop = context.Event(), context.Event()
        self._found: Queue[list[tuple[float, float]]] = context.Queue()
        self._ready = context.Semaphore(0)
        signals = (self._ready, self._begin, self._stop, self._found)
        pause_s = count / rate if rate else 0.0
        self._processes = [
            context.Process(target=_update, args=(server.arguments, number, pause_s, core, signals))
            for number in range(count)
        ]
        for process in self._processes:
            process.start()
        for _ in self._processes:
            self._ready.acquire()
        #: When each update began, monotonic seconds, and how long it took.
        self.updates: list[tuple[float, float]] = []

    @contextmanager
    def working(self) -> Iterator[None]:
        """Update rows while the context lasts; `updates` has them afterwards."""
        self._begin.set()
        try:
            yield
        finally:
            self._stop.set()
            for _ in self._processes:
                self.updates += self._found.get()
            for process in self._processes:
                process.join()


def _update(
    arguments: dict[str, Any], number: int, pause_s: float, core: int | None, signals: tuple[Any, ...]
) -> None:
    """The work of one connection, in a process of its own."""
    ready, begin, stop, found = signals
    if core is not None:
        os.sched_setaffinity(0, {core})
    updates: list[tuple[float, float]] = []
    connection = pymysql.connect(**arguments, autocommit=True, database=data.DATABASE)
    with closing(connection), connection.cursor() as cursor:
        ready.release()
        begin.wait()
        due, key = time.monotonic(), number
        while not stop.is_set():
            due += pause_s
            key = (key * 7919 + 1) % _KEYS
            begun = time.monotonic()
            cursor.execute(f"UPDATE users SET v = v + 1 WHERE id = {key}")
            updates.append((begun, time.monotonic() - begun))
            time.sleep(max(0.0, due - time.monotonic()))
    found.put(updates)


def measure(
    spark: SparkSession, server: Server, given: argparse.Namespace, options: dict[str, str]
) -> Figure:
    """Latency beside a stream with `options`, until its snapshot ends or `given.seconds` have passed.

    The users work before the stream starts; what counts begins when it has read its first rows.
    """
    users = Users(server, given.rate, given.connections, 0 if given.apart else None)
    with users.working(), tempfile.TemporaryDirectory() as checkpoint, ExitStack() as stack:
        frame = spark.readStream.format("tailrace").options(**options).load()
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        stack.callback(query.stop)
        follows = options.get("startingPosition") == "latest"
        while query.lastProgress is None if follows else _rows(query) == 0:  # Python's workers start
            time.sleep(0.05)
        begin, before = time.monotonic(), _rows(query)
        while time.monotonic() - begin < given.seconds and (follows or _rows(query) < given.rows):
            time.sleep(0.05)
        end, read = time.monotonic(), _rows(query) - before
    ordered = sorted(took for at, took in users.updates if begin <= at < end)
    return Figure(
        1000 * ordered[len(ordered) // 2], 1000 * ordered[len(ordered) * 99 // 100], read / (end - begin)
    )


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
    """Make the data, run the rounds, print the medians and what p99 is to that of the round's first turn."""
    parser = argparse.ArgumentParser(prog="python -m bench.protection", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    sizes = (
        ("rows", 5_000_000, "of the table that is read"),
        ("rate", 500, "updates per second; 0: without pauses"),
        ("connections", 4, "that update rows"),
        ("limit", 50_000, "rows per second of the snapshot with a limit"),
        ("seconds", 15, "of each measurement, at most"),
        ("rounds", 5, ""),
        ("turns", 5, "of a round, the first ones"),
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
        bare = {**whole, "snapshotProtection": "none"}
        turns = {
            "beside the log alone": {**whole, "startingPosition": "latest"},
            "beside a snapshot": whole,
            "without protection": bare,
            "beside one reader": {**bare, "snapshotParallelism": "1"},
            f"beside {given.limit:,} rows/s": {**bare, "snapshotMaxRowsPerSecond": str(given.limit)},
        }
        turns = dict(list(turns.items())[: given.turns])
        found: dict[str, list[Figure]] = {name: [] for name in turns}
        for _ in range(given.rounds):
            for name, options in turns.items():
                found[name].append(measure(spark, server, given, options))
        spark.stop()
    alone = [figure.p99_ms for figure in next(iter(found.values()))]
    for name, figures in found.items():
        p50, p99, rows = (
            statistics.median(getattr(figure, field.name) for figure in figures) for field in fields(Figure)
        )
        ratios = sorted(figure.p99_ms / a for figure, a in zip(figures, alone, strict=True))
        ratio = f"{statistics.median(ratios):4.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}"
        sys.stdout.write(f"{name:24} p50 {p50:7.2f} ms  p99 {p99:7.2f} ms ({ratio})  {rows:12,.0f} rows/s\n")


if __name__ == "__main__":
    main()

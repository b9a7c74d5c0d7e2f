"""Changes into lake tables: a change log appended, a burst brought into a large table.

    python -m bench.lakes [rows ...]    the burst alone, into tables of so many rows (5 and 50 million)

The change log is that of the work `bulk`, a third each inserts, updates and deletes, into a Delta table of
mode changelog and an Iceberg one. The burst is 600 updates, 200 deletes and 200 inserts in each transaction,
all over the keys of `items`, brought into a Delta table of mode upsert: once with merges that adapt, and once
with each batch merged. It is over when the table is current; then it is compared with the source. By itself
the burst has as many events for each of the tables.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench import data, spark_runs
from bench.report import Figure
from bench.servers import Server
from bench.targets import show_judged
from tailrace.config.sinks import DeltaSettings, IcebergSettings, WriteMode
from tailrace.sinks.base import Sink, StreamId
from tailrace.sinks.delta.sink import DeltaSink
from tailrace.sinks.iceberg.sink import IcebergSink
from tailrace.sinks.route import Router

#: What a backlog is read with: a batch costs a commit and a Spark job, however small it is.
_BATCH = "256m"
#: Events of the burst per row of the table.
_EVENTS_PER_ROW = 0.6
_UPDATES, _DELETES, _INSERTS = 600, 200, 200


def measure(source: Server, spark: SparkSession, rows: int, events: int) -> Iterator[Figure]:
    """The figures; `items` has `rows` rows when it begins."""
    with closing(source.connect()) as connection:
        data.execute(connection, f"USE {data.DATABASE}")
        yield from _appended(source, connection, spark, events)
        for interval in (None, 0):
            yield from _burst(
                source, connection, spark, rows=rows, most=int(rows * _EVENTS_PER_ROW), interval=interval
            )


def _appended(source: Server, connection: Any, spark: SparkSession, events: int) -> Iterator[Figure]:
    part = data.bulk_log(connection, events)
    options = source.options(
        "events",
        "cells",
        startingPosition=f"file:{part.file}:{part.start}",
        logParallelism="auto",
        maxBytesPerTrigger=_BATCH,
    )
    for name in ("Delta", "Delta", "Delta", "Iceberg"):  # the JVM compiles for most of the first run
        with tempfile.TemporaryDirectory() as path:
            sink = changelog(name, path)
            run, _ = _run(sink, spark, options, Path(path))
        rate = part.events / run.stream_s
        yield Figure(
            f"lake, change log, {part.events:,} events",
            f"appended to {name}",
            rate,
            "rows/s",
            cpu_s=dict(run.usage.cpu_s),
            peak_rss_mb=dict(run.usage.peak_rss_mb),
            notes={"batches": run.batches, "phases_s": dict(run.phases_s)},
        )


def changelog(name: str, path: str) -> Sink:
    """A sink of mode changelog into `lake` below a path; `name`: Delta or Iceberg."""
    if name == "Delta":
        return DeltaSink(DeltaSettings(f"{path}/lake", WriteMode.CHANGELOG), Router([]))
    return IcebergSink(IcebergSettings(f"{path}/lake", WriteMode.CHANGELOG), Router([]))


def bursts(sizes: Sequence[int], events: int) -> Iterator[Figure]:
    """The burst into tables of several sizes, each on a server of its own.

    Args:
        sizes: numbers of rows.
        events: of each burst.
    """
    rates = list[float]()
    for rows in sizes:
        with spark_runs.with_items(rows) as (source, spark), closing(source.connect()) as connection:
            data.execute(connection, f"USE {data.DATABASE}")
            snapshot, burst = _burst(source, connection, spark, rows=rows, most=events, interval=None)
            yield snapshot
            rates.append(burst.value)
            if rows != sizes[0]:
                name = f"until the table is current (of the rate into {sizes[0]:,} rows)"
                burst = replace(burst, name=name, ratio=burst.value / rates[0])
            yield burst


def _burst(
    source: Server, connection: Any, spark: SparkSession, *, rows: int, most: int, interval: int | None
) -> Iterator[Figure]:
    options = source.options("items", "cells", logParallelism="auto")
    how = "merges that adapt" if interval is None else "each batch merged"
    stream = StreamId("bench", uuid.uuid4().hex)
    with tempfile.TemporaryDirectory() as path:
        settings = DeltaSettings(f"{path}/lake", merge_interval=interval)
        held = data.count(connection, "items")
        run, _ = _run(DeltaSink(settings, Router([])), spark, options, Path(path), stream)
        yield Figure(
            f"lake, upsert, {rows:,} rows", "snapshot to Delta", held / run.stream_s, "rows/s",
            cpu_s=dict(run.usage.cpu_s),
        )  # fmt: skip
        events = _change(connection, rows, most)
        run, seconds = _run(DeltaSink(settings, Router([])), spark, options, Path(path), stream)
        yield Figure(
            f"lake, upsert, burst of {events:,} events into {rows:,} rows",
            f"until the table is current, {how}",
            events / seconds,
            "events/s",
            cpu_s=dict(run.usage.cpu_s),
            peak_rss_mb=dict(run.usage.peak_rss_mb),
            notes={"batches": run.batches, "received after, s": run.stream_s, "seconds": seconds},
        )
        table = f"delta.`{path}/lake/{data.DATABASE}.items`"
        sums = "COUNT(*), SUM(id), SUM(quantity), SUM(price), COUNT(note)"
        there = spark.sql(f"SELECT {sums} FROM {table}").collect()[0]
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {sums} FROM items")
            assert [int(v) for v in there] == [int(v) for v in cursor.fetchone()], "the table is not equal"


def _run(
    sink: Sink, spark: SparkSession, options: Any, path: Path, stream: StreamId | None = None
) -> tuple[spark_runs.Run, float]:
    """A run to the sink's end, and the seconds until it is closed."""
    begin = time.perf_counter()
    with closing(sink):
        run = spark_runs.into_sink(spark, options, sink, path / "checkpoint", stream)
    return run, time.perf_counter() - begin


def _change(connection: Any, rows: int, most: int) -> int:
    """Change rows all over the table, by about `most` events; how many they are."""
    events = 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT MAX(id) + 1 FROM items")
        top = int(cursor.fetchone()[0])
        each = _UPDATES + _DELETES + _INSERTS
        for i in range(max(most // each, 1)):
            first = 1 + i * 7919 * each % max(rows - each, 1)
            cursor.execute("BEGIN")
            events += cursor.execute(
                f"UPDATE items SET {data.UPDATE} WHERE id BETWEEN {first} AND {first + _UPDATES - 1}"
            )
            gone = first + _UPDATES
            events += cursor.execute(f"DELETE FROM items WHERE id BETWEEN {gone} AND {gone + _DELETES - 1}")
            new = top + i * _INSERTS
            events += cursor.execute(f"INSERT INTO items {data.numbers(data.ROW, new, new + _INSERTS - 1)}")
            cursor.execute("COMMIT")
    return events


def main() -> int:
    """The burst into tables of several sizes; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.lakes", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("rows", type=int, nargs="*", default=[5_000_000, 50_000_000], help="of each table")
    parser.add_argument("--events", type=int, default=3_000_000, help="of the burst (3,000,000)")
    given = parser.parse_args()
    return show_judged(bursts(given.rows, given.events))


if __name__ == "__main__":
    sys.exit(main())

"""Changes into lake tables: a change log appended, a burst brought into a large table.

The change log is that of the work `bulk`, a third each inserts, updates and deletes, into a Delta table of
mode changelog and an Iceberg one. The burst is 600 updates, 200 deletes and 200 inserts in each transaction,
all over the keys of `items`, brought into a Delta table of mode upsert: once with merges that adapt, and once
with each batch merged. It is over when the table is current; then it is compared with the source.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench import data, spark_runs
from bench.report import Figure
from bench.servers import Server
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
            yield from _burst(source, connection, spark, rows, interval)


def _appended(source: Server, connection: Any, spark: SparkSession, events: int) -> Iterator[Figure]:
    part = data.bulk_log(connection, events)
    options = source.options(
        "events",
        "cells",
        startingPosition=f"file:{part.file}:{part.start}",
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


def _burst(
    source: Server, connection: Any, spark: SparkSession, rows: int, interval: int | None
) -> Iterator[Figure]:
    options = source.options("items", "cells")
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
        events = _change(connection, rows)
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


def _change(connection: Any, rows: int) -> int:
    """Change rows all over the table; how many events."""
    events = 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT MAX(id) + 1 FROM items")
        top = int(cursor.fetchone()[0])
        each = _UPDATES + _DELETES + _INSERTS
        for i in range(max(int(rows * _EVENTS_PER_ROW) // each, 1)):
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

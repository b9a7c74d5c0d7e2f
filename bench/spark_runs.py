"""Streams through Spark to `noop` or to a sink's tasks, timed by Spark's own progress and by the clock."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench import data
from bench.premade import PremadeDataSource
from bench.processes import Sampler, Usage
from bench.servers import Server, running
from tailrace.formats.connect.modes import DEFAULT_MODES
from tailrace.sinks.base import CellBatch, Sink, StreamId
from tailrace.spark.cells import changes_of
from tailrace.spark.jvm import map_in_arrow, register_source
from tailrace.spark.row_layouts import MessageLayout
from tailrace.spark.session import local_master, spark_session
from tailrace.spark.source import PipelineSource
from tailrace.spark.unread import cells_in

TASKS = 2
_CONF = {
    # every batch's progress is read at the end
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.driver.host": "127.0.0.1",
    # a busy machine takes its time to start a worker
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.driver.bindAddress": "127.0.0.1",
}


@dataclass(frozen=True)
class Run:
    """One run of a stream to its end.

    Args:
        rows: table rows or row events that came through, counted by Spark.
        stream_s: from the first batch's trigger to the end of the last batch: what a running stream takes.
        wall_s: from `start()` to the query's end: with the start of its Python processes.
        batches: batches with rows.
        usage: CPU time and memory of Spark's processes.
        phases_s: seconds by phase of a micro-batch, over all batches.
        message_bytes: bytes of the messages' values, in shape `debezium`.
    """

    rows: int
    stream_s: float
    wall_s: float
    batches: int
    usage: Usage
    phases_s: Mapping[str, float]
    message_bytes: int


def session(scratch: Path, connections: int = 0) -> SparkSession:
    """The session that pipelines use, with two cores; with connections, that of a comparison.

    Args:
        scratch: a directory.
        connections: how many tasks read the source besides (`verify.session`).
    """
    root = str(Path(__file__).parent.parent)
    path = [root, f"{root}/src", *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    parallelism = {"spark.default.parallelism": str(TASKS)} if connections else {}
    spark = spark_session(
        "tailrace-bench",
        delta=True,
        master=local_master(TASKS + connections) if connections else None,
        parallelism=TASKS,
        log_file=scratch / "spark.log",
        extra_conf={**_CONF, **parallelism, "spark.local.dir": str(scratch / "local")},
    )
    spark.dataSource.register(PremadeDataSource)
    return spark


@contextmanager
def with_items(rows: int, connections: int = 0) -> Iterator[tuple[Server, SparkSession]]:
    """A server of our own whose table `items` has `rows` rows, and a session (`session`)."""
    with running(None) as source, tempfile.TemporaryDirectory() as scratch:
        with closing(source.connect()) as connection:
            data.prepare(connection)
            data.fill_items(connection, rows)
        spark = session(Path(scratch), connections)
        yield source, spark
        spark.stop()


def jvm(spark: SparkSession) -> int:
    """Process id of the driver's JVM."""
    pid: int = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # noqa: SLF001
    return pid


def processes(spark: SparkSession) -> list[int]:
    """Process ids of the driver's JVM, and of what forks its Python processes."""
    forks = spark.sparkContext._gateway.tailrace_jvm.fork_server  # type: ignore[union-attr]  # noqa: SLF001
    return [jvm(spark), *([] if forks is None else [forks.process.pid])]


def tailrace(spark: SparkSession, options: Mapping[str, str]) -> Run:
    """Everything there is by `format("tailrace")`, in any shape; of messages each value is looked at."""
    frame = spark.readStream.format("tailrace").options(**options).load()
    counted = {
        "cells": f.sum("changes"),
        # a tombstone is no change
        "debezium": f.count("value"),
    }.get(options["shape"], f.count(f.lit(1)))
    measures = [counted.alias("n")]
    if options["shape"] == "debezium":
        measures.append(f.sum(f.length("value")).alias("bytes"))
    return _run(spark, frame.observe("rows", *measures))


def into(
    spark: SparkSession, options: Mapping[str, str], write: Callable[[DataFrame, int], None], checkpoint: Path
) -> Run:
    """What there is to be read from `checkpoint` on, given to `write` by batches, as a pipeline reads it."""
    register_source(spark, PipelineSource)
    frame = spark.readStream.format(PipelineSource.name()).options(**options).load()
    with Sampler(processes(spark)) as sampler:
        begin = time.perf_counter()
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        wall_s = time.perf_counter() - begin
        progress = [p for p in query.recentProgress if p.numInputRows > 0]
    return _timed(progress, 0, wall_s, sampler.usage)


def into_sink(
    spark: SparkSession,
    options: Mapping[str, str],
    sink: Sink,
    checkpoint: Path,
    stream: StreamId | None = None,
) -> Run:
    """The same, written by a sink; `stream`: the one that it goes on with, None: a new one."""
    own = stream or StreamId("bench", uuid.uuid4().hex)
    rows = 0

    def write(frame: DataFrame, number: int) -> None:
        nonlocal rows
        with closing(CellBatch(own, number, frame, None)) as batch:
            rows += sum(written.snapshot_rows + written.changes for written in sink.write(batch))

    run = into(spark, options, write, checkpoint)
    return replace(run, rows=rows)


def counted(spark: SparkSession, options: Mapping[str, str]) -> Run:
    """Everything there is in shape `cells`, as a pipeline's sinks get it: their tasks read, and count."""
    return _in_tasks(spark, options, "changes", _count)


def messages(spark: SparkSession, options: Mapping[str, str]) -> Run:
    """The same as Debezium's messages in JSON, which the tasks make, as those of sinks for messages do."""
    return _in_tasks(spark, options, "cell", _encode)


def _in_tasks(
    spark: SparkSession,
    options: Mapping[str, str],
    column: str,
    convert: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Run:
    """Everything there is; `convert` counts a task's changes, and the bytes of its messages, in a column."""
    own, rows, size = StreamId("bench", uuid.uuid4().hex), 0, 0

    def write(frame: DataFrame, number: int) -> None:
        nonlocal rows, size
        with closing(CellBatch(own, number, frame, None)) as batch:
            found = map_in_arrow(batch.columns_once(column), convert, "n bigint, bytes bigint").collect()
            rows, size = rows + sum(row.n for row in found), size + sum(row.bytes for row in found)

    with tempfile.TemporaryDirectory() as checkpoint:
        run = into(spark, options, write, Path(checkpoint))
    return replace(run, rows=rows, message_bytes=size)


def _encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    layout, changes, length = MessageLayout("bench", False, "mysql", DEFAULT_MODES, None, ""), 0, 0
    for made in layout.rows(changes_of(batches)):
        values = made.column("value")
        changes += len(values) - values.null_count  # a tombstone is no change
        length += pc.sum(pc.binary_length(values)).as_py() or 0
    yield pa.RecordBatch.from_pydict({"n": [changes], "bytes": [length]})


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    changes = sum(pc.sum(cells.column("changes")).as_py() or 0 for cells in cells_in(batches, ["changes"]))
    yield pa.RecordBatch.from_pydict({"n": [changes], "bytes": [0]})


def premade(spark: SparkSession, file: Path, batches: int) -> Run:
    """`batches` times the batch in `file`."""
    options = {"file": str(file), "batches": str(batches)}
    frame = spark.readStream.format("premade").options(**options).load()
    return _run(spark, frame.observe("rows", f.count(f.lit(1)).alias("n")))


def _run(spark: SparkSession, frame: DataFrame) -> Run:
    with tempfile.TemporaryDirectory() as checkpoint, Sampler(processes(spark)) as sampler:
        begin = time.perf_counter()
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        wall_s = time.perf_counter() - begin
        progress = [p for p in query.recentProgress if _rows(p)]
    rows = sum(_rows(p) for p in progress)
    size = sum(_observed(p, "bytes") for p in progress)
    return replace(_timed(progress, rows, wall_s, sampler.usage), message_bytes=size)


def _timed(progress: list[Any], rows: int, wall_s: float, usage: Usage) -> Run:
    """A run from the progress of its batches."""
    assert progress, "nothing came through"
    starts = [datetime.fromisoformat(p.timestamp).timestamp() for p in progress]
    end = starts[-1] + progress[-1].durationMs["triggerExecution"] / 1000
    phases: dict[str, float] = {}
    for p in progress:
        for name, ms in p.durationMs.items():
            phases[name] = phases.get(name, 0.0) + ms / 1000
    return Run(rows, end - starts[0], wall_s, len(progress), usage, phases, 0)


def _rows(progress: Any) -> int:
    return _observed(progress, "n")


def _observed(progress: Any, name: str) -> int:
    """What was measured of a batch, 0 for what was not."""
    observed = progress.observedMetrics.get("rows")
    return int(observed.asDict().get(name) or 0) if observed is not None else 0

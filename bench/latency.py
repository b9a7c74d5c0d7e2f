"""Time from a commit to a sink: single-row transactions at a steady rate, to foreachBatch.

The clock starts right before the autocommitted INSERT is sent and stops when foreachBatch is called with the
batch that holds the row, in the same host's wall clock: the statement's own time counts too.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql
from pyspark.sql import DataFrame, SparkSession

from bench import data

#: Seconds of writing before what is measured.
WARM_UP_S = 10


@dataclass(frozen=True)
class Latency:
    """Milliseconds from commit to foreachBatch.

    Args:
        rate: transactions per second that were really made.
        lags_ms: of each, ascending.
        batch_s: median duration of a batch, with the sink's collecting of the rows.
    """

    rate: float
    lags_ms: Sequence[float]
    batch_s: float

    def part_ms(self, part: float) -> float:
        """The lag that this part of them does not exceed."""
        return self.lags_ms[int(len(self.lags_ms) * part)]


def measure(
    spark: SparkSession,
    options: Mapping[str, str],
    server: Mapping[str, Any],
    *,
    rate: int,
    seconds: float,
    first: int,
) -> Latency:
    """Run a stream on `ticks`, write at `rate` for `seconds`, and compare clocks.

    Args:
        spark: the session.
        options: of the stream, which begins at the log's end.
        server: arguments of `pymysql.connect`.
        rate: transactions per second.
        seconds: how long is measured, after WARM_UP_S in which Spark's workers start.
        first: id of the first row.
    """
    arrived: dict[int, float] = {}
    ready = threading.Event()
    warm = int(rate * WARM_UP_S)
    total = warm + int(rate * seconds)

    def sink(batch: DataFrame, _: int) -> None:
        now = time.time()
        ids = [row.id for row in batch.select("id").collect()]
        arrived.update(dict.fromkeys(ids, now))
        ready.set()

    with tempfile.TemporaryDirectory() as checkpoint:
        frame = spark.readStream.format("tailrace").options(**options).load()
        query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).start()
        try:
            _await(ready.is_set, query, 120)
            sent = _write(server, first, total, rate)
            _await(lambda: first + total - 1 in arrived, query, 120)
            durations = [
                p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress if p.numInputRows
            ]
        finally:
            query.stop()
    measured = list(range(first + warm, first + total))
    lags = sorted(1000 * (arrived[n] - sent[n]) for n in measured)
    span = sent[measured[-1]] - sent[measured[0]]
    return Latency(
        (len(measured) - 1) / span,
        lags,
        sorted(durations)[len(durations) // 2],
    )


def _await(done: Any, query: Any, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        if not query.isActive:
            raise RuntimeError("the query ended") from query.exception()
        if time.monotonic() > deadline:
            raise TimeoutError("the rows did not come through")
        time.sleep(0.05)


def _write(server: Mapping[str, Any], first: int, count: int, rate: int) -> dict[int, float]:
    """Insert rows from a process of its own; when each INSERT was sent."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_writer, args=(sending, dict(server), first, count, rate))
    process.start()
    sending.close()
    sent: dict[int, float] = receiving.recv()
    process.join()
    return sent


def _writer(pipe: Any, server: dict[str, Any], first: int, count: int, rate: int) -> None:
    connection = pymysql.connect(**server, autocommit=True)
    sent = {}
    with connection.cursor() as cursor:
        begin = time.perf_counter()
        for i in range(count):
            pause = begin + i / rate - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            sent[first + i] = time.time()
            cursor.execute(data.tick(first + i))
    pipe.send(sent)

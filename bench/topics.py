"""A table's snapshot and a log into topics of Kafka: the broker beside the source on the same machine.

    python -m bench.topics [events]

Messages are Debezium's in JSON. The log is that of work `bulk`. A first run of some hundred thousand events
warms up what a running pipeline has warm. Beside it Debezium Embedded sends the same messages, at least once.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench import data, spark_runs
from bench.peers import figures, peers, watch
from bench.peers.toolkit import UnavailableError
from bench.report import Figure
from bench.servers import Server, running
from bench.targets import show_judged
from tailrace.config.kafka import KafkaDelivery, KafkaSettings
from tailrace.sinks.base import CellBatch, StreamId
from tailrace.sinks.kafka.sink import KafkaSink
from tailrace.sinks.route import Router
from tailrace_dev.servers import KafkaServer, start_kafka

_WARM_UP = 600_000
#: The longest run of Debezium with a producer, seconds.
_PEER_S = 30.0


def measure(source: Server, spark: SparkSession, events: int, repeat: int) -> Iterator[Figure]:
    """The figures of either delivery and with compression, the median of each; `events` is there."""
    with start_kafka(options={"num.partitions": "4"}) as broker, closing(source.connect()) as connection:
        data.execute(connection, f"USE {data.DATABASE}")
        first = data.bulk_log(connection, _WARM_UP)
        _run(source, spark, broker, first, {})
        part = data.bulk_log(connection, events)
        for name, given in (
            ("exactly-once, lz4", {"properties": {"compression.type": "lz4"}}),
            ("at-least-once", {"delivery": KafkaDelivery.AT_LEAST_ONCE}),
            ("exactly-once", {}),
        ):
            runs = [_run(source, spark, broker, part, given) for _ in range(repeat)]
            runs.sort(key=lambda found: -found[0].stream_s)
            run, broker_s = runs[(repeat - 1) // 2]
            rate = part.events / run.stream_s
            yield Figure(
                f"Kafka, log, {part.events:,} events",
                name,
                rate,
                "events/s",
                (part.events / runs[0][0].stream_s, part.events / runs[-1][0].stream_s),
                cpu_s={**run.usage.cpu_s, "broker": broker_s},
                peak_rss_mb=dict(run.usage.peak_rss_mb),
                notes={"batches": run.batches, "phases_s": dict(run.phases_s)},
            )
        own = 1e6 * run.usage.total_cpu_s / part.events
        yield Figure(f"Kafka, log, {part.events:,} events", "own CPU of an event", own, "µs")
        yield _peer(source, broker, part, rate)


def _peer(source: Server, broker: KafkaServer, part: data.LogPart, ours: float) -> Figure:
    """Debezium with a producer, beside what was sent exactly once."""
    section, name = (
        f"Kafka, log, {part.events:,} events",
        f"{peers.DEBEZIUM_KAFKA.name} {peers.DEBEZIUM_VERSION}",
    )
    task = figures.task_of(source, "events", part.events, part) | {"kafka": broker.bootstrap}
    try:
        run = watch.run(peers.DEBEZIUM_KAFKA, task, _PEER_S)
    except (UnavailableError, watch.PeerFailedError) as error:
        return Figure(section, f"{name}: did not run", 0.0, "events/s", notes={"why": str(error)})
    ratio = ours / run.best_rate
    return Figure(
        section,
        f"{name} (Tailrace ÷ it)",
        run.best_rate,
        "events/s",
        (min(run.rate, run.warm_rate), run.best_rate),
        ratio,
        cpu_s={"peer": run.cpu_s},
        peak_rss_mb={"peer": run.peak_rss_mb},
        system="",
    )


def _run(
    source: Server, spark: SparkSession, broker: KafkaServer, part: data.LogPart, given: Mapping[str, Any]
) -> tuple[spark_runs.Run, float]:
    prefix = f"b{uuid.uuid4().hex[:8]}"
    stream = StreamId(prefix, "bench")
    settings = KafkaSettings(broker.bootstrap, prefix, **given)
    options = source.options(
        "events",
        "cells",
        startingPosition=f"file:{part.file}:{part.start}",
        maxBytesPerTrigger="256m",
    )
    with (
        closing(KafkaSink(settings, Router([]), "mysql")) as sink,
        tempfile.TemporaryDirectory() as checkpoint,
    ):
        written = 0

        def write(frame: DataFrame, number: int) -> None:
            nonlocal written
            with closing(CellBatch(stream, number, frame, None)) as batch:
                written += sum(w.changes for w in sink.write(batch))

        before = _cpu_s(broker)
        run = spark_runs.into(spark, options, write, Path(checkpoint))
        spent = _cpu_s(broker) - before
    assert written == part.events, f"{written} of {part.events} events were written"
    return run, spent


def _cpu_s(broker: KafkaServer) -> float:
    """CPU time of the broker so far, seconds."""
    fields = Path(f"/proc/{broker.state.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main() -> None:
    """Measure and print."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 3_000_000
    with running(None) as source, tempfile.TemporaryDirectory() as scratch:
        with closing(source.connect()) as connection:
            data.prepare(connection)
        spark = spark_runs.session(Path(scratch))
        show_judged(measure(source, spark, events, repeat=1))
        spark.stop()


if __name__ == "__main__":
    main()

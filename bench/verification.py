"""How fast a target is compared with its source: `python -m bench.verification`.

Table `items` is copied by `tailrace run` into Delta, Iceberg or another database, then compared a few times
in one process: the first time with the start of Spark's workers, then without; the fastest counts. `--beside`
has the pipeline run meanwhile, with 100 changes a second. Figures count only where the machine does nothing
else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from bench import data, replicas, spark_runs
from bench.pipelines import command, pipeline_file, run
from bench.processes import tree_cpu_seconds
from bench.report import Figure
from bench.servers import Server
from bench.targets import show_judged
from tailrace.config.load import load_pipeline
from tailrace.verify.report import print_report
from tailrace.verify.run import verify

_CHANGES_PER_S = 100
#: Connections that read the source, as of `tailrace verify`.
_CONNECTIONS = 4
#: Servers that hold a copy, by the sink's type.
_SERVERS = {"mysql": replicas.mysql, "postgresql": replicas.postgres}
SINKS = ("delta", "iceberg", *_SERVERS)
_PASSWORD = "BENCH_TARGET_PASSWORD"


@contextmanager
def _written(server: Server, file: Path, rows: int) -> Iterator[None]:
    """The pipeline runs, and rows are updated."""
    stop = threading.Event()

    def write() -> None:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            number = 1
            while not stop.wait(1 / _CHANGES_PER_S):
                number = number * 7919 % rows + 1
                cursor.execute(f"UPDATE items SET {data.UPDATE} WHERE id = {number}")

    writer = threading.Thread(target=write)
    with subprocess.Popen(command(file), stdout=subprocess.DEVNULL) as process:
        writer.start()
        try:
            time.sleep(20)  # it has started
            yield
        finally:
            stop.set()
            writer.join()
            process.terminate()


def measure(
    server: Server, spark: SparkSession, place: Path, rows: int, times: int, *, sink: str, beside: bool
) -> Iterator[Figure]:
    """The figures; `items` has `rows` rows.

    Args:
        server: the source.
        spark: the session that compares.
        place: a directory for the pipeline.
        rows: of the table.
        times: comparisons.
        sink: one of SINKS.
        beside: whether the pipeline runs meanwhile.
    """
    with _target(sink, place) as settings:
        yield from _measure(server, spark, settings, place, rows=rows, times=times, beside=beside)


@contextmanager
def _target(sink: str, place: Path) -> Iterator[Mapping[str, Any]]:
    """The sink's section of a pipeline file, with its server running if it has one."""
    if sink not in _SERVERS:
        yield {"type": sink, "path": f"{place}/lake", "mode": "upsert"}
        return
    with _SERVERS[sink]() as (_, settings):
        os.environ[_PASSWORD] = settings.password.resolve()
        yield {
            "type": sink,
            "url": settings.url,
            "user": settings.user,
            "password": f"${{env:{_PASSWORD}}}",
            "tls-mode": "disabled",
        }


def _measure(
    server: Server,
    spark: SparkSession,
    settings: Mapping[str, Any],
    place: Path,
    *,
    rows: int,
    times: int,
    beside: bool,
) -> Iterator[Figure]:
    once, on = (
        pipeline_file(place / f"{name}.yaml", server, settings, name="verification", trigger=trigger)
        for name, trigger in (("once", "available-now"), ("on", "continuous"))
    )
    run(once)
    rates, used = [], []
    with _written(server, on, rows) if beside else nullcontext():
        for _ in range(times):
            before = _cpu(server, spark)
            begun = time.perf_counter()
            report = verify(load_pipeline(once), spark, parallelism=_CONNECTIONS)
            rates.append(rows / (time.perf_counter() - begun))
            if not report.equal:
                print_report(report, Console(stderr=True), show_values=True)
                sys.exit("the target differs from its source")
            used.append({role: now - before[role] for role, now in _cpu(server, spark).items()})
    best = rates.index(max(rates))
    yield Figure(
        f"verification of {rows:,} rows, {settings['type']}",
        "beside a running pipeline" if beside else "alone",
        rates[best],
        "rows/s",
        (min(rates), max(rates)),
        cpu_s=used[best],
    )


def main() -> int:
    """Fill, copy, compare; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.verification", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the table (10,000,000)")
    parser.add_argument("--times", type=int, default=3, help="comparisons (3)")
    parser.add_argument("--sink", choices=SINKS, default="delta")
    parser.add_argument("--beside", action="store_true", help="a running pipeline")
    given = parser.parse_args()
    with (
        spark_runs.with_items(given.rows, _CONNECTIONS) as (server, spark),
        tempfile.TemporaryDirectory() as place,
    ):
        found = measure(
            server, spark, Path(place), given.rows, given.times, sink=given.sink, beside=given.beside
        )
        return show_judged(found)


def _cpu(server: Server, spark: SparkSession) -> dict[str, float]:
    return {
        "server": tree_cpu_seconds(server.pid or 0),
        "Spark": sum(map(tree_cpu_seconds, spark_runs.processes(spark))),
        "this process": time.process_time(),
    }


if __name__ == "__main__":
    sys.exit(main())

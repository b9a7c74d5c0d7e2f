"""How fast a target is compared with its source: `python -m bench.verification`.

Table `items` is copied by `tailrace run` into Delta or Iceberg, then compared a few times in one process: the
first time with the start of Spark's workers, then without. `--beside` has the pipeline run meanwhile, with
100 changes a second. Prints rows per second and the CPU seconds of server, Spark and this process. Figures
count only where the machine does nothing else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from rich.console import Console

from bench import data, spark_runs
from bench.pipelines import command, pipeline_file, run
from bench.processes import tree_cpu_seconds
from bench.servers import Server, running
from tailrace.config.load import load_pipeline
from tailrace.verify.report import print_report
from tailrace.verify.run import verify

#: Least rows of the source per second: alone, beside the pipeline.
ALONE, BESIDE = 500_000, 100_000
_CHANGES_PER_S = 100


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


def main() -> int:
    """Fill, copy, compare; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.verification", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the table (10,000,000)")
    parser.add_argument("--times", type=int, default=3, help="comparisons (3)")
    parser.add_argument("--sink", choices=("delta", "iceberg"), default="delta")
    parser.add_argument("--beside", action="store_true", help="a running pipeline")
    given = parser.parse_args()
    least = BESIDE if given.beside else ALONE
    rates = []
    with running(None) as server, tempfile.TemporaryDirectory() as place:
        with closing(server.connect()) as connection:
            data.prepare(connection)
            data.fill_items(connection, given.rows)
        sink = {"type": given.sink, "path": f"{place}/lake", "mode": "upsert"}
        once, on = (
            pipeline_file(Path(place, f"{name}.yaml"), server, sink, name="verification", trigger=trigger)
            for name, trigger in (("once", "available-now"), ("on", "continuous"))
        )
        run(once)
        spark = spark_runs.session(Path(place))
        beside = _written(server, on, given.rows) if given.beside else nullcontext()
        with beside:
            for _ in range(given.times):
                used = _cpu(server, spark_runs.processes(spark))
                begun = time.perf_counter()
                report = verify(load_pipeline(once), spark)
                seconds = time.perf_counter() - begun
                if not report.equal:
                    print_report(report, Console(stderr=True), show_values=True)
                    sys.exit("the target differs from its source")
                rates.append(given.rows / seconds)
                cpu = [
                    now - before
                    for now, before in zip(_cpu(server, spark_runs.processes(spark)), used, strict=True)
                ]
                sys.stdout.write(
                    f"{seconds:7.2f} s {rates[-1]:12,.0f} rows/s   CPU s: server {cpu[0]:.2f},"
                    f" Spark {cpu[1]:.2f}, this process {cpu[2]:.2f}\n"
                )
        spark.stop()
    met = max(rates) >= least
    sys.stdout.write(f"≥ {least:,} rows/s: {'✓' if met else '✗'}\n")
    return 0 if met else 1


def _cpu(server: Server, spark: list[int]) -> tuple[float, float, float]:
    return tree_cpu_seconds(server.pid or 0), sum(map(tree_cpu_seconds, spark)), time.process_time()


if __name__ == "__main__":
    sys.exit(main())

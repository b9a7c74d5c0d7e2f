"""All figures in one run on one server: `python -m bench` (`make bench`); `--smoke` for a quick look.

snapshot   SELECT of a table drained raw, against Spark's noop sink in shapes cells and row
log        the binary log drained raw, against the same: 1000-row and single-row transactions
latency    commit to foreachBatch at two rates
memory     peak resident sets with a large table and a huge transaction
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from bench import data, drains, latency, memory, report, spark_runs
from bench.data import LogPart
from bench.drains import Drain
from bench.processes import cpu_seconds
from bench.report import Figure
from bench.servers import Server, running
from bench.spark_runs import Run
from tailrace.config.options import parse_options
from tailrace.formats.row import row_schema
from tailrace.model.split import SnapshotSplit
from tailrace.reader.snapshot import BATCH_ROWS, read_snapshot
from tailrace.sources import registry
from tailrace.spark.shapes import Rows

SECTIONS = ("snapshot", "bulk", "single", "latency", "memory")
#: Least share of the yardstick, and row events per second, of the first targets on two cores.
CELLS_SHARE, ROW_SHARE, EVENTS_PER_S, P50_MS = 0.6, 0.6, 500_000, 500


class Bench:
    """One run.

    Args:
        server: what is measured.
        spark: the session.
        sizes: the command line.
        scratch: directory for what is made on the way.
    """

    def __init__(self, server: Server, spark: SparkSession, sizes: argparse.Namespace, scratch: Path) -> None:
        self.figures: list[Figure] = []
        self._server = server
        self._spark = spark
        self._sizes = sizes
        self._scratch = scratch
        self._connection = server.connect()
        self._ceiling = 0.0

    def run(self) -> None:
        """All sections asked for."""
        rows = self._sizes.rows
        data.prepare(self._connection)
        data.fill_items(self._connection, rows)
        self._warm_up()
        if "snapshot" in self._sizes.only:
            self._snapshot(rows)
        if "bulk" in self._sizes.only:
            part = data.bulk_log(self._connection, self._sizes.events)
            self._log("log, 1000-row transactions", part, EVENTS_PER_S)
        if "single" in self._sizes.only:
            part = data.single_row_log(self._connection, self._sizes.singles)
            self._log("log, single-row transactions", part, None)
        if "latency" in self._sizes.only:
            self._latency()
        if "memory" in self._sizes.only:
            self.figures += memory.measure(self._server, self._spark, rows, self._sizes.megabytes * 1_000_000)

    def _warm_up(self) -> None:
        """The first query of a Spark process compiles plans and loads classes: shown, not counted."""
        part = data.bulk_log(self._connection, 3000)
        start = f"file:{part.file}:{part.start}"
        for name in ("first query of the process", "second query"):
            run = spark_runs.tailrace(
                self._spark, self._server.options("events", "row", startingPosition=start)
            )
            self._add(
                Figure("start-up", f"{name}, {run.rows} events", run.wall_s, "s", cpu_s=run.usage.cpu_s)
            )

    def _snapshot(self, rows: int) -> None:
        section = f"snapshot, {rows:,} rows"
        whole = ["SELECT * FROM items"]
        halves = [f"SELECT * FROM items WHERE id {side} {rows // 2}" for side in ("<=", ">")]
        single = self._drain(
            section, "drain, binary protocol", rows, lambda: self._select(whole, binary=True)
        )
        self._drain(section, "drain, text protocol", rows, lambda: self._select(whole, binary=False))
        self._drain(
            section, "drain, binary protocol, 2 connections", rows, lambda: self._select(halves, binary=True)
        )
        self._stream(
            section,
            "Tailrace cells to noop (of the drain)",
            rows,
            lambda: spark_runs.tailrace(self._spark, self._server.options("items", "cells")),
            single,
            share=CELLS_SHARE,
        )
        ceiling = self._premade(section, rows)
        self._stream(
            section,
            "Tailrace row to noop (of pre-made)",
            rows,
            lambda: spark_runs.tailrace(self._spark, self._server.options("items", "row")),
            ceiling,
            share=ROW_SHARE,
        )

    def _log(self, section: str, part: LogPart, least: float | None) -> None:
        section = f"{section}, {part.events:,} events, {part.size / 1e6:.0f} MB"
        raw = self._drain(
            section, "drain of the dump", part.events, lambda: drains.binlog(self._server.connect, part)
        )
        start = f"file:{part.file}:{part.start}"
        for shape in ("cells", "row"):
            options = self._server.options("events", shape, startingPosition=start)
            self._stream(
                section,
                f"Tailrace {shape} to noop (of the drain)",
                part.events,
                partial(spark_runs.tailrace, self._spark, options),
                raw,
                least=least if shape == "cells" else None,
            )

    def _latency(self) -> None:
        first = 1
        for rate in (50, 1000):
            options = self._server.options("ticks", "row", startingPosition="latest")
            found = latency.measure(
                self._spark,
                options,
                self._server.arguments,
                rate=rate,
                seconds=self._sizes.seconds,
                first=first,
            )
            first += 10_000_000
            section = f"latency, {found.rate:.0f} commits/s, {found.events} events"
            self._add(
                Figure(
                    section,
                    "commit to foreachBatch, p50",
                    found.p50_ms,
                    "ms",
                    target=f"< {P50_MS}",
                    met=found.p50_ms < P50_MS,
                )
            )
            self._add(Figure(section, "commit to foreachBatch, p99", found.p99_ms, "ms"))
            self._add(Figure(section, "commit to foreachBatch, longest", found.max_ms, "ms"))
            self._add(Figure(section, "batch with the sink's collect, p50", 1000 * found.batch_s, "ms"))

    # ---- one line each ----

    def _select(self, statements: list[str], *, binary: bool) -> Drain:
        return drains.select(self._server.connect, statements, binary=binary)

    def _drain(self, section: str, name: str, rows: int, drain: Callable[[], Drain]) -> float:
        """Rows per second of the median drain."""
        results, cpu = [], []
        drain()
        for _ in range(self._sizes.repeat):
            before = self._server_cpu()
            results.append(drain())
            cpu.append(self._server_cpu() - before)
        rates = [rows / result.seconds for result in results]
        middle = _middle(rates)
        self._add(
            Figure(
                section,
                name,
                rates[middle],
                "rows/s",
                (min(rates), max(rates)),
                cpu_s={"mysqld": cpu[middle]},
                notes={"MB/s": results[middle].bytes / results[middle].seconds / 1e6},
            )
        )
        return rates[middle]

    def _stream(
        self,
        section: str,
        name: str,
        rows: int,
        stream: Callable[[], Run],
        yardstick: float,
        *,
        share: float | None = None,
        least: float | None = None,
    ) -> float:
        """Rows per second of the median run."""
        runs, cpu = [], []
        for _ in range(self._sizes.repeat):
            before = self._server_cpu()
            runs.append(stream())
            cpu.append(self._server_cpu() - before)
            assert runs[-1].rows == rows, f"{runs[-1].rows} of {rows} rows came through"
        rates = [run.rows / run.stream_s for run in runs]
        middle = _middle(rates)
        rate, ratio = rates[middle], rates[middle] / yardstick if yardstick else None
        target = f"≥ {share}" if share else f"≥ {report.number(least)} rows/s" if least else ""
        met = ratio >= share if share and ratio else rate >= least if least else None
        self._add(
            Figure(
                section,
                name,
                rate,
                "rows/s",
                (min(rates), max(rates)),
                ratio,
                target,
                met,
                {**runs[middle].usage.cpu_s, "mysqld": cpu[middle]},
                _largest([run.usage.peak_rss_mb for run in runs]),
                {
                    "batches": runs[middle].batches,
                    "rows/s by the clock, with the start of the query": rows / runs[middle].wall_s,
                    "phases_s": dict(runs[middle].phases_s),
                },
            )
        )
        return rate

    def _premade(self, section: str, rows: int) -> float:
        """Spark's own limit with the schema of shape `row`; rows per second."""
        file = self._scratch / "premade.arrows"
        batch = self._row_batch()
        with pa.ipc.new_stream(str(file), batch.schema) as writer:
            writer.write_batch(batch)
        batches = rows // len(batch) // spark_runs.TASKS * spark_runs.TASKS
        return self._stream(
            section,
            "pre-made row batches to noop",
            batches * len(batch),
            lambda: spark_runs.premade(self._spark, file, batches),
            0.0,
        )

    def _row_batch(self) -> pa.RecordBatch:
        """The first rows of `items` in shape `row`."""
        options = parse_options(self._server.options("items", "row"))
        source = registry.source(options)
        table = source.tables()[0].schema
        split = SnapshotSplit(table, None, None, source.log_end().to_json(), BATCH_ROWS)
        session = registry.session(options)
        batch = next(iter(Rows(table).rows(read_snapshot(split, session, exact=False))))
        session.close()
        assert batch.schema == row_schema(table)
        return batch

    def _server_cpu(self) -> float:
        return (cpu_seconds(self._server.pid) or 0.0) if self._server.pid else 0.0

    def _add(self, figure: Figure) -> None:
        self.figures.append(figure)
        report.show(figure)


def _middle(values: Sequence[float]) -> int:
    """Index of the (lower) median."""
    return values.index(statistics.median_low(values))


def _largest(peaks: Sequence[dict[str, float]]) -> dict[str, float]:
    return {role: max(p.get(role, 0.0) for p in peaks) for role in {r for p in peaks for r in p}}


def main() -> int:
    """Parse, run, write; 1 when a memory limit was passed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--smoke", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--rows", type=int, help="rows of the table (5,000,000)")
    parser.add_argument("--events", type=int, help="row events in 1000-row transactions (3,000,000)")
    parser.add_argument("--singles", type=int, help="single-row transactions (300,000)")
    parser.add_argument("--megabytes", type=int, help="log bytes of the huge transaction (500)")
    parser.add_argument("--seconds", type=float, help="of writing, for latency (30)")
    parser.add_argument("--repeat", type=int, help="repetitions, of which the median counts (3)")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=SECTIONS,
        default=SECTIONS,
        help="sections to run; results are written when all did",
    )
    parser.add_argument(
        "--url", help="mysql://user:password@host:port of a server to use instead of a new one"
    )
    parser.set_defaults(
        rows=5_000_000, events=3_000_000, singles=300_000, megabytes=500, seconds=30, repeat=3
    )
    if "--smoke" in sys.argv:
        parser.set_defaults(rows=50_000, events=30_000, singles=3_000, megabytes=10, seconds=5, repeat=1)
    given = parser.parse_args()
    facts = report.machine()
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as scratch, running(given.url) as server:
        spark = spark_runs.session(Path(scratch))
        bench = Bench(server, spark, given, Path(scratch))
        bench.run()
        spark.stop()
    if not given.smoke and set(given.only) == set(SECTIONS):
        report.write(bench.figures, {**facts, "rows": given.rows, "repetitions": given.repeat})
    return 1 if any(figure.met is False for figure in bench.figures if figure.section == "memory") else 0


if __name__ == "__main__":
    sys.exit(main())
